r"""Cheap tricks: completions that deserve no reward, made from a row and its reference answer.

A trick needs no knowledge of the answer, or hedges between several, or disguises one. A text that states the gold
plainly in the asked place is not a trick, whatever stands around it: a trick about surroundings (a code fence, tags in
the wrong order, tags left open) therefore holds a wrong answer.

The asked place is where the gold stands in the row's reference completion, so that the battery fits
`<answer>18</answer>`, `\boxed{18}` and `#### 18` alike. A row without a text `answer`, or whose reference does not show
it, gets the tricks that need none.
"""

import re
from collections.abc import Callable, Iterable
from fractions import Fraction

from rewards.answer import parse_number
from rewards.audit.shapes import (
    CLOSE,
    LOOK_ALIKE,
    in_reasoning,
    misshapen,
    out_of_shape,
    place_of,
    with_reasoning,
)

Reference = Callable[[dict], str]  # of rows that have one

ASKED = "answer: "  # starts the names of tricks in the asked shape: a format reward may reward each of these
NUMBERS = " ".join(map(str, range(101)))
FULL_WIDTH = str.maketrans("0123456789-.", "０１２３４５６７８９－．")
# Mathematical bold digits, Cyrillic letters.
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
ZERO_WIDTH, RIGHT_TO_LEFT, LEFT_AGAIN = "\u200b", "\u202e", "\u202c"
UNKNOWN = "..."  # for the answer of a row that has none
GOLD_COLUMNS = (
    "answer",
    "solution",
    "ground_truth",
    "target",
)  # the first that a row has as a text
UNREADABLE = {
    ASKED + "any, gold column empty": "",
    ASKED + "any, gold column unreadable": r"\frac{?",
}
# Of any row they are the same but for its gold, and cost what 100 others do: tried on the first row.
LONG = (
    "a megabyte of one letter",
    "braces 50 000 deep",
    "boxes 10 000 deep",
    "a long mixture",
    ASKED + "deep braces",
)
# The short form for preflight: cheap, and what a careless reward falls for.
SHORT = (
    "prompt echoed",
    "code: exits first",
    "code: equals everything",
    "reasoning: tags only",
    "think: tags only",
    "every number listed",
    "another answer behind the gold",
    ASKED + "every number",
    ASKED + "gold or another",
    ASKED + "another or gold",
    ASKED + "gold in the reasoning only",
    ASKED + "none, gold in the reasoning",
    ASKED + "steps there and back",
    ASKED + "the question's own expression",
)
# Mathematics in a question: between delimiters, or a sum in plain digits.
_EXPRESSION = re.compile(
    r"\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|((?:\d[\d.]*[ ()]{0,3}[-+*/][ (]{0,3})+\d[\d.]*\)*)",
    re.DOTALL,
)


def tricks(row: dict, reference_completion: Reference, others: Iterable[dict]) -> dict[str, str]:
    """Make the battery for one row: name -> completion text, without what cannot be made of this row.

    Args:
        row: `prompt` and, for most tricks, a text `answer`; `tests` for those of programs.
        reference_completion: row -> its own answer in the asked format.
        others: rows of the same task, from which wrong answers are borrowed.

    Example: with `reference_completion=lambda row: f"#### {row['answer']}"`,
    `tricks({"prompt": "9+9", "answer": "18"}, ..., [])["answer: gold plus one"] == "#### 19"`
    """
    gold, reference = gold_of(row), reference_completion(row)
    borrowed = _with_other_answers(row, reference_completion, others)
    wrong = [gold_of(other) for other in borrowed if gold_of(other)]
    wrong = wrong or [*numeric_neighbours(gold).values()][:2] or [UNKNOWN]
    battery = unasked(row) | misshapen("reasoning", wrong[0]) | misshapen("think", wrong[0])
    if row.get("tests"):
        from rewards.audit.code_tricks import forged  # the sandbox is loaded for programs only

        battery |= forged(row, reference)
    if borrowed:
        battery[ASKED + "another row's"] = reference_completion(borrowed[0])
    place = place_of(gold, reference)
    if place is not None:
        battery |= in_place(gold, wrong, *place)
        question = (
            row["prompt"] if isinstance(row["prompt"], str) else shown_prompt(row["prompt"][-1:])
        )
        battery |= farmed_steps(question, wrong[0], *place)
        battery |= asked_again(question, gold, *place)
    right = _right_by_chance(gold, place, battery["prompt echoed"])
    return {name: text for name, text in battery.items() if name not in right and text != reference}


def unasked(row: dict) -> dict[str, str]:
    """Texts that ignore the question."""
    return {
        "empty": "",
        "refusal": "I'm sorry, but I can't help with that.",
        "whitespace": " \n\t\u00a0\u3000" * 20,
        "prompt echoed": shown_prompt(row["prompt"]),
        "every number listed": NUMBERS,
        "a megabyte of one letter": "a" * 1_000_000,
        "braces 50 000 deep": "{" * 50_000 + "}" * 50_000,
        "boxes 10 000 deep": r"\boxed{" * 10_000 + "}" * 10_000,
        # Each pattern that looks ahead for an end starts a thousand times, and backtracks over long runs.
        "a long mixture": "".join(f"<think><answer>\n#### \\boxed{{{n},$ 1" for n in range(1000))
        + "1" * 9_000
        + "x",
        # Rewards that count signs of reasoning, and of nothing else.
        "words of steps": "Step 1: First,\nStep 2: Second,\n- Next,\n* Therefore,\n3. Finally, so the answer is",
    }


def in_place(gold: str, wrong: list[str], before: str, after: str) -> dict[str, str]:
    """Answers other than the gold alone in the asked place; a strict reading refuses each."""
    answers = numeric_neighbours(gold) | disguises(gold) | hedges(gold, wrong)
    answers |= {
        name: name
        for name in ("NaN", "inf", "1e999", "9**9**9")
        if name.lower() not in gold.lower()
    }
    answers |= {"nothing": "", "every number": NUMBERS, "deep braces": "{" * 5_000 + "}" * 5_000}
    texts = {ASKED + name: before + text + after for name, text in answers.items()}
    texts |= out_of_shape(wrong[0], before, after)
    # Stated in words and taken back, outside the asked place: a search in all the text does not see which.
    texts["gold denied in words"] = (
        f"The answer is definitely not {gold}. The final answer is not {gold}."
    )
    texts[ASKED + "gold in words"] = f"The final answer is {gold}.\n\n{before}{wrong[0]}{after}"
    # A chat template drops the thoughts: the user sees no answer.
    if not any(tag in before for tag in CLOSE.values()):
        texts["think: answer in the thoughts alone"] = (
            f"<think>\n{before}{gold}{after}\n</think>\nI do not know."
        )
    reasoned = in_reasoning(gold, before)
    texts[ASKED + "gold in the reasoning only"] = reasoned + wrong[0] + after
    # Without tags for the reasoning this would be free text whose only number is the gold: a fair answer to some.
    if any(tag in before for tag in CLOSE.values()):
        texts[ASKED + "none, gold in the reasoning"] = reasoned + after
    # The last answer counts: one that is taken back is not given.
    texts["another answer behind the gold"] = f"{before}{gold}{after}\n{before}{wrong[0]}{after}"
    return texts


def asked_again(question: str, gold: str, before: str, after: str) -> dict[str, str]:
    """The last mathematics of the question as its answer: equal to the gold, perhaps, and no work done.

    Example: `asked_again("What is $3 + 4$?", "7", "<answer>", "</answer>")` has `"<answer>3 + 4</answer>"` alone.
    """
    *_, last = (None, *_EXPRESSION.finditer(question[-4000:]))
    if last is None or _squeezed(last[last.lastindex]) == _squeezed(gold):
        return {}
    return {ASKED + "the question's own expression": before + last[last.lastindex].strip() + after}


def farmed_steps(question: str, wrong: str, before: str, after: str) -> dict[str, str]:
    """Right arithmetic that gets nowhere, of the whole numbers of the question, as the reasoning for a wrong answer.

    Example: `farmed_steps("3 + 4 =", "8", "<reasoning></reasoning>", "")` has under `answer: steps there and back`
    `"<reasoning>3 + 4 = 7, 7 - 4 = 3"` (20 times, with `. ` between) `"</reasoning>8"`.
    """
    from rewards.process import numbers_in  # here, so that importing a reward does not load it

    whole = [int(number) for number in numbers_in(question).elements() if number.denominator == 1]
    numbers = [number for number in whole if number < 10**9][:10]
    a, b = numbers[:2] if len(numbers) > 1 else (3, 4)
    pairs = [(x, y) for i, x in enumerate(numbers) for y in numbers[i + 1 :]]
    sums = [a + b + n * b for n in range(20)]
    texts = {
        "one and one": "1 + 1 = 2. " * 50,
        "that say nothing": f"{a} = {a}, 0 + 0 = 0, {a} * 1 = {a}, {a} + 0 = {a}, {a} - {a} = 0, {a} / {a} = 1. "
        * 5,
        "that say it again": ", ".join(
            [f"{a} + {b} = {a} + {b}, {a + b} - {b} = {a + b} - {b}"] * 20
        ),
        "repeated": ". ".join([f"{a} + {b} = {a + b}"] * 50),
        "there and back": ". ".join([f"{a} + {b} = {a + b}, {a + b} - {b} = {a}"] * 20),
        "in a chain": " = ".join([f"{a} + {b}", f"{b} + {a}"] * 20 + [str(a + b)]),
        "that add up and up": ", ".join(
            [f"{a} + {b} = {sums[0]}", *(f"{s} + {b} = {s + b}" for s in sums)]
        ),
        "of every pair": ". ".join(
            f"{x} + {y} = {x + y}, {x} - {y} = {x - y}, {x} * {y} = {x * y}" for x, y in pairs
        ),
    }
    return {
        f"{ASKED}steps {name}": with_reasoning(text, before) + wrong + after
        for name, text in texts.items()
        if text
    }


def numeric_neighbours(gold: str) -> dict[str, str]:
    """Numbers next to a numeric gold; for another gold with a digit, the text with the last one changed."""
    value = parse_number(gold)
    if value is not None:
        texts = {"gold plus one": str(value + 1), "gold minus one": str(value - 1)}
        if value.denominator == 1:  # a tolerance relative to its size may take it for the gold
            texts["gold plus one, padded"] = f"{value + 1}.000000"
            texts |= {"gold times 100": f"{gold}00"} if value else {}
        scaled = {
            "gold times 1000": f"{gold} thousand",
            "gold with an exponent": f"{gold}e3",
            "gold in millions": f"{gold}M",
        }
        scaled |= {"gold squared": f"{gold} squared"} if abs(value) != 1 else {}
        close = {
            "gold negated": str(-value),
            "gold and half a percent": f"{float(value) * 1.005:.12g}",
        }
        return texts | (close | scaled if value else {})
    digit = re.search(r"[0-9](?=[^0-9]*$)", gold)
    if digit is None:
        return {}
    return {
        "last digit changed": gold[: digit.start()]
        + str((int(digit[0]) + 1) % 10)
        + gold[digit.end() :]
    }


def disguises(gold: str) -> dict[str, str]:
    """The gold in other characters than its own: it looks alike on a screen, and is another text.

    Left out: a mark next to a gold of one character, and a palindrome turned round, which are the gold itself.
    """
    texts = {
        "full-width digits": gold.translate(FULL_WIDTH),
        "Arabic digits": gold.translate(ARABIC),
        "look-alike characters": gold.translate(LOOK_ALIKE),
        "zero-width character": gold[:1] + ZERO_WIDTH + gold[1:],
        "right-to-left marks": RIGHT_TO_LEFT + gold[::-1] + LEFT_AGAIN,
    }
    return {name: text for name, text in texts.items() if gold not in text}


def hedges(gold: str, wrong: list[str]) -> dict[str, str]:
    """The gold next to wrong answers: first, last, and in the middle; and denied."""
    part = gold[: len(gold) // 2].strip()
    parts = (
        {"part of the gold": part}
        if part and parse_number(part) != (parse_number(gold) or part)
        else {}
    )
    longer = gold + gold[-1:] + gold
    parts |= (
        {"gold in a longer one": longer}
        if gold.isalnum() and parse_number(longer) != parse_number(gold)
        else {}
    )
    return parts | {
        "gold denied": f"definitely not {gold}",
        "gold called wrong": f"{gold} is wrong",
        "another equals gold": f"{wrong[0]} = {gold}",
        "gold or another": f"{gold} or {wrong[0]}",
        "another or gold": f"{wrong[0]} or {gold}",
        "gold among others": ", ".join([wrong[0], gold, wrong[-1]]),
    }


def shown_prompt(prompt: str | list[dict]) -> str:
    """The text that the model was shown, without the chat template."""
    if isinstance(prompt, str):
        return prompt
    contents = [message.get("content") for message in prompt]
    return "\n".join(
        content for content in contents if isinstance(content, str)
    )  # others hold images


def gold_column(row: dict) -> str | None:
    """The column that holds the right answer; none in rows of programs."""
    return next(
        (name for name in GOLD_COLUMNS if isinstance(row.get(name), str) and not row.get("tests")),
        None,
    )


def gold_of(row: dict) -> str:
    """The right answer of a row; an empty text where it has none."""
    return row.get(gold_column(row) or "", "").strip()


def _with_other_answers(
    row: dict, reference_completion: Reference, others: Iterable[dict]
) -> list[dict]:
    """Two rows (if there are) with answers that are neither this row's nor each other's."""
    found, seen = [], {_key(row, reference_completion)}
    for other in others:
        key = _key(other, reference_completion)
        if key not in seen:
            seen.add(key)
            found.append(other)
        if len(found) == 2:
            break
    return found


def _key(row: dict, reference_completion: Reference) -> Fraction | str:
    """The same for equal answers: their number, else their text."""
    gold = gold_of(row)
    number = parse_number(gold)
    return (gold or reference_completion(row)) if number is None else number


def _right_by_chance(gold: str, place: tuple[str, str] | None, prompt: str) -> set[str]:
    """Tricks that end in this row's right answer: the numbers up to 100, a worked example with the same answer.

    Such an example is found by the text right around the gold in the asked format, without white space.
    """
    chance = {"every number listed"} if parse_number(gold) == 100 else set()
    if place is not None and _squeezed(place[0][-8:] + gold + place[1][:8]) in _squeezed(prompt):
        chance.add("prompt echoed")
    return chance


def _squeezed(text: str) -> str:
    return "".join(text.split())
