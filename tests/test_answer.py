"""final_answer: the one number a free-form completion offers as its result, and is_final_answer against a gold."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.answer import MAX_CHARS, final_answer, is_final_answer

LABELS = Path(__file__).parents[1] / "scripts" / "benchmarks" / "labels" / "gsm8k_completions.jsonl"
ROWS = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]

MARKED = [
    "#### 18", "####18", "#### $18", "#### 18 eggs", "#### <18>", "#### 17\n#### 18", "9 * 2 = <<9*2=18>>18\n#### 18",
    "#### 9 * 2 = 18", r"\boxed{18}", r"\boxed{17} and then \boxed{18}", r"\boxed{\text{18 eggs}}",
    r"\boxed{18\text{ eggs}}", r"\boxed{18 \text{ m}^2}", r"\boxed{\$18}", r"\boxed{x = 18}", r"\boxed{{18}}",
    r"\boxed{18} and then \boxed{19", r"\boxed 18", "<answer>18</answer>",
    "<answer>\n$18.00\n</answer>", "<answer>She keeps 18 eggs.</answer>", r"<answer>\boxed{18}</answer>",
    "The answer is 18.", "The answer is $18.", "The answer is $18$.", r"The answer is \(18\).", "the answer is **18**",
    "The answer is 9 * 2 = 18.", "The answer is 18, because 20 - 2 = 18 and 3 is not used.",
    "So the final answer is: 18 eggs", "The correct answer should be 18",
    "The answer to the question of 16 eggs is 18.", "18 eggs is the answer. Her sister keeps 7.", "Answer: 18",
    "Answer: x = 18", "ANSWER: 18", "**Answer:** 18", "**Final Answer**\n\n18", "9 * 2 = 18\nA: 18",
]  # fmt: skip
UNMARKED = [
    "18", "**18**", "She had 20 eggs and keeps **18**, not 16.", "**She keeps 18 eggs in 3 boxes.**",
    "2 * 9 = 18 eggs left over for the 3 days.", "She keeps 18 eggs in 3 days.", "In 3 days she keeps 18 eggs.",
    "She makes $18 by selling 9 eggs at $2 each.", "She keeps 18 eggs (6 a day for 3 days, 6 x 3 = 18, 2 broken).",
    "It takes 18 boxes to pack 200 eggs and 30 jars.", "She keeps 18 eggs, her sister comes 3rd.",
    "1. 10 + 8 = 18\n2. Done.", "Step 1: 10 + 8 = 18\nStep 2: nothing more.",
    "She keeps 18 eggs.\n\nWould you like to try it with 24 eggs?", "She keeps 18 eggs. Note that 2 of them are small.",
    "She keeps 18 eggs.\n\nLet's verify: 18 + 2 = 20.", "She keeps 18 because 18 < 20.", "2x = 36, x = 18",
    "They lay 3 * 3 = 9 pairs, so she keeps 18 eggs in 3 boxes.", "36/2 = x or 18 = x",
    "She makes 18 = 9 * <<1*2=2>>2 a day.", r"\[ 9 \times 2 = 18 \text{ eggs} \]", "She comes home at 18:00.",
    "```python\nprint(9 * 2)\n```\n```output\n18\n```",
    "```python\nprint(9 * 2)\n```\n```output\n18.0\n```\nThere are 18 eggs in 3 boxes.",
    "There are 18.\n```python\nprint(9 * 3)\n```", "<think>The answer is 17.</think>It is 18.",
]  # fmt: skip
RUN_ON = [
    "\n\nQuestion: What is 3 + 4?\nAnswer: 7", "\n\nQ: Tom has 3 hats and buys 4.\nA: The answer is 7.",
    "\nHuman: What is 3 + 4? Assistant: \\boxed{7}", " User: And 3 + 4? Assistant: The answer is 7.",
    "\n\n### Instruction:\nAdd 3 and 4.\n\n### Response:\n#### 7", "<|im_end|>\n<|im_start|>assistant\n#### 7",
    "</s> 7", "\n\n**Problem 2:** 3 + 4\n#### 7",
    "\n\nTom has 3 hats and buys 4. How many has he?\nHe has 3 + 4 = 7. The answer is 7.",
]  # fmt: skip
NONE = [
    "The answer is 18. " + "word " * (MAX_CHARS // 5),
    "", "no number", "#### 17 18 19", "#### 18 or 19", "#### 18, 19", "#### 17-18", "The answer is 17 or 18.",
    "The answer is between 17 and 18.", "The answer is 17 boys and 18 girls.", r"\boxed{17, 18}", r"\boxed{17,18}",
    r"\boxed{17 \text{ or } 18}", r"\boxed{\sqrt{18}}", "<answer>17, 18</answer>", "She keeps 17 or 18.",
    " ".join(str(i) for i in range(101)), ", ".join(str(i) for i in range(101)), "The answer is 9 * 2",
    "She keeps 9 * 2", "9 * 2 =", "9**9**9", "The answer is 18 thousand.", "The answer is 18k", "It takes 1 1/2 dozen.",
    "1e999", "#### 1/0", r"\boxed{\frac{36}{2}}", "１８", "#### １８", "１8", "١٨", "18½", "How many are 18?",
    "```python\nprint(18)\n```",
]  # fmt: skip
SIGNS = [
    "is - 5", "is minus 5", "is \u22125", "is \u20135", "is \uff0d5", "is negative 5",
    "is -$5",
]  # fmt: skip
VALUES = [
    (r"\boxed{1{,}080}", 1080), (r"\boxed{1,\!080}", 1080), (r"\boxed{\$1,080}", 1080),
    ("The answer is $1,080.50.", Fraction(2161, 2)), ("It costs £1,080 in 2 rates.", 1080), ("It costs 1080€.", 1080),
    ("#### -3", -3), ("10 - 13 = -3", -3), ("10 - 13 = \u22123", -3), ("She makes -$3", -3), ("20 - 3", None),
    ("50% of them", 50), (r"\boxed{50\%}", 50), (r"\boxed{\frac{1}{2}}", Fraction(1, 2)),
    (r"is \boxed{-\frac{1}{2}}", Fraction(-1, 2)),
    (r"\boxed{3\frac{1}{2}}", Fraction(7, 2)), ("It takes 1 1/2 cups.", Fraction(3, 2)),
    ("She has .5 left.", Fraction(1, 2)), ("#### 18.00", 18),
    *((f"The answer {words}.", -5) for words in SIGNS),
    ("Let us see.\nQuestion: Tom has 3 hats and buys 4.\nAnswer: 3 + 4 = 7 hats", 7),  # a question at the start
]  # fmt: skip


NO_MARKERS = [
    # A line that ends like a heading opens no other problem.
    "P = 10\nWe add P and Q\n10 + 8 = 18", "P = 10\nThe first is 10. Input\n10 + 8 = 18",
    "P = 10\nThere are 14 in group Q\n10 + 8 = 18",
    "#### 1. Count\n10 + 8 = 18\n\n#### 2. Check\nAll done.\n\n**18**", "#### Step 1: count 3 boxes\nThere are 18.",
    "Answer: 20 eggs were bought by her.\nShe keeps 20 - 2 = 18.",  # opens the working
    "Steps:\n- 5 eggs\n- 13 eggs\nIn all 18.", "20 - 2 = 18", "Take 20 minus 2 = 18",  # bullets and operators
    "She has 3 eggs. " * 10_000 + "The answer is 18.",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKED)
def test_a_marker_is_read(text):
    assert final_answer(f"There were 20 eggs and 2 of them broke.\n{text}") == 18


@pytest.mark.parametrize("text", UNMARKED + NO_MARKERS)
def test_without_a_marker_the_conclusion_is_read(text):
    assert final_answer(text) == 18


@pytest.mark.parametrize("more", RUN_ON)
@pytest.mark.parametrize(
    "text", ["20 - 2 = 18. The answer is 18.", "20 - 2 = 18.\n#### 18", "It is \\boxed{18}."]
)
def test_another_problem_is_not_read(text, more):
    assert final_answer(text + more) == 18


@pytest.mark.parametrize("text", NONE)
def test_no_single_number_is_none(text):
    assert final_answer(text) is None


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_numbers_are_read_as_they_are_written(text, value):
    assert final_answer(text) == value


def test_the_last_of_several_markers_counts_whatever_its_kind():
    markers = [
        "#### {}",
        r"\boxed{{{}}}",
        "The answer is {}.",
        "Answer: {}",
        "A: {}",
        "<answer>{}</answer>",
    ]
    for first in markers:
        for last in markers:
            assert final_answer(f"1 + 2\n{first.format(17)}\n{last.format(18)}") == 18


@pytest.mark.parametrize(
    "check", ["Let me check: 20 - 17 = 3.", "To verify, 3 + 2 = 5.", "That is 3 more than 15."]
)
def test_a_marker_outlasts_a_later_bare_number(check):
    assert final_answer(f"The answer is 18. {check}") == 18


@pytest.mark.parametrize(
    "slip", ["Wait, I forgot 2 of them.", "Actually, that is wrong.", "Let me recalculate."]
)
def test_a_marker_that_is_taken_back_gives_way(slip):
    assert final_answer(f"The answer is 16. {slip} 16 + 2 = 18.") == 18
    assert (
        final_answer(f"The answer is 18. {slip} 15 + 2 = 17, and 1 more. Yes, that is correct.")
        == 18
    )


@pytest.mark.parametrize(
    "cue",
    ["The first answer is 3.", "Intermediate answer: 3", "If she had 5, the answer would be 3."],
)
def test_another_answer_is_not_the_answer(cue):
    assert final_answer(f"#### 18\n{cue}") == 18


DENIALS = [
    "The answer is definitely not {}.", "#### not {}", "Wrong answer: {}", "The answer isn't {}.", "{} is wrong.",
    "{} is not the answer.", "The answer is anything but {}.", "I doubt the answer is {}.",
    "The answer is {}, which is wrong.", "The answer is {}? No.", "The answer is at least {}.",
    r"\boxed{{\text{{not }}{}}}", r"\boxed{{{} \text{{ is wrong}}}}", r"\boxed{{\neq {}}}", "<answer>not {}</answer>",
    r"\boxed{{{}\text{{ or so}}}}", "It is {}, I guess.", "The answer is {} or more.", "Perhaps {}.", "#### {} roughly",
]  # fmt: skip


@pytest.mark.parametrize("words", DENIALS)
def test_a_number_that_is_denied_is_no_answer(words):
    assert final_answer(words.format(42)) is None
    assert final_answer("6 * 7 = 42. " + words.format(42)) is None


@pytest.mark.parametrize(
    "text",
    [
        "It is not 42. The answer is 18.", "The answer is 18, not 42.", "#### 18\nIt is not 42.",
        "She keeps 18 eggs, not 42.", "He did not sell 18 apples, so the answer is 18.",
        "Since 18 is not divisible by 4, the answer is 18.", "Don't forget the 2 broken eggs: 20 - 2 = 18",
    ],
)  # fmt: skip
def test_a_denial_takes_away_its_own_number_alone(text):
    assert final_answer(text) == 18


@pytest.mark.parametrize(
    "word", ["squared", "factorial", "hundredths", "tenths", "lakh", "crore", "million", "M", "k"]
)
def test_a_scale_behind_a_number_makes_it_another(word):
    assert final_answer(f"The answer is 18 {word}.") is None
    assert final_answer(f"#### 18 {word}") is None


@pytest.mark.parametrize(
    "unit", ["months", "third graders", "quarters", "square feet", "m", "x 2 = 36, no: 18"]
)
def test_a_unit_that_looks_like_a_scale_is_none(unit):
    assert final_answer(f"The answer is 18 {unit}".replace("18 x 2 = 36, no: ", "")) == 18


def test_an_answer_in_the_thoughts_alone_counts_only_where_asked():
    for text in (
        "<think>It is 18.</think>",
        "<think>The answer is 18.",
        "<think>It is 18.</think>I do not know.",
    ):
        assert (final_answer(text), final_answer(text, thoughts=True)) == (None, 18)
    assert final_answer("<think>It is 17.</think>It is 18.", thoughts=True) == 18


def test_listing_every_number_earns_at_most_the_last_of_them():
    for form in ("#### {}\n", r"\boxed{{{}}} ", "The answer is {}. ", "{}\n", "**{}** "):
        listed = "".join(form.format(i) for i in range(101))
        assert [gold for gold in range(101) if is_final_answer(listed, str(gold))] in ([100], [])


@pytest.mark.parametrize(
    ("text", "gold", "right"),
    [
        ("#### 1,080", "1080", True), ("#### 1080", "1,080", True), ("#### 1080.0", "1080", True),
        ("#### 0.5", "1/2", True), ("#### 1081", "1080", False), ("#### -1080", "1080", False),
        ("no number", "1080", False), ("no number", "none", False), ("#### 1080", "none", False),
    ],
)  # fmt: skip
def test_the_value_is_compared_with_the_gold(text, gold, right):
    assert is_final_answer(text, gold) is right


def test_it_agrees_with_the_labels():
    wrong = [
        row
        for row in ROWS
        if is_final_answer(row["completion"], row["gold_answer"]) is not row["label"]
    ]
    assert len(ROWS) >= 300
    assert 0.4 < sum(row["label"] for row in ROWS) / len(ROWS) < 0.6
    assert len(wrong) / len(ROWS) <= 0.005, [row["completion"] for row in wrong]


# Each is 100 000 characters on which a careless pattern takes quadratic time.
REPEATED = [
    "#### 1+", "\\boxed{1}", "\\frac{", "<<1", "```1\n", "\n\nHow many ", "Q", "nswer to ", "because ", "1 and ",
    "(1",
]  # fmt: skip
SPACED = [
    "1 Q", "Answer: 1 aaa", "**1", "1, ", "1\n\n", "If had had ", "#### ", "1 = ", "Since 1",
]  # fmt: skip


@pytest.mark.parametrize("text", [part * (100_000 // len(part)) for part in REPEATED], ids=REPEATED)
def test_repeated_text_takes_linear_time(text, seconds):
    assert seconds(lambda: final_answer(text)) < 0.05


@pytest.mark.parametrize("filler", [" ", "1", "a", "a ", "had ", "1 ", "\n"])
@pytest.mark.parametrize("start", SPACED)
def test_long_gaps_take_linear_time(start, filler, seconds):
    for length in (100_000, MAX_CHARS - 100):  # the longer one loses its start
        text = start + filler * (length // len(filler)) + "= x 1"
        assert seconds(lambda text=text: final_answer(text)) < 0.05


def test_hostile_text_takes_50_ms(hostile, seconds):
    assert seconds(lambda: final_answer(hostile)) < 0.05
    assert final_answer(f"#### 18\n{hostile[:1000]}") in (None, 18, final_answer(hostile[:1000]))


@settings(deadline=None)
@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_against_any_gold_is_right_or_not(text, gold):
    assert is_final_answer(text, gold) in (True, False)


PIECES = [
    "18", " ", "\n", "The answer is ", "So ", "Answer:", "A:", "Q:", "or", "wait", "####", "\\boxed{", "\\frac{", "{",
    "}", "=", "+", "-", "**", ".", ",", "?", "$", "(", ")", "```", "<<", ">>", "<answer>", "</answer>", "</think>",
]  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_mixture_of_markers_is_one_number_or_none(text):
    assert isinstance(final_answer(text), Fraction | None)
