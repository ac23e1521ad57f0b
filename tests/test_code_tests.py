"""Programs are scored by the tests they pass: what is theirs is no None, what is ours no grade."""

import json
import sys
import time
from typing import NamedTuple

import pytest
from datasets import Dataset

from rewards import load_reward
from rewards.code_tests import OPTIONAL, CodeTests, parse_cases
from rewards.contract import prepare_reward, reward_columns
from rewards.sandbox import Sandbox, ZygoteDied, pool

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)

TESTS = ["assert f(2) == 4", "assert f(3) == 6"]
DOUBLE = "def f(x): return 2 * x"
CASES = [json.dumps({"stdin": str(n), "stdout": str(2 * n)}) for n in (2, 3)]


def block(code: str) -> str:
    return f"```python\n{code}\n```"


class Scored(NamedTuple):
    """What a call scored, and what it logged."""

    scores: list
    outcomes: list | None
    reasons: list | None
    metrics: dict[str, float]


def call(reward, codes: list[str], tests: list, **columns: list) -> Scored:
    """Score programs, each with the tests of its row."""
    logged, metrics = {}, {}
    completions = [[{"role": "assistant", "content": block(code)}] for code in codes]
    log = {"log_extra": logged.__setitem__, "log_metric": metrics.__setitem__}
    given = {"prompts": ["p"] * len(codes), "completions": completions, "tests": tests, **columns}
    scores = reward(**given, **log)
    metrics = {name.removeprefix("code_tests/"): value for name, value in metrics.items()}
    return Scored(
        scores, logged.get("outcome/code_tests"), logged.get("code_tests/reason"), metrics
    )


def score(*codes: str, tests=TESTS, settings: dict | None = None, **columns) -> Scored:
    """Score programs that are all given the same row; `settings` are the reward's."""
    same = {name: [value] * len(codes) for name, value in columns.items()}
    return call(CodeTests(**(settings or {})), list(codes), [tests] * len(codes), **same)


def text_score(text: str, settings: dict | None = None, **columns) -> float | None:
    """What a completion of any text is scored."""
    columns = {name: [value] for name, value in ({"tests": TESTS} | columns).items()}
    return CodeTests(**(settings or {}))(prompts=["p"], completions=[text], **columns)[0]


# What is scored


HALF, NONE = "def f(x): return 4", "def f(x): return 1"


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


def test_each_row_has_its_own_tests_and_they_may_differ_in_number():
    tests = [
        ["assert f(2) == 4"],
        ["assert g() == 1", "assert g() == 2", "assert g() == 3", "assert g() == 1"],
        CASES,
    ]
    codes = [DOUBLE, "def g(): return 1", "print(2 * int(input()))"]
    assert call(CodeTests(), codes, tests).scores == [1.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (block(DOUBLE) + "\nFor example:\n" + block("f(2)"), 1.0),  # what the tests call
        ("<think>Twice.</think>" + block(DOUBLE), 1.0),
        ("<think>" + block(DOUBLE) + "</think>I do not know.", 0.0),  # what is thought is no answer
        (DOUBLE, 1.0),  # without a block the text is the program
        (f"Thus: {DOUBLE}", 0.0),  # and prose is none
    ],
)
def test_the_program_behind_the_thoughts_that_the_tests_call_is_run(text, amount):
    assert text_score(text) == amount


def test_a_text_without_a_block_is_no_program_by_choice():
    assert text_score(DOUBLE, {"whole_text": False}) == 0.0


# Tests with standard input and output


def test_cases_are_pairs_of_input_and_output():
    codes = "print(2 * int(input()))", "print(4)", "print(2 * int(input()), 'or so')"
    scored = score(*codes, f"{codes[0]}; raise SystemExit(1)", tests=CASES)
    assert scored.scores == [1.0, 0.5, 0.0, 0.0]
    assert scored.reasons == ["", "wrong output", "wrong output", "exited with code 1: "]


def test_a_case_is_any_json_text_of_that_object():
    text = ' {\n "stdout": "\\u00e9\\n", "stdin": "", "name": "accent"}'
    assert parse_cases([text]) == [("", "é\n")]
    assert parse_cases(["{'a': 1}['a'] == f(1) or 1 / 0"]) is None, "a statement"


# Rows that cannot be graded


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        (None, "no tests: any program would pass"),
        ([], "no tests: any program would pass"),
        ([TESTS[0], CASES[0]], "tests of two kinds in one row"),
        ([CASES[0], TESTS[0]], "tests of two kinds in one row"),
        ([TESTS[0], None], "a test is a text, not None"),
        ([TESTS[0], 5], "a test is a text, not 5"),
        (['{"stdin": "2"}'], 'a JSON test has the texts stdin and stdout, not \'{"stdin": "2"}\''),
        (['{"stdin": 2, "stdout": "4"}'], "a JSON test has the texts stdin and stdout"),
        (["{}"], "a JSON test has the texts stdin and stdout"),
        (TESTS[0], "the tests of a row are a list of texts, not the text 'assert f(2) == 4'"),
    ],
)
def test_tests_that_cannot_be_used_are_none_and_unparsed_whatever_the_program(tests, why):
    scored = score(DOUBLE, "", "import os; os._exit(0)", tests=tests)
    assert scored.scores == [None] * 3
    assert all(outcome.startswith(f"unparsed: {why}") for outcome in scored.outcomes)


def test_tests_that_are_no_python_are_an_error_and_no_grade():
    scored = score(DOUBLE, tests=["assert f(2) =="])
    assert scored.scores == [None]
    assert scored.outcomes[0].startswith("error: the tests are not Python: ")


def test_a_row_that_cannot_be_graded_costs_that_row_alone():
    scored = call(CodeTests(), [DOUBLE] * 4, [TESTS, [], TESTS, ["assert f("]])
    assert scored.scores == [1.0, None, 1.0, None]
    kinds = [outcome.split(":")[0] for outcome in scored.outcomes]
    assert kinds == ["graded", "unparsed", "graded", "error"]


def test_a_failure_of_the_sandbox_is_none_and_an_error(monkeypatch):
    def dies(*_):
        raise ZygoteDied("planted")

    with Sandbox(workers=1) as sandbox:
        monkeypatch.setattr(CodeTests, "sandbox", lambda self: sandbox)
        assert score(DOUBLE).scores == [1.0]
        monkeypatch.setattr(pool, "run_job", dies)
        scored = score(DOUBLE, "no", hidden_tests=["assert f(1) == 2"])
    assert scored.scores == [None, None]
    assert scored.outcomes == ["error: planted"] * 2
    assert scored.metrics == {"suspicious": 0.0}


# What the program causes is its own fault


@pytest.mark.parametrize(
    "text", ["", "I do not know.", "```python\n```", "```python\n \n\n```", "```"]
)
@pytest.mark.parametrize("preamble", [None, DOUBLE])
def test_without_a_program_nothing_is_scored_not_even_for_a_preamble_that_passes(text, preamble):
    assert text_score(text, preamble=preamble) == 0.0


FAILING = ["def f(x) return", "1 / 0", "def f(x): return 1 / 0", "def f(x): raise SystemExit(0)"]
FAILING += ["raise SystemExit(0)", "import os\nos._exit(0)", "import os\ndef f(x): os._exit(0)"]
FAILING += ["def f(x): return f(x)", "g = 1", "import no_such_package", "raise KeyboardInterrupt"]
FAILING += ["\x00", "\ud800", "x = '" + "a" * 2_000_000 + "'", "[" * 20_000]


def test_a_program_that_fails_is_wrong_and_never_none():
    scored = score(*FAILING)
    assert scored.scores == [0.0] * len(FAILING) and set(scored.outcomes) == {"graded"}
    assert all(scored.reasons)


def test_a_program_out_of_time_is_wrong_and_the_call_ends():
    score(DOUBLE)
    started = time.monotonic()
    scored = score("while True: pass", settings={"timeout_s": 0.5})
    assert time.monotonic() - started < 3.0
    assert scored[:3] == ([0.0], ["timeout"], ["timeout: more than 0.5 s"])


# Hidden tests


def test_hidden_tests_are_logged_and_not_scored():
    by_heart = "def f(x): return {2: 4, 3: 6}.get(x)"
    scored = score(by_heart, hidden_tests=["assert f(4) == 8", "assert f(5) == 10"])
    assert scored.scores == [1.0]
    assert scored.metrics == {"suspicious": 0.0, "visible": 1.0, "hidden": 0.0, "gap": 1.0}
    assert scored.reasons == ["AssertionError"]
    columns = {"hidden_tests": [["assert f(2) == 4"], None]}  # the gap is of rows that have some
    scored = call(CodeTests(), [HALF, NONE], [TESTS] * 2, **columns)
    assert scored.metrics == {"suspicious": 0.0, "visible": 0.5, "hidden": 1.0, "gap": -0.5}
    assert set(score(DOUBLE).metrics) == {"suspicious"}


def test_what_happens_in_a_hidden_test_takes_nothing_away():
    hangs = "def f(x):\n    while x > 3: pass\n    return 2 * x"
    settings = {"timeout_s": 0.5, "all_or_nothing": True}
    for test in ("assert f(4) == 8", "assert g(1) == 1"):  # g is not asked of it
        assert score(hangs, hidden_tests=[test], settings=settings).scores == [1.0]


def test_suspicious_programs_are_counted_and_scored_alike():
    codes = ["import sys\n" + DOUBLE + "\nsys._getframe()", "import ctypes\n" + DOUBLE]
    scored = score(*codes, DOUBLE, "def existing(): pass", preamble="import ctypes")
    assert scored.scores == [1.0, 1.0, 1.0, 0.0]
    assert scored.metrics == {"suspicious": 0.5}  # of the program, not of what stands before it


# Columns of a row

SUM = "def sum(a, b): return 6 if a == 10 else 4"
SUMS = ["assert sum(10, 15) == 6", "assert sum(2, 2) == 4"]
ORDER, ORDERED = "def order(x): x.sort()", ["x = [2, 1]\norder(x)\nassert x == [1, 2]"]


@pytest.mark.parametrize(
    ("code", "tests", "columns", "amount"),
    [
        (DOUBLE, ["assert f(TWO) == 4"], {"setup": "TWO = 2"}, 1.0),
        ("assert TWO == 2\n" + DOUBLE, ["assert f(TWO) == 4"], {"setup": "TWO = 2"}, 0.0),  # unseen
        ("def f(x): return add(x, x)", TESTS, {"preamble": "from operator import add"}, 1.0),
        (DOUBLE, TESTS, {"preamble": "def f(x): return 1"}, 1.0),
        (SUM, SUMS, {"entry_point": "sum"}, 1.0),
        ("def total(a, b): return 6", SUMS, {"entry_point": "sum"}, 0.0),  # not Python's own sum
        *((ORDER, ORDERED, {"inplace": says}, float(says is True)) for says in (True, False, None)),
    ],
)
def test_setup_preamble_entry_point_and_flags_are_those_of_the_row(code, tests, columns, amount):
    assert score(code, tests=tests, **columns).scores == [amount]


def test_columns_may_be_absent_or_none_in_some_rows():
    full = {"hidden_tests": ["assert f(5) == 10"], "setup": "TWO = 2", "entry_point": "f"}
    given = [
        {"tests": TESTS, **full},
        {"tests": TESTS, "preamble": "TWO = 2", "inplace": True},
        {"tests": CASES},
        {"tests": None},
    ]
    rows = Dataset.from_list([dict.fromkeys(OPTIONAL) | row for row in given])
    codes = [DOUBLE, "def f(x): return TWO * x", "print(2 * int(input()))", DOUBLE]
    columns = {name: list(rows[name]) for name in OPTIONAL}
    assert [None in values for values in columns.values()] == [True] * len(OPTIONAL)
    assert call(CodeTests(), codes, list(rows["tests"]), **columns).scores == [1.0, 1.0, 1.0, None]
    assert call(CodeTests(), codes[:1], [TESTS], setup=None).scores == [1.0]
    assert call(CodeTests(), [], []).scores == []
    assert reward_columns(CodeTests()) == ["tests"]


# Settings and readiness


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(timeout_s):
    with pytest.raises(ValueError, match="it must be more than 0 seconds"):
        load_reward("code_tests", timeout_s=timeout_s)


def test_an_unknown_isolation_is_refused():
    reward = load_reward("code_tests", isolation="docker")
    for use in (lambda: reward.prepare(1, 300.0), lambda: call(reward, [DOUBLE], [TESTS])):
        with pytest.raises(
            ValueError, match="isolation is 'docker'; one of landlock, sealed, unsafe, or None"
        ):
            use()


def test_it_is_ready_when_its_isolation_is_in_force():
    message = prepare_reward(load_reward("code_tests"), 8, 300.0)
    assert message == CodeTests().sandbox().describe()
    assert "seccomp" in message and message.endswith(" workers")


@pytest.fixture
def two_workers(monkeypatch):
    with Sandbox(workers=2) as sandbox:
        monkeypatch.setattr(CodeTests, "sandbox", lambda self: sandbox)
        yield sandbox


@pytest.mark.parametrize(("completions", "longest", "limit_s"), [(8, 22, 22), (9, 27.5, 27)])
def test_programs_that_never_end_must_end_within_the_limit_of_a_call(
    two_workers, completions, longest, limit_s
):
    reward = CodeTests(timeout_s=5.0)
    assert reward.prepare(completions, longest + 0.1) == two_workers.describe()
    message = (
        f"{completions} programs that never end take 2 workers {longest} s at timeout_s 5, and "
        f"reward_timeout_s is {limit_s:g}: lower the one or raise the other"
    )
    with pytest.raises(ValueError, match=message):
        reward.prepare(completions, limit_s)
