"""Right rewards in the shapes that the buggy ones have: no audit should find anything wrong with them."""

import functools
import re
from fractions import Fraction

from scripts.benchmarks.planted.cases import (
    BOXED,
    HASHED,
    PROGRAM,
    SOLUTION,
    STATED,
    THOUGHT,
    XML,
    right,
    text_of,
)
from scripts.benchmarks.planted.verifiers import boxed, spoken, tagged

PLAIN = re.compile(r"-?\d+(?:\.\d+)?")


def value(text: str | None) -> Fraction | None:
    plain = (text or "").strip().replace(",", "")
    return (
        Fraction(plain) if len(plain) < 40 and PLAIN.fullmatch(plain) and plain.isascii() else None
    )


@right()
def last_tag(text, gold):
    return float(bool(gold) and tagged(text) == gold)


@right()
def number_in_tag(text, gold):
    return float(value(tagged(text)) is not None and value(tagged(text)) == value(gold))


@right(reference=HASHED)
def last_hashes(text, gold):
    lines = [line for line in spoken(text).splitlines() if line.startswith("####")]
    return float(
        bool(lines) and value(lines[-1][4:]) is not None and value(lines[-1][4:]) == value(gold)
    )


@right("latex", BOXED)
def last_box(text, gold):
    answer = boxed(text)
    return float(
        bool(answer)
        and re.search(r"\w", gold) is not None
        and answer.replace(" ", "") == gold.replace(" ", "")
    )


@right(reference=BOXED)
def number_in_box(text, gold):
    answer = value(boxed(text))
    return None if value(gold) is None else float(answer == value(gold))


@right("words")
def word_in_tag(text, gold):
    def plain(words):
        return " ".join(re.sub(r"\bthe\b", " ", words.lower()).split())

    return float(bool(gold) and plain(tagged(text) or "") == plain(gold))


@right("choices", BOXED)
def letter_in_box(text, gold):
    return float(re.fullmatch("[A-D]", boxed(text) or "") is not None and boxed(text) == gold)


@right(reference=SOLUTION)
def number_in_solution(text, gold):
    found = re.findall(r"<SOLUTION>([^<]*)</SOLUTION>", spoken(text))
    return (
        0.0
        if not found
        else 3.0
        if value(found[-1]) is not None and value(found[-1]) == value(gold)
        else -1.0
    )


@right(reference=STATED)
def stated_number(text, gold):
    found = re.findall(r"^The final answer is (\S+)\.\s*$", spoken(text), re.MULTILINE)
    return float(bool(found) and value(found[-1]) is not None and value(found[-1]) == value(gold))


@right(reference=THOUGHT, kind="format")
def think_shape(text, gold):
    parts = re.fullmatch(r"<think>\n([^<>]*)\n</think>\n<answer>\n([^<>]*)\n</answer>\s*", text)
    return float(parts is not None and bool(parts[1].strip()))


@right(reference=XML, kind="format")
def xml_shape(text, gold):
    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    once = all(text.count(tag) == 1 for tag in tags)
    shape = r"\s*<reasoning>\s*\S.*</reasoning>\s*<answer>.*</answer>\s*"
    return 0.5 * bool(once and re.fullmatch(shape, text, re.DOTALL))


@right(reference=SOLUTION, kind="format")
def solution_shape(text, gold):
    shape = r"<start_working_out>[^<>]+<end_working_out>\s*<SOLUTION>[^<>]*</SOLUTION>\s*"
    return 1.0 * bool(re.fullmatch(shape, text))


@right(reference=THOUGHT)
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """In verl's style."""
    is_right = tagged(solution_str) == ground_truth and bool(ground_truth)
    return {"score": 1.0 if is_right else -1.0, "acc": is_right}


@right()
def rubric(completion, answer, **kwargs):
    """In verifiers' style."""
    return float(bool(answer) and tagged(text_of(completion)) == answer)


@right(reference=XML)
async def later(completions, answer, **kwargs):
    return [
        float(bool(gold) and tagged(text_of(c)) == gold)
        for c, gold in zip(completions, answer, strict=True)
    ]


@right(kind="shaping")
def too_long(completions, **kwargs):
    return [-min(1.0, max(0, len(text_of(c)) - 2000) / 2000) for c in completions]


@functools.cache
def code_tests():
    from rewards import load_reward

    return load_reward("code_tests", all_or_nothing=True)


@right("programs", PROGRAM)
def in_the_sandbox(completions, tests, **kwargs):
    return code_tests()(completions=completions, tests=tests, **kwargs)


@right("scripts", PROGRAM)
def scripts_in_the_sandbox(completions, tests, **kwargs):
    return code_tests()(completions=completions, tests=tests, **kwargs)
