"""The boundary to foreign code: how the trainer, evaluation, preflight and `watch` call rewards and
metrics, which users write.

- Foreign code gets copies of its arguments. What it changes there, nobody else sees.
- It draws random numbers from a seed of its own, made from what it is called with, so a resumed run
  repeats them. Random states, the working folder, signal handlers and torch's modes are restored.
- A process that it forks ends where the call ends. An exit is an error like any other; Ctrl-C is
  always the user's.
- What it returns and logs is checked; what it raises is named with file and line (`describe`).
"""

import asyncio
import copy
import functools
import numbers
import os
import random
import re
import signal
import sys
import sysconfig
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewards.contract import (
    Reward,
    answer_of,
    at_once,
    named_parameters,
    place_of,
    plain_number,
    read_scores,
    reward_of,
    total,
)
from rewards.text import completion_text

NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL does not pass on
NOTICE_S = 10.0  # what takes longer to start is named
MOST_ALARMS = 20  # one a second
ROOT = Path(__file__).parents[1]
# Where the code lies that calls foreign code: no line of it is the user's.
NOT_THE_USERS = (
    sysconfig.get_path("stdlib"),
    str(ROOT / "rewards/boundary.py"),
    str(ROOT / "rewards/contract.py"),
    str(ROOT / "rewards/audit.py"),
    str(ROOT / "recipes/common"),
)


# --- The process


class OutOfTime(BaseException):
    """The time limit of foreign code; no `except Exception` of that code takes it for its own."""


class ForeignExit(RuntimeError):
    """Foreign code raised what is no `Exception`, such as SystemExit; it is the cause."""


@contextmanager
def contained(*key: Any) -> Iterator[None]:
    """Run a user's code in the block; then restore the process, and end any that the code forked.

    Inside the block random numbers are seeded by `key`, so equal calls draw equal numbers.

    Example: `with contained(completions): scores = reward(completions=completions)`
    """
    before = [(write, read()) for read, write in process_settings()]
    seed = zlib.crc32(repr(key).encode(errors="surrogatepass"))
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed(seed)
    try:
        with exits_end():
            yield
    finally:
        for write, value in before:
            write(value)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """`contained` for code that is no call of a reward; after 10 s print "Waiting for <what> ...".

    Example: `with starting("the import of mine.py"): import mine`
    """
    notice = threading.Timer(NOTICE_S, print, [f"Waiting for {what} ..."], {"flush": True})
    notice.daemon = True
    notice.start()
    try:
        with contained(what):
            yield
    finally:
        notice.cancel()


def process_settings() -> list[tuple[Callable, Callable]]:
    """A pair of functions, to read and to write it, for each setting that foreign code may change.

    Example: one of the pairs is `(os.getcwd, os.chdir)`.
    """
    settings: list[tuple[Callable, Callable]] = [
        (random.getstate, random.setstate),
        (os.getcwd, os.chdir),
    ]
    if on_main_thread():  # no other may set a handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            if signal.getsignal(number) is not None:  # None: set by C code
                read = functools.partial(signal.getsignal, number)
                settings.append((read, functools.partial(signal.signal, number)))
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"].random
        settings.append((numpy.get_state, numpy.set_state))
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        settings += [
            (torch.get_rng_state, torch.set_rng_state),
            (torch.get_default_dtype, torch.set_default_dtype),
            (torch.is_grad_enabled, torch.set_grad_enabled),
            (torch.get_num_threads, torch.set_num_threads),
        ]
        if torch.cuda.is_initialized():
            settings.append((torch.cuda.get_rng_state, torch.cuda.set_rng_state))
    return settings


def on_main_thread() -> bool:
    """Whether the caller runs on the main thread, the only one that signals reach."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def exits_end() -> Iterator[None]:
    """Turn an exit of the block's code into a `ForeignExit`, and end a process that it forks.

    Ctrl-C passes, as the user's wish. So does the cancellation of an async task by its event loop.
    """
    process = os.getpid()
    try:
        yield
    except (Exception, KeyboardInterrupt, OutOfTime):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        raise ForeignExit(describe(error)) from error
    finally:
        if os.getpid() != process:  # this is a process that the block has forked
            os._exit(0)


def is_cancelled() -> bool:
    """Whether the event loop ends the task that runs here, such as at the end of its time."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return False
    return task is not None and task.cancelling() > 0


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the block after `seconds`; on the main thread only, where signals go.

    The alarm repeats every second, for code that catches everything once. Code that catches it
    `MOST_ALARMS` times would never end: the process does. Not stopped: a call into C that never
    looks for signals, and code that ignores them.
    """
    if seconds is None or not on_main_thread():
        yield
        return
    alarms = 0

    def on_alarm(number: int, frame: Any) -> None:
        nonlocal alarms
        alarms += 1
        if alarms > MOST_ALARMS:
            place = f"{frame.f_code.co_filename}, line {frame.f_lineno}"
            os.write(2, f"error: {place}: it catches the end of its time: correct it.\n".encode())
            os._exit(2)
        raise OutOfTime

    handler = signal.signal(signal.SIGALRM, on_alarm)
    timer = signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 1.0)
    try:
        try:
            yield
        finally:  # an alarm that comes here, late, is still caught below
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)
    except OutOfTime as error:
        late = TimeoutError(f"no answer after {seconds:.3g} s")
        raise late.with_traceback(error.__traceback__) from None


def describe(error: BaseException) -> str:
    """Name an exception with the last line of the user's code that it came from.

    Example: `"KeyError: 'gold' (my_reward.py, line 7)"`
    """
    if isinstance(error, ForeignExit):
        return str(error)
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        is_library = "site-packages" in frame.filename or frame.filename.startswith(NOT_THE_USERS)
        if not is_library:
            place = f" ({Path(frame.filename).name}, line {frame.lineno})"
    return f"{type(error).__name__}: {as_text(error)[:500]}{place}"


# --- Rewards


@dataclass
class Answer:
    """What a reward returned and logged: a score, list of steps or None for each completion."""

    scores: list
    columns: dict[str, list] = field(default_factory=dict)  # logged with log_extra
    metrics: list[tuple[str, float]] = field(default_factory=list)  # logged with log_metric

    def outcomes(self, reward: Reward) -> list[str | None]:
        """What the reward logged as `outcome/<name>` for each completion, such as `error: ...`."""
        logged = self.columns.get(f"outcome/{reward.name}", [None] * len(self.scores))
        return [None if outcome is None else str(outcome) for outcome in logged]

    def log_extra(self, column: str, values: list) -> None:
        """TRL's `log_extra`, as the reward gets it."""
        self.columns.setdefault(str(column), []).extend(values)

    def log_metric(self, name: str, value: float) -> None:
        """TRL's `log_metric`, as the reward gets it; ValueError unless the value is a number."""
        value = plain_number(value)
        if not isinstance(value, numbers.Real):
            raise ValueError(f"it logged the metric {name!r} as {value!r:.80}; allowed: a number")
        self.metrics.append((str(name), float(value)))


async def ask(reward: Reward, arguments: dict[str, Any], call: Callable | None = None) -> Answer:
    """Call a reward with copies of TRL's arguments; return its checked scores and what it logged.

    `call` (default: the reward) is called instead, such as the reward with a time limit. A reward
    that is not async runs in a `contained` block here, without an await (see `at_once`). For async
    ones, which may run together, the caller makes one such block.

    Raises whatever the reward raises, and ValueError if TRL could not use what it returned or
    logged.
    """
    completions, answer = arguments["completions"], Answer([])
    copies = {**arguments, "log_extra": answer.log_extra, "log_metric": answer.log_metric}
    for name, values in arguments.items():
        if isinstance(values, list) and name != "environments":  # these live on between the calls
            are_ids = name == "completion_ids"  # millions of numbers
            copies[name] = [list(one) if are_ids else copy.deepcopy(one) for one in values]
    if state := arguments.get("trainer_state"):
        copies["trainer_state"] = copy.copy(state)
        copies["trainer_state"].log_history = [dict(entry) for entry in state.log_history]
    # An async reward may run on another thread than its `contained` block: its exits end here.
    step = getattr(state, "global_step", 0)
    with exits_end() if reward.is_async else contained(reward.name, step, completions):
        returned = await answer_of(call or reward, **copies)
    try:
        answer.scores = read_scores(reward, returned, completions)
    except ValueError as error:
        raise ValueError(f"{error}{place_of(reward.call)}") from error
    for column, values in answer.columns.items():
        if len(values) != len(completions):
            raise ValueError(
                f"it logged {len(values)} values of the column {column!r} for {len(completions)} "
                "completions"
            )
        answer.columns[column] = as_column(values)
    return answer


def as_column(values: list) -> list:
    """The values with one type, as a column of TRL's table of completions needs it; None stays.

    Values that are neither all True or False nor all numbers of 64 bits become texts.

    Example: `as_column([1, "a", None]) == ["1", "a", None]`
    """
    values = [plain_number(value) for value in values]
    kinds = {type(value) for value in values if value is not None}
    is_number = kinds <= {int, float} and all(abs(value or 0) < 2**63 for value in values)
    if is_number or kinds == {bool}:
        return values
    return [value if value is None else as_text(value) for value in values]


def as_text(value: Any) -> str:
    """The value as a text that UTF-8 can hold, whatever its own `str` does."""
    try:
        text = str(value)
    except Exception as error:
        text = f"{type(value).__name__} without text ({type(error).__name__})"
    return text.encode(errors="replace").decode()


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
    limit_s: float | None = None,
) -> tuple[list[float | None], list[str | None]]:
    """Score one completion (text or messages) per row outside training, as the trainer would.

    Returns the scores (of a step reward the sum of the steps) and for each row the failure that the
    reward logged, or None. Columns and metrics that it logs are dropped. `trainer_state` is the
    state before step 1. A reward that takes `completion_ids` gets `token_ids`, or else
    `stand_in_ids`. An async reward runs on `loop`, which another thread runs, or on a new one.

    Raises what the reward raises, ValueError if TRL could not use what it returned, and
    TimeoutError after `limit_s` seconds.
    """
    from transformers import TrainerState  # importing a recipe stays light

    reward = reward_of(reward)
    prompts, completions = [row["prompt"] for row in rows], list(texts)
    for place, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        if isinstance(text, str) and not isinstance(prompt, str):  # in the form of its prompt
            completions[place] = [{"role": "assistant", "content": text}]
    if token_ids is None:
        takes_ids = "completion_ids" in named_parameters(reward)
        token_ids = [stand_in_ids(completion_text(text)) if takes_ids else [] for text in texts]
    arguments = {
        "prompts": prompts,
        "completions": completions,
        "completion_ids": token_ids,
        "trainer_state": TrainerState(max_steps=100, epoch=0.0, num_train_epochs=1),
    }
    for name in rows[0]:
        if name not in NOT_PASSED:
            arguments[name] = [row.get(name) for row in rows]
    asking = ask(reward, arguments)  # a coroutine, which runs below
    with time_limit(limit_s):
        if not reward.is_async:
            answer = at_once(asking)
        else:
            with contained(reward.name, completions):
                if loop is None:
                    answer = asyncio.run(asking)
                else:
                    answer = asyncio.run_coroutine_threadsafe(asking, loop).result()
    scores = [total(steps) for steps in answer.scores] if reward.kind == "step" else answer.scores
    failures = []
    for outcome in answer.outcomes(reward):
        label, _, failure = (outcome or "").partition(": ")  # "wrong: ValueError: ..."
        failures.append(failure if label in ("error", "wrong") else None)
    return scores, failures


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: equal pieces of up to four characters have equal ids."""
    pieces = re.findall(r"\s+|\S{1,4}", text)
    return [zlib.crc32(piece.encode(errors="surrogatepass")) for piece in pieces]


# --- Metrics


def measure(metric: Callable, row: dict, text: str) -> dict[str, bool]:
    """Call `metric(row, text)` and check that it returns a mapping of names to True or False.

    Raises what the metric raises, and ValueError if it returned anything else.
    """
    with contained(text):
        returned = metric(copy.deepcopy(row), text)
    if isinstance(returned, dict):
        returned = {name: plain_number(value) for name, value in returned.items()}
        if all(isinstance(name, str) and isinstance(returned[name], bool) for name in returned):
            return returned
    raise ValueError(f"it returned {returned!r:.80}; allowed: a mapping of names to True or False")
