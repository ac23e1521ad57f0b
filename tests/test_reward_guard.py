"""The guard: a reward that fails is told from one that grades, row by row; none hangs the job."""

import asyncio
import logging
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from recipes.common.training.guard import (
    ERROR,
    GRADED,
    NOT_APPLICABLE,
    TIMEOUT,
    UNPARSED,
    Graded,
    Guard,
    RewardErrors,
)
from rewards.contract import reward_of, route

ROOT = Path(__file__).resolve().parents[1]
BATCH = {
    "prompts": ["p0", "p1", "p2"],
    "completions": ["c0", "c1", "c2"],
    "completion_ids": [[0], [1], [2]],
    "task": ["math", "code", "math"],
    "answer": ["10", "11", "12"],
}


def returning(amounts: object, outcomes: list | None = None, kind: str = "verifier") -> Callable:
    """A reward called `mine` that returns `amounts` and logs `outcomes`."""

    def mine(prompts, completions, log_extra, **kwargs):
        if outcomes is not None:
            log_extra("outcome/mine", outcomes)
        return amounts

    mine.kind = kind
    return mine


def raising(prompts, completions, **kwargs):
    raise KeyError("no such thing")


raising.kind = "verifier"


def as_async(reward: Callable) -> Callable:
    async def call(**arguments):
        await asyncio.sleep(0)
        return reward(**arguments)

    call.__name__, call.__wrapped__ = reward_of(reward).name, reward
    return call


@pytest.fixture(params=[lambda reward: reward, as_async], ids=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Callable[[Callable], Callable]:
    """A reward as it is, or the same as an `async def`."""
    return request.param


def guard(reward: object, timeout_s: float = 60.0) -> Guard:
    return Guard(reward_of(reward), timeout_s)


def grade(guarded: Guard, **columns) -> tuple[list, list[int]]:
    """Amounts and outcomes of BATCH, or of other columns."""
    graded = asyncio.run(guarded.grade(**{**BATCH, **columns}))
    return graded.amounts, graded.outcomes


# The outcome of each row


NONE, NONES, ERRORS = [None, 1.0, None], [None] * 3, [ERROR] * 3
MATHS = ("math",)  # the task of rows 0 and 2
OUTCOMES = [  # the reward, what it gives the rows, and their outcomes
    (returning([0.0, 1.5, -1.0]), [0.0, 1.5, -1.0], [GRADED] * 3),
    (raising, NONES, ERRORS),
    (route(raising, MATHS), NONES, [ERROR, NOT_APPLICABLE, ERROR]),
    (route(raising, ("words",)), NONES, [NOT_APPLICABLE] * 3),  # no rows of its task
    (returning(NONE), NONE, [UNPARSED, GRADED, UNPARSED]),  # None of a verifier
    (returning(NONE, kind="shaping"), NONE, [NOT_APPLICABLE, GRADED, NOT_APPLICABLE]),
    # What a verifier logs counts, but for words that are no outcome.
    (returning([0.0, None, None], ["timeout", "unparsed", "error: KeyError: 'x'"]),
     [0.0, None, None], [TIMEOUT, UNPARSED, ERROR]),
    (returning(NONES, ["unparsed", "error: dead worker", None], kind="shaping"),
     NONES, [UNPARSED, ERROR, NOT_APPLICABLE]),
    (returning([0.0, 1.0, 0.0], ["graded", "no answer", None]), [0.0, 1.0, 0.0], [GRADED] * 3),
    (route(returning([None, 0.0], ["unparsed", "timeout"]), MATHS),
     [None, None, 0.0], [UNPARSED, NOT_APPLICABLE, TIMEOUT]),
    (route(returning([1.0] * 3), MATHS), NONES, [ERROR, NOT_APPLICABLE, ERROR]),  # for 2 rows
    # None of a step reward voids its row whatever it logs.
    (returning(NONES, ["timeout", "graded", "error: dead worker"], kind="step"),
     NONES, [UNPARSED, UNPARSED, ERROR]),
    (returning([[]] * 3, ["timeout", None, None], kind="step"),
     [[]] * 3, [TIMEOUT, GRADED, GRADED]),
    (returning([0.0, math.nan, 1.0]), NONES, ERRORS),  # TRL could use none of these scores
    (returning([1.0] * 3, ["graded"]), NONES, ERRORS),  # outcomes that fit no rows
]  # fmt: skip


@pytest.mark.parametrize(("reward", "amounts", "outcomes"), OUTCOMES)
def test_each_row_has_its_score_and_its_outcome(form, reward, amounts, outcomes):
    wrapped = reward_of(reward)
    if form is as_async:
        wrapped = route(as_async(wrapped.call), wrapped.tasks) if wrapped.tasks else form(reward)
    assert grade(guard(wrapped)) == (amounts, outcomes)


def test_rows_without_a_task_are_errors_of_a_routed_reward(form):
    guarded = guard(route(form(returning([1.0] * 3)), MATHS))
    assert grade(guarded, task=None) == (NONES, ERRORS)
    assert guarded.first_failure.startswith("error: ")


def test_an_exception_and_a_score_that_trl_could_not_use_cost_their_own_rows_alone(form):
    def brittle(prompts, completions, answer, log_extra, **kwargs):
        log_extra("seen", list(completions))
        if "11" in answer:
            raise KeyError(11)
        return [1e39 if number == "12" else float(number) for number in answer]

    guarded, logged = guard(form(brittle)), {}
    scores = grade(guarded, log_extra=logged.__setitem__)
    assert scores == ([10.0, None, None], [GRADED, ERROR, ERROR])
    assert logged == {"seen": ["c0", None, None]}
    file, line = Path(__file__).name, brittle.__code__.co_firstlineno + 3
    assert guarded.first_failure == f"error: KeyError: 11 ({file}, line {line})"


def test_a_failed_call_and_its_repeats_share_one_limit():
    calls = []

    def late(prompts, completions, **kwargs):
        calls.append(len(completions))
        time.sleep(0.2)
        raise KeyError("late")

    assert grade(guard(late, 0.3))[1] == ERRORS
    assert calls == [3, 1], "the other rows have the exception of the call"


# What is logged


def test_columns_reach_trl_once_and_none_in_calls_that_fail_or_have_no_rows(form):
    amounts, logged = [1.0] * 3, []
    guarded = guard(form(returning(amounts, ["graded"] * 3)))
    grade(guarded, log_extra=lambda *column: logged.append(column))
    amounts.append("one too many")
    grade(guarded, log_extra=lambda *column: logged.append(column))
    assert logged == [("outcome/mine", ["graded"] * 3), ("outcome/mine", NONES)]
    guarded = guard(route(form(returning([1.0] * 2, ["graded"] * 2)), MATHS))
    grade(guarded, log_extra=lambda *column: logged.append(column))
    grade(guarded, task=["code"] * 3, log_extra=lambda *column: logged.append(column))
    assert logged[2:] == [("outcome/mine", ["graded", None, "graded"]), ("outcome/mine", NONES)]


def test_the_first_failure_is_logged_with_its_row_and_no_other(form, caplog):
    amounts = [1.0, None, None]
    guarded = guard(form(returning(amounts)))
    with caplog.at_level(logging.WARNING, logger="recipes.common.training.guard"):
        grade(guarded)
        amounts[0] = None
        grade(guarded)
    (record,) = caplog.records
    row = {name: values[1] for name, values in BATCH.items()}
    message = "reward 'mine' could not grade a row (it returned None)."
    assert record.message.startswith(message) and record.message.endswith(f"The first: {row}")
    assert guarded.first_failure == "it returned None"
    caplog.clear()
    grade(guard(form(raising)))
    assert "KeyError: 'no such thing'" in caplog.text and "in raising" in caplog.text


# Too many failures

LETTERS = {"g": GRADED, "e": ERROR, "u": UNPARSED, "t": TIMEOUT, "n": NOT_APPLICABLE}
HALF = ["475g 25e", "475g 25e"]
PAST = ["60g 40e", *["100g"] * 8]
STOPS = [  # the share it declares, generations by their outcomes, the one that stops, the message
    (1.0, HALF, "474g 26e", "51 of its last 1000 rows"),
    (1.0, HALF, "474g 26u", "51 of its last 1000 rows"),  # unparsed rows count too
    (1.0, ["25e", "25e"], "1u", "51 of its last 51 rows"),  # as many before a thousand rows
    (1.0, [*PAST, "100g", *PAST], "89g 11e", "51 of its last 1000"),  # older ones are forgotten
    # Time-outs and rows of other tasks are no failures
    (1.0, ["60t 300n 30g 10e"] * 5, "60t 300n 30g 10e", "60 of its last 600 rows"),
    (0.001, ["499g 1e"], "499g 1u", r"2 of its last 1000 rows \(at most 0.001 of 1000 may fail"),
    # It can ask for less than the run allows, and not for more
    (1.0, ["950g 50e"], "949g 51e", r"51 of its last 1000 rows \(at most 0.05 of 1000"),
]


def outcomes_of(generation: str) -> list[int]:
    parts = generation.split()
    return [LETTERS[part[-1]] for part in parts for _ in range(int(part[:-1]))]


@pytest.mark.parametrize(("own_rate", "fine", "too_many", "message"), STOPS)
def test_a_run_stops_at_the_generation_whose_failures_are_too_many(
    own_rate, fine, too_many, message
):
    reward = returning([1.0] * 3)
    reward.max_error_rate = own_rate
    guarded = guard(reward)
    for generation in fine:
        guarded.count(outcomes_of(generation), limit=0.05)
    with pytest.raises(RewardErrors, match=message):
        guarded.count(outcomes_of(too_many), limit=0.05)


# The reward behind the guard


def test_trl_and_evaluations_take_a_guarded_reward_for_what_it_guards(form):
    reward = guard(form(raising)).as_reward()
    assert (is_async_callable(reward), get_callable_name(reward)) == (form is as_async, "raising")
    answer = reward(**BATCH)
    assert (asyncio.run(answer) if form is as_async else answer) == NONES


# Limits


async def sleeps(prompts, completions, **kwargs):
    await asyncio.sleep(3600)


async def ignores_cancellation(prompts, completions, log_extra, **kwargs):
    """Catches every cancellation, and answers when nobody waits any more."""
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        try:
            await asyncio.sleep(deadline - time.monotonic())
        except asyncio.CancelledError:
            continue
    log_extra("late", ["x"] * len(completions))
    return [1.0] * len(completions)


@pytest.mark.parametrize("reward", [sleeps, ignores_cancellation])
def test_an_async_reward_is_left_behind_at_its_limit_and_others_answer_next_to_it(reward):
    hanging, logged = guard(reward, 0.3), {}
    answering = guard(as_async(returning([1.0] * 3)), 0.3)

    async def call() -> list[Graded]:
        columns = {**BATCH, "log_extra": logged.__setitem__}
        graded = await asyncio.gather(hanging.grade(**columns), answering.grade(**BATCH))
        await asyncio.sleep(1.5)  # what it does later changes nothing
        return graded

    assert asyncio.run(call()) == [Graded(NONES, ERRORS), Graded([1.0] * 3, [GRADED] * 3)]
    assert logged == {}
    assert hanging.first_failure == "error: TimeoutError: no answer after 0.3 s"


HANGS = """
import asyncio, re, time
from recipes.common.training import guard as guards
from rewards.contract import reward_of

def grade(reward, limit):
    asyncio.run(guards.Guard(reward_of(reward), limit).grade(completions=["c"]))

{define} slow_one(**columns):
    {hang}

guards.GRACE_S = 0.5
grade(lambda **columns: [0.0], 0.3)
time.sleep(0.5)
print("after the first", flush=True)
grade(slow_one, {limit})
print("it went on")
"""


@pytest.mark.parametrize(
    ("define", "hang", "limit", "first"),
    [
        # one call into C that keeps the interpreter
        ("def", "re.fullmatch('(a+)+', 'a' * 40 + 'b')", 1.0, "Timeout (0:00:01)!"),
        ("def", "time.sleep(3600)", 1.0, "Timeout (0:00:01)!"),
        ("async def", "time.sleep(3600)", 0.5, "async reward 'slow_one' blocks the event loop"),
    ],
)
def test_a_reward_that_hangs_ends_the_process_and_is_named(define, hang, limit, first, tmp_path):
    """The first call answers in time, and leaves no alarm behind."""
    script = tmp_path / "hangs.py"
    script.write_text(HANGS.format(define=define, hang=hang, limit=limit))
    words, env = [sys.executable, script], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "after the first\n")
    assert done.stderr.startswith(first) and "hangs.py" in done.stderr
