r"""boxed_math: the last \boxed{} against the gold; a gold that nobody can compare is no grade."""

import json
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards import full_reward, load_reward, reward_columns, reward_kind, reward_name
from rewards.boxed_math import BoxedMath, is_equivalent
from rewards.latex.stated import gold_answer, sentence_answer
from rewards.text import boxed_answer, last_boxed

LABELS = Path(__file__).parents[1] / "scripts/benchmarks/labels/math_pairs.jsonl"
OTHERS = Path(__file__).parents[2] / "shared/data/math_pairs/pairs.jsonl"  # not of the project
N = 100_000

AMOUNTS = [  # completion, gold, amount
    (r"So it is \boxed{18}.", "18", 1.0), (r"\boxed{\frac{1}{2}}", "0.5", 1.0),
    (r"$\boxed{\dfrac{\sqrt{2}}{2}}$", r"\frac{1}{\sqrt2}", 1.0),
    (r"\boxed{2\sin x\cos x}", r"\sin 2x", 1.0), (r"\boxed{18}", r"$18$", 1.0),
    (r"\boxed{18}", r"The sum is \boxed{18}.", 1.0),
    (r"\boxed{28\%}", r"The final answer is $28 \%$. I hope it is correct.", 1.0),
    # Which box: the last complete one; boxes joined by words are one answer.
    (r"\boxed{1} and then \boxed{2}, so \boxed{18}", "18", 1.0),
    (r"\boxed{18} is what I first thought, but \boxed{19}", "18", 0.0),
    (r"\boxed{18} \boxed{}", "18", 0.0), (r"\boxed{\boxed{18}}", "18", 1.0),
    (r"\fbox{18}", "18", 1.0), (r"\boxed 18", "18", 1.0),
    (r"\boxed{-2} and \boxed{1}", "1, -2", 1.0), (r"\boxed{17} or \boxed{18}", "18", 0.0),
    # No box, and nothing in it.
    ("18", "18", 0.0), ("", "18", 0.0), (r"\boxed{}", "18", 0.0), (r"\boxed{18", "18", 0.0),
    # Candidates.
    (r"\boxed{17 or 18}", "18", 0.0),
    (r"\boxed{" + ", ".join(map(str, range(101))) + "}", "18", 0.0),
    # A number that words or letters change is another.
    (r"\boxed{18 \text{ thousand}}", "18", 0.0), (r"\boxed{18x}", "18", 0.0),
    (r"\boxed{18 \text{ wrong}}", "18", 0.0), (r"\boxed{18 \text{ eggs}}", "18", 1.0),
    # A sentence in the box states its answer unless it hedges.
    (r"\boxed{\text{The answer is } \boxed{18}}", "18", 1.0),
    (r"\boxed{\text{She earns 18 dollars.}}", "18", 1.0),
    (r"\boxed{\text{The probability is }\frac{1}{2}}", "0.5", 1.0),
    (r"\boxed{Answer: 18}", "18", 1.0), (r"\boxed{\text{The answer is not } 18}", "18", 0.0),
    (r"\boxed{\text{17 or } \boxed{18}}", "18", 0.0), (r"\boxed{\text{at least }18}", "18", 0.0),
    # What a program or a font makes of numbers.
    (r"\boxed{１８}", "18", 0.0), ("\\boxed{18\u200b}", "18", 0.0), (r"\boxed{NaN}", "18", 0.0),
    (r"\boxed{1e999}", "18", 0.0), (r"\boxed{9**9**9}", "18", 0.0),
    (r"\boxed{18" + "0" * 5000 + "}", "18", 0.0), (r"\boxed{__import__('os')}", "18", 0.0),
    # Too large, or no value, is the doing of the completion.
    (r"\boxed{\sinh{2356!}}", "18", 0.0),
    (r"\boxed{|2000!+x|}", "18", 0.0),
    (r"\boxed{10^{9999}}", "18", 0.0),
    (r"\boxed{\frac10}", "18", 0.0),
    (r"\boxed{\log 3}", r"2.\overline{3}", 0.0),
]  # fmt: skip
SCORES = [amount for *_, amount in AMOUNTS]
GOLDS = [gold for _, gold, _ in AMOUNTS]
TEXTS = [text for text, *_ in AMOUNTS]


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
    assert score(r"\boxed{9 + 9}", "18", wrong=-0.5, prompt_expressions="refuse") == -0.5
    for wrong in (0.5, float("-inf"), float("nan")):
        with pytest.raises(ValueError, match="it must be 0, or below as a penalty"):
            BoxedMath(wrong=wrong)


def test_it_is_a_verifier_of_the_answer_column():
    reward = load_reward("rewards.boxed_math:BoxedMath", correct=2.0)
    assert (reward_name(reward), reward_kind(reward)) == ("boxed_math", "verifier")
    assert (full_reward(reward), reward_columns(reward)) == (2.0, ["answer"])
    assert reward(prompts=["p"], completions=[r"\boxed{18}"], answer=["18"]) == [2.0]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\\boxed{1}", "1"), (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{a\boxed{b}}", r"a\boxed{b}"), (r"\boxed{1} \boxed{2", "1"), (r"{ \boxed{1}", "1"),
        (r"} \boxed{1}", "1"), (r"\boxed {1}", "1"), (r"\boxed 5 apples", "5"),
        (r"$\boxed 5$", "5"), (r"\boxed", None), ("boxed{1}", None),
    ],
)  # fmt: skip
def test_the_last_complete_box(text, inside):
    assert last_boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{-2} \quad \text{and} \quad \boxed{1}", "-2 or 1"), (r"\boxed{1}\boxed{2}", "2"),
        (r"\boxed{1}, \boxed{1}", "1"), (r"\boxed{1}. So \boxed{2}", "2"),
        (r"\boxed{1} thus \boxed{2} or \boxed{3}", "2 or 3"),
        (r"\boxed{1}" + " " * 80 + r"\boxed{2}", "2"),
    ],
)  # fmt: skip
def test_boxes_side_by_side_are_one_answer(text, answer):
    assert boxed_answer(text) == answer


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("18", "18"), ("$18$", "18"), (r"\boxed{18}", "18"), (r"So $x = \boxed{18}$.", "18"),
        ("$125$ miles", "125 miles"), (r"\$18", r"\$18"), (r"$\boxed{1}\boxed{2}$", "1 or 2"),
    ],
)  # fmt: skip
def test_a_gold_comes_in_several_forms(gold, answer):
    assert gold_answer(gold) == answer


@pytest.mark.parametrize(
    ("question", "box", "gold", "amount"),
    [
        ("What is $3 + 4$?", "3+4", "7", 0.0), ("25 + 7 =", "x = 25 + 7", "32", 0.0),
        (r"Compute $\dfrac{1}{2} \cdot 6$.", r"\frac{1}{2}\times 6", "3", 0.0),
        ("Write $0.5$ as a fraction.", "0.5", r"\frac{1}{2}", 0.0),
        # In other words than the question's, but still with work to do.
        ("25 + 7 =", "7 + 25", "32", 0.0), ("25 + 7 =", "(25+7)", "32", 0.0),
        ("25 + 7 =", "64/2", "32", 0.0), ("25 + 7 =", r"\frac{64}{2}", "32", 0.0),
        ("58 - 26 =", "-26+58", "32", 0.0), ("25 + 7 =", "2^5", "32", 0.0),
        ("Halve 1.", r"1 - \frac12", "0.5", 0.0),
        # Worked out.
        ("25 + 7 =", "25 + 7 = 32", "32", 1.0), ("25 + 7 =", "32.0", "32", 1.0),
        ("Halve 1.", r"\frac12", "0.5", 1.0), ("Is it 18 or 19?", "18", "18", 1.0),
        ("Is it 18 or 19 eggs?", "18", r"18\text{ eggs}", 1.0), ("7 - 25 =", "-18", "-18", 1.0),
        ("Write 32.5 in words, or 132", "32", "32.0", 1.0),
    ],
)  # fmt: skip
def test_work_left_undone_is_refused_where_asked(question, box, gold, amount):
    chat = [{"role": "system", "content": box}, {"role": "user", "content": question}]
    arguments = {"completions": [rf"\boxed{{{box}}}"] * 2, "answer": [gold] * 2}
    refusing = BoxedMath(prompt_expressions="refuse")
    assert refusing(prompts=[chat, question], **arguments) == [amount] * 2
    assert BoxedMath()(prompts=[chat, question], **arguments) == [1.0] * 2
    with pytest.raises(ValueError, match="allowed: score, refuse"):
        BoxedMath(prompt_expressions="no")


def test_a_box_in_the_thoughts_alone_is_scored_only_where_asked():
    for text in (r"<think>\boxed{18}</think>So.", r"<think>\boxed{18}"):
        assert (score(text, "18"), score(text, "18", thoughts=True)) == (0.0, 1.0)
    assert score(r"<think>\boxed{17}</think>\boxed{18}", "18") == 1.0


UNREADABLE = [
    r"\begin{cases} x & x>0 \\ -x & x<0 \end{cases}",
    r"\int_0^1 f",
    "forty two",
    r"\text{a hundred and one}",
    "No such number can be found by anybody here",
]


@pytest.mark.parametrize("gold", UNREADABLE)
def test_a_gold_that_nobody_can_compare_is_graded_by_its_own_text_alone(gold):
    assert score(rf"\boxed{{{gold}}}", gold) == 1.0
    assert score(r"\boxed{42}", gold) is None


@pytest.mark.parametrize("gold", ["", " ", "{", "$$", r"\boxed{}", "?", "x" * 5000, None])
def test_an_unusable_gold_is_no_grade(gold):
    logged = {}
    texts = [r"\boxed{18}", r"\boxed{}", ""]
    arguments = {"prompts": texts, "completions": texts, "answer": [gold] * 3}
    assert BoxedMath()(**arguments, log_extra=logged.__setitem__) == [None] * 3
    assert logged["outcome/boxed_math"] == ["unparsed"] * 3
    assert logged["parsed/boxed_math"] == ["18", "", None]


def test_no_text_reaches_an_evaluator(tmp_path):
    target = tmp_path / "made"
    code = f"open('{target}', 'w')"
    for text in (code, rf"\text{{{code}}}", rf"\sin({code})"):
        assert is_equivalent(r"\sin x", text) is False
        assert is_equivalent("18", text) is False
    assert not target.exists()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: 9", "9"), ("Therefore the probability is 2/3.", "2/3"),
        ("She earns 18 dollars.", "18"),
        (r"The final answer is $28 \%$. I hope it is correct.", r"28 \%"),
        ("The winner is Maria", "Maria"),
        (r"So the pair $(x, y)$ that solves it is $(7, 6)$. I hope it is correct.", "(7, 6)"),
        ("The cost increases by 100%.", None), ("It is not 18.", None), ("Is it 18?", None),
        ("18", None),
    ],
)  # fmt: skip
def test_a_sentence_states_one_answer_or_none(text, answer):
    assert sentence_answer(text) == answer


@pytest.mark.parametrize(
    ("file", "least"),
    [
        (LABELS, 1.0),
        (LABELS.with_stem("math_pairs_later"), 0.975),
        pytest.param(OTHERS, 0.985, marks=pytest.mark.skipif(not OTHERS.is_file(), reason="none")),
    ],
)
def test_labels_are_met_without_a_false_positive(file, least):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows = [row for row in rows if not row.get("contested")]
    texts = [row["prediction"] for row in rows]
    texts = [boxed_answer(text) or "" if re.search(r"boxed|fbox", text) else text for text in texts]
    pairs = zip(rows, texts, strict=True)
    found = [is_equivalent(row["gold"], text) is True for row, text in pairs]
    pairs = list(zip(rows, found, strict=True))
    assert [row for row, is_right in pairs if is_right and not row["label"]] == []
    assert sum(is_right is row["label"] for row, is_right in pairs) >= least * len(rows)


def test_the_benchmark_names_the_line_that_it_cannot_read(tmp_path):
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"gold": "1", "prediction": "1", "label": true}\n18\n')
    command = [sys.executable, "scripts/benchmarks/checkers.py", "--pairs", str(file)]
    run = subprocess.run(command, cwd=LABELS.parents[3], capture_output=True, text=True, timeout=60)
    problem = "line 2: a pair has gold, prediction, label (true or false), not 18"
    assert run.returncode == 1 and str(file) in run.stderr and problem in run.stderr


def test_fewer_golds_than_completions_is_an_error():
    with pytest.raises(ValueError, match="shorter"):
        BoxedMath()(prompts=["p"] * 2, completions=["a", "b"], answer=["1"])


def _pay_in_child(queue) -> None:
    queue.put(BoxedMath()(prompts=TEXTS, completions=TEXTS, answer=GOLDS))


def test_it_works_in_a_forked_process():
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=_pay_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == SCORES
    child.join()


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{1}" * (N // 9), r"\boxed{" * (N // 8) + "}" * (N // 8), r"\boxed " * (N // 7),
        "\\" * N, "$" * N,
    ],
)  # fmt: skip
def test_boxes_by_the_thousand_take_no_longer(text, seconds):
    assert score(text, "18") == 0.0
    assert seconds(lambda: boxed_answer(text)) < 0.05


def test_a_hostile_gold_is_no_grade_or_a_wrong_answer(hostile):
    assert score(r"\boxed{18}", hostile) in (None, 0.0)


def test_importing_it_loads_neither_sympy_nor_torch():
    code = "import sys, rewards.boxed_math; print({'sympy', 'torch'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True, cwd=LABELS.parents[3]) == "set()\n"


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters()))
def test_any_text_earns_a_known_amount(text):
    assert score(text, "18") == (1.0 if boxed_answer(text) == "18" else 0.0)
    assert score(rf"\boxed{{{text}}}", "18") in (0.0, 1.0)


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_only_the_right_integer_scores(answer, gold):
    assert score(rf"\boxed{{{answer}}}", str(gold)) == (1.0 if answer == gold else 0.0)
