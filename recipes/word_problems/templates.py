"""Word problems of one calculation, made from templates with numbers up to 20."""

import operator
import random
from collections.abc import Iterator

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
NAMES = ["Ali", "Ben", "Carla", "Dana", "Emil", "Fatima", "Grace", "Hugo", "Ines", "Jon", "Kim"]
NAMES += ["Lena", "Mia", "Tom"]
ITEMS = ["apples", "books", "cards", "coins", "eggs", "marbles", "pens", "shells", "stamps"]
LARGEST = 60  # of a result: this model cannot multiply larger numbers

# A question and its calculation.
TRAINED = [
    ("{name} has {a} {items} and buys {b} more. How many {items} does {name} have now?", "a + b"),
    (
        "{name} has {a} {items} and {other} has {b}. How many {items} do they have together?",
        "a + b",
    ),
    ("There are {a} {items} on one table and {b} on another. How many are there in all?", "a + b"),
    ("{name} reads {a} pages on Monday and {b} pages on Tuesday. How many pages is that?", "a + b"),
    ("{name} is {a} years old. {other} is {b} years older. How old is {other}?", "a + b"),
    ("{name} has {a} {items} and gives {b} of them to {other}. How many are left?", "a - b"),
    ("There were {a} {items} in a box, and {name} took {b} out. How many remain?", "a - b"),
    ("A bus has {a} passengers, and {b} get off. How many are still on the bus?", "a - b"),
    ("{name} has ${a} and spends ${b}. How many dollars are left?", "a - b"),
    ("A box holds {a} {items}. How many {items} are in {b} boxes?", "a * b"),
    ("{name} earns ${a} an hour and works {b} hours. How many dollars is that?", "a * b"),
    ("{name} shares {a} {items} equally among {b} friends. How many does each get?", "a / b"),
]
NEW = [
    (
        "A farmer collects {a} eggs in the morning and {b} in the evening. How many is that?",
        "a + b",
    ),
    ("{name} baked {a} cakes and sold {b} of them. How many cakes were not sold?", "a - b"),
    ("A ticket costs ${a}. How many dollars do {b} tickets cost?", "a * b"),
    ("{a} children form {b} equal teams. How many children are in each team?", "a / b"),
]


def word_problems(templates: list[tuple[str, str]], seed: int) -> Iterator[dict[str, str]]:
    """Draw problems without end: `question`, `calculation` as `12 + 5 = 17`, and `answer`."""
    rng = random.Random(seed)
    while True:
        question, calculation = rng.choice(templates)
        a, b = rng.randint(2, 20), rng.randint(2, 20)
        sign = calculation.split()[1]
        result = OPERATORS[sign](a, b)
        if not 0 < result <= LARGEST or (sign == "/" and a % b):
            continue  # not a number of things
        name, other = rng.sample(NAMES, 2)
        words = {"name": name, "other": other, "items": rng.choice(ITEMS), "a": a, "b": b}
        yield {
            "question": question.format(**words),
            "calculation": f"{a} {sign} {b} = {result}",
            "answer": str(result),
        }
