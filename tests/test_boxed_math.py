r"""boxed_math: the last \boxed{} against the gold; a gold that nobody can compare is no grade."""

import json
import re
from pathlib import Path

import pytest

from rewards import load_reward
from rewards.answer import last_box
from rewards.boxed_math import BoxedMath, gold_problem, is_equivalent

LABELS = Path(__file__).parents[1] / "scripts/benchmarks/labels/math_pairs.jsonl"
OTHERS = Path(__file__).parents[2] / "shared/data/math_pairs/pairs.jsonl"  # not of the project
AMOUNTS = [  # completion, gold, amount, of what the label files below do not have
    (r"So it is \boxed{18}.", "18", 1.0), (r"\boxed{3 × 10⁻⁸}", r"3 \cdot 10^{-8}", 1.0),
    (r"\boxed{28\%}", r"The final answer is $28 \%$. I hope it is correct.", 1.0),
    (r"\boxed{-2} and \boxed{1}", "1, -2", 1.0), (r"\boxed{17} or \boxed{18}", "18", 0.0),
    (r"$x=\boxed{3}$ or $x_2 = \boxed{5}$", "5, 3", 1.0), (r"\boxed{3} or $x=\boxed{5}$", "5", 0.0),
    (r"\boxed{3!\frac12!!}", "18", 0.0), (r"\boxed{17}<|im_end|>\boxed{18}", "18", 0.0),
    # Boxes with names are in the order of the names; in Chinese.
    (r"$a=\boxed{3}$, $b=\boxed{5}$", "3, 5", 1.0), (r"$a=\boxed{5}$, $b=\boxed{3}$", "3, 5", 0.0),
    (r"$x=\boxed{3}$ and $y=\boxed{5}$", "(3,5)", 1.0), (r"\boxed{3}或\boxed{5}", "5, 3", 1.0),
    (r"$x=\boxed{3}$, $y=\boxed{5}$", "5", 0.0), (r"\boxed{3}和\boxed{5}", "5", 0.0),
    # A sentence in the box states its answer.
    (r"\boxed{20 \text{ is } 18}", "18", 0.0), (r"\boxed{36/2 \text{ is } 18}", "18", 1.0),
    (r"\boxed{6 \text{ pens makes } 18}", "18", 1.0), (r"\boxed{18 \text{ or more}}", "18", 0.0),
    # A choice with its value, and one that is not alone or taken back.
    (r"\boxed{\textbf{(C)}\ 14}", "C", 1.0), (r"\boxed{\text{(C)} P(A)}", "C", 1.0),
    (r"\boxed{\text{(C)} \text{ or } \text{(D)}}", "C", 0.0), (r"\boxed{\text{A.}}", "A", 1.0),
    (r"\boxed{\text{(C)}, \text{(D)}}", "C", 0.0), (r"\boxed{\text{(C)}\text{ not}}", "C", 0.0),
    (r"\boxed{\text{(C)} \text{ is wrong}}", "C", 0.0), (r"\boxed{\text{(C) or (D)}}", "C", 0.0),
    (r"\boxed{\text{C. 14}}", "C", 1.0), (r"\boxed{(C) 14}", "14", 1.0),
    (r"\boxed{C. 1, D. 2}", "C", 0.0), (r"\boxed{C. 2 or D}", "C", 0.0),
    (r"\boxed{C. The sum is odd}", "C", 1.0), (r"\boxed{C: A}", "A", 0.0),
    (r"\boxed{\frac{B}{2}}", r"\textbf{(B)}\ \frac{1}{2}", 0.0),
    (r"\boxed{B}", r"\textbf{(B)}\ \frac{1}{2}", 1.0), (r"\boxed{14}", r"\textbf{(C) }14", 1.0),
    (r"\boxed{\text{(D) }14}", r"\textbf{(C) }14", 0.0), (r"\boxed{(A)+1}", "1", 0.0),
    # One sign more is another function, another letter, another base, or too many digits.
    (r"\boxed{f(x)=2x}", r"f^{-1}(x)=\frac{x}{2}", 0.0), (r"\boxed{y=2x'}", "y=2x", 0.0),
    (r"\boxed{101_b}", "101", 0.0), (r"\boxed{18" + "0" * 5000 + "}", "18", 0.0),
]  # fmt: skip


def score(text: str, gold: str | None, **parameters) -> float | None:
    (amount,) = BoxedMath(**parameters)(prompts=["p"], completions=[text], answer=[gold])
    return amount


@pytest.mark.parametrize(("text", "gold", "amount"), AMOUNTS)
def test_the_last_box_is_scored_by_its_value(text, gold, amount):
    assert score(text, gold) == amount


def test_a_wrong_answer_costs_the_penalty_and_an_unusable_gold_nothing():
    texts = [r"\boxed{18}", r"\boxed{17}", "18", r"\boxed{18}"]
    reward = load_reward("boxed_math", wrong=-0.5)
    scores = reward(prompts=["p"] * 4, completions=texts, answer=["18", "18", "18", ""])
    assert scores == [1.0, -0.5, -0.5, None]
    for wrong in (0.5, float("-inf"), float("nan")):
        with pytest.raises(ValueError, match="it must be 0, or below as a penalty"):
            BoxedMath(wrong=wrong)


@pytest.mark.parametrize(
    ("question", "box", "gold", "amount"),
    [
        ("What is $3 + 4$?", "3+4", "7", 0.0), ("25 + 7 =", "x = 25 + 7", "32", 0.0),
        (r"Compute $\dfrac{1}{2} \cdot 6$.", r"\frac{1}{2}\times 6", "3", 0.0),
        ("Write $0.5$ as a fraction.", "0.5", r"\frac{1}{2}", 0.0),
        # In other words than the question's, but still with work to do.
        ("25 + 7 =", "7 + 25", "32", 0.0), ("25 + 7 =", r"\frac{64}{2}", "32", 0.0),
        ("25 + 7 =", "2^5", "32", 0.0), ("25 + 7 =", "7~+~25", "32", 0.0),
        ("4 * 8 =", "8(4)", "32", 0.0), ("Halve 1.", r"1 - \frac12", "0.5", 0.0),
        # However the gold is written, and in each part of it.
        ("25 + 7 =", "7 + 25", "x = 32", 0.0), ("25 + 7 =", "7 + 25", r"So \boxed{32}", 0.0),
        ("25 + 7 =", r"x \in 7 + 25", "32", 0.0),
        ("Add 1 and 2 to (1, 2).", "(1+1, 2+2)", "(2, 4)", 0.0),
        # Worked out.
        ("Add 1 and 2 to (1, 2).", "(2.0, 4)", "(2, 4)", 1.0), ("25 + 7 =", "32", "x = 32", 1.0),
        ("Double x.", "x + x", "2x", 1.0), ("25 + 7 =", "25 + 7 = 32", "32", 1.0),
        ("Halve 1.", r"\frac12", "0.5", 1.0), ("Is it 18 or 19?", "18", "18", 1.0),
        ("Is it 3?", "x=5 or x=3", "x=5 or x=3", 1.0),
        ("Tom has 5 pens.", "5", "5.0", 1.0), ("(A) 1 (B) 2", "B", r"\text{(B)}", 1.0),
        ("7 - 25 =", "-18", "-18", 1.0), ("Write 32.5 in words, or 132", "32", "32.0", 1.0),
    ],
)  # fmt: skip
def test_work_left_undone_is_refused_where_asked(question, box, gold, amount):
    chat = [{"role": "system", "content": box}, {"role": "user", "content": question}]
    arguments = {"completions": [rf"\boxed{{{box}}}"] * 2, "answer": [gold] * 2}
    refusing = BoxedMath(prompt_expressions="refuse", wrong=-0.5)
    assert refusing(prompts=[chat, question], **arguments) == [amount or -0.5] * 2
    assert BoxedMath()(prompts=[chat, question], **arguments) == [1.0] * 2
    with pytest.raises(ValueError, match="allowed: score, refuse"):
        BoxedMath(prompt_expressions="no")


COMMAS = "Find all $x$, separated by commas."


@pytest.mark.parametrize(
    ("question", "box", "gold", "amount"),
    [
        # The question asks for values without an order, or for one.
        (COMMAS, "-2, 3, 1", "1, -2, 3", 1.0), (COMMAS, "-2, 3", "1, -2, 3", 0.0),
        (COMMAS, "(3,4), (1,2)", "(1,2), (3,4)", 1.0), (COMMAS, "(2,1)", "1,2", 0.0),
        (COMMAS + " List them in increasing order.", "3, -2", "-2, 3", 0.0),
        ("Find $a, b$.", "3, -2", "-2, 3", 0.0),
        # It names what an equation gives. A given or a false equation is no answer.
        ("Find $m + n$.", "m+n = 25+59 = 84", "84", 1.0), ("则 $a+b=$____", "a+b=12", "12", 1.0),
        (r"Find $\cos A$.", r"\cos A = \frac34", r"\frac34", 1.0),
        (r"求 $A\cap B$.", r"A \cap B = \{x|1\le x<5\}", "[1,5)", 1.0),
        (r"Find $A\cap B$.", r"A \cup B = \{1,2\}", r"\{1,2\}", 0.0),
        ("Let $x+y=12$ and $x-y=12$. Find $x$.", "x+y = 12", "12", 0.0),
        ("What is $3 + 4$?", "3 + 4 = 8", "8", 0.0), ("Find $m$.", "m+n = 12", "12", 0.0),
    ],
)  # fmt: skip
def test_a_question_says_what_is_asked_and_whether_the_order_counts(question, box, gold, amount):
    arguments = {"completions": [rf"\boxed{{{box}}}"], "answer": [gold]}
    assert BoxedMath()(prompts=[question], **arguments) == [amount]


NO_VALUE = [r"\begin{cases} x & x>0 \end{cases}", r"\int_0^1 f", "forty two", "5-7"]


@pytest.mark.parametrize("gold", [*NO_VALUE, "No such number can be found by anybody here"])
def test_a_gold_that_nobody_can_compare_is_graded_by_its_own_text_alone(gold):
    assert score(rf"\boxed{{{gold}}}", gold) == 1.0
    assert score(r"\boxed{42}", gold) is None


@pytest.mark.parametrize(
    ("gold", "problem"),
    [
        ("7/3x", "a/bx can mean (a/b)x or a/(bx)"), ("(1, 5!!)", "n!! can mean (n!)!"),
        (r"\int_0^1 f", r"\int is not read here"), (r"\frac10", "mathematics with a value"),
        ("No such number can be found by anybody", "at most 6 other words"), ("18", None),
        ("twelve", "use digits"), ("east", None),
        ("2024-01-05", "a date, a time or a range"), ("5-7", "a range"), ("555 - 1234", "a range"),
        ("1,00,000", "as 100000"), ("1.234,56 €", "as 1234.56"), ("1,000,000", None),
        ("1, 00, 000", None), ("12.5, 3", None), ("5-Mar", "a date"), ("#DIV/0!", "leave the row"),
        ("10:30", "a time"), ("3/4/2024", "a date"), ("3/4", None), ("-5", None), ("1:2", None),
        (r"\log 3", None), (r"\{1, x\}", None), ("x > 1", None), (r"(1, \oint f)", r"\oint is not"),
    ],
)  # fmt: skip
def test_it_is_said_why_a_gold_cannot_be_compared(gold, problem):
    assert gold_problem(gold) is None if problem is None else problem in gold_problem(gold)


@pytest.mark.parametrize("gold", ["", "{", "$$", r"\boxed{}", "?", "x" * 5000, None])
def test_an_unusable_gold_is_no_grade(gold):
    logged = {}
    texts = [r"\boxed{18}", r"\boxed{}", ""]
    arguments = {"prompts": texts, "completions": texts, "answer": [gold] * 3}
    assert BoxedMath()(**arguments, log_extra=logged.__setitem__) == [None] * 3
    assert logged["outcome/boxed_math"] == ["unparsed"] * 3
    assert logged["parsed/boxed_math"] == ["18", "", None]


@pytest.mark.parametrize(
    ("file", "least"),
    [
        (LABELS, 1.0),
        (LABELS.with_stem("math_pairs_later"), 0.984),
        pytest.param(OTHERS, 0.985, marks=pytest.mark.skipif(not OTHERS.is_file(), reason="none")),
    ],
)
def test_labels_are_met_without_a_false_positive(file, least):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if not row.get("contested")]
    verdicts = []
    for row in rows:
        text = row["prediction"]
        answer = last_box(text) or "" if re.search(r"boxed|fbox", text) else text
        verdicts.append((row["label"], is_equivalent(row["gold"], answer) is True))
    assert (False, True) not in verdicts
    assert sum(label is verdict for label, verdict in verdicts) >= least * len(rows)
