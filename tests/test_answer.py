"""final_answer: the one number that a free text offers as its result."""

import json
import re
from pathlib import Path

import pytest

from rewards.answer import (
    final_answer,
    is_final_answer,
    last_box,
    last_tag,
    read_one_number,
    stated_text,
)
from rewards.latex.number import number_of

ROOT = Path(__file__).parents[1]
LABELS = ROOT / "scripts" / "benchmarks" / "labels" / "gsm8k_completions.jsonl"
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"
# Markers, sentences, texts and denials that the labels have are not repeated here.
# A marker, and what may stand around its number; each is read behind other numbers.
MARKED = [
    "####18", r"\boxed{18 \text{ m}^2}", r"\boxed{18} and then \boxed{19", "ANSWER: x = 18",
    "The correct answer should be 18", "The answer to the question of 16 eggs is 18.",
    r"\boxed{\text{\$18}}", "\\boxed{18}, that is \\boxed{18}",
    # Working behind the marker.
    "A: 20 - 11 = 9. They cost 9 * 2 = $18.", "Answer:\n1. 9 eggs\n2. 9 * 2 = 18",
    "Answer: 9 * 2 = 18. She sells 9 eggs.", "Answer:\n20 - 11 = 9\n9 * 2 = 18\nCheck: 18 / 9 = 2",
]  # fmt: skip
# A last sentence as people write it.
SENTENCES = [
    "18 students don't play any sport.",  # the verb is denied, not the number
    "20 - 2 = 18, which is less than 20.", "The average is 36/2 = size 18.",
    "The volume is 18cm^3 of oil.",  # a power of a unit
    # Details, a comparison, a reason and conclusions.
    "At $3 each, 6 notebooks cost $18.", "18 of the 24 students passed.",
    "In 3 hours, 18 cars pass.", "Tom can't solve 5 of the 23 problems. He solves 18.",
    "She has 9 apples, as well as 9 oranges, for a total of 18.",
    "If 3 or more friends come, she needs 18 chairs.", "Mia has 18 shells, 3 more than Tom.",
    "It is $18, since 9 eggs cost $2 each.",
    "She has 20 eggs, but 2 of them are broken, leaving 18.",
    "462/25 = 18.48 minutes, which rounds down to 18 minutes.",
    r"\[ x = \frac{36}{2} = 18 \text{ eggs} \]", "She buys 9 bottles at $2, for a total of $18.",
    r"$$\begin{aligned} x &= 9 \cdot 2 \\ &= 18 \end{aligned}$$", "It is 18°C at night.",
    "所以答案是18。", "The answer is 36/2 = 18.", "It is 18 ft. for 3 cats.", "18 (20 vs. 2)",
    "18 eggs are needed to make 6 cakes.", "She has $18 left if she wants to buy 3 shirts.",
    "A total of 18 hours are required to paint 3 houses.", "18 trips to be able to carry 72 boxes.",
    "He needs to save $18 per week for 5 weeks.", "She has to drive 18 miles in 2 hours.",
    "Since 20 - 11 = 9 remain, she makes $18.", "With 3 * 400 = 1,200 sold, she has 18 left.",
    "She has 18 left, as she gave 2 away.", "Ann reads the 240-page book in 18 days.",
    "The gain is 18, from 20 to 38.", "It is 18, or 18.0.",
    r"At least $\boxed{18}$ eggs.", "\\boxed{18}. Wait, let me double check: 9*3 = 27. Yes.",
]  # fmt: skip
# Which sentence is the last that counts.
TEXTS = [
    "**18**", "1. 10 + 8 = 18\n2. Done.", "Step 1: 10 + 8 = 18\nStep 2: nothing more.",
    "Steps:\n- 5 eggs\n- 13 eggs\nIn all 18.", "She keeps 18 eggs. Note that 2 of them are small.",
    "There are 18.\n```python\nprint(9 * 3)\n```", "<think>It is 17.</think>It is 18.",
    "She has 3 eggs. " * 10_000 + "The answer is 18.", "```plaintext\n9 * 2 = 18\n```",
    # Checks, and what is none.
    "She has 18.\n\n**Verification:** 18 / 2 = 9", "She has 18. Double-checking: 18 - 2 = 16.",
    "She has 18. This can be verified by 18 - 2 = 16.", "She must check out 9 + 9 = 18 books.",
    "We don't know x yet. Then x = 18.", "He can't find 2 of his 20 eggs. 18 are left.",
    "I made a mistake: the answer is 18.", "#### 18\nuser\nWhat is 3 + 4?\nassistant\n#### 7",
]  # fmt: skip
NONE = [
    "", "no number", "How many are 18?", "1e999", "#### 1/0", "```python\nprint(18)\n```",
    "１８", "#### １８", "1８", "١٨", "答案是18万。",  # of other scripts
    # Several.
    "#### 17 18 19", "#### 18 or 19", "#### 18 or maybe 19", "#### 17-18", "x = ±18",
    "The answer is between 17 and 18.", "The answer is 17 boys and 18 girls.", r"\boxed{17, 18}",
    "<answer>18 or 19</answer>", "<answer>18</answer> or 19", "17 or <answer>18</answer>",
    r"\boxed{20} or \boxed{18}", r"\boxed{20}, \boxed{18}",
    "<answer>20</answer> or\n<answer>18</answer>", "It takes 2 hours 18 minutes.",
    "#### 18 feet 6 inches",
    "The answer is 18 (or 20 with Sunday).", "The answer is 18 if it rains, otherwise 20.",
    # Not worked out.
    "36/2", "The answer is 9 * 2", "9 * 2 =", "20 - 3", "9**9**9", "#### 18^{2}",
    r"\boxed{\frac{36}{2}}", r"The answer is \sqrt{18}.", r"\boxed{18^2}", r"\boxed{18!}",
    # A bound, or another number.
    "The answer is > 18.", r"So $x \ge 18$.", "#### 18'000", "#### 18_000",
    "<answer>18 less two</answer>", "<answer>18 mod seven</answer>", r"\boxed{18x}",
    "The answer is twice 18.", "The answer is half of 18.", "The answer is 18 more than 2.",
    "The answer is 18 less than 30.", "The answer is 18 to the power of 2.", "She has 18 or more.",
    "The answer is the square root of 18.", "The answer is 18 point five.",
    "She has 18 and a third.", "It takes 18 and two thirds hours.", "It is 18% of 50.",
    "It is three times 18.", "It is one fifth of 18.", "It is 18 ∗ 2.", "It is 18 in base 9.",
    "It is 18 degrees below zero.", "It is under 18.", "<answer>18 unless it rains</answer>",
    # None, with a number of the story.
    "She had 18 eggs. There is not enough information to find the rest.",
    "There are 18 hens. I'm sorry, I can't solve this.", "I don't know. There are 18 hens.",
    "It is impossible to tell. There are 18 hens.", "I don't have enough information on 18 hens.",
    *(f"The answer is 18 {more}." for more in ("pi", "squared", "tenths", "lakh", "k", "M")),
]  # fmt: skip
DENIED = [  # and the labels of more_denial
    "The answer is definitely not 18.", "A common mistake is to say 18.", "It isn't quite 18.",
    "I don't think it's 18.", "<answer>18 wrong</answer>",
]  # fmt: skip


@pytest.mark.parametrize("text", MARKED)
def test_a_marker_is_read(text):
    assert final_answer(f"There were 20 eggs and 2 of them broke.\n{text}") == 18


@pytest.mark.parametrize("text", SENTENCES)
def test_the_last_sentence_is_read_by_its_grammar(text):
    assert final_answer(f"There were 20 eggs and 2 of them broke. {text}") == 18


@pytest.mark.parametrize("text", TEXTS)
def test_without_a_marker_the_last_sentence_counts(text):
    assert final_answer(text) == 18


def test_another_problem_is_not_read():
    for text in ("20 - 2 = 18. The answer is 18.", "20 - 2 = 18.\n#### 18", "It is \\boxed{18}."):
        assert final_answer(f"{text}\n\n**Problem 2:** 3 + 4\n#### 7") == 18
        assert final_answer(f"{text}\n\n## Question 2\n3 + 4\n#### 7") == 18


@pytest.mark.parametrize(
    ("text", "value"),
    [  # broken off within a sentence, as models wrote
        ("- Erin had $6.00.\n- The cost of the ice", None),
        ("Onions are on sale for $2.00 a pound. Therefore,", None),
        ("The shark is 10 feet long.\n\\[\n10 \\", None),
        ("40 - 32 = 8 were left. So", 8),
        ("Therefore the chance is 12%.\n</reason", 12),
        ("The final answer is 12. Now I", 12),
    ],
)
def test_a_text_that_was_cut_off_within_a_sentence_has_no_number_by_chance(text, value):
    assert final_answer(text, cut_off=True) == value


@pytest.mark.parametrize("text", NONE)
def test_no_single_number_is_none(text):
    assert final_answer(text) is None


@pytest.mark.parametrize("text", DENIED)
def test_a_number_that_is_denied_is_no_answer(text):
    assert {final_answer(text), final_answer(f"6 * 3 = 18. {text}")} == {None}


TAKEN_BACK = [  # behind an answer of 18, and the answer then
    (". Actually, it is 20.", 20), (". Wait, that's wrong, it is 20.", 20), (", no, 20.", 20),
    (". It should be 20.", 20), (". On second thought, she has 20 eggs.", 20), (", sorry, 20", 20),
    ("\nHold on, she also gave 2 away, so 16 are left.", 16), (". Correction: 20.", 20),
    (". Hmm, let me recount: 9 + 9 + 2 = 20.", 20), (". Oops, I meant 20 or 21.", None),
    (".\nWait, I forgot 2.\n#### 20", 20), (". The answer is unknown.", None),
    (".\nAnswer: see above", None), (". However, 2 more came, so she has 20.", 20),
    (". Scratch that. She has 20.", 20), (".\nRechecking, 11 + 9 = 20. Therefore she has 20.", 20),
    (". The correct number is 20.", 20), (". But we forgot 2: 18 + 2 = 20.", 20),
    (". Let's recalculate: 9 + 11 = 20.", 20), (". I apologize. She has 20.", 20),
    # No other number is stated.
    (". Let me recheck: 18 / 2 = 9. Yes.", 18), (". The right side is 20.", 18),
    (". Actually, that was easy!", 18), (". Wait, is that right? 9 * 2 = 18. Yes.", 18),
    (". Let me check: 20 - 17 = 3.", 18), (". She sells 9.", 18), ("\nAnswer:", 18),
    (". However, 2 are small.", 18), (". Is 20 right? No.", 18), ("\nTo recap: 9", 18),
    (" <answer></answer>", 18), (r" \boxed{}", 18), ("\nLet me verify my answer: 18 / 2 = 9.", 18),
]  # fmt: skip


# Behind an answer of 18: what denies it, in any words, and what denies something else.
DENIES_IT = [
    "That is wrong: 18 is low.", "No, 18 is wrong.", "It is not 18.", "Wait, that can't be right.",
    "But 18 would be wrong, since it is even.", "I no longer think it is 18.", "Not true.",
    "My answer of 18 is incorrect!", "Well, this doesn't seem to be correct.", "Wrong.",
    "It turns out that 18 eggs isn't the answer.", "9 + 8 = 17. So 18 is wrong.",
]  # fmt: skip
DENIES_ANOTHER = [
    "17 is wrong.", "It is not 17.", "That is not a lot.", "It is never easy.", "Is it wrong? No.",
    "That is not wrong.", "No other number is right.", "It would be wrong to add 2.",
    "That isn't more than the 20 eggs.", "There is no doubt.",
]  # fmt: skip


@pytest.mark.parametrize("text", DENIES_IT + DENIES_ANOTHER)
def test_a_later_denial_of_the_answer_takes_it_back(text):
    is_kept = text in DENIES_ANOTHER
    assert final_answer(f"9 * 2 = 18\nThe answer is 18. {text}") == (18 if is_kept else None)
    for read, answer in ((last_tag, "<answer>18</answer>"), (last_box, r"\boxed{18}")):
        assert read(f"{answer}. {text}") == ("18" if is_kept else None)


@pytest.mark.parametrize(("more", "value"), TAKEN_BACK)
def test_a_later_statement_wins(more, value):
    assert final_answer(f"9 * 2 = 18\nThe answer is 18{more}") == value
    if "Answer" not in more and "answer is" not in more:
        is_kept = value in (18, None)
        tag, box = f"<answer>18</answer>{more}", rf"\boxed{{18}}{more}"
        assert (last_tag(tag), last_box(box)) == (("18", "18") if is_kept else (None, None))


def test_a_tag_or_a_box_that_another_answer_follows_is_none_or_the_first_problems():
    for read, place in ((last_tag, "<answer>{}</answer>"), (last_box, r"\boxed{{{}}}")):
        one, other = place.format(18), place.format(7)
        assert read(f"{one}.\nThe answer is 20.") is None
        assert read(f"{one} or 20") is read(f"20 or {one}") is None
        assert read(f"{one} or 1800 percent") == read(f"{one}, or 1800%") == "18"
        assert read(f"{one} or 18.0") == read(f"Problem: 9 + 9\n{one}") == "18"
        assert read(f"{one}\n\nQuestion: What is 3 + 4?\n{other}") == "18"


@pytest.mark.parametrize("sign", ["- 5", "minus 5", "\u22125", "\uff0d5", "negative 5", "-$5"])
def test_a_sign_is_read_however_it_is_written(sign):
    for text in (f"The answer is {sign}.", f"#### {sign}", f"So it is {sign}"):
        assert final_answer(text) == -5
    assert final_answer("It fell to negative 5.") == -5


def test_the_last_of_several_markers_counts_whatever_its_kind():
    markers = ["#### {}", r"\boxed{{{}}}", "The answer is {}.", "A: {}", "<answer>{}</answer>"]
    for first in markers:
        for last in markers:
            assert final_answer(f"1 + 2\n{first.format(17)}\n{last.format(18)}") == 18


SPELLINGS = [
    "18", "18.0", "$18", "$18$", r"\$18", "18 €", "18%", "018", "1{,}800", "- 18", "−18",
    "minus 18", "$-18", ".5", "1/2", r"\frac12", "½", "2½", "2 1/2", r"2\frac{1}{2}", "(18)",
    "**18**", "18:00", "18m", "18 cm", "18 square feet", "18 dozen", "36/2", r"9 \times 2", "18k",
    '"18"', "**18 eggs**", "18 PM", "18 p.m.", "$18/day", "$18 a week", "₹18", "US$18",
    "18 more eggs", "18 doubled", "18 lakh",
    "18 tenths", "18 x", r"18\pi", "18^2", "18 wrong", "17, 18", "1e3", "1/0", "１８",
]  # fmt: skip


# In a sentence alone.
SPELLED_OUT = ("**18**", "**18 eggs**", '"18"', "18:00", "18m", "18 PM", "18 p.m.")


@pytest.mark.parametrize("text", SPELLINGS)
def test_one_number_is_read_alike_wherever_it_stands(text):
    value = read_one_number(text)
    assert value == number_of(text) or text in SPELLED_OUT
    assert read_one_number(last_tag(f"<answer>{text}</answer>")) == value
    places = ["<answer>{}</answer>", r"\boxed{{{}}}", "#### {}", "The answer is {}.", "Answer: {}"]
    assert {final_answer(place.format(text)) for place in places} == {value}


def test_listing_every_number_earns_at_most_the_last_of_them():
    for form in ("#### {}\n", r"\boxed{{{}}} ", "The answer is {}. ", "{}\n", "**{}** "):
        listed = "".join(form.format(i) for i in range(101))
        assert [gold for gold in range(101) if is_final_answer(listed, str(gold))] in ([100], [])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 9", "9"), ("Therefore the probability is 2/3.", "2/3"), ("18", "18"),
        ("She earns 18 dollars.", "18"), ("The winner is Maria", "Maria"),
        (r"The final answer is $28 \%$. I hope it is correct.", r"28 \%"),
        ("First 6 * 3.\n18", "18"), ("It is about 18.", "about 18"), ("Roughly 18 eggs", None),
        ("It is not 18.", "not 18"), ("Is it 18?", None), (r"\text{isn't 18}", None),
    ],
)  # fmt: skip
def test_a_sentence_states_one_answer_as_text_or_none(text, answer):
    assert stated_text(text) == answer


# The labelled completions that it reads otherwise: (style, gold), and why.
OTHERWISE = {
    ("more_scale", "18000000"): "18 million is this number: its label is older than the rule",
    ("second_question", "62"): "it asks itself a second question, and answers it in a box",
    ("second_question", "28"): "the same",
    ("recap_after", "3"): "its last sentence is about the 6 eggs of a box",
}


def test_it_agrees_with_the_labels_but_for_named_rows():
    rows = [json.loads(line) for line in LABELS.read_text(encoding="utf-8").splitlines()]
    wrong = {
        (row["style"], row["gold_answer"])
        for row in rows
        if is_final_answer(row["completion"], row["gold_answer"]) is not row["label"]
    }
    assert len(rows) == 574
    assert wrong == set(OTHERWISE)


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"the real GSM8K is not at {GSM8K}")
def test_the_solutions_of_gsm8k_are_read_with_and_without_their_marker():
    rows = [json.loads(line)["answer"] for line in (GSM8K / "test.jsonl").open(encoding="utf-8")]
    solutions = [row.rpartition("####") for row in rows]
    golds = [number_of(gold) for *_, gold in solutions]
    assert [final_answer(row) for row in rows] == golds
    values = [final_answer(re.sub("<<.*?>>", "", text)) for text, *_ in solutions]
    assert sum(a == b for a, b in zip(golds, values, strict=True)) >= 1306  # of 1,319
