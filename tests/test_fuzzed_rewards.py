"""Generated hostile completions through every reward that reads text: no exception, no void, none
slow.
"""

import random
import time
from collections.abc import Iterator

import pytest

from rewards.loading import load_reward

PIECES = [
    r"\frac{", r"\boxed{", r"\sqrt[", r"\int_0^", r"\sum_{k=1}^{", r"\binom{", r"\sinh{", r"\text{",
    r"\begin{pmatrix}", r"\\", r"\left(", r"\right]", r"\pm", r"\cup", r"\approx", r"\le ", r"\{",
    r"\}",
    r"\pi", r"\sin ", r"\pmod", *"{}()[]|$^_&!=<,;:+-*/%.", "18", "0", "-5", "1e999",
    "10^{10^{10}}",
    "9**9**9", "2356!", "x", "y", "i", "e", "1,234", "0.333333", "1/0", "NaN", "<answer>",
    "</answer>",
    "<think>", "</think>", "<reasoning>", "####", "The answer is ", "not ", "or ", "is ", "**",
    "\x00",
    "\u200b", "\u202e", "\ud800", "１８", "𝟙", "½", "−", "é", "\n", "\t", " ", "Q:", "wait", "cm",
    "dozen",
]  # fmt: skip
PLACES = [
    "{}",
    r"\boxed{{{}}}",
    "<answer>{}</answer>",
    "#### {}",
    r"<think>a</think>\boxed{{{}}}",
]
GOLDS = ["18", r"\frac{1}{2}", "x^2+1", r"(1,\infty)", "x=5", r"\{1,2\}", "A", r"\text{east}"]
ENTRY = '{"dataset": "chain_sum", "parameters": {}, "question": "9 + 9 =", "answer": "18"}'
REWARDS = [
    ("gsm8k_correctness", {}),
    ("gsm8k_correctness", {"lenient": True}),
    ("gsm8k_harness", {}),
    ("boxed_math", {"prompt_expressions": "refuse"}),
    ("reasoning_gym", {}),
    ("xml_format", {}),
    ("think_answer_format", {}),
    ("equation_steps", {}),
    ("number_count", {}),
    ("prose", {}),
]


def hostile_text(rng: random.Random, characters: int) -> str:
    """Pieces in any order, some of them many times, in what a reward looks for."""
    pieces: list[str] = []
    left = characters
    while left > 0:
        times = 1 if rng.random() < 0.95 else rng.randint(1, max(1, min(left, 400)))
        pieces.append(rng.choice(PIECES) * times)
        left -= len(pieces[-1])
    return rng.choice(PLACES).format("".join(pieces)[:characters])


def failures(name: str, parameters: dict) -> Iterator[str]:
    """What goes wrong with a reward on 240 texts, one message a text."""
    reward, rng = load_reward(name, **parameters), random.Random(name)
    for _ in range(240):
        text = hostile_text(rng, int(10 ** rng.uniform(0, 3.3)))
        gold = rng.choice(GOLDS) if name == "boxed_math" else "18"
        started = time.thread_time()
        (amount,) = reward(prompts=["9 + 9 ="], completions=[text], answer=[gold], entry=[ENTRY])
        seconds = time.thread_time() - started
        if amount is None or seconds > 0.05:
            yield f"{name}: {amount} after {1000 * seconds:.0f} ms for {gold!r} {text[:300]!r}"


@pytest.mark.parametrize(("name", "parameters"), REWARDS)
def test_hostile_completions_cost_no_row_and_little_time(name, parameters):
    if found := list(failures(name, parameters)):
        found = list(failures(name, parameters))  # a busy machine is slow once
    assert found == []
