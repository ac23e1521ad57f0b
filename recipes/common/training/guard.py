"""Guards around rewards: a failure is kept apart from the scores, and a hang ends the call.

If the reward itself fails (an exception, a gold answer that cannot be read, a dead worker, an async
reward that exceeds its limit), the score is None and the outcome says why. The trainer counts and
voids such rows. If the completion causes the failure, the reward scores the completion as wrong.

Not covered: an async reward that blocks the event loop in C code that holds the interpreter.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from recipes.common.utils.secrets import hide_secrets
from rewards.boundary import Answer, ask, describe, exits_end
from rewards.contract import Reward, arguments_of_rows, at_once

# The outcome of a row, as a number, so that ranks can gather it.
GRADED, NOT_APPLICABLE, ERROR, UNPARSED, TIMEOUT = range(5)
# The word before the colon that a reward logs as the outcome of a row, such as "error: KeyError".
CODES = {"error": ERROR, "unparsed": UNPARSED, "timeout": TIMEOUT, "not applicable": NOT_APPLICABLE}
FAILURES = (ERROR, UNPARSED)  # the reward failed, not the completion: the trainer voids the row
RATES = {"errors": ERROR, "unparsed": UNPARSED, "timeouts": TIMEOUT}
ERROR_WINDOW = 1000  # the failure rate is taken over this many of the last scored rows
GRACE_S = 5.0  # seconds after the limit until a blocked event loop ends the process

logger = logging.getLogger(__name__)


class RewardErrors(RuntimeError):
    """A reward failed on too many rows; all ranks raise this error together."""


@dataclass
class Graded:
    """A reward's result for each completion: the score (None: no score) and an outcome code."""

    amounts: list
    outcomes: list[int]


class Guard:
    """Calls a reward, catches its failures, and limits the time of a call (seconds)."""

    def __init__(self, reward: Reward, timeout_s: float):
        self.reward, self.name, self.timeout_s = reward, reward.name, timeout_s
        self.latest = Graded([], [])  # the result of the last call of `as_reward()`
        self.first_failure: str | None = None
        self.logged_columns: dict[str, None] = {}  # every column logged so far, as an ordered set
        self.recent: deque[tuple[int, int]] = deque()  # (failed, scored) rows by generation

    def as_reward(self) -> Reward:
        """The guarded reward, for TRL to call: returns the scores; `latest` has outcomes, too."""

        async def call_async(**columns: Any) -> list:
            self.latest = await self.grade(**columns)
            return self.latest.amounts

        def call(**columns: Any) -> list:
            return at_once(call_async(**columns))  # `grade` awaits nothing here

        guarded = call_async if self.reward.is_async else call
        return replace(self.reward, call=guarded, tasks=None)  # the inner reward heeds its tasks

    async def grade(self, **columns: Any) -> Graded:
        """Grade all rows in one call; if that fails, each row in a call of its own.

        `columns` are the arguments that TRL gives a reward, with one value for each row. Awaits
        nothing unless the reward is async: then the caller restores the random states.
        """
        deadline = time.monotonic() + self.timeout_s
        count = len(columns["completions"])
        answer, error = await self._answer_or_error(columns)
        errors = [error] * count
        if error is not None and count > 1:
            answer = Answer([None] * count)
            for row in range(count):
                if time.monotonic() >= deadline:
                    break  # the other rows keep the exception of the call
                arguments = arguments_of_rows(columns, [row])
                of_row, errors[row] = await self._answer_or_error(arguments)
                answer.scores[row] = of_row.scores[0]
                answer.metrics += of_row.metrics
                for name, values in of_row.columns.items():
                    answer.columns.setdefault(name, [None] * count)[row] = values[0]

        outcomes = answer.outcomes(self.reward)
        for row, error in enumerate(errors):
            if error is not None:
                outcomes[row] = hide_secrets(f"error: {describe(error)}")
        tasks = columns.get("task") or [None] * count
        rows = zip(answer.scores, outcomes, tasks, strict=True)
        codes = [self._code_of(amount, outcome, task) for amount, outcome, task in rows]
        self._log(answer, columns)
        failed = [row for row, code in enumerate(codes) if code in FAILURES]
        if failed and self.first_failure is None:
            self.first_failure = outcomes[failed[0]] or "it returned None"
            self._warn(columns, failed[0], errors[failed[0]])
        return Graded(answer.scores, codes)

    async def _answer_or_error(self, columns: dict[str, Any]) -> tuple[Answer, Exception | None]:
        """Call the reward once; return its answer, and the exception if the call failed.

        A failed call gives None for every row, and what it logged is dropped. Secrets in logged
        texts are hidden: a server's error message may repeat the API key that it got.
        """
        try:
            answer = await ask(self.reward, columns, self._call_within_limit)
        except Exception as error:
            return Answer([None] * len(columns["completions"])), error
        for name, values in answer.columns.items():
            answer.columns[name] = [hide_secrets(v) if isinstance(v, str) else v for v in values]
        return answer, None

    async def _call_within_limit(self, **columns: Any) -> list:
        """Call the reward; at its time limit an async call fails, any other ends the process."""
        if not self.reward.is_async:
            with _process_ends_after(self.timeout_s):
                return self.reward(**columns)

        async def call() -> list:
            with exits_end():  # inside the task: an exit that leaves a task stops the event loop
                return await self.reward(**columns)

        watchdog = threading.Timer(self.timeout_s + GRACE_S, _end_process, [self.name])
        watchdog.daemon = True
        watchdog.start()
        try:
            task = asyncio.ensure_future(call())
            # Not wait_for: it waits until the task has handled its cancellation.
            done, _ = await asyncio.wait({task}, timeout=self.timeout_s)
        finally:
            watchdog.cancel()
        if not done:
            # Read the exception of a late end: asyncio warns of one that nobody has read.
            task.add_done_callback(lambda late: late.exception())
            task.cancel()
            raise TimeoutError(f"no answer after {self.timeout_s:g} s")
        return task.result()

    def _code_of(self, amount: Any, outcome: str | None, task: str | None) -> int:
        """The outcome code of a row, from its score and the outcome that the reward logged for it.

        An example of a logged outcome is "error: KeyError". Without one, the score None means
        UNPARSED (the gold cannot be read) for a verifier, and NOT_APPLICABLE for others. None from
        a step reward is always ERROR or UNPARSED, because only these two void a row.
        """
        if task is not None and not self.reward.scores(task):
            return NOT_APPLICABLE
        code = CODES.get((outcome or "").split(":")[0], GRADED)
        if amount is None and self.reward.kind == "step" and code not in FAILURES:
            return UNPARSED
        if amount is None and code == GRADED:
            return UNPARSED if self.reward.kind == "verifier" else NOT_APPLICABLE
        return code

    def _log(self, answer: Answer, columns: dict[str, Any]) -> None:
        """Pass on what the reward logged to TRL's `log_extra` and `log_metric`, if given.

        A column that the reward logged only earlier is logged again, as None: TRL would show the
        values of the older batch.
        """
        self.logged_columns |= dict.fromkeys(answer.columns)
        if log_extra := columns.get("log_extra"):
            for name in self.logged_columns:
                log_extra(name, answer.columns.get(name, [None] * len(answer.scores)))
        if log_metric := columns.get("log_metric"):
            for name, value in answer.metrics:
                log_metric(name, value)

    def _warn(self, columns: dict[str, Any], row: int, error: BaseException | None) -> None:
        """Log the first failure with its row; later failures are only counted."""
        shown = {name: of[row] for name, of in columns.items() if isinstance(of, list) and of}
        trace = "".join(traceback.format_exception(error)) if error else ""
        logger.warning(
            f"reward {self.name!r} could not grade a row ({self.first_failure}). Such rows "
            f"are counted in errors/{self.name} and unparsed/{self.name} and teach "
            f"nothing. The first: {hide_secrets(shown)}\n{hide_secrets(trace)}".rstrip()
        )

    def count(self, outcomes_C: list[int], limit: float) -> dict[str, float]:
        """The rates of a generation as shares of its scored rows: `{"errors": 0.25, ...}`.

        `outcomes_C` has the outcome code of each completion of all ranks.

        Raises:
            RewardErrors: more of the last `ERROR_WINDOW` rows failed than `limit` or the reward's
                own `max_error_rate` allows (a share). Before there are that many, the share is
                taken of that many all the same: a few early failures do not stop a run.
        """
        scored = len(outcomes_C) - outcomes_C.count(NOT_APPLICABLE)
        self.recent.append((sum(outcomes_C.count(code) for code in FAILURES), scored))
        # Drop the oldest generation while the others still fill the window of 1,000 rows.
        while sum(rows for _, rows in self.recent) - self.recent[0][1] >= ERROR_WINDOW:
            self.recent.popleft()
        failed = sum(failures for failures, _ in self.recent)
        rows = sum(rows for _, rows in self.recent)
        rate = min(limit, self.reward.max_error_rate)
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
    """End the process: the async reward blocks the event loop, so its limit has no effect."""
    sys.__stderr__.write(f"async reward {name!r} blocks the event loop beyond its limit:\n")
    faulthandler.dump_traceback(file=sys.__stderr__)
    os._exit(1)


@contextmanager
def _process_ends_after(seconds: float) -> Iterator[None]:
    """After `seconds`, end the process: nothing else stops code that holds the interpreter."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        # Also ends a forked process, which at the last line would wait for a thread of its parent.
        with exits_end():
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()
