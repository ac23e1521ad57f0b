"""How often the right block is taken from raw answers with several, in the styles in which chat models write.

    python scripts/benchmarks/code_answers.py --mbpp mbpp.jsonl --tasks 30

Each style wraps the reference of a task (a right answer) and a program that returns None (a wrong one). An answer is
scored as by `code_tests`, and by the same programs cut out by the rule "the last complete Python block".
"""

import argparse
import json
import re
from pathlib import Path

WRONG = "def {name}(*arguments, **keywords):\n    return None"


def styles(code: str, name: str, tests: list[str], wrong: str) -> dict[str, list[str]]:
    """The paragraphs of the answer in every style; `wrong` is the program that is not meant where a style shows two."""
    call = tests[0].removeprefix("assert ").partition("==")[0].strip()
    lines, checks = code.split("\n"), "\n".join(tests)
    head = next(line for line in lines if re.match(rf"\s*def\s+{name}\b", line))
    program, draft, example = block(code), block(wrong), block(f"print({call})")
    main_block = block(f"if __name__ == '__main__':\n    result = {call}\n    print(result)")
    return {
        "one block": ["Here is the function:", program],
        "example of use, then its output": [
            program,
            "### Example usage",
            example,
            "Output:",
            block("42", ""),
        ],
        "tests in a block": [
            program,
            "You can check it:",
            block(f"{checks}\nprint('All tests passed')"),
        ],
        "tests first": ["The tests to pass are:", block(checks), "**Solution**", program],
        "shell around it": [
            block("pip install numpy", "bash"),
            program,
            block("python solution.py", "bash"),
        ],
        "a text block behind": [program, "Complexity:", block("Time: O(n)\nSpace: O(1)", "text")],
        "lines explained": [
            program,
            "**How it works**",
            "1. The last line:",
            block(lines[-1].strip()),
        ],
        "its head explained": [program, "1. **Signature**", block(head), "It takes the input."],
        "a second, fixed version": [
            draft,
            "Wait, that fails the first test. The fixed version:",
            program,
        ],
        "a draft in its thoughts": [
            "<think>",
            "First idea:",
            draft,
            "No.",
            "</think>",
            "Final:",
            program,
        ],
        "no language named": [block(code, ""), "Usage:", block(f">>> {call}", "")],
        "sections of Markdown": [
            "# Solution",
            "## Code",
            program,
            "## Usage",
            example,
            "## Notes",
            f"- `{name}`",
        ],
        "a main block": [program, main_block],
        "pseudocode first": [
            block("for each item:\n    update the result\nreturn it", ""),
            "In Python:",
            program,
        ],
    }


def block(code: str, language: str = "python") -> str:
    return f"```{language}\n{code}\n```"


def measure(mbpp: Path, tasks: int) -> None:
    from rewards.code_blocks import extract_program
    from rewards.code_tests import CodeTests

    rows = [json.loads(line) for line in mbpp.read_text().splitlines()]
    scorer, texts, labels, taken = CodeTests(all_or_nothing=True, timeout_s=10.0), [], [], []
    names = [re.search(r"assert\s+\(*(\w+)\(", row["test_list"][0]) for row in rows]
    named = [
        (row, name[1])
        for row, name in zip(rows, names, strict=True)
        if name and f"def {name[1]}(" in row["code"]
    ]
    for row, name in [(row, name) for row, name in named if not row["test_setup_code"]][:tasks]:
        right, wrong = row["code"].replace("\r\n", "\n"), WRONG.format(name=name)
        for code, other, is_right in ((right, wrong, True), (wrong, right, False)):
            for style, parts in styles(code.rstrip(), name, row["test_list"], other).items():
                texts.append("\n\n".join(parts))
                labels.append((style, is_right))
                taken.append({"tests": row["test_list"]})
    found = [result.share() == 1.0 for result in scorer.run(texts, taken)]
    last = [f"```python\n{extract_program(text)}\n```" for text in texts]
    before = [result.share() == 1.0 for result in scorer.run(last, taken)]
    print(f"{'style':34}{'right passed':>14}{'wrong passed':>14}{'by the last block':>20}")
    for style in [*dict(labels), None]:
        rows = [
            row
            for row in zip(labels, found, before, strict=True)
            if row[0][0] == style or style is None
        ]
        cells = [
            f"{sum(row[column] for row in rows if row[0][1] == is_right)}/{sum(row[0][1] == is_right for row in rows)}"
            for column, is_right in ((1, True), (1, False), (2, True))
        ]
        print(f"{style or 'all':34}{cells[0]:>14}{cells[1]:>14}{cells[2]:>20}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mbpp", type=Path, required=True, metavar="FILE")
    parser.add_argument(
        "--tasks",
        type=int,
        default=30,
        help="how many; each is answered right and wrong in 14 styles",
    )
    args = parser.parse_args()
    measure(args.mbpp, args.tasks)


if __name__ == "__main__":
    main()
