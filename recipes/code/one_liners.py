"""Generate tasks whose solution is a function of one line, for models too small for MBPP.

A template describes the returned value twice: in words, and as an expression of the argument. The
argument is `x` (a whole number), `s` (a word) or `xs` (a list of whole numbers). `{n}` is a number
that is drawn for each task.
"""

import random
import re
from collections.abc import Callable

TRAINED = [
    ("{n} more than x", "x + {n}"),
    ("x minus {n}", "x - {n}"),
    ("{n} times x", "x * {n}"),
    ("the remainder of x divided by {n}", "x % {n}"),
    ("the square of x, plus {n}", "x * x + {n}"),
    ("True if x is larger than {n}, else False", "x > {n}"),
    ("True if x is divisible by {n}, else False", "x % {n} == 0"),
    ("the larger one of x and {n}", "max(x, {n})"),
    ("the distance between x and {n}", "abs(x - {n})"),
    ("the sum of the list xs, plus {n}", "sum(xs) + {n}"),
    ("a list of the numbers of xs, each plus {n}", "[x + {n} for x in xs]"),
    ("a list of the numbers of xs that are larger than {n}", "[x for x in xs if x > {n}]"),
    ("how many numbers of xs are smaller than {n}", "sum(x < {n} for x in xs)"),
    ("True if {n} is in the list xs, else False", "{n} in xs"),
    ("the list xs with {n} appended", "xs + [{n}]"),
    ("the largest number of xs, times {n}", "max(xs) * {n}"),
    ("the string s repeated {n} times", "s * {n}"),
    ("the number of characters of s, plus {n}", "len(s) + {n}"),
    ("the first {n} characters of s", "s[:{n}]"),
    ("True if s has more than {n} characters, else False", "len(s) > {n}"),
]
NEW = [
    ("the smaller one of x and {n}", "min(x, {n})"),
    ("the smallest number of xs, minus {n}", "min(xs) - {n}"),
    ("a list of the numbers of xs, each times {n}", "[x * {n} for x in xs]"),
    ("the string s without its first {n} characters", "s[{n}:]"),
    ("True if x is smaller than {n}, else False", "x < {n}"),
]
FUNCTIONS = "answer compute convert f get process result solve transform work".split()
WORDS = "apple banana cloud delta engine forest garden hat island jungle kite lemonade".split()
TESTS = 6  # tests per task; the prompt shows the first


def one_liner_tasks(
    train: int, test: int, seed: int, held_out: Callable[[str], bool]
) -> dict[str, list[dict]]:
    """Generate so many distinct tasks for the splits `train` and `test`.

    All training tasks use TRAINED templates; half of the test tasks do, the others use NEW ones.
    `held_out` tells which expressions of TRAINED templates, such as `x + 3`, appear only in `test`.
    A task's name begins with `trained/` or `new/`.
    """
    rng = random.Random(seed)
    new = draw_tasks("new", NEW, test // 2, rng, lambda expression: True)
    old = draw_tasks("trained", TRAINED, test - len(new), rng, held_out)
    trained = draw_tasks("trained", TRAINED, train, rng, lambda text: not held_out(text))
    return {"train": trained, "test": old + new}


def draw_tasks(
    source: str, templates: list, count: int, rng: random.Random, accept: Callable[[str], bool]
) -> list[dict]:
    """Draw `count` distinct tasks whose expression is accepted; ValueError if there are fewer.

    `source` begins their names; `templates` are pairs such as `("{n} more than x", "x + {n}")`.
    """
    tasks: dict[str, dict] = {}  # name -> task: a task that is drawn again counts once
    for _ in range(200 * count):
        if len(tasks) == count:
            break
        words, expression = rng.choice(templates)
        number, function = rng.randint(2, 9), rng.choice(FUNCTIONS)
        words, expression = words.format(n=number), expression.format(n=number)
        if accept(expression):
            name = f"{source}/{function}: {expression}"
            tasks.setdefault(name, {"name": name, **make_task(function, words, expression, rng)})
    if len(tasks) < count:
        raise ValueError(
            f"the {source} templates give only {len(tasks)} of {count} distinct tasks: "
            "ask for fewer."
        )
    return list(tasks.values())


def make_task(function: str, words: str, expression: str, rng: random.Random) -> dict:
    """Make the prompt, the tests on random arguments, and the solution of one function.

    Example: the function "f", in words "3 more than x", as an expression "x + 3", is asked for by
    "Write a function f(x) that returns 3 more than x." and has tests such as "assert f(4) == 7".
    """
    argument = next(name for name in ("xs", "s", "x") if re.search(rf"\b{name}\b", expression))
    draw_input = {
        "s": lambda: rng.choice(WORDS),
        "x": lambda: rng.randint(-9, 30),
        "xs": lambda: [rng.randint(0, 12) for _ in range(rng.randint(3, 6))],
    }[argument]
    # eval is safe here: the expression comes from the tables above, never from a model.
    reference = eval(f"lambda {argument}: {expression}")
    inputs = [draw_input() for _ in range(TESTS)]
    tests = [f"assert {function}({value!r}) == {reference(value)!r}" for value in inputs]
    text = f"Write a function {function}({argument}) that returns {words}."
    return {
        "prompt": f"{text}\nYour code should pass this test:\n{tests[0]}",
        "tests": tests,
        "solution": f"def {function}({argument}):\n    return {expression}",
    }
