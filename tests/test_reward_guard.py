"""The guard: a reward that fails is told from one that grades, row by row, and none can hang the job."""

import asyncio
import logging
import math
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from recipes.common.during.guard import ERROR, GRADED, NOT_APPLICABLE, TIMEOUT, UNPARSED, guard
from rewards import full_reward, load_reward, reward_columns, reward_kind, reward_name, reward_tasks
from rewards.routing import route
from rewards.rows import score_rows

ROOT = Path(__file__).resolve().parents[1]
BATCH = {
    "prompts": ["p0", "p1", "p2"],
    "completions": ["c0", "c1", "c2"],
    "completion_ids": [[0], [1], [2]],
    "task": ["math", "code", "math"],
    "answer": ["10", "11", "12"],
}


def returning(amounts: object, outcomes: list | None = None, kind: str = "verifier") -> Callable:
    """A reward called `mine` that pays and logs what it is told to."""

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
    """What a guarded reward pays, called as TRL calls it, and its outcomes."""
    arguments = {**BATCH, **arguments}
    paid = asyncio.run(guarded(**arguments)) if is_async_callable(guarded) else guarded(**arguments)
    return paid, guarded.outcomes


# What is told from what


def test_a_reward_that_grades_is_passed_through(form):
    assert run(guard(form(returning([0.0, 1.5, -1.0])), 60)) == ([0.0, 1.5, -1.0], [GRADED] * 3)


def test_an_exception_is_none_and_an_error_for_each_row(form):
    assert run(guard(form(raising), 60)) == ([None] * 3, [ERROR] * 3)


def test_rows_of_other_tasks_are_no_errors(form):
    assert run(guard(route(form(raising), ("math",)), 60)) == ([None] * 3, [ERROR, NOT_APPLICABLE, ERROR])


def test_a_batch_without_rows_of_its_tasks_cannot_fail(form):
    assert run(guard(route(form(raising), ("words",)), 60)) == ([None] * 3, [NOT_APPLICABLE] * 3)


def test_rows_without_a_task_are_errors_of_a_routed_reward(form):
    guarded = guard(route(form(returning([1.0] * 3)), ("math",)), 60)
    assert run(guarded, task=None) == ([None] * 3, [ERROR] * 3)
    assert guarded.first_failure.startswith("error: ")


def test_an_argument_that_is_missing_is_an_error(form):
    def needy(prompts, completions, tests, **kwargs):
        return [1.0] * len(completions)

    async def async_needy(prompts, completions, tests, **kwargs):
        return [1.0] * len(completions)

    for reward in (form(needy), async_needy):
        assert run(guard(reward, 60)) == ([None] * 3, [ERROR] * 3)


def test_none_of_a_verifier_is_unparsed_and_of_another_kind_not_applicable(form):
    assert run(guard(form(returning([None, 1.0, None])), 60))[1] == [UNPARSED, GRADED, UNPARSED]
    for kind in ("format", "shaping", "control"):
        reward = form(returning([None, 1.0, None], kind=kind))
        assert run(guard(reward, 60))[1] == [NOT_APPLICABLE, GRADED, NOT_APPLICABLE]


def test_none_of_a_step_reward_voids_its_row_whatever_it_says_of_it():
    said = ["timeout", "graded", "error: dead worker"]
    assert run(guard(returning([None] * 3, said, kind="step"), 60))[1] == [UNPARSED, UNPARSED, ERROR]
    assert run(guard(returning([[]] * 3, ["timeout", None, None], kind="step"), 60))[1] == [TIMEOUT, GRADED, GRADED]


def test_what_a_reward_says_of_its_rows_counts(form):
    reward = form(returning([0.0, None, None], ["timeout", "unparsed", "error: KeyError: 'x'"]))
    assert run(guard(reward, 60)) == ([0.0, None, None], [TIMEOUT, UNPARSED, ERROR])
    reward = form(returning([None] * 3, ["unparsed", "error: dead worker", None], kind="shaping"))
    assert run(guard(reward, 60))[1] == [UNPARSED, ERROR, NOT_APPLICABLE]
    reward = form(returning([0.0, 1.0, 0.0], ["graded", "no answer", None]))
    assert run(guard(reward, 60))[1] == [GRADED] * 3


def test_what_a_routed_reward_says_keeps_its_place(form):
    reward = form(returning([None, 0.0], ["unparsed", "timeout"]))
    assert run(guard(route(reward, ("math",)), 60)) == ([None, None, 0.0], [UNPARSED, NOT_APPLICABLE, TIMEOUT])


def test_a_scorer_that_raises_loses_its_row_alone():
    def mine(prompts, completions, answer, log_extra, **kwargs):
        return score_rows("mine", lambda gold: 1 / (int(gold) - 11), answer, log_extra=log_extra)

    assert run(guard(mine, 60)) == ([-1.0, None, 1.0], [GRADED, ERROR, GRADED])


def test_a_gold_that_is_no_number_is_unparsed_in_the_shipped_verifier():
    guarded = guard(load_reward("gsm8k_correctness"), 60)
    paid, outcomes = run(guarded, completions=["<answer>10</answer>"] * 3, answer=["10", "many", "12"])
    assert (paid, outcomes) == ([2.0, None, 0.0], [GRADED, UNPARSED, GRADED])


@pytest.mark.parametrize(
    "amounts",
    [
        [0.0, math.nan, 1.0],
        [0.0, math.inf, 1.0],
        [-math.inf, None, 1.0],
        [10**400, 0.0, 0.0],
        [0.0, 1.0, -1e39],
        [0.0, 1.0],
        [0.0] * 4,
        [],
        ["0.0"] * 3,
        None,
        1.0,
    ],
)
def test_what_trl_could_not_use_is_an_error(form, amounts):
    assert run(guard(form(returning(amounts)), 60)) == ([None] * 3, [ERROR] * 3)


def test_another_number_of_amounts_than_completions_is_said(form):
    guarded = guard(form(returning([0.0, 1.0])), 60)
    run(guarded)
    assert guarded.first_failure == "error: ValueError: it returned 2 rewards for 3 completions"


@pytest.mark.parametrize("outcomes", [["graded"], ["graded"] * 6, [5, 5, 5]])
def test_outcomes_that_fit_no_rows_are_an_error(form, outcomes):
    assert run(guard(form(returning([1.0] * 3, outcomes)), 60)) == ([None] * 3, [ERROR] * 3)


def test_each_call_is_judged_by_itself(form):
    amounts = [1.0, None, 1.0]
    guarded = guard(form(returning(amounts)), 60)
    assert run(guarded)[1] == [GRADED, UNPARSED, GRADED]
    amounts[:] = [1.0] * 3
    assert run(guarded)[1] == [GRADED] * 3


def test_ctrl_c_is_no_failed_reward():
    def interrupted(**kwargs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(guard(interrupted, 60))


# What is logged


def test_columns_that_a_reward_logs_reach_trl_once(form):
    logged = []
    run(guard(form(returning([1.0] * 3, ["graded"] * 3)), 60), log_extra=lambda *column: logged.append(column))
    assert logged == [("outcome/mine", ["graded"] * 3)]


def test_a_column_of_another_length_never_reaches_trl(form):
    def careless(prompts, completions, log_extra, **kwargs):
        log_extra("seen", ["one"])
        return [1.0] * len(completions)

    logged = {}
    assert run(guard(form(careless), 60), log_extra=logged.__setitem__) == ([None] * 3, [ERROR] * 3)
    assert logged == {}


def test_a_call_that_fails_logs_none_in_the_columns_of_earlier_calls(form):
    amounts, logged = [1.0] * 3, {}
    guarded = guard(form(returning(amounts, ["graded"] * 3)), 60)
    run(guarded, log_extra=logged.__setitem__)
    amounts.append("one too many")
    run(guarded, log_extra=logged.__setitem__)
    assert logged == {"outcome/mine": [None] * 3}


def test_a_batch_without_own_rows_logs_none_in_the_columns_of_earlier_calls(form):
    logged = {}
    guarded = guard(route(form(returning([1.0] * 2, ["graded"] * 2)), ("math",)), 60)
    run(guarded, log_extra=logged.__setitem__)
    assert logged == {"outcome/mine": ["graded", None, "graded"]}
    run(guarded, task=["code"] * 3, log_extra=logged.__setitem__)
    assert logged == {"outcome/mine": [None] * 3}


def test_the_first_failure_is_logged_with_its_row_and_no_other(form, caplog):
    amounts = [1.0, None, None]
    guarded = guard(form(returning(amounts)), 60)
    with caplog.at_level(logging.WARNING, logger="recipes.common.during.guard"):
        run(guarded)
        amounts[0] = None
        run(guarded)
    (record,) = caplog.records
    row = "{'prompts': 'p1', 'completions': 'c1', 'completion_ids': [1], 'task': 'code', 'answer': '11'}"
    said = "reward 'mine' could not grade a row (it returned None)."
    assert record.message.startswith(said) and record.message.endswith(f"The first: {row}")
    assert guarded.first_failure == "it returned None"


def test_the_first_failure_says_what_the_reward_said(form):
    guarded = guard(form(returning([0.0, None, None], ["timeout", "error: dead worker", "unparsed"])), 60)
    run(guarded)
    assert guarded.first_failure == "error: dead worker"


def test_an_exception_is_logged_with_its_traceback(form, caplog):
    guarded = guard(form(raising), 60)
    run(guarded)
    (record,) = caplog.records
    assert guarded.first_failure == "error: KeyError: 'no such thing'"
    assert record.exc_info[0] is KeyError and "in raising" in caplog.text


def test_what_is_graded_timed_out_or_of_another_task_is_no_failure(form, caplog):
    guarded = guard(route(form(returning([0.0, 1.0], ["timeout", "graded"])), ("math",)), 60)
    run(guarded)
    assert (guarded.first_failure, caplog.records) == (None, [])


# What it shows of the reward


def test_trl_takes_a_guarded_reward_for_what_it_wraps(form):
    guarded, asked = guard(form(raising), 60), form is as_async
    assert (is_async_callable(guarded), get_callable_name(guarded)) == (asked, "raising")


def test_what_the_reward_declares_is_seen_through_the_guard():
    guarded = guard(route(load_reward("gsm8k_correctness"), ("math",)), 60)
    assert (reward_name(guarded), reward_kind(guarded), full_reward(guarded)) == ("gsm8k_correctness", "verifier", 2.0)
    assert (reward_columns(guarded), reward_tasks(guarded)) == (["answer"], ("math",))


def test_a_guarded_reward_pickles():
    guarded = pickle.loads(pickle.dumps(guard(route(raising, ("math",)), 60)))
    assert run(guarded) == ([None] * 3, [ERROR, NOT_APPLICABLE, ERROR])
    assert pickle.loads(pickle.dumps(guarded)).first_failure == "error: KeyError: 'no such thing'"


# Limits


async def sleeps(prompts, completions, **kwargs):
    await asyncio.sleep(3600)


async def ignores_cancellation(prompts, completions, log_extra, **kwargs):
    """Catches every cancellation, and answers when nobody waits any more."""
    deadline = time.monotonic() + 3.0
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
        paid = await guarded(**BATCH, log_extra=logged.__setitem__)
        elapsed, outcomes = time.monotonic() - start, guarded.outcomes
        await asyncio.sleep(3.0)  # what it does later changes nothing
        return paid, outcomes, elapsed

    paid, outcomes, elapsed = asyncio.run(call())
    assert (paid, outcomes) == ([None] * 3, [ERROR] * 3)
    assert 0.3 <= elapsed < 2.5
    assert guarded.first_failure == "error: TimeoutError: no answer after 0.3 s"
    assert (logged, guarded.outcomes) == ({}, [ERROR] * 3)


def test_other_async_rewards_answer_beside_one_that_hangs():
    hanging, answering = guard(sleeps, 0.3), guard(as_async(returning([1.0] * 3)), 0.3)

    async def call():
        return await asyncio.gather(hanging(**BATCH), answering(**BATCH))

    assert asyncio.run(call()) == [[None] * 3, [1.0] * 3]
    assert (hanging.outcomes, answering.outcomes) == ([ERROR] * 3, [GRADED] * 3)


def test_an_async_reward_that_is_cancelled_from_within_is_an_error():
    async def cancelled(prompts, completions, **kwargs):
        raise asyncio.CancelledError

    guarded = guard(cancelled, 60)
    assert run(guarded) == ([None] * 3, [ERROR] * 3)
    assert guarded.first_failure == "error: RuntimeError: it was cancelled"


HANGS = {
    "python": "while True: pass",
    "regex": "re.fullmatch('(a+)+', 'a' * 40 + 'b')",  # one call into C that never lets go of the interpreter
    "sleep": "time.sleep(3600)",
}


@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS.keys())
def test_a_reward_that_hangs_ends_the_process_and_is_named(hang, tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import re, sys, time\n"
        "from recipes.common.during.guard import guard\n"
        "from rewards.routing import route\n"
        f"def slow_one(prompts, completions, **kwargs):\n    {hang}\n"
        "guarded = guard(route(slow_one, ('math',)), 1.0)\n"
        "print(time.time(), flush=True)\n"
        "guarded(prompts=['p'], completions=['c'], task=['math'])\n"
        "print('it went on')\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    elapsed = time.time() - float(done.stdout)  # nothing more was printed
    assert done.returncode == 1 and 1.0 <= elapsed < 6.0
    assert done.stderr.startswith("Timeout (0:00:01)!")
    assert "reward slow_one" in done.stderr and "hangs.py" in done.stderr


@pytest.mark.parametrize("hang", [HANGS["python"], HANGS["sleep"]], ids=["python", "sleep"])
def test_an_async_reward_that_blocks_the_event_loop_ends_the_process_and_is_named(hang, tmp_path):
    script = tmp_path / "blocks.py"
    script.write_text(
        "import asyncio, time\n"
        "from recipes.common.during import guard as reward_guard\n"
        "reward_guard.GRACE_S = 0.5\n"
        f"async def slow_one(prompts, completions, **kwargs):\n    {hang}\n"
        "print(time.time(), flush=True)\n"
        "asyncio.run(reward_guard.guard(slow_one, 0.5)(prompts=['p'], completions=['c']))\n"
        "print('it went on')\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and 1.0 <= time.time() - float(done.stdout) < 6.0
    assert done.stderr.startswith("async reward 'slow_one' blocks the event loop") and "blocks.py" in done.stderr


def test_a_reward_within_its_limit_leaves_no_alarm_behind(tmp_path):
    script = tmp_path / "quick.py"
    script.write_text(
        "import time\n"
        "from recipes.common.during.guard import guard\n"
        "def fails(**kwargs): 1 / 0\n"
        "for reward in (lambda completions, **kwargs: [0.0] * len(completions), fails):\n"
        "    guard(reward, 0.5)(completions=['c'])\n"
        "    time.sleep(1.0)\n"
        "print('it went on')\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "it went on\n")
