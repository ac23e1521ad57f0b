"""Generated hostile completions through every reward that reads text: no exception, no voided row, none slow."""

import random
import time
from collections.abc import Iterator

import pytest

from rewards.loading import load_reward
from rewards.rows import LogExtra

PIECES = [
    r"\frac{", r"\boxed{", r"\sqrt[", r"\int_0^", r"\sum_{k=1}^{", r"\binom{", r"\sinh{", r"\text{", r"\begin{pmatrix}",
    r"\\", r"\left(", r"\right]", r"\pm", r"\cup", r"\approx", r"\le ", r"\{", r"\}", r"\pi", r"\sin ", r"\pmod",
    "{", "}", "(", ")", "[", "]", "|", "$", "^", "_", "&", "!", "=", "<", ",", ";", ":", "+", "-", "*", "/", "%", ".",
    "18", "0", "-5", "1e999", "10^{10^{10}}", "9**9**9", "2356!", "x", "y", "i", "e", "1,234", "0.333333", "1/0", "NaN",
    "<answer>", "</answer>", "<think>", "</think>", "<reasoning>", "####", "The answer is ", "not ", "or ", "is ", "**",
    "\x00", "\u200b", "\u202e", "\ud800", "１８", "𝟙", "½", "−", "é", "\n", "\t", " ", "Q:", "wait", "cm", "dozen",
]  # fmt: skip
GOLDS = [
    "18",
    r"\frac{1}{2}",
    "x^2+1",
    r"(1,\infty)",
    "x=5",
    r"\{1,2\}",
    "A",
    r"\text{east}",
    r"\sin 2x",
]
REWARDS = {
    "gsm8k_correctness": {},
    "gsm8k_harness": {},
    "boxed_math": {"prompt_expressions": "refuse"},
    "xml_format": {},
    "think_answer_format": {},
    "equation_steps": {},
    "number_count": {},
    "prose": {},
}


def hostile_text(rng: random.Random, characters: int) -> str:
    """Pieces in any order, some of them many times, in what a reward looks for."""
    pieces: list[str] = []
    left = characters
    while left > 0:
        part = rng.choice(PIECES) * (
            1 if rng.random() < 0.95 else rng.randint(1, max(1, min(left, 400)))
        )
        pieces.append(part)
        left -= len(part)
    text = "".join(pieces)[:characters]
    return rng.choice(
        ["{}", r"\boxed{{{}}}", "<answer>{}</answer>", "#### {}", r"<think>a</think>\boxed{{{}}}"]
    ).format(text)


def failures(name: str, texts: list[str], golds: list[str], **parameters) -> Iterator[str]:
    """What goes wrong with a reward on these texts, one message a text."""
    reward = load_reward(name, **parameters)
    for text, gold in zip(texts, golds, strict=True):
        logged: dict[str, list] = {}
        log: LogExtra = logged.__setitem__
        started = time.thread_time()
        (amount,) = reward(prompts=["p"], completions=[text], answer=[gold], log_extra=log)
        seconds = time.thread_time() - started
        outcome = logged.get(f"outcome/{name}", [""])[0]
        if outcome.startswith("error") or (amount is None and outcome != "unparsed"):
            yield f"{name}: {outcome} {amount} for {gold!r} {text[:300]!r}"
        if seconds > 0.05 and len(text) < 20_000:
            yield f"{name}: {1000 * seconds:.0f} ms for {len(text)} characters {text[:300]!r}"


@pytest.mark.parametrize(
    ("name", "parameters"), [*REWARDS.items(), ("gsm8k_correctness", {"lenient": True})]
)
def test_hostile_completions_cost_no_row_and_little_time(name, parameters):
    rng = random.Random(name)
    texts = [hostile_text(rng, int(10 ** rng.uniform(0, 3.3))) for _ in range(240)]
    golds = ["18" if name.startswith("gsm8k") else rng.choice(GOLDS) for _ in texts]
    found = list(failures(name, texts, golds, **parameters))
    assert (
        found == [] or list(failures(name, texts, golds, **parameters)) == []
    )  # a busy machine is slow once
