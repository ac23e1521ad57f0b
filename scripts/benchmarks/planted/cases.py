"""Rows for rewards with planted bugs and for right ones, and the two decorators that list them.

A scorer of one completion becomes a reward under TRL's contract; what it is listed with says which rows and which
reference it is audited on. The docstring of a bug says where the mistake was seen, and what it is: a repository on
GitHub with a file, a commit or an issue. Short names: verl is volcengine/verl, its files those of
verl/utils/reward_score; open-r1 huggingface/open-r1 src/open_r1/rewards.py@0056faa; open-instruct
allenai/open-instruct open_instruct/ground_truth_utils.py@0039262; TRL is 1.16, its files those of trl/rewards;
prime-rl PrimeIntellect-ai/prime-rl; the notebooks are those of unslothai/notebooks@1fc73f2,
Llama3.1_(8B)-GRPO.py and Advanced_Llama3_2_(3B)_GRPO_LoRA.py.
"""

import functools
import json
from collections.abc import Callable
from typing import NamedTuple


class Case(NamedTuple):
    """A reward to be audited."""

    module: str
    name: str
    rows: str
    reference: str
    kind: str


BUGS: list[Case] = []
RIGHT: list[Case] = []


def _chat(question: str, **columns: object) -> dict:
    return {"prompt": [{"role": "user", "content": question}], **columns}


def _options(question: str, *options: str) -> str:
    return (
        question
        + "\n"
        + "\n".join(f"{letter}) {text}" for letter, text in zip("ABCD", options, strict=True))
    )


ROWS = {
    "numbers": [
        _chat("Ducks lay 16 eggs; Janet eats 3, bakes with 4 and sells the rest at 2 dollars. How much?", answer="18"),
        _chat("A robe takes 2 bolts of blue fibre and half that much white. How many for 2 robes and one?", answer="7"),
        _chat("What is 17 - 22?", answer="-5"),
        _chat("One hen lays 5 eggs a week. How many eggs do 50 hens lay in a week?", answer="250"),
        _chat("A cake is cut in 8 pieces and 4 are eaten. Which part is left, as a decimal?", answer="0.5"),
        _chat("Two boxes hold 32 apples each. How many apples are there?", answer="64"),
        _chat("A train makes 90 km an hour for 12 hours. How far does it go?", answer="1080"),
        _chat("What is $6 \\cdot 7$?", answer="42"),
    ],
    "latex": [
        _chat("What is half of one, as a fraction in LaTeX?", answer=r"\frac{1}{2}"),
        _chat("Expand $(x+1)^2$.", answer="x^2+2x+1"),
        _chat("What is the diagonal of a square of side $3$?", answer=r"3\sqrt{2}"),
        _chat("What is $12 \\cdot 12$?", answer="144"),
        _chat("Which point is $2$ to the right of the origin and $3$ above it?", answer="(2,3)"),
        _chat("What is the area of a circle of radius $5$?", answer=r"25\pi"),
    ],
    "words": [
        _chat("Which bird is white, large, and lives on lakes?", answer="swan"),
        _chat("What is the capital of France?", answer="Paris"),
        _chat("Which gas do fires need?", answer="oxygen"),
        _chat("Which river runs through Cairo?", answer="the Nile"),
        _chat("Zoe says that Max always lies, and she is right. What is Zoe, a knight or a knave?", answer="knight"),
        _chat("Max says that he and Zoe both lie. What is Max, a knight or a knave?", answer="knave"),
    ],
    "choices": [
        _chat(_options("How many legs does a spider have?", "4", "6", "8", "10"), answer="C"),
        _chat(_options("Which is a prime number?", "7", "8", "9", "10"), answer="A"),
        _chat(_options("Which is not a fruit?", "pear", "apple", "plum", "carrot"), answer="D"),
        _chat(_options("Which metal is liquid?", "iron", "mercury", "gold", "zinc"), answer="B"),
    ],
    "programs": [
        _chat(
            f"Write a function times{n}(x) that returns {n} times x.",
            tests=[f"assert times{n}({x}) == {n * x}" for x in (2, 3, -1)],
            solution=f"def times{n}(x):\n    return {n} * x",
        )
        for n in (2, 3, 5, 7)
    ],
    "scripts": [
        _chat(
            f"Read a whole number and print it, then on the next line {n} times it.",
            tests=[json.dumps({"stdin": f"{x}\n", "stdout": f"{x}\n{n * x}\n"}) for x in (2, 3)],
            solution=f"x = int(input())\nprint(x)\nprint({n} * x)",
        )
        for n in (2, 3, 5)
    ],
}  # fmt: skip
TAGGED = "<answer>{answer}</answer>"
THOUGHT = "<think>\nLet us see.\n</think>\n<answer>\n{answer}\n</answer>"
XML = "<reasoning>\nLet us see.\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
HASHED = "We add them up.\n#### {answer}"
BOXED = r"So the answer is $\boxed{{answer}}$."
SOLUTION = "<start_working_out>Let us see.<end_working_out><SOLUTION>{answer}</SOLUTION>"
STATED = "The final answer is {answer}."
PROGRAM = "```python\n{solution}\n```"


def text_of(completion: str | list[dict]) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def pointwise(scorer: Callable, column: str = "answer") -> Callable:
    """A reward under TRL's contract that scores each completion by `scorer(text, value of the column)`."""

    def reward(completions, **kwargs):
        return [
            scorer(text_of(c), value) for c, value in zip(completions, kwargs[column], strict=True)
        ]

    reward.__name__, reward.__module__ = scorer.__name__, scorer.__module__
    return reward


def listed(
    cases: list[Case], rows: str = "numbers", reference: str = TAGGED, kind: str = "verifier"
) -> Callable:
    """List the function as a reward; one that takes a completion or several by these names is a reward already."""

    def add(function: Callable) -> Callable:
        cases.append(Case(function.__module__, function.__name__, rows, reference, kind))
        names = function.__code__.co_varnames
        column = "answer" if "answer" in ROWS[rows][0] else "tests"
        return (
            function
            if {"completions", "completion", "solution_str"} & set(names)
            else pointwise(function, column)
        )

    return add


planted, right = functools.partial(listed, BUGS), functools.partial(listed, RIGHT)
