"""final_answer: the one number that a free text offers as its result."""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from rewards.answer import MAX_CHARS, final_answer, is_final_answer, one_number
from rewards.latex.number import number_of
from rewards.text import tagged_answer

ROOT = Path(__file__).parents[1]
LABELS = ROOT / "scripts" / "benchmarks" / "labels" / "gsm8k_completions.jsonl"
GSM8K = ROOT.parent / "shared" / "data" / "gsm8k"

# Every marker, and what may stand around its number; each is read behind other numbers.
MARKED = [
    "#### 18", "####18", "#### $18", "#### 18 eggs", "#### <18>", "#### 17\n#### 18", "#### 18!",
    "#### 18m",
    "9 * 2 = <<9*2=18>>18\n#### 18", "#### 9 * 2 = 18", r"\boxed{18}",
    r"\boxed{17} and then \boxed{18}",
    r"\boxed{\text{18 eggs}}", r"\boxed{18\text{ eggs}}", r"\boxed{18 \text{ m}^2}",
    r"\boxed{\$18}", r"\boxed{x = 18}",
    r"\boxed{{18}}", r"\boxed{18} and then \boxed{19", r"\boxed 18", "<answer>18</answer>",
    "<answer>$18$</answer>",
    "<answer>\n$18.00\n</answer>", "<answer>She keeps 18 eggs.</answer>",
    r"<answer>\boxed{18}</answer>",
    "The answer is 18.", "The answer is $18$.", r"The answer is \(18\).", "the answer is **18**",
    "The answer is 9 * 2 = 18.", "The answer is 18, because 20 - 2 = 18 and 3 is not used.",
    "The answer is 18. Let me check: 20 - 17 = 3.", "So the final answer is: 18 eggs",
    "The correct answer should be 18",
    "The answer to the question of 16 eggs is 18.", "18 eggs is the answer.", "Answer: 18",
    "Answer: x = 18",
    "ANSWER: 18", "**Answer:** 18", "**Final Answer**\n\n18", "9 * 2 = 18\nA: 18",
    "<think>The answer is 17.</think>\nThe answer is 18.",
]  # fmt: skip
# A last sentence as people write it, and what of its grammar is read.
SENTENCES = [
    ("The total adds up to 18 dollars.", 18),  # "up to" is no bound here
    ("The price went up to $18.", 18),
    ("The price went from $12 to $18.", 18),  # of two details the last
    ("18 students don't play any sport.", 18),  # the verb is denied, not the number
    ("Nobody but Tom eats, and he eats 18 cookies.", 18),
    ("He didn't spend anything else, so he has $18 left.", 18),
    ("It isn't cheap: $18.", 18),
    ("She will need 18 boxes, not 17.", 18),  # the number is denied
    ("20 - 2 = 18, which is less than 20.", 18),  # behind an equation nothing counts
    ("Her total is 5 + 13 = 18 points, 2 more than last week.", 18),
    ("She makes 18 = 9 * 2 a day.", 18),  # the side that is worked out
    ("The average is 36/2 = size 18.", 18),
    ("The area is 18 m^2.", 18),  # a power of a unit
    ("The volume is 18cm^3 of oil.", 18),
    ("Mary earns $18/hour.", 18),
    ("18% of the students like math.", 18),
    ("He ate 2/3 of the pizza.", Fraction(2, 3)),
    ("The tank holds 2 1/2 gallons.", Fraction(5, 2)),
    ("It takes 1½ cups.", Fraction(3, 2)),
    ("The profit was $1,080.50.", Fraction(2161, 2)),
    ("She pays $1{,}800$ in all.", 1800),
    ("There are 18 dozen eggs.", 216),
    ("The temperature dropped to -5 degrees.", -5),
    ("It took him 18 minutes to walk the 2 miles.", 18),  # details: what leads to the number
    ("He spends 18 hours a week on the 3 projects.", 18),
    ("At $3 each, 6 notebooks cost $18.", 18),
    ("He can fill 18 bags with 2 left over.", 18),
    ("They need to sell 18 cups to make $36.", 18),
    ("She makes $18 by selling 9 eggs and 3 hens.", 18),
    ("Together they have 18 coins, of which 5 are gold.", 18),
    ("18 of the 24 students passed.", 18),
    ("Out of 24 students, 18 passed.", 18),
    ("In 2024, 18 students joined.", 18),  # no list, the first is a detail
    ("In 5 years she will be 18.", 18),
    ("She keeps 18 eggs, her sister comes 3rd.", 18),  # an ordinal
    ("Mia is 18 years old, 3 times her brother's age.", 18),  # a comparison
    ("Mia has 18 shells, 3 more than Tom.", 18),
    ("It is $18, since 9 eggs cost $2 each.", 18),  # a reason
    ("She has 20 eggs, but 2 of them are broken, leaving 18.", 18),  # a conclusion in the sentence
    ("384/25 = 15.36 minutes, which rounds down to 15 minutes.", 15),
    ("The film starts at 7:30 and takes 118 minutes.", 118),  # a time
    ("She comes home at 18:00.", 18),
    ("There were 12 boys and 6 girls, 18 children in all.", 18),
    ("Lisa has eighteen (18) apples.", 18),
    ("She keeps 18 eggs (6 a day for 3 days, 2 of them broken).", 18),  # in parentheses
    (r"\[ x = \frac{36}{2} = 18 \text{ eggs} \]", 18),
    (r"So he pays \$18 for the 3 books.", 18),
    ("That leaves 18!", 18),
]  # fmt: skip
# How solutions end, written by someone who knew the reader: 28 of 30 were read right at first.
NATURAL = [
    ("So Janet makes $18 every day at the farmers' market.", 18),
    ("That means the robe needs 3 bolts altogether.", 3),
    ("In the end, Josh walks away with a profit of $70,000.", 70000),
    ("James therefore runs 540 meters each week.", 540),
    ("She has to give them 20 more cups in the evening.", 20),
    ("Kylar ends up paying $64 for the sixteen glasses.", 64),
    ("When you put the three cities together, that's 260 sheep.", 260),
    ("It'll be 160 minutes before the download is finally done.", 160),
    ("After those four hours he is still 45 miles away from home.", 45),
    ("Altogether the files take up 366 gigabytes of the drive.", 366),
    ("Toula's bill at the bakery was $694 in the end.", 694),
    ("He would have to wait 13 years before the lemon tree earns him anything.", 13),
    ("The three teams scored 57 points between them.", 57),
    ("Only 5 of the original 12 balloons hadn't popped by the time the party ended.", 5),
    ("The second candle burns a full 3.5 hours longer than the first.", Fraction(7, 2)),
    ("Since nobody else took any, 14 slices remain.", 14),
    ("Thus half of them, or 25 pupils, take the bus.", 25),
    ("Her change from a $50 bill is $6.40.", Fraction(32, 5)),
    ("The dress ends up costing her $76.50, tax included.", Fraction(153, 2)),
    ("The ratio works out to 3/8.", Fraction(3, 8)),
    ("All told, the trip will take him 2 and a half hours.", Fraction(5, 2)),
    ("If Tom keeps this up, he'll have 1,200 followers by December.", 1200),
    ("That's 36 feet of fence for the small garden and nothing for the large one.", 36),
    ("Subtracting the 12 she gave away from 40 leaves Maria with 28 stickers.", 28),
    ("So, to answer the question: Ben is 34.", 34),
    ("The water level falls by 15 centimeters each night.", 15),
    ("You'd spend €240 a year on coffee at that rate.", 240),
    ("Hence we get $x = 7$, so there were 7 hens in the yard at the start.", 7),
    ("That gives each of the 6 children 9 marbles.", 9),
    ("The shop sold 15% fewer lamps this year than last.", 15),
]
# Which sentence is the last that counts.
TEXTS = [
    "20 - 2 = 18", "**18**", "1. 10 + 8 = 18\n2. Done.",
    "Step 1: 10 + 8 = 18\nStep 2: nothing more.",
    "Steps:\n- 5 eggs\n- 13 eggs\nIn all 18.",
    "#### 1. Count\n10 + 8 = 18\n\n#### 2. Check\nAll done.\n\n**18**",
    "She keeps 18 eggs.\n\nWould you like to try it with 24 eggs?",
    "She keeps 18 eggs. Note that 2 of them are small.",
    "She keeps **18** eggs.\n\nThis is because the first step gives 27 (3 * 9).",
    "It comes to 18. If the shop had been open on Sunday, it would be 56.",
    "```python\nprint(9 * 2)\n```\n```output\n18\n```",
    "There are 18.\n```python\nprint(9 * 3)\n```",
    "P = 10\nThere are 14 in group Q\n10 + 8 = 18", "<think>It is 17.</think>It is 18.",
    "Let us see.\nQuestion: Tom has 3 hats, buys 15.\nAnswer: 3 + 15 = 18",  # nothing before it
    "She has 3 eggs. " * 10_000 + "The answer is 18.",
]  # fmt: skip
RUN_ON = [
    "\n\nQuestion: What is 3 + 4?\nAnswer: 7", "\nHuman: What is 3 + 4? Assistant: \\boxed{7}",
    " User: And 3 + 4? Assistant: The answer is 7.",
    "\n\n### Instruction:\nAdd 3 and 4.\n\n### Response:\n#### 7",
    "<|im_end|>\n<|im_start|>assistant\n#### 7", "</s> 7", "\n\n**Problem 2:** 3 + 4\n#### 7",
]  # fmt: skip
NONE = [
    "", "no number", "The answer is 18. " + "word " * (MAX_CHARS // 5), "How many are 18?", "1e999",
    "#### 1/0",
    "```python\nprint(18)\n```", "１８", "#### １８", "１8", "١٨",
    # Several.
    "#### 17 18 19", "#### 18 or 19", "#### 17-18", "The answer is between 17 and 18.",
    "She keeps 17 or 18.",
    "The answer is 17 boys and 18 girls.", "The final answer is 7 hours and 30 minutes.",
    r"\boxed{17, 18}",
    r"\boxed{17 \text{ or } 18}", "<answer>17, 18</answer>", "<answer>18 or 19</answer>",
    ", ".join(map(str, range(101))),
    # Not worked out.
    "<answer>17 = 18</answer>", r"\boxed{17 = 18}", "36/2", "The answer is 36/2",
    "The answer is 9 * 2", "She keeps 9 * 2", "9 * 2 =", "9**9**9",
    "20 - 3",
    r"\boxed{\frac{36}{2}}", r"\boxed{\sqrt{18}}", r"The answer is \sqrt{18}.", r"\boxed{18^2}",
    r"\boxed{18!}",
    # Another number.
    "<answer>18 point five</answer>", "<answer>18 less two</answer>",
    "<answer>18 mod seven</answer>", r"\boxed{18x}",
    "The answer is 18x.", "The answer is 18 pi.", "The answer is 18 point five.",
    "She has 18 and a third.",
    *(f"The answer is 18 {more}." for more in ("squared", "factorial", "tenths", "lakh", "k", "M")),
    "#### 18k",
]  # fmt: skip
DENIED = [
    "The answer is definitely not 18.", "#### not 18", "Wrong answer: 18", "The answer isn't 18.",
    "18 is wrong.",
    "18 is not the answer.", "The answer is anything but 18.", "I doubt the answer is 18.",
    "The answer is 18? No.",
    "The answer is 18, which is wrong.", "The answer is at least 18.", r"\boxed{\text{not }18}",
    r"\boxed{\neq 18}",
    r"\boxed{18 \text{ is wrong}}", "<answer>not 18</answer>", "<answer>18 wrong</answer>",
]  # fmt: skip
SIGNS = ["- 5", "minus 5", "\u22125", "\u20135", "\uff0d5", "negative 5", "-$5"]


@pytest.mark.parametrize("text", MARKED)
def test_a_marker_is_read(text):
    assert final_answer(f"There were 20 eggs and 2 of them broke.\n{text}") == 18


@pytest.mark.parametrize(("text", "value"), SENTENCES + NATURAL)
def test_the_last_sentence_is_read_by_its_grammar(text, value):
    assert final_answer(f"There were 20 eggs and 2 of them broke. {text}") == value


@pytest.mark.parametrize("text", TEXTS)
def test_without_a_marker_the_last_sentence_counts(text):
    assert final_answer(text) == 18


@pytest.mark.parametrize("more", RUN_ON)
def test_another_problem_is_not_read(more):
    for text in ("20 - 2 = 18. The answer is 18.", "20 - 2 = 18.\n#### 18", "It is \\boxed{18}."):
        assert final_answer(text + more) == 18


@pytest.mark.parametrize("text", NONE)
def test_no_single_number_is_none(text):
    assert final_answer(text) is None


@pytest.mark.parametrize("text", DENIED)
def test_a_number_that_is_denied_is_no_answer(text):
    assert {final_answer(text), final_answer(f"6 * 3 = 18. {text}")} == {None}


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_is_read_however_it_is_written(sign):
    for text in (f"The answer is {sign}.", f"#### {sign}", f"So it is {sign}"):
        assert final_answer(text) == -5


def test_the_last_of_several_markers_counts_whatever_its_kind():
    markers = ["#### {}", r"\boxed{{{}}}", "The answer is {}.", "A: {}", "<answer>{}</answer>"]
    for first in markers:
        for last in markers:
            assert final_answer(f"1 + 2\n{first.format(17)}\n{last.format(18)}") == 18


SPELLINGS = [
    "18", "18.0", "$18", "$18$", r"\$18", "£18", "18 €", "18 dollars", "18 eggs", "18%", r"18\%",
    "018", "1,800",
    "1{,}800", r"1,\!800", "$1{,}800$", "-18", "- 18", "−18", "minus 18", "-$18", "$-18", ".5",
    "1/2", r"\dfrac{1}{2}",
    r"\frac12", "½", "2½", "2 1/2", r"2\frac{1}{2}", r"\(18\)", "(18)", "**18**", "18:00", "18m",
    "18 cm", "18 m",
    "18 square feet",
    "18 meters per second", "18 thousand", "18 dozen", "36/2", r"\frac{36}{2}", "9*2",
    r"9 \times 2", "17 + 1",
    "18k", "18M", "18 lakh", "18 squared", "18 tenths", "18x", "18 x", "18 pi", r"18\pi", "18^2",
    r"\sqrt{18}",
    "18 wrong", "18 or 19", "17, 18", "1e3", "1/0", "１８", "18 point five", "18 less two",
    "18 mod seven",
]  # fmt: skip


@pytest.mark.parametrize("text", SPELLINGS)
def test_one_number_is_read_alike_wherever_it_stands(text):
    value = one_number(text)
    assert value == number_of(text) or text in ("**18**", "18:00", "18m")
    assert one_number(tagged_answer(f"<answer>{text}</answer>")) == value
    places = ["<answer>{}</answer>", r"\boxed{{{}}}", "#### {}", "The answer is {}.", "Answer: {}"]
    assert {final_answer(place.format(text)) for place in places} == {value}


def test_an_answer_in_the_thoughts_alone_counts_only_where_asked():
    for text in ("<think>It is 18.</think>", "<think>The answer is 18."):
        assert (final_answer(text), final_answer(text, thoughts=True)) == (None, 18)
    assert final_answer("<think>It is 17.</think>It is 18.", thoughts=True) == 18


def test_listing_every_number_earns_at_most_the_last_of_them():
    for form in ("#### {}\n", r"\boxed{{{}}} ", "The answer is {}. ", "{}\n", "**{}** "):
        listed = "".join(form.format(i) for i in range(101))
        assert [gold for gold in range(101) if is_final_answer(listed, str(gold))] in ([100], [])


# The labelled completions that it reads otherwise: (style, gold), and why.
OTHERWISE = {
    ("more_scale", "18000000"): "18 million is this number: its label is older than the rule",
    ("changed_mind", "24"): "it marks 20, takes it back, and marks nothing else",
    ("changed_mind", "20"): "the same",
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
    assert None not in golds
    assert [final_answer(row) for row in rows] == golds
    read = [final_answer(re.sub("<<.*?>>", "", text)) for text, *_ in solutions]
    assert sum(a == b for a, b in zip(golds, read, strict=True)) >= 1306  # of 1,319
    others = golds[7:] + golds[:7]
    assert not any(
        value == other != gold for value, other, gold in zip(read, others, golds, strict=True)
    )


# Each is 100 000 characters on which a careless pattern takes quadratic time.
REPEATED = [
    "#### 1+", "\\boxed{1}", "\\frac{", "<<1", "```1\n", "\n\nHow many ", "Q", "nswer to ",
    "because ", "1 and ", "(1",
    "\\text{", "If had,", "nswer is 1 ", "1 x ",
]  # fmt: skip


@pytest.mark.parametrize("text", [part * (100_000 // len(part)) for part in REPEATED], ids=REPEATED)
def test_repeated_text_takes_linear_time(text, seconds):
    assert seconds(lambda: final_answer(text)) < 0.05


@pytest.mark.parametrize(
    "start", ["1 Q", "Answer: 1 aaa", "**1", "1, ", "If had had ", "#### ", "1 = "]
)
def test_long_gaps_take_linear_time(start, seconds):
    for filler in (" ", "1", "a", "a ", "had ", "1 ", "\n"):
        for length in (100_000, MAX_CHARS - 100):  # the longer one loses its start
            text = start + filler * (length // len(filler)) + "= x 1"
            assert seconds(lambda text=text: final_answer(text)) < 0.05
