"""Guards around a reward in a run: its failures are kept apart from its scores, and it cannot hang the job.

A failure of ours (an exception, a gold that cannot be read, a worker that died, an async reward out of
time) is None and is remembered by row, for the trainer to count and to void. What the completion itself
causes is scored as wrong by the reward.

Not covered: an async reward that blocks the event loop in C code that holds the interpreter. A traceback shows
the innermost 100 frames of a hang: the name of a sync reward that hangs deeper than that is not among them.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from rewards import reward_kind, reward_name
from rewards.contract import LARGEST, is_async, scores_task
from rewards.steps import check_steps

GRADED, NOT_APPLICABLE, ERROR, UNPARSED, TIMEOUT = range(5)
GRACE_S = 5.0  # beyond its limit, before an async reward that does not let go ends the process
CODES = {"error": ERROR, "unparsed": UNPARSED, "timeout": TIMEOUT, "not applicable": NOT_APPLICABLE}

logger = logging.getLogger(__name__)


def guard(reward: Callable, timeout_s: float) -> "GuardedReward":
    """`reward` with its failures caught and remembered, and a limit on the time of a call in seconds."""
    return (
        AsyncGuardedReward(reward, timeout_s)
        if is_async(reward)
        else GuardedReward(reward, timeout_s)
    )


class GuardedReward:
    """Calls a reward; `outcomes` says of each row of the last call how it went, by the codes of this module."""

    def __init__(self, reward: Callable, timeout_s: float):
        self.reward, self.timeout_s = reward, timeout_s
        self.__name__, self.__wrapped__ = reward_name(reward), reward
        self.outcomes: list[int] = []
        self.first_failure: str | None = None
        self.columns: dict[str, None] = {}  # that it ever logged

    def __call__(self, **arguments: Any) -> list[float | None]:
        logged: dict[str, list] = {}
        with _process_ends_after(self.timeout_s):
            try:
                amounts = _in_frame(f"reward {self.__name__}", self.reward)(
                    **_listen(arguments, logged)
                )
                return self._note(amounts, logged, arguments)
            except (Exception, SystemExit) as error:
                return self._fail(error, arguments)

    def _note(self, amounts: list, logged: dict[str, list], arguments: dict) -> list:
        """Note each row's outcome; anything but a finite number, a list of steps or None fails the whole call."""
        count = len(arguments["completions"])
        if len(amounts) != count:
            raise ValueError(f"it returned {len(amounts)} rewards for {count} completions")
        if reward_kind(self.reward) == "step":
            check_steps(amounts, arguments["completions"])
        elif not all(amount is None or abs(amount) <= LARGEST for amount in amounts):
            raise ValueError(f"it returned a reward that is not finite: {amounts}")
        short = [column for column, values in logged.items() if len(values) != count]
        if short:
            raise ValueError(
                f"it logged the columns {short} with another number of values than {count}"
            )
        logged_outcomes = logged.get(f"outcome/{self.__name__}", [None] * count)
        tasks = arguments.get("task") or [None] * count
        self.outcomes = [
            self._code(*row) for row in zip(amounts, logged_outcomes, tasks, strict=True)
        ]
        self._report_first(logged_outcomes, arguments)
        self._pass_on(logged, arguments)
        return amounts

    def _code(self, amount: float | None, outcome: str | None, task: str | None) -> int:
        """The outcome that a reward logs for its row counts; else a None of a verifier is a row it could not grade.

        A None for steps is such a row whatever is logged, unless that is an error: only these two void a row.
        """
        if not scores_task(self.reward, task):
            return NOT_APPLICABLE
        code, kind = CODES.get((outcome or "").split(":")[0], GRADED), reward_kind(self.reward)
        if kind == "step" and amount is None:
            return ERROR if code == ERROR else UNPARSED
        if code != GRADED or amount is not None:
            return code
        return UNPARSED if kind == "verifier" else NOT_APPLICABLE

    def _fail(self, error: BaseException, arguments: dict) -> list[None]:
        count, tasks = len(arguments["completions"]), arguments.get("task")
        mine = [scores_task(self.reward, task) for task in tasks] if tasks else [True] * count
        self.outcomes = [ERROR if own else NOT_APPLICABLE for own in mine]
        self._report_first([f"error: {type(error).__name__}: {error}"] * count, arguments, error)
        self._pass_on({}, arguments)
        return [None] * count

    def _pass_on(self, logged: dict[str, list], arguments: dict) -> None:
        """Log every column it ever logged: TRL would show the values of an older batch for one that is left out."""
        self.columns |= dict.fromkeys(logged)
        count = len(arguments["completions"])
        if arguments.get("log_extra"):
            for column in self.columns:
                arguments["log_extra"](column, logged.get(column, [None] * count))

    def _report_first(
        self, outcomes: list[str | None], arguments: dict, error: BaseException | None = None
    ) -> None:
        """The first failure is logged with its row; later ones are counted."""
        row = next((i for i, code in enumerate(self.outcomes) if code in (ERROR, UNPARSED)), None)
        if row is None or self.first_failure is not None:
            return
        self.first_failure = outcomes[row] or "it returned None"
        shown = {
            name: values[row]
            for name, values in arguments.items()
            if isinstance(values, list) and values
        }
        logger.warning(
            f"reward {self.__name__!r} could not grade a row ({self.first_failure}). Such rows are counted in "
            f"errors/{self.__name__} and unparsed/{self.__name__} and teach nothing. The first: {shown}",
            exc_info=error,
        )


class AsyncGuardedReward(GuardedReward):
    """The same for an `async def` reward, which is left behind at its limit even if it ignores its cancellation."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        logged: dict[str, list] = {}
        blocked = threading.Timer(self.timeout_s + GRACE_S, _end_process, [self.__name__])
        blocked.daemon = True
        blocked.start()
        try:
            task = asyncio.ensure_future(self.reward(**_listen(arguments, logged)))
            done, _ = await asyncio.wait(
                {task}, timeout=self.timeout_s
            )  # wait_for would wait for the cancellation
            if not done:
                task.cancel()
                raise TimeoutError(f"no answer after {self.timeout_s:g} s")
            if task.cancelled():  # its result would be CancelledError, which is not an Exception
                raise RuntimeError("it was cancelled")
            return self._note(task.result(), logged, arguments)
        except Exception as error:
            return self._fail(error, arguments)
        finally:
            blocked.cancel()


def _end_process(name: str) -> None:
    """For an async reward that blocks the event loop, so that not even its limit is looked at."""
    sys.__stderr__.write(f"async reward {name!r} blocks the event loop beyond its limit:\n")
    faulthandler.dump_traceback(file=sys.__stderr__)
    os._exit(1)


def _listen(arguments: dict[str, Any], logged: dict[str, list]) -> dict[str, Any]:
    """The arguments, with logged columns held back: an async reward left behind must not log into a later batch."""
    return {
        **arguments,
        "log_extra": lambda column, values: logged.setdefault(column, []).extend(values),
    }


@contextmanager
def _process_ends_after(seconds: float):
    """End the process with a traceback: nothing else stops Python code that holds the interpreter."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _in_frame(name: str, function: Callable) -> Callable:
    """`function`, called from a frame of this name: the traceback of a hang shows nothing but names of frames."""

    def call(**arguments: Any) -> Any:
        return function(**arguments)

    renamed = {
        "co_name": name,
        **({"co_qualname": name} if hasattr(call.__code__, "co_qualname") else {}),
    }
    call.__code__ = call.__code__.replace(**renamed)
    return call
