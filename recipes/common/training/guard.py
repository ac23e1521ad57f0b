"""Guards around a reward in a run: its failures are kept apart from its scores, and it cannot hang
the job.

A failure of ours (an exception, a gold that cannot be read, a worker that died, an async reward out
of time) is None with an outcome of its own, for the trainer to count and to void. What the
completion itself causes is scored as wrong by the reward.

Not covered: an async reward that blocks the event loop in C code that holds the interpreter. The
traceback of a hang shows the innermost 100 frames by file and function, the reward's among them.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from recipes.common.utils.secrets import blank
from rewards import reward_kind, reward_name
from rewards.contract import at_once, declared, is_async, rows_of, scores_task
from rewards.steps import read_scores

GRADED, NOT_APPLICABLE, ERROR, UNPARSED, TIMEOUT = range(5)
CODES = {"error": ERROR, "unparsed": UNPARSED, "timeout": TIMEOUT, "not applicable": NOT_APPLICABLE}
FAILURES = (ERROR, UNPARSED)  # of ours: such a completion is void
RATES = {"errors": ERROR, "unparsed": UNPARSED, "timeouts": TIMEOUT}
ERROR_WINDOW = 1000  # scored rows over which the rate of failures is taken
GRACE_S = 5.0  # beyond its limit, before an async reward that does not let go ends the process
# TRL takes amounts alone from a reward. The rest goes by this column: one mapping, the same in all
# rows of a batch.
GRADED_BY = "_graded_by"

logger = logging.getLogger(__name__)


class RewardErrors(RuntimeError):
    """Too many rows that a reward could not score; raised on all ranks together."""


@dataclass
class Graded:
    """A call of a reward: for each completion the amount and a code of this module."""

    amounts: list
    outcomes: list[int]


@dataclass
class Answer:
    """What a reward returned and logged of each row, and the exception that it ended in."""

    amounts: list
    logged: dict[str, list]
    errors: list[BaseException | None]

    @classmethod
    def failed(cls, count: int, error: BaseException) -> "Answer":
        return cls([None] * count, {}, [error] * count)

    @classmethod
    def joined(cls, rows: list["Answer"]) -> "Answer":
        """Of calls of one row each; a column that a row did not log has None there."""
        columns = dict.fromkeys(column for row in rows for column in row.logged)
        return cls(
            [row.amounts[0] for row in rows],
            {column: [row.logged.get(column, [None])[0] for row in rows] for column in columns},
            [row.errors[0] for row in rows],
        )


def guard(reward: Callable, timeout_s: float) -> "GuardedReward":
    """`reward` with its failures caught, and a limit on the time of a call in seconds."""
    kind = AsyncGuardedReward if is_async(reward) else GuardedReward
    return kind(reward, timeout_s)


class GuardedReward:
    """A reward as TRL calls it; `grade` is the same with outcomes."""

    def __init__(self, reward: Callable, timeout_s: float):
        self.reward, self.timeout_s = reward, timeout_s
        self.__name__, self.__wrapped__ = reward_name(reward), reward
        self.first_failure: str | None = None
        self.columns: dict[str, None] = {}  # that it ever logged
        self.recent: deque[tuple[int, int]] = deque()  # failed and scored rows of each generation

    def __call__(self, **arguments: Any) -> list[float | None]:
        return at_once(self._amounts(arguments))

    def grade(self, **arguments: Any) -> Graded:
        return at_once(self._grade(arguments))

    async def _amounts(self, arguments: dict) -> list[float | None]:
        graded_by = arguments.pop(GRADED_BY, [{}])[0]
        graded_by[self.__name__] = graded = await self._grade(arguments)
        return graded.amounts

    async def _grade(self, arguments: dict) -> Graded:
        """All rows in one call; where that fails, row by row until the limit of the call is up."""
        until = time.monotonic() + self.timeout_s
        answer = await self._ask(arguments)
        count = len(arguments["completions"])
        if answer.errors[0] is not None and count > 1:
            rows = []
            for row in range(count):
                own = rows_of(arguments, [row])
                in_time = time.monotonic() < until
                rows.append(await self._ask(own) if in_time else Answer.failed(1, answer.errors[0]))
            answer = Answer.joined(rows)
        tasks = arguments.get("task") or [None] * count
        words = answer.logged.get(f"outcome/{self.__name__}", [None] * count)
        words = [
            word if error is None else blank(f"error: {type(error).__name__}: {error}")
            for word, error in zip(words, answer.errors, strict=True)
        ]
        codes = [self._code(*row) for row in zip(answer.amounts, words, tasks, strict=True)]
        self._report_first(codes, words, arguments, answer.errors)
        self._pass_on(answer.logged, arguments)
        return Graded(answer.amounts, codes)

    async def _ask(self, arguments: dict) -> Answer:
        """One call; what it returns or logs without being of use makes it fail."""
        logged: dict[str, list] = {}

        def log_extra(column: str, values: list) -> None:
            """Hold the column back: a late reward must not log any more.

            What a server said of a failure may hold the key that it was sent.
            """
            texts = [blank(value) if isinstance(value, str) else value for value in values]
            logged.setdefault(column, []).extend(texts)

        count = len(arguments["completions"])
        try:
            returned = await self._call({**arguments, "log_extra": log_extra})
            amounts = read_scores(self.reward, returned, arguments["completions"])
            self._check_logged(logged, count)
        except (Exception, SystemExit) as error:
            return Answer.failed(count, error)
        return Answer(amounts, logged, [None] * count)

    async def _call(self, arguments: dict) -> list:
        with _process_ends_after(self.timeout_s):
            return self.reward(**arguments)

    def _check_logged(self, logged: dict[str, list], count: int) -> None:
        """Raise ValueError for outcomes that are no text, and columns of another length."""
        words = logged.get(f"outcome/{self.__name__}", [])
        if not all(word is None or isinstance(word, str) for word in words):
            raise ValueError(f"it logged outcomes that are no text: {words}")
        short = [column for column, values in logged.items() if len(values) != count]
        if short:
            raise ValueError(
                f"it logged the columns {short} with another number of values than {count}"
            )

    def _code(self, amount: float | None, outcome: str | None, task: str | None) -> int:
        """The outcome that a reward logs counts; else a verifier's None could not be graded.

        A None for steps is such a row whatever is logged, unless that is an error: only these two
        void a row.
        """
        if task is not None and not scores_task(self.reward, task):
            return NOT_APPLICABLE
        code = CODES.get((outcome or "").split(":")[0], GRADED)
        kind = reward_kind(self.reward)
        if kind == "step" and amount is None:
            return ERROR if code == ERROR else UNPARSED
        if code != GRADED or amount is not None:
            return code
        return UNPARSED if kind == "verifier" else NOT_APPLICABLE

    def _pass_on(self, logged: dict[str, list], arguments: dict) -> None:
        """Log every column it ever logged, or TRL would show the values of an older batch."""
        self.columns |= dict.fromkeys(logged)
        count = len(arguments["completions"])
        if arguments.get("log_extra"):
            for column in self.columns:
                arguments["log_extra"](column, logged.get(column, [None] * count))

    def _report_first(
        self, codes: list[int], words: list[str | None], arguments: dict, errors: list
    ) -> None:
        """The first failure is logged with its row; later ones are counted."""
        row = next((i for i, code in enumerate(codes) if code in FAILURES), None)
        if row is None or self.first_failure is not None:
            return
        self.first_failure = words[row] or "it returned None"
        shown = {
            name: values[row]
            for name, values in arguments.items()
            if isinstance(values, list) and values
        }
        trace = "".join(traceback.format_exception(errors[row])) if errors[row] else ""
        logger.warning(
            f"reward {self.__name__!r} could not grade a row ({self.first_failure}). Such rows "
            f"are counted in errors/{self.__name__} and unparsed/{self.__name__} and teach "
            f"nothing. The first: {blank(shown)}\n{blank(trace)}".rstrip()
        )

    def count(self, outcomes_C: list[int], limit: float) -> dict[str, float]:
        """Count a generation of all ranks: the share of its scored rows by the name of the rate.

        Raises:
            RewardErrors: of its last rows more failed than `limit`, or the reward's own
            `max_error_rate`, allows.
        """
        scored = len(outcomes_C) - outcomes_C.count(NOT_APPLICABLE)
        self.recent.append((sum(outcomes_C.count(code) for code in FAILURES), scored))
        while sum(rows for _, rows in self.recent) - self.recent[0][1] >= ERROR_WINDOW:
            self.recent.popleft()
        failed, rows = (sum(column) for column in zip(*self.recent, strict=True))
        rate = min(limit, declared(self.reward, "max_error_rate", 1.0))
        # Before a thousand rows are through, as many failures as would be too many of a thousand
        # are enough.
        if failed > rate * max(rows, ERROR_WINDOW):
            raise RewardErrors(
                f"reward {self.__name__!r} could not score {failed} of its last {rows} rows (at "
                f"most {rate:g} of {ERROR_WINDOW} may fail: max_reward_error_rate, or the "
                "reward's own max_error_rate). The first failure on this rank: "
                f"{self.first_failure}. The same command goes on from the last checkpoint: at once "
                "where the cause lay outside, such as a server; with a corrected reward by "
                "--accept_changed reward_code; with another limit by --max_reward_error_rate. "
                "With other rows start anew: --fresh."
            )
        return {name: outcomes_C.count(code) / max(1, scored) for name, code in RATES.items()}


class AsyncGuardedReward(GuardedReward):
    """The same for an `async def` reward, left behind at its limit whatever it does."""

    async def __call__(self, **arguments: Any) -> list[float | None]:
        return await self._amounts(arguments)

    async def grade(self, **arguments: Any) -> Graded:
        return await self._grade(arguments)

    async def _call(self, arguments: dict) -> list:
        blocked = threading.Timer(self.timeout_s + GRACE_S, _end_process, [self.__name__])
        blocked.daemon = True
        blocked.start()
        try:
            task = asyncio.ensure_future(self.reward(**arguments))
            # wait_for would wait for the cancellation
            done, _ = await asyncio.wait({task}, timeout=self.timeout_s)
        finally:
            blocked.cancel()
        if not done:
            task.cancel()
            raise TimeoutError(f"no answer after {self.timeout_s:g} s")
        if task.cancelled():  # its result would be CancelledError, which is not an Exception
            raise RuntimeError("it was cancelled")
        return task.result()


def _end_process(name: str) -> None:
    """For an async reward that blocks the event loop, so that not even its limit is looked at."""
    sys.__stderr__.write(f"async reward {name!r} blocks the event loop beyond its limit:\n")
    faulthandler.dump_traceback(file=sys.__stderr__)
    os._exit(1)


@contextmanager
def _process_ends_after(seconds: float):
    """End the process with a traceback: nothing else stops code that holds the interpreter."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
