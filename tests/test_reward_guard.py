"""The guard: a reward that fails is told from one that grades, row by row, and none can hang the
job.
"""

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
    GRADED_BY,
    NOT_APPLICABLE,
    TIMEOUT,
    UNPARSED,
    Graded,
    RewardErrors,
    guard,
)
from rewards import full_reward, load_reward, reward_columns, reward_kind, reward_name, reward_tasks
from rewards.contract import route

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

    call.__name__, call.__wrapped__ = reward_name(reward), reward
    return call


@pytest.fixture(params=[lambda reward: reward, as_async], ids=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Callable[[Callable], Callable]:
    """A reward as it is, or the same as an `async def`."""
    return request.param


def run(guarded: Callable, **arguments) -> tuple[list, list[int]]:
    """The scores of a guarded reward, called as TRL calls it, and its outcomes."""
    graded: dict[str, Graded] = {}
    scores = guarded(**{**BATCH, GRADED_BY: [graded] * 3, **arguments})
    scores = asyncio.run(scores) if is_async_callable(guarded) else scores
    assert scores == graded[guarded.__name__].amounts
    return scores, graded[guarded.__name__].outcomes


# The outcome of each row


def needy(prompts, completions, tests, **kwargs):
    return [1.0] * len(completions)


async def async_needy(prompts, completions, tests, **kwargs):
    return [1.0] * len(completions)


NONE, NONES, ERRORS = [None, 1.0, None], [None] * 3, [ERROR] * 3
# Rows 0 and 2 are of maths. The reward, what it gives the rows, and their outcomes.
OUTCOMES = {
    "a reward that grades": (returning([0.0, 1.5, -1.0]), [0.0, 1.5, -1.0], [GRADED] * 3),
    "one that raises": (raising, NONES, ERRORS),
    "one that raises on its task": (
        route(raising, ("math",)),
        NONES,
        [ERROR, NOT_APPLICABLE, ERROR],
    ),
    "one without rows of its task": (route(raising, ("words",)), NONES, [NOT_APPLICABLE] * 3),
    "one that needs a column": (needy, NONES, ERRORS),
    "an async one that needs a column": (async_needy, NONES, ERRORS),
    "None of a verifier": (returning(NONE), NONE, [UNPARSED, GRADED, UNPARSED]),
    "None of shaping": (
        returning(NONE, kind="shaping"),
        NONE,
        [NOT_APPLICABLE, GRADED, NOT_APPLICABLE],
    ),
    "logged outcomes of a verifier": (
        returning([0.0, None, None], ["timeout", "unparsed", "error: KeyError: 'x'"]),
        [0.0, None, None],
        [TIMEOUT, UNPARSED, ERROR],
    ),
    "logged outcomes of shaping": (
        returning(NONES, ["unparsed", "error: dead worker", None], kind="shaping"),
        NONES,
        [UNPARSED, ERROR, NOT_APPLICABLE],
    ),
    "logged outcomes of other words": (
        returning([0.0, 1.0, 0.0], ["graded", "no answer", None]),
        [0.0, 1.0, 0.0],
        [GRADED] * 3,
    ),
    "logged outcomes of a routed reward": (
        route(returning([None, 0.0], ["unparsed", "timeout"]), ("math",)),
        [None, None, 0.0],
        [UNPARSED, NOT_APPLICABLE, TIMEOUT],
    ),
}
UNUSABLE = [
    *([0.0, math.nan, 1.0], [0.0, math.inf, 1.0], [-math.inf, None, 1.0], [10**400, 0.0, 0.0]),
    *([0.0, 1.0, -1e39], [0.0, 1.0], [0.0] * 4, [], ["0.0"] * 3, None, 1.0),
]
for amounts in UNUSABLE:
    OUTCOMES[f"scores that TRL could not use: {amounts}"[:80]] = returning(amounts), NONES, ERRORS
for words in (["graded"], ["graded"] * 6, [5, 5, 5]):
    fits_no_rows = returning([1.0] * 3, words)
    OUTCOMES[f"logged outcomes that fit no rows: {words}"] = fits_no_rows, NONES, ERRORS


@pytest.mark.parametrize(("reward", "scores", "outcomes"), OUTCOMES.values(), ids=OUTCOMES)
def test_each_row_has_its_score_and_its_outcome(form, reward, scores, outcomes):
    assert run(guard(form(reward), 60)) == (scores, outcomes)


def test_rows_without_a_task_are_errors_of_a_routed_reward(form):
    guarded = guard(route(form(returning([1.0] * 3)), ("math",)), 60)
    assert run(guarded, task=None) == ([None] * 3, [ERROR] * 3)
    assert guarded.first_failure.startswith("error: ")


def test_none_of_a_step_reward_voids_its_row_whatever_it_logs():
    logged = ["timeout", "graded", "error: dead worker"]
    assert run(guard(returning(NONES, logged, kind="step"), 60))[1] == [UNPARSED, UNPARSED, ERROR]
    assert run(guard(returning([[]] * 3, ["timeout", None, None], kind="step"), 60))[1] == [
        TIMEOUT,
        GRADED,
        GRADED,
    ]


def test_ctrl_c_is_not_a_failed_reward():
    def interrupted(**kwargs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(guard(interrupted, 60))


def brittle(prompts, completions, answer, log_extra, **kwargs):
    """Raises on a call with the row of answer 11, after it has logged."""
    log_extra("seen", list(completions))
    if "11" in answer:
        raise KeyError(11)
    return [float(number) for number in answer]


def test_an_exception_costs_its_own_row_alone(form):
    guarded, logged = guard(form(brittle), 60), {}
    scores = run(guarded, log_extra=logged.__setitem__)
    assert scores == ([10.0, None, 12.0], [GRADED, ERROR, GRADED])
    assert logged == {"seen": ["c0", None, "c2"]}
    assert guarded.first_failure == "error: KeyError: 11"


@pytest.mark.parametrize("unusable", [math.nan, 1e39])
def test_a_score_that_trl_could_not_use_costs_its_own_row_alone(form, unusable):
    def gives(prompts, completions, **kwargs):
        return [unusable if text == "c1" else 1.0 for text in completions]

    assert run(guard(form(gives), 60)) == ([1.0, None, 1.0], [GRADED, ERROR, GRADED])


def test_a_failed_call_and_its_repeats_share_one_limit():
    calls = []

    def late(prompts, completions, **kwargs):
        calls.append(len(completions))
        time.sleep(0.2)
        raise KeyError("late")

    assert run(guard(late, 0.3))[1] == ERRORS
    assert calls == [3, 1], "the other rows have the exception of the call"


# What is logged


def test_columns_that_a_reward_logs_reach_trl_once_and_none_in_calls_that_fail_or_have_no_rows(
    form,
):
    amounts, logged = [1.0] * 3, []
    guarded = guard(form(returning(amounts, ["graded"] * 3)), 60)
    run(guarded, log_extra=lambda *column: logged.append(column))
    amounts.append("one too many")
    run(guarded, log_extra=lambda *column: logged.append(column))
    assert logged == [("outcome/mine", ["graded"] * 3), ("outcome/mine", NONES)]
    guarded = guard(route(form(returning([1.0] * 2, ["graded"] * 2)), ("math",)), 60)
    run(guarded, log_extra=lambda *column: logged.append(column))
    run(guarded, task=["code"] * 3, log_extra=lambda *column: logged.append(column))
    assert logged[2:] == [("outcome/mine", ["graded", None, "graded"]), ("outcome/mine", NONES)]


def test_a_column_of_another_length_never_reaches_trl(form):
    def careless(prompts, completions, log_extra, **kwargs):
        log_extra("seen", ["one", "two"])
        return [1.0] * len(completions)

    logged = {}
    assert run(guard(form(careless), 60), log_extra=logged.__setitem__) == ([None] * 3, [ERROR] * 3)
    assert logged == {}


def test_the_first_failure_is_logged_with_its_row_and_no_other(form, caplog):
    amounts = [1.0, None, None]
    guarded = guard(form(returning(amounts)), 60)
    with caplog.at_level(logging.WARNING, logger="recipes.common.training.guard"):
        run(guarded)
        amounts[0] = None
        run(guarded)
    (record,) = caplog.records
    row = {name: values[1] for name, values in BATCH.items()}
    message = "reward 'mine' could not grade a row (it returned None)."
    assert record.message.startswith(message) and record.message.endswith(f"The first: {row}")
    assert guarded.first_failure == "it returned None"


def test_an_exception_is_logged_with_its_traceback(form, caplog):
    guarded = guard(form(raising), 60)
    run(guarded)
    (record,) = caplog.records
    assert guarded.first_failure == "error: KeyError: 'no such thing'"
    assert "KeyError: 'no such thing'" in record.message and "in raising" in caplog.text


# Too many failures

LETTERS = {"g": GRADED, "e": ERROR, "u": UNPARSED, "t": TIMEOUT, "n": NOT_APPLICABLE}
HALF = ["475g 25e", "475g 25e"]
PAST = ["60g 40e", *["100g"] * 8]
# What the reward declares, generations by their outcomes, the one that stops, and the message.
STOPS = {
    "51 of a thousand": ({}, HALF, "474g 26e", "51 of its last 1000 rows"),
    "unparsed rows count too": ({}, HALF, "474g 26u", "51 of its last 1000 rows"),
    "as many before a thousand rows": ({}, ["25e", "25e"], "1u", "51 of its last 51 rows"),
    "older ones are forgotten": ({}, [*PAST, "100g", *PAST], "89g 11e", "51 of its last 1000"),
    "later ones are remembered": ({}, PAST, "60g 40e", "80 of its last 1000 rows"),
    "a larger generation": ({}, ["3800g 200e"] * 2, "3799g 201e", "201 of its last 4000 rows"),
    "no failures: time-outs, other tasks": (
        {},
        ["60t 300n 30g 10e"] * 5,
        "60t 300n 30g 10e",
        "60 of its last 600 rows",
    ),
    "a smaller share of its own": (
        {"max_error_rate": 0.001},
        ["499g 1e"],
        "499g 1u",
        r"2 of its last 1000 rows \(at most 0.001 of 1000 may fail",
    ),
    "no larger share of its own": (
        {"max_error_rate": 1.0},
        ["950g 50e"],
        "949g 51e",
        r"51 of its last 1000 rows \(at most 0.05 of 1000",
    ),
}


def outcomes_of(generation: str) -> list[int]:
    parts = generation.split()
    return [LETTERS[part[-1]] for part in parts for _ in range(int(part[:-1]))]


@pytest.mark.parametrize(("declared", "fine", "too_many", "message"), STOPS.values(), ids=STOPS)
def test_a_run_stops_at_the_generation_whose_failures_are_too_many(
    declared, fine, too_many, message
):
    guarded = guard(returning([1.0] * 3), 60)
    vars(guarded.reward).update(declared)
    for generation in fine:
        guarded.count(outcomes_of(generation), limit=0.05)
    with pytest.raises(RewardErrors, match=message):
        guarded.count(outcomes_of(too_many), limit=0.05)


# The reward behind the guard


def test_trl_takes_a_guarded_reward_for_what_it_wraps(form):
    guarded = guard(form(raising), 60)
    assert (is_async_callable(guarded), get_callable_name(guarded)) == (form is as_async, "raising")


def test_what_the_reward_declares_is_seen_through_the_guard():
    guarded = guard(route(load_reward("gsm8k_correctness"), ("math",)), 60)
    assert (reward_name(guarded), reward_kind(guarded), full_reward(guarded)) == (
        "gsm8k_correctness",
        "verifier",
        2.0,
    )
    assert (reward_columns(guarded), reward_tasks(guarded)) == (["answer"], ("math",))


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
def test_an_async_reward_is_left_behind_at_its_limit(reward):
    guarded, logged = guard(reward, 0.3), {}

    async def call():
        start = time.monotonic()
        graded = await guarded.grade(**BATCH, log_extra=logged.__setitem__)
        elapsed = time.monotonic() - start
        await asyncio.sleep(1.5)  # what it does later changes nothing
        return graded, elapsed

    graded, elapsed = asyncio.run(call())
    assert (graded, logged) == (Graded(NONES, ERRORS), {})
    assert 0.3 <= elapsed < 1.3
    assert guarded.first_failure == "error: TimeoutError: no answer after 0.3 s"


def test_other_async_rewards_answer_next_to_one_that_hangs():
    hanging, answering = guard(sleeps, 0.3), guard(as_async(returning([1.0] * 3)), 0.3)

    async def call():
        return await asyncio.gather(hanging.grade(**BATCH), answering.grade(**BATCH))

    assert asyncio.run(call()) == [Graded(NONES, ERRORS), Graded([1.0] * 3, [GRADED] * 3)]


def test_an_async_reward_that_is_cancelled_from_within_is_an_error():
    async def cancelled(prompts, completions, **kwargs):
        raise asyncio.CancelledError

    guarded = guard(cancelled, 60)
    assert run(guarded) == ([None] * 3, [ERROR] * 3)
    assert guarded.first_failure == "error: RuntimeError: it was cancelled"


def in_a_process(tmp_path: Path, *lines: str) -> tuple[subprocess.CompletedProcess, float]:
    """Run a script that ends by calling guarded rewards; also the seconds since it started to call
    them.
    """
    script = tmp_path / "hangs.py"
    head = ["import asyncio, re, sys, time", "from recipes.common.training import guard as guards"]
    script.write_text(
        "\n".join([*head, "from rewards.contract import route", *lines, "print('it went on')"])
    )
    words, env = [sys.executable, script], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    return done, time.time() - float(done.stdout.split()[0])


PYTHON, SLEEP = "while True: pass", "time.sleep(3600)"
REGEX = (
    "re.fullmatch('(a+)+', 'a' * 40 + 'b')"  # one call into C that never lets go of the interpreter
)
START = "print(time.time(), flush=True)"
SYNC = (
    "guards.guard(route(slow_one, ('math',)), 1.0)(prompts=['p'], completions=['c'], task=['math'])"
)
ASYNC = (
    "guards.GRACE_S = 0.5; "
    "asyncio.run(guards.guard(slow_one, 0.5)(prompts=['p'], completions=['c']))"
)


@pytest.mark.parametrize(
    ("define", "hang", "call", "first", "names"),
    [
        *(
            ("def", hang, SYNC, "Timeout (0:00:01)!", "in slow_one")
            for hang in (PYTHON, REGEX, SLEEP)
        ),
        *(
            ("async def", hang, ASYNC, "async reward 'slow_one' blocks the event loop", "")
            for hang in (PYTHON, SLEEP)
        ),
    ],
)
def test_a_reward_that_hangs_ends_the_process_and_is_named(
    define, hang, call, first, names, tmp_path
):
    lines = [f"{define} slow_one(prompts, completions, **kwargs):", f"    {hang}", START, call]
    done, elapsed = in_a_process(tmp_path, *lines)
    assert done.returncode == 1 and 1.0 <= elapsed < 6.0 and "it went on" not in done.stdout
    assert done.stderr.startswith(first) and names in done.stderr and "hangs.py" in done.stderr


def test_a_reward_within_its_limit_leaves_no_alarm_behind(tmp_path):
    lines = ["def fails(**kwargs): 1 / 0", START]
    lines += ["for reward in (lambda completions, **kwargs: [0.0] * len(completions), fails):"]
    lines += ["    guards.guard(reward, 0.3)(completions=['c'])", "    time.sleep(0.5)"]
    done, _ = in_a_process(tmp_path, *lines)
    assert done.returncode == 0 and done.stdout.endswith("it went on\n")
