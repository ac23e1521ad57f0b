"""The parts of a row and its reference answer that the templates of the tricks name."""

import contextlib
import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from rewards.latex.number import number_of
from rewards.text import question_of

Reference = Callable[[dict], str]  # of rows that have one

NAMED = re.compile(r"\{(\w+)\}")
NUMBERS = " ".join(map(str, range(101)))
UNKNOWN = "..."  # for the answer of a row that has none
GOLD_COLUMNS = ("answer", "solution", "ground_truth", "target")  # the first that a row has as text
TAGS = ("reasoning", "think")  # for the reasoning before an answer
# The gold in other characters. Look-alikes are mathematical bold digits and Cyrillic letters.
LOOK_ALIKE = str.maketrans("0123456789aceiopxyABEHKMOPTX", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗асеіорхуАВЕНКМОРТХ")
SCRIPTS = {
    "full_width": str.maketrans("0123456789-.", "０１２３４５６７８９－．"),
    "arabic": str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"),
    "look_alike": LOOK_ALIKE,
}
ZERO_WIDTH, RIGHT_TO_LEFT, LEFT_AGAIN = "\u200b", "\u202e", "\u202c"
# Mathematics in a question: between delimiters, or a sum in plain digits.
_EXPRESSION = re.compile(
    r"\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]"
    r"|((?:\d[\d.]*[ ()]{0,3}[-+*/][ (]{0,3})+\d[\d.]*\)*)",
    re.DOTALL,
)


def fill(template: str, values: dict) -> str:
    r"""The template with values in place of their names in braces; a name without a value stays.

    Example: `fill(r"\boxed{{answer}}", {"answer": "18"}) == r"\boxed{18}"`
    """
    return NAMED.sub(lambda found: str(values.get(found[1], found[0])), template)


def parts_of(row: dict, reference_completion: Reference, others: Iterable[dict]) -> dict[str, str]:
    """The parts of the tricks for one row, without those that it cannot have.

    - every row: prompt, numbers, wrong and last_wrong (answers of other rows, or next to the gold)
    - a row with tests: the functions that they call, returning or exiting
    - a gold that the reference answer shows: what stands around it, other forms of it, the shape of
      the reference in disorder, and the reasoning before it
    """
    gold, reference = gold_of(row), reference_completion(row)
    neighbours, borrowed = _neighbours(gold), _other_answers(row, reference_completion, others)
    prompt = row["prompt"]
    turns = [prompt] if isinstance(prompt, str) else [[message] for message in prompt]
    near = [neighbours.get(name) for name in ("plus_one", "minus_one", "last_digit")]
    wrong = [*filter(None, map(gold_of, borrowed))] or [*filter(None, near)] or [UNKNOWN]
    parts = {
        "prompt": "\n".join(map(question_of, turns)),
        "wrong": wrong[0],
        "last_wrong": wrong[-1],
    }
    for tag in TAGS:
        text = f"<{tag}>r</{tag}><answer>{wrong[0]}</answer>"
        parts[f"look_alike_{tag}"] = text.translate(LOOK_ALIKE)
    if number_of(gold) != 100:  # the last of the numbers would be the right answer
        parts["numbers"] = NUMBERS
    if borrowed:
        parts["reference_of_another"] = reference_completion(borrowed[0])
    if row.get("tests"):
        parts |= _of_programs(row, reference)
    # The last place where the gold is a word of its own: no letter of a tag.
    places = list(re.finditer(rf"(?<!\w){re.escape(gold)}(?!\w)", reference)) if gold else []
    if not places:
        return parts
    before, after = reference[: places[-1].start()], reference[places[-1].end() :]
    parts |= {"gold": gold, "before": before, "after": after}
    parts |= neighbours | _disguises(gold) | _disorder(before, wrong[0], after)
    parts |= _of_reasoning(before, gold + after)
    parts |= _of_question(question_of(prompt), gold)
    # A worked example with the same answer, found by what stands right around the gold.
    if _squeezed(before[-8:] + gold + after[:8]) in _squeezed(parts["prompt"]):
        del parts["prompt"]
    return parts


def _neighbours(gold: str) -> dict[str, str]:
    """Numbers next to a numeric gold; of another, the text with its last digit changed."""
    value = number_of(gold)
    if value is None:
        digit = re.search(r"[0-9](?=[^0-9]*$)", gold)
        if digit is None:
            return {}
        changed = str((int(digit[0]) + 1) % 10)
        return {"last_digit": gold[: digit.start()] + changed + gold[digit.end() :]}
    parts = {"plus_one": str(value + 1), "minus_one": str(value - 1)}
    if value.denominator == 1:
        parts["padded"] = f"{value + 1}.000000"
    if value:
        parts |= {"number": gold, "negated": str(-value)}
        parts["half_a_percent"] = f"{float(value) * 1.005:.12g}"
    if value and value.denominator == 1:
        parts["whole"] = gold
    if value and abs(value) != 1:
        parts["not_one"] = gold
    return parts


def _disguises(gold: str) -> dict[str, str]:
    """The gold in other characters, a part of it, and a longer one.

    Left out is what is the gold itself: a mark behind a single character, a palindrome in reverse.
    """
    texts = {name: gold.translate(script) for name, script in SCRIPTS.items()}
    texts["zero_width"] = gold[:1] + ZERO_WIDTH + gold[1:]
    texts["right_to_left"] = RIGHT_TO_LEFT + gold[::-1] + LEFT_AGAIN
    parts = {name: text for name, text in texts.items() if gold not in text}
    part, longer = gold[: len(gold) // 2].strip(), gold + gold[-1:] + gold
    if part and number_of(part) != (number_of(gold) or part):
        parts["part"] = part
    if gold.isalnum() and number_of(longer) != number_of(gold):
        parts["longer"] = longer
    return parts


def _disorder(before: str, wrong: str, after: str) -> dict[str, str]:
    """A wrong answer in the reference's own tags: whole, in reverse, and with nothing in them."""
    whole, tags = f"{before}{wrong}{after}", re.findall(r"</?[A-Za-z_]+>", after)
    pieces = re.findall(r"\s*<[^<>]+>\s*|[^<]+?(?=\s*<|$)", whole)
    parts = {}
    if tags and whole.rstrip().endswith(tags[-1]):
        parts = {"shaped": whole.rstrip(), "last_tag": tags[-1]}
    if len(pieces) > 3:
        parts["reversed"] = "".join(pieces[::-1])
    if len(pieces) > 5:
        parts["emptied"] = "".join(piece for piece in pieces if "<" in piece)
    return parts


def _of_reasoning(before: str, answer: str) -> dict[str, str]:
    """What stands before the answer, cut where a line of reasoning can be added to it.

    Without tags around it the reasoning is a line in front of all. `said` and `rest` are the two
    halves of the whole; `tagged` is `said` where it is in tags, and `untagged` the whole where it
    is not.
    """
    opening, thought, closing = "", "", "\n" + before
    for tag in TAGS:
        head, close, tail = before.rpartition(f"</{tag}>")
        if close:
            start, mark, thought = head.rpartition(f"<{tag}>")
            opening, closing = start + mark, close + tail
            break
    reasoning = opening + thought
    said = reasoning.rstrip()
    parts = {"opening": opening, "closing": closing, "reasoning": reasoning}
    parts["said"] = f"{said}\n" if said else ""
    parts["rest"] = reasoning[len(said) :] + closing + answer
    if closing.startswith("</"):
        return parts | {"tagged": parts["said"], "closing_tag": closing}
    return parts | {"untagged": before + answer}


def _of_question(question: str, gold: str) -> dict[str, str]:
    """Numbers of the question for right arithmetic that gets nowhere, and its last mathematics.

    Example: `_of_question("What is $3 + 4$?", "7")` has a "3", b "4", expression "3 + 4".
    """
    from rewards.process import numbers_in  # here, so that importing a reward does not load it

    whole = [int(number) for number in numbers_in(question).elements() if number.denominator == 1]
    numbers = [number for number in whole if number < 10**9][:10]
    a, b = numbers[:2] if len(numbers) > 1 else (3, 4)
    sums = [f"{a + n * b} + {b} = {a + n * b + b}" for n in range(21)]
    pairs = [
        f"{x} + {y} = {x + y}, {x} - {y} = {x - y}, {x} * {y} = {x * y}"
        for i, x in enumerate(numbers)
        for y in numbers[i + 1 :]
    ]
    parts = {"a": str(a), "b": str(b), "sum": str(a + b), "sums": ", ".join(sums)}
    if pairs:
        parts["pairs"] = ". ".join(pairs)
    *_, last = (None, *_EXPRESSION.finditer(question[-4000:]))
    if last is not None and _squeezed(last[last.lastindex]) != _squeezed(gold):
        parts["expression"] = last[last.lastindex].strip()
    return parts


def _of_programs(row: dict, reference: str) -> dict[str, str]:
    """The functions that tests call: none where they are of stdin, or no reward can use them."""
    from rewards.code_blocks import extract_program  # the sandbox is loaded for programs only
    from rewards.code_tests import called_names, parse_cases

    names, cases = (), None
    with contextlib.suppress(ValueError):
        cases = parse_cases(row["tests"])
        names = called_names(row, row["tests"]) if cases is None else ()

    def defined(body: str) -> str:
        return "\n".join(f"def {name}(*a, **k): {body}" for name in names)

    parts = {
        "python": "```python",
        "returning_anything": defined("return Anything()"),
        "returning_none": defined("return None"),
        "exiting": defined("raise SystemExit(0)"),
    }
    if cases and all("\n" in output.strip() for _, output in cases):
        parts["printing"] = extract_program(reference) or ""
    return parts


def gold_column(row: dict) -> str | None:
    """The column that holds the right answer; none in rows of programs."""
    if row.get("tests"):
        return None
    return next((name for name in GOLD_COLUMNS if isinstance(row.get(name), str)), None)


def gold_of(row: dict) -> str:
    """The right answer of a row; an empty text where it has none."""
    return row.get(gold_column(row) or "", "").strip()


def _other_answers(
    row: dict, reference_completion: Reference, others: Iterable[dict]
) -> list[dict]:
    """Two rows (if there are) with answers that are neither this row's nor each other's."""

    def key(row: dict) -> Fraction | str:  # the same for equal answers
        number = number_of(gold_of(row))
        return (gold_of(row) or reference_completion(row)) if number is None else number

    found = {key(row): row}
    for other in others:
        found.setdefault(key(other), other)
        if len(found) == 3:
            break
    return list(found.values())[1:]


def _squeezed(text: str) -> str:
    return "".join(text.split())
