"""A routed reward sees the rows of its tasks alone; what it returns goes back to their places."""

import asyncio
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from rewards import (
    full_reward,
    load_rewards,
    reward_columns,
    reward_kind,
    reward_name,
    reward_tasks,
)
from rewards.contract import is_async, route, scores_task

BATCH = {
    "prompts": ["p0", "p1", "p2", "p3"],
    "completions": ["c0", "c1", "c2", "c3"],
    "completion_ids": [[0], [1], [2], [3]],
    "task": ["math", "code", "math", "words"],
    "answer": ["10", None, "12", None],
}
MINE = """
from rewards import for_tasks

@for_tasks("math", "words")
def lengths(prompts, completions, amount=1.0, **kwargs):
    return [amount * len(completion) for completion in completions]

@for_tasks("code")
async def later(prompts, completions, **kwargs):
    return [1.0] * len(completions)

def anywhere(prompts, completions, **kwargs):
    return [1.0] * len(completions)
"""


class Recorder:
    """Scores a row with its number (its completion is `c<number>`) and remembers its calls."""

    __name__, kind, full = "recorder", "verifier", 3.0

    def __init__(self):
        self.calls: list[dict[str, Any]] = []

    def __call__(self, answer, **arguments):
        self.calls.append({"answer": answer, **arguments})
        arguments["log_extra"]("seen", list(arguments["completions"]))
        return [float(text[1:]) for text in arguments["completions"]]


class AsyncRecorder(Recorder):
    async def __call__(self, answer, **arguments):
        await asyncio.sleep(0)
        return super().__call__(answer, **arguments)


def call(reward: Callable, **arguments) -> list[float | None]:
    """As TRL calls it."""
    return asyncio.run(reward(**arguments)) if is_async_callable(reward) else reward(**arguments)


@pytest.fixture(params=[Recorder, AsyncRecorder], ids=["sync", "async"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    return request.param()


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """The path of a file with rewards."""
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


def test_the_reward_sees_its_own_rows_alone_and_the_others_get_none(recorder):
    assert call(route(recorder, ("words", "code")), **BATCH) == [None, 1.0, None, 3.0]
    assert call(route(recorder, ("math",)), **BATCH) == [0.0, None, 2.0, None]
    seen = recorder.calls[-1]
    del seen["log_extra"]
    assert seen == {
        "prompts": ["p0", "p2"],
        "completions": ["c0", "c2"],
        "completion_ids": [[0], [2]],
        "task": ["math", "math"],
        "answer": ["10", "12"],
    }


def test_the_reward_is_not_called_when_no_row_is_its_own(recorder):
    assert call(route(recorder, ("sums",)), **BATCH) == [None] * 4
    assert recorder.calls == []


def test_what_trl_passes_once_a_call_reaches_the_reward_whole_and_none_does_not(recorder):
    state, log_metric = object(), print
    arguments = {**BATCH, "completion_ids": None}
    call(route(recorder, ("math",)), **arguments, trainer_state=state, log_metric=log_metric)
    (seen,) = recorder.calls
    assert seen["trainer_state"] is state and seen["log_metric"] is log_metric
    assert "completion_ids" not in seen


def test_logged_columns_have_none_in_the_rows_of_other_tasks(recorder):
    logged = {}
    call(route(recorder, ("math",)), **BATCH, log_extra=logged.__setitem__)
    assert logged == {"seen": ["c0", None, "c2", None]}
    assert call(route(recorder, ("math",)), **BATCH, log_extra=None) == [0.0, None, 2.0, None]


@pytest.mark.parametrize("returned", [[1.0], [1.0, 2.0, 3.0], []])
def test_another_number_of_scores_or_logged_values_than_own_rows_is_an_error(returned):
    def logs(completions, log_extra, **kwargs):
        log_extra("seen", returned)
        return [0.0] * len(completions)

    for careless in (lambda **_: returned, logs):
        with pytest.raises(ValueError, match="zip"):
            route(careless, ("math",))(**BATCH, log_extra=lambda column, values: None)


@pytest.mark.parametrize(
    "wrap", [lambda reward: reward, functools.partial], ids=["object", "partial"]
)
def test_an_async_reward_is_recognised_as_trl_does(recorder, wrap):
    is_one, wrapped = isinstance(recorder, AsyncRecorder), wrap(recorder)
    for reward in (wrapped, route(wrapped, ("math",))):
        assert (is_async(reward), is_async_callable(reward)) == (is_one, is_one)
        assert get_callable_name(reward) == "recorder"


def test_a_routed_reward_declares_what_the_reward_declares(recorder):
    routed = route(recorder, ("math", "code"))
    assert (reward_name(routed), reward_kind(routed)) == ("recorder", "verifier")
    assert (full_reward(routed), reward_columns(routed)) == (3.0, ["answer"])
    assert [scores_task(routed, task) for task in ("math", "words", None)] == [True, False, False]


def test_the_decorator_routes_a_reward_of_a_file(mine):
    rewards = load_rewards([f"{mine}:lengths", f"{mine}:later", f"{mine}:anywhere"])
    assert [reward_tasks(reward) for reward in rewards] == [("math", "words"), ("code",), None]
    assert [call(reward, **BATCH) for reward in rewards] == [
        [2.0, None, 2.0, 2.0],
        [None, 1.0, None, None],
        [1.0] * 4,
    ]


def test_parameters_of_a_run_go_with_the_decorator_and_its_tasks_override_it(mine):
    (routed,) = load_rewards([f"{mine}:lengths"], kwargs={"lengths": {"amount": 0.5}})
    assert call(routed, **BATCH) == [1.0, None, 1.0, 1.0]
    for key in ("lengths", f"{mine}:lengths"):
        (routed,) = load_rewards([f"{mine}:lengths"], tasks={key: ["code"]})
        assert call(routed, **BATCH) == [None, 2.0, None, None]
