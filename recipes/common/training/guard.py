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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from recipes.common.utils.secrets import blank
from rewards.contract import Reward, at_once, read_scores, rows_of

GRADED, NOT_APPLICABLE, ERROR, UNPARSED, TIMEOUT = range(5)
CODES = {"error": ERROR, "unparsed": UNPARSED, "timeout": TIMEOUT, "not applicable": NOT_APPLICABLE}
FAILURES = (ERROR, UNPARSED)  # of ours: such a completion is void
RATES = {"errors": ERROR, "unparsed": UNPARSED, "timeouts": TIMEOUT}
ERROR_WINDOW = 1000  # scored rows over which the rate of failures is taken
GRACE_S = 5.0  # beyond its limit, before an async reward that does not let go ends the process

logger = logging.getLogger(__name__)


class RewardErrors(RuntimeError):
    """Too many rows that a reward could not score; raised on all ranks together."""


@dataclass
class Graded:
    """A call of a reward: for each completion the amount and a code of this module."""

    amounts: list
    outcomes: list[int]


class Guard:
    """A reward with its failures caught, and a limit on the time of a call in seconds."""

    def __init__(self, reward: Reward, timeout_s: float):
        self.reward, self.name, self.timeout_s = reward, reward.name, timeout_s
        self.first_failure: str | None = None
        self.columns: dict[str, None] = {}  # that it ever logged
        self.recent: deque[tuple[int, int]] = deque()  # failed and scored rows of each generation

    def as_reward(self) -> Reward:
        """The same reward for a caller that takes amounts alone, such as an evaluation."""

        async def awaited(**columns: Any) -> list:
            return (await self.grade(**columns)).amounts

        def call(**columns: Any) -> list:
            return at_once(awaited(**columns))

        return replace(self.reward, call=awaited if self.reward.is_async else call, tasks=None)

    async def grade(self, **columns: Any) -> Graded:
        """All rows in one call; where that fails, row by row until the limit of the call is up.

        A reward that is not async waits for nothing here: `at_once(guard.grade(...))`.
        """
        until, count = time.monotonic() + self.timeout_s, len(columns["completions"])
        amounts, logged, error = await self._ask(columns)
        errors = [error] * count
        if error is not None and count > 1:
            rows = []
            for row in range(count):
                in_time = time.monotonic() < until
                own = rows_of(columns, [row])
                rows.append(await self._ask(own) if in_time else ([None], {}, error))
            amounts, errors = [amount for (amount,), _, _ in rows], [error for *_, error in rows]
            names = dict.fromkeys(name for _, own, _ in rows for name in own)
            logged = {name: [own.get(name, [None])[0] for _, own, _ in rows] for name in names}
        words = [
            word if error is None else blank(f"error: {type(error).__name__}: {error}")
            for word, error in zip(self._outcomes(logged, count), errors, strict=True)
        ]
        tasks = columns.get("task") or [None] * count
        codes = [self._code(*row) for row in zip(amounts, words, tasks, strict=True)]
        self._report_first(codes, words, columns, errors)
        # Every column it ever logged, or TRL would show the values of an older batch.
        self.columns |= dict.fromkeys(logged)
        for name in self.columns if columns.get("log_extra") else ():
            columns["log_extra"](name, logged.get(name, [None] * count))
        return Graded(amounts, codes)

    async def _ask(self, columns: dict) -> tuple[list, dict[str, list], BaseException | None]:
        """One call: the amounts, what it logged, and the exception that it ended in.

        To return or log what is of no use is a failure, too.
        """
        logged: dict[str, list] = {}

        def log_extra(column: str, values: list) -> None:
            """Hold the column back: a late reward must not log any more.

            What a server said of a failure may hold the key that it was sent.
            """
            texts = [blank(value) if isinstance(value, str) else value for value in values]
            logged.setdefault(column, []).extend(texts)

        count = len(columns["completions"])
        try:
            returned = await self._call({**columns, "log_extra": log_extra})
            amounts = read_scores(self.reward, returned, columns["completions"])
            words = self._outcomes(logged, count)
            if not all(word is None or isinstance(word, str) for word in words):
                raise ValueError(f"it logged outcomes that are no text: {words}")
            if short := [name for name, values in logged.items() if len(values) != count]:
                raise ValueError(
                    f"it logged the columns {short} with another number of values than {count}"
                )
        except (Exception, SystemExit) as error:
            return [None] * count, {}, error
        return amounts, logged, None

    async def _call(self, columns: dict) -> list:
        """What the reward returns; an async one is left behind at its limit whatever it does."""
        if not self.reward.is_async:
            with _process_ends_after(self.timeout_s):
                return self.reward(**columns)
        blocked = threading.Timer(self.timeout_s + GRACE_S, _end_process, [self.name])
        blocked.daemon = True
        blocked.start()
        try:
            task = asyncio.ensure_future(self.reward(**columns))
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

    def _outcomes(self, logged: dict[str, list], count: int) -> list[str | None]:
        return logged.get(f"outcome/{self.name}", [None] * count)

    def _code(self, amount: float | None, outcome: str | None, task: str | None) -> int:
        """The outcome that a reward logs counts; else a verifier's None could not be graded.

        A None for steps is such a row whatever is logged, unless that is an error: only these two
        void a row.
        """
        if task is not None and not self.reward.scores(task):
            return NOT_APPLICABLE
        code = CODES.get((outcome or "").split(":")[0], GRADED)
        if self.reward.kind == "step" and amount is None:
            return ERROR if code == ERROR else UNPARSED
        if code != GRADED or amount is not None:
            return code
        return UNPARSED if self.reward.kind == "verifier" else NOT_APPLICABLE

    def _report_first(
        self, codes: list[int], words: list[str | None], columns: dict, errors: list
    ) -> None:
        """The first failure is logged with its row; later ones are counted."""
        row = next((i for i, code in enumerate(codes) if code in FAILURES), None)
        if row is None or self.first_failure is not None:
            return
        self.first_failure = words[row] or "it returned None"
        lists = {name: of for name, of in columns.items() if isinstance(of, list) and of}
        shown = {name: values[row] for name, values in lists.items()}
        trace = "".join(traceback.format_exception(errors[row])) if errors[row] else ""
        logger.warning(
            f"reward {self.name!r} could not grade a row ({self.first_failure}). Such rows "
            f"are counted in errors/{self.name} and unparsed/{self.name} and teach "
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
        rate = min(limit, self.reward.max_error_rate)
        # Before a thousand rows are through, as many failures as would be too many of a thousand
        # are enough.
        if failed > rate * max(rows, ERROR_WINDOW):
            raise RewardErrors(
                f"reward {self.name!r} could not score {failed} of its last {rows} rows (at "
                f"most {rate:g} of {ERROR_WINDOW} may fail: max_reward_error_rate, or the "
                "reward's own max_error_rate). The first failure on this rank: "
                f"{self.first_failure}. The same command goes on from the last checkpoint: at once "
                "where the cause lay outside, such as a server; with a corrected reward by "
                "--accept_changed reward_code; with another limit by --max_reward_error_rate. "
                "With other rows start anew: --fresh."
            )
        return {name: outcomes_C.count(code) / max(1, scored) for name, code in RATES.items()}


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
