"""Programs are scored by the tests they pass: what is theirs is no None, what is ours no grade."""

import json
from typing import NamedTuple

import pytest
from support.sandbox import on_linux

from rewards import load_reward
from rewards.code_tests import CodeTests, parse_cases
from rewards.sandbox import Sandbox, ZygoteDied, pool

pytestmark = on_linux
TESTS = ["assert f(2) == 4", "assert f(3) == 6"]
DOUBLE, HALF, NONE = (f"def f(x): return {result}" for result in ("2 * x", "4", "1"))
CASES = [json.dumps({"stdin": str(n), "stdout": str(2 * n)}) for n in (2, 3)]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


class Scored(NamedTuple):
    """What a call scored, and what it logged."""

    scores: list
    outcomes: list
    reasons: list
    metrics: dict[str, float]


def score(*codes: str, tests=TESTS, settings: dict | None = None, **columns) -> Scored:
    """Score programs that are all of the same row; `settings` are the reward's."""
    completions = [[{"role": "assistant", "content": block(code)}] for code in codes]
    row = {"tests": tests} | columns
    return score_rows(completions, {name: [row[name]] * len(codes) for name in row}, settings)


def score_rows(completions: list, rows: dict[str, list], settings: dict | None = None) -> Scored:
    """Score completions, each with the columns of its row."""
    logged, metrics = {}, {}
    log = {"log_extra": logged.__setitem__, "log_metric": metrics.__setitem__}
    reward = CodeTests(**(settings or {}))
    scores = reward(prompts=["p"] * len(completions), completions=completions, **rows, **log)
    metrics = {name.removeprefix("code_tests/"): value for name, value in metrics.items()}
    return Scored(scores, logged["outcome/code_tests"], logged["code_tests/reason"], metrics)


@pytest.mark.parametrize(
    ("settings", "scores"),
    [
        ({}, [0.5, 1.0, 0.0, 0.0]),
        ({"all_or_nothing": True}, [0.0, 1.0, 0.0, 0.0]),
        ({"correct": 3.0}, [1.5, 3.0, 0.0, 0.0]),
        ({"wrong": -1.0}, [0.5, 1.0, -1.0, -1.0]),  # a share of the tests costs nothing
        ({"wrong": -1.0, "all_or_nothing": True}, [-1.0, 1.0, -1.0, -1.0]),
    ],
)
def test_a_right_program_earns_correct_part_of_the_tests_its_share_and_none_wrong(settings, scores):
    assert score(HALF, DOUBLE, NONE, "", settings=settings).scores == scores
    assert CodeTests(**settings).full == scores[1]
    assert score(DOUBLE, tests=[], settings=settings).scores == [None]


@pytest.mark.parametrize(
    ("text", "settings", "amount"),
    [
        (block(DOUBLE) + "\nFor example:\n" + block("f(2)"), {}, 1.0),  # what the tests call
        ("<think>Twice.</think>" + block(DOUBLE), {}, 1.0),
        ("<think>" + block(DOUBLE) + "</think>I do not know.", {}, 0.0),  # a thought is no answer
        (DOUBLE, {}, 1.0),  # without a block the text is the program
        (f"<answer>\n{DOUBLE}\n</answer>", {}, 1.0),
        (DOUBLE, {"whole_text": False}, 0.0),
    ],
)
def test_the_program_behind_the_thoughts_that_the_tests_call_is_run(text, settings, amount):
    assert score_rows([text], {"tests": [TESTS]}, settings).scores == [amount]


@pytest.mark.parametrize("text", ["", "I do not know.", "```python\n```", "```python\n \n\n```"])
def test_without_a_program_nothing_is_scored_not_even_for_a_preamble_that_passes(text):
    for preamble in (None, DOUBLE):
        assert score_rows([text], {"tests": [TESTS], "preamble": [preamble]}).scores == [0.0]


def test_cases_are_pairs_of_input_and_output():
    codes = "print(2 * int(input()))", "print(4)", "print(2 * int(input()), 'or so')"
    scored = score(*codes, f"{codes[0]}; raise SystemExit(1)", tests=CASES)
    assert scored.scores == [1.0, 0.5, 0.0, 0.0]
    assert scored.reasons == ["", "wrong output", "wrong output", "exited with code 1: "]
    quoted = block(codes[0]) + "\nWe read:\n" + block("n = int(input())")
    assert score_rows([quoted], {"tests": [CASES]}).scores == [1.0]
    text = ' {\n "stdout": "\\u00e9\\n", "stdin": "", "name": "accent"}'
    assert parse_cases([text]) == [("", "é\n")]
    assert parse_cases(["{'a': 1}['a'] == f(1) or 1 / 0"]) is None, "a statement"


@pytest.mark.parametrize(
    ("tests", "label"),
    [
        (None, "unparsed: no tests: any program would pass"),
        ([TESTS[0], CASES[0]], "unparsed: tests of two kinds in one row"),
        ([TESTS[0], None], "unparsed: the tests of a row are a list of texts, not ['assert f("),
        (['{"stdin": "2"}'], "unparsed: a JSON test has the texts stdin and stdout, not {'std"),
        (['{"stdin": 2, "stdout": "4"}'], "unparsed: a JSON test has the texts stdin and stdout"),
        (
            [json.dumps({"stdin": "", "stdout": "x" * 2**20})],
            "unparsed: a stdout of 1,048,576 bytes",
        ),
        (TESTS[0], "unparsed: the tests of a row are a list of texts, not 'assert f("),
        (["assert f(2) =="], "error: the tests are not Python: "),
    ],
)
def test_tests_that_cannot_be_used_cost_their_row_alone_whatever_the_program(tests, label):
    codes = [DOUBLE, "import os; os._exit(0)", DOUBLE]
    scored = score_rows([block(code) for code in codes], {"tests": [tests, tests, TESTS]})
    assert scored.scores == [None, None, 1.0] and scored.outcomes[2] == "graded"
    assert all(outcome.startswith(label) for outcome in scored.outcomes[:2])


def test_a_failure_of_the_sandbox_is_none_and_an_error(monkeypatch):
    def dies(*_):
        raise ZygoteDied("planted")

    with Sandbox(workers=1) as sandbox:
        monkeypatch.setattr(CodeTests, "sandbox", lambda self: sandbox)
        monkeypatch.setattr(pool, "run_job", dies)
        scored = score(DOUBLE, "no", hidden_tests=["assert f(1) == 2"])
    assert scored.scores == [None, None] and scored.outcomes == ["error: planted"] * 2
    assert scored.metrics == {}


FAILING = ["def f(x) return", "1 / 0", "import os\nos._exit(0)", "raise KeyboardInterrupt"]
FAILING += ["\x00", "\ud800", "x = '" + "a" * 2_000_000 + "'", "[" * 20_000]


def test_a_program_that_fails_or_takes_too_long_is_wrong_and_never_none():
    scored = score(*FAILING)
    assert scored.scores == [0.0] * len(FAILING) and set(scored.outcomes) == {"graded"}
    assert all(scored.reasons)
    scored = score("while True: pass", settings={"timeout_s": 0.5})
    assert scored[:3] == ([0.0], ["timeout"], ["timeout: more than 0.5 s"])


def test_hidden_tests_are_logged_and_not_scored():
    by_heart = "def f(x):\n    while x > 4: pass\n    return {2: 4, 3: 6}.get(x)"
    hidden = ["assert f(4) == 8", "assert f(5) == 10", "assert g(1) == 1"]  # g is not asked of it
    scored = score(by_heart, hidden_tests=hidden, settings={"timeout_s": 0.5})
    assert scored.scores == [1.0] and scored.reasons == ["AssertionError"]
    assert scored.metrics == {"visible": 1.0, "hidden": 0.0, "gap": 1.0}
    # The gap is of rows that have some.
    rows = {"tests": [TESTS] * 2, "hidden_tests": [["assert f(2) == 4"], None]}
    metrics = score_rows([block(HALF), block(NONE)], rows).metrics
    assert metrics == {"visible": 0.5, "hidden": 1.0, "gap": -0.5}
    assert score(DOUBLE).metrics == {}


NULLABLE = ("setup", "preamble", "entry_point", "hidden_tests")
METHOD = "class A:\n    def f(self, x): return 2 * x"
SUM, SUMS = "def sum(a, b): return 6 if a == 10 else 4", ["assert sum(10, 15) == 6"]


@pytest.mark.parametrize(
    ("code", "tests", "columns", "amount"),
    [
        (DOUBLE, ["assert f(TWO) == 4"], {"setup": "TWO = 2"}, 1.0),
        ("assert TWO == 2\n" + DOUBLE, ["assert f(TWO) == 4"], {"setup": "TWO = 2"}, 0.0),  # unseen
        ("def f(x): return add(x, x)", TESTS, {"preamble": "from operator import add"}, 1.0),
        (DOUBLE, TESTS, {"preamble": "def f(x): return 1"}, 1.0),
        (METHOD, TESTS, {"preamble": "def f(x): return A().f(x)"}, 1.0),  # A comes behind it
        (SUM, SUMS, {"entry_point": "sum"}, 1.0),
        ("def total(a, b): return 6", SUMS, {"entry_point": "sum"}, 0.0),  # not Python's own sum
        (f"from __future__ import annotations\n{DOUBLE}", TESTS, {"preamble": "import math"}, 1.0),
        (DOUBLE, TESTS, dict.fromkeys(NULLABLE), 1.0),  # as rows of another kind make them
    ],
)
def test_setup_preamble_and_entry_point_are_those_of_the_row(code, tests, columns, amount):
    assert score(code, tests=tests, **columns).scores == [amount]


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(timeout_s):
    with pytest.raises(ValueError, match="it must be more than 0 seconds"):
        load_reward("code_tests", timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("completions", "workers", "longest"), [(8, "2 workers", 40), (3, "1 worker", 30)]
)
def test_it_says_if_programs_that_never_end_would_not_end_within_the_limit_of_a_call(
    monkeypatch, completions, workers, longest
):
    with Sandbox(workers=int(workers[0])) as sandbox:
        monkeypatch.setattr(CodeTests, "sandbox", lambda self: sandbox)
        reward = load_reward("code_tests", timeout_s=5.0)
        assert reward.prepare(completions, longest + 0.1) == sandbox.describe()
        assert "`code_metric` gives" in load_reward("code_tests", timeout_s=6.0).prepare(1, 99)
        note = reward.prepare(completions, longest)
        assert (
            f"; {completions} programs that all never end would take {workers} {longest} s" in note
        )
