"""Word problems with one or two calculations, made from templates with numbers up to 20.

A template is a question and its calculations. `x` is the result of the first one, and the last one
gives the answer.
"""

import operator
import random
from collections.abc import Iterator

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
NAMES = [
    "Ali",
    "Ben",
    "Carla",
    "Dana",
    "Emil",
    "Fatima",
    "Grace",
    "Hugo",
    "Ines",
    "Jon",
    "Kim",
    "Lena",
    "Mia",
    "Tom",
]
ITEMS = [
    "apples",
    "books",
    "cards",
    "coins",
    "eggs",
    "marbles",
    "pens",
    "shells",
    "stamps",
    "stickers",
]
LARGEST = 60  # of a result: this model cannot multiply larger numbers

TRAINED = [
    ("{name} has {a} {items} and buys {b} more. How many {items} does {name} have now?", "a + b"),
    ("{name} has {a} {items} and gives {b} of them to {other}. How many {items} are left?", "a - b"),
    ("A box holds {a} {items}. How many {items} are in {b} boxes?", "a * b"),
    ("{name} shares {a} {items} equally among {b} friends. How many {items} does each friend get?", "a / b"),
    ("{name} found {a} {items} and {other} found {b} more than {name}. How many did they find together?",
     "a + b", "a + x"),
    ("{name} buys {a} bags with {b} {items} in each, and gives {c} {items} away. How many {items} are left?",
     "a * b", "x - c"),
    ("There are {a} {items} on one table and {b} on another. {name} takes {c} of them. How many {items} remain?",
     "a + b", "x - c"),
    ("A notebook costs ${a} and a ruler costs ${b}. {name} buys {c} notebooks and one ruler. How many dollars is that?",
     "a * c", "x + b"),
    ("{name} earns ${a} an hour and works {b} hours. Then {name} spends ${c}. How many dollars are left?",
     "a * b", "x - c"),
    ("{name} reads {a} pages on Monday and twice as many on Tuesday. How many pages does {name} read in all?",
     "a * 2", "a + x"),
    ("{name} is {a} years old. {other} is {b} years older. How old will {other} be in {c} years?", "a + b", "x + c"),
    ("A bus has {a} passengers. At a stop {b} get off and {c} get on. How many passengers are on the bus now?",
     "a - b", "x + c"),
    ("{name} has ${a}. A ticket costs ${b} and a drink costs ${c}. How many dollars remain after buying one of each?",
     "b + c", "a - x"),
    ("{name} packs {a} {items} and {b} more into {c} boxes, the same number in each. How many are in one box?",
     "a + b", "x / c"),
    ("A garden has {a} rows of {b} plants. {c} plants die. How many plants are alive?", "a * b", "x - c"),
    ("{name} runs {a} miles each day for {b} days and {c} miles on the next day. How many miles is that in total?",
     "a * b", "x + c"),
]  # fmt: skip
NEW = [
    ("A farmer collects {a} eggs in the morning and {b} in the evening. {c} of them break. How many can be sold?",
     "a + b", "x - c"),
    ("Tickets cost ${a} each. {name} buys {b} of them and pays with ${c} more than needed. How many dollars does "
     "{name} hand over?", "a * b", "x + c"),
    ("{name} had some {items}. After giving away {a}, {name} has {b} left. How many were there at first?", "a + b"),
    ("A class of {a} children and {b} adults is split into {c} equal teams. How many people are in each team?",
     "a + b", "x / c"),
]  # fmt: skip


def word_problems(templates: list[tuple[str, ...]], seed: int) -> Iterator[dict[str, str]]:
    """Draw problems without end, with `question` and `answer` as GSM8K has them."""
    rng = random.Random(seed)
    while True:
        question, *steps = rng.choice(templates)
        values = {name: rng.randint(2, 20) for name in "abc"}
        lines = []
        for step in steps:
            left, sign, right = step.split()
            first, second = (
                values[word] if word in values else int(word) for word in (left, right)
            )
            values["x"] = OPERATORS[sign](first, second)
            lines.append(f"{first} {sign} {second} = {values['x']}")
            if not 0 < values["x"] <= LARGEST or (sign == "/" and first % second):
                break  # not a number of things: draw again
        else:
            name, other = rng.sample(NAMES, 2)
            words = {"name": name, "other": other, "items": rng.choice(ITEMS)}
            answer = "\n".join([*lines, f"#### {values['x']}"])
            yield {"question": question.format(**words, **values), "answer": answer}
