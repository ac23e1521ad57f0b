"""A reward in a process of its own, where one that hangs, ends its process or prints costs nothing.

It may be in the style of TRL, verl (`compute_score`) or verifiers (a rubric's function).

The process is a fresh interpreter: a fork would inherit the locks of torch's threads. One that is
late is killed, and the next call starts another. It is no sandbox: it may do what the reward does.
"""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rewards.audit.audit import ROWS_PER_TASK, Audit, audit
from rewards.audit.call import Raised, score_in_style, style_of
from rewards.contract import UNDECLARED, declared, is_model, reward_columns, reward_name, signature
from rewards.jsonl import read_jsonl, with_keys
from rewards.loading import build_reward, check_signature, short_name
from rewards.rows import as_rows
from rewards.text import completion_text

IMPORT_S = 60.0  # for the imports of a reward
GRACE_S = 5.0  # after which a call whose parent is gone ends by itself
MEMORY_BYTES = 8 << 30  # on top of what the imports took
DECLARATIONS = ("kind", "full", "allowances", "farmable")  # that the audit looks at
PATIENCE = 4  # a batch has so many times the seconds of one completion
BUDGET_S = 120.0  # for calls that are late, all together; then the reward is called no more
ROWS = 4  # for `check_apart`
ANSWERS = (
    "",
    "{}",
    "<answer>{}</answer>",
    "<reasoning>\n</reasoning>\n<answer>\n{}\n</answer>",
    r"\boxed{{{}}}",
    "0" * 400,
)


class Lost(Exception):
    """What became of a process in place of an answer: "takes more than 5 s", "ends its process"."""


class Apart:
    """The reward named `spec`, under TRL's contract whatever its style is, in another process.

    Args:
        style: trl, verl or verifiers, where the parameters of the function do not say.
        kind: where the function declares none.
        seconds: the limit for one completion; a batch has `PATIENCE` times as long.
        import_s: the limit for its imports.

    Raises:
        Lost, Raised: the import took too long or ended the process, or failed.
    """

    def __init__(
        self,
        spec: str,
        kwargs: dict[str, Any] | None = None,
        style: str | None = None,
        kind: str = UNDECLARED,
        seconds: float = 5.0,
        import_s: float = IMPORT_S,
    ):
        self.reward = [spec, kwargs or {}, style]
        self.seconds, self.import_s, self.late_s = seconds, import_s, 0.0
        self.process: subprocess.Popen | None = None
        try:
            found = self._start()
        except Raised:
            self.close()
            raise
        self.__name__, self.__signature__ = found.pop("name"), signature(*found.pop("columns"))
        given = {name: value for name, value in found.items() if value is not None}
        vars(self).update({"kind": kind} | given)

    def __call__(self, prompts: list, completions: list, **columns: Any) -> list[float | None]:
        if self.late_s >= BUDGET_S:
            raise Raised(f"it is called no more: {BUDGET_S:g} s went by in calls that were late")
        columns.pop("completion_ids", None)
        texts = [completion_text(completion) for completion in completions]
        limit_s = self.seconds * min(len(texts), PATIENCE)
        try:
            return self.score(as_rows(prompt=prompts, **columns), texts, limit_s)
        except Lost as lost:
            raise Raised(f"it {lost}") from None

    def score(self, rows: list[dict], texts: list[str], limit_s: float) -> list[float | None]:
        """Score completions in one batch.

        Raises:
            Lost, Raised: the batch took too long or ended the process, or failed.
        """
        if self.process is None:
            self._start()
        return self._ask([rows, texts, limit_s], limit_s)

    def close(self, patience_s: float = GRACE_S) -> int | None:
        """End the process, at best by itself with what the reward has started; its exit status."""
        process, self.process = self.process, None
        if process is None:
            return None
        self.connection.close()
        try:
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _start(self) -> dict[str, Any]:
        """Import the reward; its name, the columns it needs and its `DECLARATIONS`."""
        self.connection, other = Pipe()
        command = [sys.executable, "-m", "rewards.audit.apart", str(other.fileno())]
        self.process = subprocess.Popen(
            command,
            pass_fds=[other.fileno()],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what a reward prints, thousands of times
            stderr=subprocess.DEVNULL,
        )
        other.close()
        return self._ask([*self.reward, os.getcwd(), sys.path], self.import_s)

    def _ask(self, message: list, limit_s: float) -> Any:
        try:
            self.connection.send(message)
            if not self.connection.poll(limit_s):
                self.close(patience_s=0.0)
                self.late_s += limit_s
                raise Lost(f"takes more than {limit_s:g} s")
            status, value = self.connection.recv()
        except (EOFError, ConnectionError):
            raise Lost(f"ends its process (status {self.close()})") from None
        if status == "raised":
            raise Raised(value)
        return value


def audit_by_name(
    spec: str,
    rows_file: Path,
    reference: str,
    style: str | None = None,
    kind: str = "verifier",
    seconds: float = 5.0,
    per_task: int = ROWS_PER_TASK,
) -> tuple[Audit, list[Callable]]:
    """Audit the reward named `spec` on the rows of a JSON Lines file; the audit and its rewards.

    Args:
        style, kind, seconds: as of `Apart`.

    Raises:
        ValueError: a reward or a file of rows that cannot be used.
    """
    rows = read_jsonl(rows_file, with_keys({"prompt": (str, list)}))
    try:
        reward = Apart(spec, style=style, kind=kind, seconds=seconds)
    except Lost as lost:
        remedy = "What its module does besides definitions, move away."
        raise ValueError(f"reward {spec!r}: importing it {lost}. {remedy}") from None
    except Raised as error:
        raise ValueError(str(error).removeprefix("ValueError: ")) from None
    try:
        return audit(rows, [reward], reference, per_task), [reward]
    finally:
        reward.close()


def check_apart(
    specs: Iterable[str], kwargs: dict[str, Any] | None, rows: list[dict], limit_s: float
) -> list[str]:
    """Name the rewards that end their process, or are not imported or do not return in `limit_s`.

    Each is called on the rows (`ROWS` are enough) with an empty completion, and with `answer` in
    several formats. What it raises or returns is checked later, in the process of the run.
    """
    kwargs, problems = kwargs or {}, []
    rows = [row for row in rows if row.get("prompt")]
    for spec in specs:
        moment, own = "imported", kwargs.get(spec, kwargs.get(short_name(spec)))
        with contextlib.suppress(Raised):
            try:
                apart = Apart(spec, own, style="trl", import_s=limit_s)
                moment = "called"
                for form in ANSWERS if rows and apart.kind != "model" else ():  # it may cost money
                    texts = [form.format(row.get("answer", "")) for row in rows]
                    with contextlib.suppress(Raised):
                        apart.score(rows, texts, limit_s)
                apart.close()
            except Lost as lost:  # its process has ended
                when = f"when it is {moment} (reward_timeout_s is {limit_s:g})"
                problems.append(f"reward {spec!r} {lost} {when}: correct it.")
    return problems


# In the process


def serve(connection: Connection) -> None:
    """Import the reward that the first message names; score the batches of the others.

    After an import that failed the process ends.
    """
    spec, kwargs, style, folder, sys.path[:] = connection.recv()
    os.chdir(folder)
    try:
        function = build_reward(spec, kwargs)
        if is_model(function):
            lacks = "it has no rules, and the audit does not try it."
            raise ValueError(f"reward {spec!r} is a reward model: {lacks}")
        style = style or style_of(function)
        if style == "trl":
            check_signature(function, spec)
        found = {name: declared(function, name, None) for name in DECLARATIONS}
        found["columns"] = reward_columns(function) if style == "trl" else []
        connection.send(("done", found | {"name": reward_name(function)}))
    except Exception as error:
        connection.send(_raised(error))
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        rows, texts, limit_s = connection.recv()
        signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)  # by default it ends the process
        try:
            reply = ("done", score_in_style(function, style, rows, texts))
        except Exception as error:
            reply = _raised(error)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.send(reply)


def _raised(error: Exception) -> tuple[str, str]:
    return "raised", f"{type(error).__name__}: {error}"[:500]


if __name__ == "__main__":
    with contextlib.suppress(EOFError):  # the last message has been read
        serve(Connection(int(sys.argv[1])))
