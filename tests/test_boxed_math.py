r"""boxed_math: the last \boxed{} against the gold; late answers are wrong, and only what is ours is no grade."""

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rewards.boxed_math
from rewards import full_reward, load_reward, reward_columns, reward_kind, reward_name
from rewards.boxed_math import BoxedMath, compare_pairs, is_equivalent
from rewards.latex.stated import gold_answer, stated_answer
from rewards.text import boxed_answer, last_boxed
from rewards.worker_pool import WorkerPool

LABELS = Path(__file__).parents[1] / "scripts/benchmarks/labels/math_pairs.jsonl"
OTHERS = Path(__file__).parents[2] / "shared/data/math_pairs/pairs.jsonl"  # not part of the project
N = 100_000

AMOUNTS = [  # completion, gold, amount
    (r"So it is \boxed{18}.", "18", 1.0),
    (r"\boxed{\frac{1}{2}}", "0.5", 1.0),
    (r"$\boxed{\dfrac{\sqrt{2}}{2}}$", r"\frac{1}{\sqrt2}", 1.0),
    (r"\boxed{1} and then \boxed{2}, so \boxed{18}", "18", 1.0),
    (r"\boxed{\boxed{18}}", "18", 1.0),
    (r"\fbox{18}", "18", 1.0),
    (r"\boxed 18", "18", 1.0),
    (r"\boxed{2\sin x\cos x}", r"\sin 2x", 1.0),
    (r"\boxed{18}", r"$18$", 1.0),
    (r"\boxed{18}", r"The sum is \boxed{18}.", 1.0),
    (r"\boxed{-2} and \boxed{1}", "1, -2", 1.0),
    (r"\boxed{17 or 18}", "18", 0.0),
    (r"\boxed{17} or \boxed{18}", "18", 0.0),
    (r"\boxed{" + ", ".join(map(str, range(101))) + "}", "18", 0.0),
    (r"\boxed{18} is what I first thought, but \boxed{19}", "18", 0.0),
    (r"\boxed{18} \boxed{}", "18", 0.0),
    (r"\boxed{}", "18", 0.0),
    (r"\boxed{18", "18", 0.0),
    ("18", "18", 0.0),
    ("", "18", 0.0),
    (r"\boxed{１８}", "18", 0.0),
    (r"\boxed{NaN}", "18", 0.0),
    (r"\boxed{inf}", "18", 0.0),
    (r"\boxed{1e999}", "18", 0.0),
    (r"\boxed{9**9**9}", "18", 0.0),
    ("\\boxed{18\u200b}", "18", 0.0),
    (r"\boxed{18" + "0" * 5000 + "}", "18", 0.0),
    (r"\boxed{__import__('os')}", "18", 0.0),
    (r"\boxed{\sin^2 x}", r"\cos^2 x", 0.0),
]
HARD = (r"\sin 2x", r"\boxed{2\sin x\cos x}")  # a gold and a right answer for Math-Verify to prove
SCORES = [amount for *_, amount in AMOUNTS]
GOLDS = [gold for _, gold, _ in AMOUNTS]
TEXTS = [text for text, *_ in AMOUNTS]


def score(text: str, gold: str | None, **parameters: float) -> float | None:
    (amount,) = BoxedMath(**parameters)(prompts=["p"], completions=[text], answer=[gold])
    return amount


def outcomes(texts: list[str], golds: list[str], **parameters) -> list[str]:
    logged = {}
    BoxedMath(**parameters)(
        prompts=texts, completions=texts, answer=golds, log_extra=logged.__setitem__
    )
    return logged["outcome/boxed_math"]


@pytest.fixture
def pool_of(monkeypatch):
    """Puts a function of the name given in the place of Math-Verify; every question costs a call."""
    pools = []

    def replace(function: str, **parameters) -> None:
        pools.append(WorkerPool(function, **{"timeout_s": 0.5, "workers": 2, **parameters}))
        monkeypatch.setattr(rewards.boxed_math, "_pools", {0.5: pools[-1], 2.0: pools[-1]})

    yield replace
    for pool in pools:
        pool.close()


@pytest.mark.parametrize(("text", "gold", "amount"), AMOUNTS)
def test_the_last_box_is_scored_by_its_value(text, gold, amount):
    assert score(text, gold) == amount


def test_a_wrong_answer_costs_the_penalty_and_an_unusable_gold_nothing():
    texts = [r"\boxed{18}", r"\boxed{17}", "18", r"\boxed{18}"]
    reward = load_reward("boxed_math", wrong=-0.5)
    assert reward(prompts=["p"] * 4, completions=texts, answer=["18", "18", "18", ""]) == [
        1.0,
        -0.5,
        -0.5,
        None,
    ]
    assert score(r"\boxed{9 + 9}", "18", wrong=-0.5, prompt_expressions="refuse") == -0.5
    for wrong in (0.5, float("-inf"), float("nan")):
        with pytest.raises(ValueError, match="it must be 0, or below as a penalty"):
            BoxedMath(wrong=wrong)


def test_it_is_a_verifier_of_the_answer_column():
    reward = load_reward("rewards.boxed_math:BoxedMath", correct=2.0)
    assert (reward_name(reward), reward_kind(reward), full_reward(reward)) == (
        "boxed_math",
        "verifier",
        2.0,
    )
    assert reward_columns(reward) == ["answer"]
    assert reward(prompts=["p"], completions=[r"\boxed{18}"], answer=["18"]) == [2.0]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{1}", "1"), (r"\boxed{1} \boxed{2}", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"), (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{a\boxed{b}}", r"a\boxed{b}"), (r"\boxed{1} \boxed{2", "1"), (r"{ \boxed{1}", "1"),
        (r"} \boxed{1}", "1"), (r"\\boxed{1}", "1"), (r"\boxed {1}", "1"), (r"\boxed 5 apples", "5"),
        (r"$\boxed 5$", "5"), (r"\fbox{1}", "1"), (r"\boxed{}", ""), (r"\boxed{1", None), (r"\boxed", None),
        ("boxed{1}", None), ("", None),
    ],
)  # fmt: skip
def test_the_last_complete_box(text, inside):
    assert last_boxed(text) == inside


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{-2} \quad \text{and} \quad \boxed{1}", "-2 or 1"), (r"\boxed{1}\boxed{2}", "2"),
        (r"\boxed{1}, \boxed{1}", "1"), (r"\boxed{1}. So \boxed{2}", "2"),
        (r"\boxed{1} thus \boxed{2} or \boxed{3}", "2 or 3"), (r"\boxed{1}" + " " * 80 + r"\boxed{2}", "2"),
    ],
)  # fmt: skip
def test_boxes_side_by_side_are_one_answer(text, answer):
    assert boxed_answer(text) == answer


def test_adjacent_boxes_are_one_answer_in_a_gold_alone():
    assert gold_answer(r"$\boxed{1}\boxed{2}$") == "1 or 2"
    golds, answers = [r"\boxed{1}\boxed{2}", "2"], ["2, 1", boxed_answer(r"\boxed{1} \boxed{2}")]
    assert compare_pairs(golds, answers) == ["right", "right"]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("18", "18"), ("$18$", "18"), (r"\boxed{18}", "18"), (r"So $x = \boxed{18}$.", "18"),
        ("$125$ miles", "125 miles"), (r"\$18", r"\$18"),
        (r"The final answer is $28 \%$. I hope it is correct.", r"$28 \%$".strip("$")),
    ],
)  # fmt: skip
def test_a_gold_comes_in_several_forms(gold, answer):
    assert gold_answer(gold) == answer


@pytest.mark.parametrize(
    ("box", "gold", "amount"),
    [
        (r"\boxed{\text{The answer is } \boxed{18}}", "18", 1.0), (r"\boxed{The answer is 18}", "18", 1.0),
        (r"\boxed{\text{She earns 18 dollars.}}", "18", 1.0),
        (r"\boxed{\text{The probability is }\frac{1}{2}}", "0.5", 1.0), (r"\boxed{Answer: 18}", "18", 1.0),
        (r"\boxed{\text{The answer is not } 18}", "18", 0.0), (r"\boxed{\text{17 or } \boxed{18}}", "18", 0.0),
        (r"\boxed{18 \text{ is wrong}}", "18", 0.0), (r"\boxed{\text{at least }18}", "18", 0.0),
        (r"\boxed{\text{isn't }18}", "18", 0.0),
    ],
)  # fmt: skip
def test_a_sentence_in_a_box_is_read_unless_it_hedges(box, gold, amount):
    assert score(box, gold) == amount


@pytest.mark.parametrize(
    ("question", "box", "gold", "amount"),
    [
        ("What is $3 + 4$?", "3+4", "7", 0.0), ("25 + 7 =", "25 + 7", "32", 0.0),
        (r"Compute $\dfrac{1}{2} \cdot 6$.", r"\frac12 \cdot 6", "3", 0.0),
        (r"Compute $\dfrac{1}{2} \cdot 6$.", r"\frac{1}{2}\times 6", "3", 0.0),
        ("Write $0.5$ as a fraction.", "0.5", r"\frac{1}{2}", 0.0), ("25 + 7 =", "x = 25 + 7", "32", 0.0),
        ("25 + 7 =", "25 + 7 = 32", "32", 1.0), ("25 + 7 =", "7 + 25", "32", 0.0), ("Is it 18 or 19?", "18", "18", 1.0),
        ("25 + 7 =", "(25+7)", "32", 0.0), ("25 + 7 =", r"\frac{64}{2}", "32", 0.0), ("25 + 7 =", "64/2", "32", 0.0),
        ("58 - 26 =", "-26+58", "32", 0.0), ("25 + 7 =", r"30\cdot1+2", "32", 0.0), ("7 - 25 =", "-18", "-18", 1.0),
        ("Halve 1.", r"\frac12", "0.5", 1.0), ("Halve 1.", r"1 - \frac12", "0.5", 0.0), ("25 + 7 =", "32.0", "32", 1.0),
        ("Is it 18 or 19 eggs?", "18", r"18\text{ eggs}", 1.0), ("Write 32.5 in words, or 132", "32", "32.0", 1.0),
    ],
)  # fmt: skip
def test_an_expression_of_the_prompt_is_refused_where_asked(question, box, gold, amount):
    prompts = [
        [{"role": "system", "content": box}, {"role": "user", "content": question}],
        question,
    ]
    arguments = {"prompts": prompts, "completions": [rf"\boxed{{{box}}}"] * 2, "answer": [gold] * 2}
    assert BoxedMath(prompt_expressions="refuse")(**arguments) == [amount] * 2
    assert BoxedMath()(**arguments) == [1.0] * 2
    with pytest.raises(ValueError, match="allowed: score, refuse"):
        BoxedMath(prompt_expressions="no")


def test_a_box_in_the_thoughts_alone_is_scored_only_where_asked():
    for text in (r"<think>\boxed{18}</think>So.", r"<think>\boxed{18}"):
        assert (score(text, "18"), score(text, "18", thoughts=True)) == (0.0, 1.0)
    assert score(r"<think>\boxed{17}</think>\boxed{18}", "18") == 1.0


CASES = r"\begin{cases} x & x>0 \\ -x & x<0 \end{cases}"
TOO_LARGE = [
    r"\sinh{2356!}",
    "|2000!+x|",
    r"\sqrt{3000!+x}",
    "(2000!+x)^{60}",
    "10^{9999}",
    r"\frac10",
]


@pytest.mark.parametrize(
    ("gold", "box", "outcome"),
    [
        ("18", "18", "right"), ("18", "19", "wrong"), *(("18", box, "wrong") for box in TOO_LARGE),
        # What nobody can read, and words, are graded by their own text alone.
        *((gold, gold, "right") for gold in (CASES, "forty two", r"\text{a hundred and one}", "No such number")),
        (CASES, "|y|", "unparsed"), ("forty two", "42", "unparsed"), (r"\text{a hundred and one}", "42", "unparsed"),
        ("No such number can be found by anybody here", "42", "unparsed"),
    ],
)  # fmt: skip
def test_the_outcome_is_logged_and_no_failure_of_the_completion_is_ours(gold, box, outcome):
    assert outcomes([rf"\boxed{{{box}}}", ""], [gold, "18"]) == [outcome, "wrong"]


@pytest.mark.parametrize("gold", ["", " ", "{", "$$", r"\boxed{}", "?", "x" * 5000, None])
@pytest.mark.parametrize("text", [r"\boxed{18}", r"\boxed{}", ""])
def test_an_unusable_gold_is_no_grade(gold, text):
    assert score(text, gold) is None
    assert outcomes([text], [gold]) == ["unparsed"]


@pytest.mark.parametrize(
    "function", ["time:sleep", "os:_exit"]
)  # the one raises with two texts, the other dies
def test_a_worker_that_fails_is_no_grade(function, pool_of):
    pool_of(function)
    assert outcomes([HARD[1], r"\boxed{18}"], [HARD[0], "18"]) == ["error", "right"]
    assert score(HARD[1], HARD[0]) is None


def test_a_row_out_of_time_is_wrong_within_the_limit():
    gold, late = r"\sin x", r"\int_0^1 \frac{\sin^7(t^5+x)}{\cosh(t^3+x^2)} e^{-t^4 x} dt"
    started = time.monotonic()
    reward = BoxedMath(timeout_s=0.5)
    logged = {}
    texts = [rf"\boxed{{{late}}}", r"\boxed{18}"]
    assert reward(
        prompts=texts, completions=texts, answer=[gold, "18"], log_extra=logged.__setitem__
    ) == [0.0, 1.0]
    assert logged["outcome/boxed_math"] == ["timeout", "right"]
    assert time.monotonic() - started < 30  # the start of a worker on a busy machine among it


def test_equal_questions_are_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        rewards.boxed_math, "_ask", lambda pairs, timeout_s: asked.extend(pairs) or []
    )
    with pytest.raises(ValueError):
        compare_pairs([HARD[0]] * 3, [r"2\sin x\cos x"] * 3)
    assert asked == [(HARD[0], r"2\sin x\cos x")]


VECTORS = (
    r"\begin{pmatrix}4\\6\end{pmatrix}",
    r"\begin{pmatrix}1\\2\end{pmatrix}+\begin{pmatrix}3\\4\end{pmatrix}",
)


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [  # what Math-Verify alone would let pass, and what it alone can prove
        (r"\sin x", r"\sin x + 10^{-20}", False), (r"\sin x", r"\sin x + 10^{-60}", False),
        (r"e^{\pi\sqrt{163}}", "262537412640768744", False), (r"\ln 2", "0.69314", False),
        (r"\sqrt{x^2}", "x", False), ("5", "x+y=5", False), ("x^2+1=0", "x^2+2=0", False),
        (r"\frac{1}{3}\sin x", r"0.333333\sin x", False), (r"\sin 2x", r"2\sin x\cos x", True), (*VECTORS, True),
        (r"(3, \cos 2y)", r"(3, 1 - 2\sin^2 y)", True), (r"\sum_{k=1}^{10} k", "55", True),
        ("the answer is 10000", "10^4", True),
    ],
)  # fmt: skip
def test_what_is_asked_of_math_verify_is_decided_strictly(gold, answer, same):
    assert is_equivalent(gold, answer) is same


def test_no_text_reaches_an_evaluator(tmp_path):
    target = tmp_path / "made"
    for code in (
        f"open('{target}', 'w')",
        rf"\text{{open('{target}','w')}}",
        rf"\sin(open('{target}','w'))",
    ):
        assert is_equivalent(r"\sin x", code) is False
        assert is_equivalent("18", code) is False
    assert not target.exists()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("18", "18"), (r"\frac{1}{2}", r"\frac{1}{2}"), (r"So \boxed{18} it is", "18"), (r"\boxed{18", ""),
        (r"Answer \[ 9 \]", "9"), ("Therefore the probability is 2/3.", "2/3"),
        (r"So the pair $(x, y)$ that solves it is $(7, 6)$. I hope it is correct.", "(7, 6)"),
        ("The cost increases by 100%.", "The cost increases by 100%."),
    ],
)  # fmt: skip
def test_the_answer_that_a_text_states(text, answer):
    assert stated_answer(text) == answer


@pytest.mark.parametrize(
    ("file", "most_refused"), [(LABELS, 0.0), (LABELS.with_stem("math_pairs_later"), 0.025)]
)
def test_our_labels_are_met_without_a_false_positive(file, most_refused):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    found = compare_pairs(
        [row["gold"] for row in rows], [stated_answer(row["prediction"]) for row in rows], 20.0
    )
    mistakes = [
        row
        for row, outcome in zip(rows, found, strict=True)
        if (outcome == "right") != row["label"]
    ]
    assert len(rows) >= 400 and 0.4 < sum(row["label"] for row in rows) / len(rows) < 0.65
    assert [row for row in mistakes if not row["label"]] == []
    assert len(mistakes) <= most_refused * len(rows)


@pytest.mark.skipif(not OTHERS.is_file(), reason=f"no pairs of other projects at {OTHERS}")
def test_the_labels_of_other_projects_are_met_where_nobody_contests_them():
    rows = [
        row for row in map(json.loads, OTHERS.read_text().splitlines()) if not row.get("contested")
    ]
    found = compare_pairs(
        [row["gold"] for row in rows], [stated_answer(row["prediction"]) for row in rows], 20.0
    )
    assert [
        row
        for row, outcome in zip(rows, found, strict=True)
        if outcome == "right" and not row["label"]
    ] == []
    right = sum(
        (outcome == "right") == row["label"] for row, outcome in zip(rows, found, strict=True)
    )
    assert right / len(rows) >= 0.985


def run_benchmark(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/benchmarks/checkers.py", *arguments]
    return subprocess.run(
        command, cwd=LABELS.parents[3], capture_output=True, text=True, timeout=60
    )


def test_the_benchmark_answers_help_without_heavy_imports():
    started = time.monotonic()
    assert "--pairs" in run_benchmark("--help").stdout
    assert (
        time.monotonic() - started < 10
    )  # 0.2 s; importing trl alone takes longer on a busy machine
    code = "import sys, scripts.benchmarks.checkers; print({'trl', 'sympy'} & set(sys.modules))"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, cwd=LABELS.parents[3])
        == "set()\n"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("18", "line 2: a pair has gold, prediction, label (true or false), not 18"), ("{", "line 2: it is not JSON"),
        ('{"gold": "18", "label": true}', "line 2: a pair has gold, prediction, label (true or false), not {'gold'"),
        ('{"gold": "18", "prediction": "18", "label": "yes"}', "line 2: a pair has gold, prediction, label"),
    ],
)  # fmt: skip
def test_the_benchmark_names_the_line_that_it_cannot_read(tmp_path, line, problem):
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"gold": "1", "prediction": "1", "label": true}\n' + line + "\n")
    run = run_benchmark("--pairs", str(file))
    assert run.returncode == 1 and str(file) in run.stderr and problem in run.stderr


def test_fewer_golds_than_completions_is_an_error():
    with pytest.raises(ValueError, match="argument 2"):
        BoxedMath()(prompts=["p"] * 2, completions=["a", "b"], answer=["1"])


def test_it_works_off_the_main_thread_and_in_an_event_loop():
    async def call() -> list[float | None]:
        return BoxedMath()(prompts=TEXTS, completions=TEXTS, answer=GOLDS)

    with ThreadPoolExecutor(2) as pool:
        assert [run.result() for run in [pool.submit(asyncio.run, call()) for _ in range(2)]] == [
            SCORES,
            SCORES,
        ]


def _pay_in_child(queue) -> None:
    queue.put(BoxedMath()(prompts=TEXTS, completions=TEXTS, answer=GOLDS))


def test_it_works_in_a_forked_process():
    assert BoxedMath()(prompts=TEXTS, completions=TEXTS, answer=GOLDS) == SCORES
    rewards.boxed_math.compare_quickly.cache_clear()
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=_pay_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == SCORES
    child.join()


@pytest.mark.parametrize(
    "text",
    [
        r"\boxed{1}" * (N // 9),
        r"\boxed{" * (N // 8) + "}" * (N // 8),
        r"\boxed " * (N // 7),
        "\\" * N,
        "$" * N,
    ],
)
def test_boxes_by_the_thousand_take_no_longer(text, seconds):
    assert score(text, "18") == 0.0
    assert seconds(lambda: boxed_answer(text)) < 0.05


def test_a_hostile_gold_is_no_grade_or_a_wrong_answer(hostile):
    assert score(r"\boxed{18}", hostile) in (None, 0.0)


def test_importing_it_loads_neither_sympy_nor_torch():
    code = "import sys, rewards.boxed_math; print({'sympy', 'torch', 'math_verify'} & set(sys.modules))"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True, cwd=LABELS.parents[3])
        == "set()\n"
    )


@settings(deadline=None, max_examples=50)
@given(st.text(st.characters()))
def test_any_text_earns_a_known_amount(text):
    assert score(text, "18") == (1.0 if boxed_answer(text) == "18" else 0.0)
    assert outcomes([rf"\boxed{{{text}}}"], ["18"])[0] in ("right", "wrong", "timeout")


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_only_the_right_integer_scores(answer, gold):
    assert score(rf"\boxed{{{answer}}}", str(gold)) == (1.0 if answer == gold else 0.0)
