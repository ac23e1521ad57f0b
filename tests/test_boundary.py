"""The boundary: what foreign code changes, draws, forks, returns and raises stays on its side."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import TrainerState

from recipes.common.evaluation.metrics import measure_or_fail
from recipes.common.training.guard import Guard
from rewards.boundary import ForeignExit, contained, describe, measure, score
from rewards.contract import at_once, reward_of

ROW = {"prompt": [{"role": "user", "content": "9 + 9 ="}], "answer": "18"}


def columns_of(texts: list[str], **columns) -> dict:
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    return {"prompts": [ROW["prompt"]] * len(texts), "completions": completions, **columns}


def trained(reward, columns: dict) -> list:
    """The scores that the trainer's guard gets."""
    guard = Guard(reward_of(reward), timeout_s=60.0)
    question = guard.grade(**columns)
    return asyncio.run(question).amounts if guard.reward.is_async else at_once(question).amounts


def draws() -> tuple:
    return random.random(), np.random.rand(), torch.rand(1).item()


# What it changes


def forges(prompts, completions, answer, trainer_state, **kwargs):
    for prompt, completion, gold in zip(prompts, completions, answer, strict=True):
        prompt.clear()
        completion[0]["content"] += gold
    trainer_state.global_step = 99
    for entry in trainer_state.log_history:
        entry["reward"] = 5.0
    answer.clear()
    return [0.0] * len(completions)


def test_what_a_reward_changes_nobody_else_sees():
    state = TrainerState(log_history=[{"reward": 1.0}])
    columns = columns_of(["17", "18"], answer=["18", "18"], trainer_state=state)
    assert trained(forges, columns) == [0.0, 0.0]
    expected = columns_of(["17", "18"], answer=["18", "18"])
    assert {name: columns[name] for name in expected} == expected
    assert (state.global_step, state.log_history) == (0, [{"reward": 1.0}])
    messages, row = columns["completions"], ROW | {"tests": ["a"]}
    assert score(forges, [row, row], messages)[0] == [0.0, 0.0]
    assert messages == expected["completions"] and row["answer"] == "18" and row["prompt"]


def test_what_a_metric_changes_nobody_else_sees():
    row = {"answer": "18", "tests": ["a"]}
    assert measure(lambda row, text: {"right": not row["tests"].clear()}, row, "18")
    assert row == {"answer": "18", "tests": ["a"]}


def test_settings_of_the_process_are_as_before_after_foreign_code(tmp_path):
    def settings() -> list:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        of_torch = (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
        return [os.getcwd(), handlers, of_torch]

    def changes(row, text):
        os.chdir(tmp_path)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(torch.get_num_threads() + 1)
        return {"right": True}

    before = settings()
    measure(changes, ROW, "a")
    assert settings() == before


# What it draws


def unsteady(completions, **kwargs):
    random.seed(0)
    return [sum(draws()) for _ in completions]


def test_random_states_are_as_before_after_a_reward_and_a_metric():
    calls = [
        lambda: trained(unsteady, columns_of(["a", "b"])),
        lambda: score(unsteady, [ROW], ["a"]),
        lambda: measure(lambda row, text: {"odd": sum(draws()) > 1.0}, ROW, "a"),
    ]
    for call in calls:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        expected = draws()
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        call()
        assert draws() == expected


def test_what_a_reward_draws_repeats_for_the_same_step_and_completions_alone():
    def free(completions, **kwargs):
        return [sum(draws()) for _ in completions]

    def at_step(step: int, *texts: str) -> list:
        state = TrainerState(global_step=step)
        return trained(free, columns_of(list(texts), trainer_state=state))

    first = at_step(1, "a", "b")
    assert at_step(1, "a", "b") == first and first[0] != first[1]
    assert not set(first) & {*at_step(2, "a", "b"), *at_step(1, "a", "c")}


def test_on_a_gpu_draws_are_seeded_and_its_state_is_restored_too(monkeypatch):
    states = ["before"]
    gpu = {"is_initialized": lambda: True, "get_rng_state": lambda: states[-1]}
    gpu |= {"set_rng_state": states.append, "manual_seed": states.append}
    for name, function in gpu.items():
        monkeypatch.setattr(torch.cuda, name, function)
    for key in ("a", "b", "a"):
        with contained(key):
            assert states[-1] == states[1] if key == "a" else states[-1] != states[1]
        assert states[-1] == "before"


# How it ends


def forks_and_fails(completions, **kwargs):
    os.fork()
    raise ValueError("twice")


async def forks_later(completions, **kwargs):
    os.fork()
    return [1.0] * len(completions)


def forking_metric(row, text):
    os.fork()
    return {"right": True}


@pytest.mark.parametrize(
    "call",
    [
        lambda: trained(forks_and_fails, columns_of(["a", "b"])),
        lambda: trained(forks_later, columns_of(["a", "b"])),
        lambda: score(forks_later, [ROW], ["a"]),
        lambda: measure(forking_metric, ROW, "a"),
    ],
    ids=["failing", "async", "outside training", "metric"],
)
def test_a_process_that_a_reward_forks_ends_where_its_call_ends(call, tmp_path):
    counted = tmp_path / "processes"
    watcher = os.fork()  # what goes wrong happens in a process of its own
    if not watcher:
        call()
        with counted.open("a") as file:
            file.write("one more\n")
        while True:  # its children have ended, or wrote their line
            try:
                os.wait()
            except ChildProcessError:
                os._exit(0)
    os.waitpid(watcher, 0)
    assert counted.read_text() == "one more\n"


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(3), asyncio.CancelledError(3)])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_no_exception_is_an_error_of_the_reward_with_its_line(error, is_async, caplog):
    def ends(completions, **kwargs):
        raise error

    async def ends_later(completions, **kwargs):
        raise error

    reward = ends_later if is_async else ends
    place = f"{type(error).__name__}: 3 ({Path(__file__).name}, line "
    assert trained(reward, columns_of(["a"])) == [None]
    assert f"error: {place}" in caplog.text
    with pytest.raises(ForeignExit, match=re.escape(place)):
        score(reward, [ROW], ["a"])


def test_ctrl_c_during_a_reward_is_the_users_and_ends_the_call():
    def interrupted(completions, **kwargs):
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has none
    with pytest.raises(KeyboardInterrupt):
        trained(interrupted, columns_of(["a"]))
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_an_exception_without_a_text_and_one_with_a_secret_are_described():
    class Mute(Exception):
        def __str__(self):
            return self.args[1]

    assert describe(Mute()) == "Mute: Mute without text (IndexError)"

    def ask_a_server(row, text):
        raise OSError("403 for https://example.org/?api_key=sk-0123456789abcdef0123456789abcdef")

    failure = measure_or_fail(ask_a_server, ROW, "18")[1]
    assert failure.startswith("OSError: 403") and "sk-0123456789" not in failure


# What it returns and logs

NO_LIST = "; allowed: a list, one score per completion"
NO_NUMBER = "; allowed: numbers and None"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("1", f"it returned '1'{NO_LIST}"),  # which has one character
        (np.array(1.0), f"it returned array(1.){NO_LIST}"),
        ([torch.ones(2)], f"which is Tensor{NO_NUMBER}"),
        (["1"], f"it returned '1', which is str{NO_NUMBER}"),
        ([1.0, 1.0], "it returned 2 rewards for 1 completions"),
        ([float("nan")], "which is not finite in float32"),
    ],
)
def test_a_reward_that_returns_no_scores_is_told_what_is_allowed(returned, message):
    with pytest.raises(ValueError) as refused:
        score(reward := lambda completions, **kwargs: returned, [ROW], ["a"])
    place = f" ({Path(__file__).name}, line {reward.__code__.co_firstlineno})"
    assert message in str(refused.value) and str(refused.value).endswith(place)


@pytest.mark.parametrize(
    "returned",
    [[True], [np.float32(1)], [torch.tensor(1.0)], (1,), np.ones(1), torch.ones(1)],
)
def test_scores_may_be_scalars_of_any_kind_in_a_list_an_array_or_a_tensor(returned):
    (amount,), _ = score(lambda completions, **kwargs: returned, [ROW], ["a"])
    assert type(amount) is float and amount == 1.0


@pytest.mark.parametrize("value", [None, "much", [1.0]])
def test_a_logged_metric_is_a_number(value):
    def logs(completions, log_metric, **kwargs):
        log_metric("mine", value)
        return [1.0]

    with pytest.raises(ValueError, match=r"it logged the metric 'mine' as .*; allowed: a number"):
        score(logs, [ROW], ["a"])


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([torch.tensor(1), np.float64(2.5), None], [1, 2.5, None]),
        ([True, np.bool_(False), None], [True, False, None]),
        ([True, 1, None], ["True", "1", None]),  # of two types in parquet
        ([1, 2**63, None], ["1", str(2**63), None]),  # beyond 64 bits
        (["\ud800", torch.zeros(2), None], ["?", "tensor([0., 0.])", None]),
    ],
    ids=range(5),
)
def test_a_logged_column_has_one_type(values, column):
    def logs(completions, log_extra, **kwargs):
        log_extra("mine", values)
        return [1.0] * 3

    logged = {}
    trained(logs, columns_of(["a", "b", "c"], log_extra=logged.__setitem__))
    assert logged == {"mine": column}


def test_an_error_that_a_reward_logs_for_a_row_is_its_failure():
    def logs(completions, log_extra, **kwargs):
        log_extra("outcome/logs", ["error: KeyError: 'a'", "graded", "wrong: IndexError: "])
        return [None, 1.0, 0.0]

    scores, failures = score(logs, [ROW] * 3, ["a", "b", "c"])
    assert (scores, failures) == ([None, 1.0, 0.0], ["KeyError: 'a'", None, "IndexError: "])


@pytest.mark.parametrize("returned", [None, [True], {"right": 1}, {"right": None}, {5: True}])
def test_a_metric_that_returns_anything_but_true_or_false_is_told_what_is_allowed(returned):
    with pytest.raises(ValueError) as refused:
        measure(lambda row, text: returned, ROW, "a")
    allowed = "allowed: a mapping of names to True or False"
    assert str(refused.value) == f"it returned {returned}; {allowed}"


def test_a_metric_may_return_the_bools_of_numpy_and_torch_and_nothing_for_a_row():
    def numeric(row, text):
        return {"a": np.bool_(True), "b": torch.tensor(False)}

    assert measure(numeric, ROW, "a") == {"a": True, "b": False}
    assert measure(lambda row, text: {}, ROW, "a") == {}


def test_a_metric_that_fails_on_a_completion_counts_it_as_an_empty_one(caplog):
    def reads(row, text):
        return {"right": bool(text) and float(text) == float(row["answer"])}

    assert measure_or_fail(reads, ROW, "18") == ({"right": True}, None)
    outcome, failure = measure_or_fail(reads, ROW, "eighteen")
    assert outcome == {"right": False} and failure.startswith("ValueError: could not convert")
    measure_or_fail(reads, ROW, "nineteen")
    assert caplog.messages == [f"metric 'reads' failed on a completion: {failure}"]  # once
    assert measure_or_fail(lambda row, text: row["gone"], ROW, "18")[0] == {}


def test_code_that_always_catches_the_end_of_its_time_ends_the_process_and_is_named():
    code = """from rewards import boundary
boundary.MOST_ALARMS = 1

def swallow():
    while True:
        try:
            while True:
                len("")
        except BaseException:
            pass

with boundary.time_limit(0.3):
    swallow()
"""
    words, folder = [sys.executable, "-c", code], Path(__file__).parents[1]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    assert ended.stderr.endswith(": it catches the end of its time: correct it.\n")
