"""The rewards of a GRPO notebook that many copy, and open-r1's, as they behave: to be audited by name.

    python scripts/audit_rewards.py --reward scripts/benchmarks/planted/public.py:correctness --rows rows.jsonl \\
        --reference "$(printf '<reasoning>\\nLet us see.\\n</reasoning>\\n<answer>\\n{answer}\\n</answer>\\n')"

The notebook: willccbb's gist grpo_demo.py, as in unslothai/notebooks Llama3.1_(8B)-GRPO.py@1fc73f2. open-r1:
huggingface/open-r1 src/open_r1/rewards.py@0056faa.
"""

import re


def contents(completions):
    return [completion[0]["content"] for completion in completions]


def behind_the_last_tag(text):
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def correctness(completions, answer, **kwargs):
    return [
        2.0 * (behind_the_last_tag(t) == gold)
        for t, gold in zip(contents(completions), answer, strict=True)
    ]


def integer(completions, **kwargs):
    return [0.5 * behind_the_last_tag(text).isdigit() for text in contents(completions)]


def strict_format(completions, **kwargs):
    shape = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
    return [0.5 * bool(re.match(shape, text)) for text in contents(completions)]


def soft_format(completions, **kwargs):
    return [
        0.5 * bool(re.match(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", t))
        for t in contents(completions)
    ]


def xml_count(completions, **kwargs):
    def score(text):
        earned = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (
            text.count("\n</reasoning>\n") == 1
        )
        if text.count("\n<answer>\n") == 1:
            earned += 0.125 - 0.001 * len(
                text.rpartition("\n</answer>\n")[2] or text * ("\n</answer>\n" not in text)
            )
        if text.count("\n</answer>") == 1:
            earned += 0.125 - 0.001 * (len(text.partition("\n</answer>")[2]) - 1)
        return earned

    return [score(text) for text in contents(completions)]


def open_r1_accuracy(completions, solution, **kwargs):
    from math_verify import LatexExtractionConfig, parse, verify

    def score(text, gold):
        wanted = parse(gold, extraction_config=[LatexExtractionConfig()])
        if not wanted:
            return 1.0
        given = parse(text, extraction_config=[LatexExtractionConfig(boxed_match_priority=0)])
        return float(verify(wanted, given))

    return [score(text, gold) for text, gold in zip(contents(completions), solution, strict=True)]


def open_r1_format(completions, **kwargs):
    shape = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return [
        float(bool(re.match(shape, t, re.DOTALL | re.MULTILINE))) for t in contents(completions)
    ]


def open_r1_tag_count(completions, **kwargs):
    lines = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return [sum(0.25 for line in lines if text.count(line) == 1) for text in contents(completions)]


def open_r1_steps(completions, **kwargs):
    signs = r"Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,"
    return [min(1.0, len(re.findall(signs, text)) / 3) for text in contents(completions)]
