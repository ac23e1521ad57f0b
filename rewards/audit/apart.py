"""A reward in a process of its own, where one that hangs, ends its process or prints costs nothing.

It may be in the style of TRL, verl (`compute_score`) or verifiers (a rubric's function).

    apart = Apart("my_rewards.py:correct")
    apart.start(limit_s=60.0)                       # {"name": "correct", "kind": "verifier", ...}
    apart.score([{"prompt": "9+9", "answer": "18"}], ["18"], limit_s=5.0)                  # [1.0]

The process is a fresh interpreter: a fork would inherit the locks of torch's threads. One that is
late is killed, and the next call starts another. It is no sandbox: it may do what the reward does.
"""

import contextlib
import functools
import inspect
import json
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
from rewards.contract import declared, is_model, reward_columns, reward_name
from rewards.jsonl import read_jsonl, with_keys
from rewards.loading import build_reward, check_signature, short_name
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
    """The reward named `spec`, called as a trainer of `style` does, in another process."""

    def __init__(self, spec: str, kwargs: dict[str, Any] | None = None, style: str | None = None):
        self.reward = [spec, kwargs or {}, style]
        self.process: subprocess.Popen | None = None

    def start(self, limit_s: float) -> dict[str, Any]:
        """Import the reward; its name, the columns it needs and its `DECLARATIONS`.

        Raises:
            Lost, Raised: the import took too long or ended the process, or failed.
        """
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
        return self._ask([*self.reward, os.getcwd(), sys.path], limit_s)

    def score(self, rows: list[dict], texts: list[str], limit_s: float) -> list[float | None]:
        """Score completions in one batch.

        Raises:
            Lost, Raised: the batch took too long or ended the process, or failed.
        """
        if self.process is None:
            self.start(IMPORT_S)
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

    def _ask(self, message: list, limit_s: float) -> Any:
        try:
            self.connection.send_bytes(json.dumps(message, default=str).encode())
            if not self.connection.poll(limit_s):
                self.close(patience_s=0.0)
                raise Lost(f"takes more than {limit_s:g} s")
            status, value = json.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            raise Lost(f"ends its process (status {self.close()})") from None
        if status == "raised":
            raise Raised(value)
        return value


class ForeignReward:
    """A reward under TRL's contract that has the function `spec` score in a process of its own.

    Args:
        style: trl, verl or verifiers, where the parameters of the function do not say.
        kind: where the function declares none.
        seconds: the limit for one completion.

    Raises:
        ValueError: it cannot be imported, or called in any style.
    """

    def __init__(self, spec: str, style: str | None, kind: str, seconds: float):
        self.apart, self.seconds, self.late_s = Apart(spec, style=style), seconds, 0.0
        try:
            found = self.apart.start(IMPORT_S)
        except (Raised, Lost) as error:
            self.apart.close()
            why = str(error).removeprefix("ValueError: ")
            if isinstance(error, Lost):
                remedy = "What its module does besides definitions, move away."
                why = f"reward {spec!r}: importing it {error}. {remedy}"
            raise ValueError(why) from None
        self.__name__, columns = found.pop("name"), found.pop("columns")
        declarations = {name: value for name, value in found.items() if value is not None}
        vars(self).update({"kind": kind} | declarations)
        named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in columns]
        rest = inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD)
        self.__signature__ = inspect.Signature([*named, rest])  # the columns that it needs

    def __call__(self, prompts: list, completions: list, **columns: Any) -> list[float | None]:
        if self.late_s >= BUDGET_S:
            raise Raised(f"it is called no more: {BUDGET_S:g} s went by in calls that were late")
        rows = [{"prompt": prompt} for prompt in prompts]
        for name, values in columns.items():
            if isinstance(values, list) and name != "completion_ids":
                rows = [{**row, name: value} for row, value in zip(rows, values, strict=True)]
        texts = [completion_text(completion) for completion in completions]
        limit_s = self.seconds * min(len(texts), PATIENCE)
        try:
            return self.apart.score(rows, texts, limit_s)
        except Lost as error:
            if "takes" in str(error):
                self.late_s += limit_s
            raise Raised(f"it {error}") from None


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
        style, kind, seconds: as of `ForeignReward`.

    Raises:
        ValueError: a reward or a file of rows that cannot be used.
    """
    rows = read_jsonl(rows_file, with_keys({"prompt": (str, list)}))
    reward = ForeignReward(spec, style, kind, seconds)
    try:
        return audit(rows, [reward], reference, per_task), [reward]
    finally:
        reward.apart.close()


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
        apart = Apart(spec, kwargs.get(spec, kwargs.get(short_name(spec))), style="trl")
        moment = "imported"
        try:
            is_model = apart.start(limit_s)["kind"] == "model"
            moment = "called"
            for form in ANSWERS if rows and not is_model else ():  # which may cost money
                with contextlib.suppress(Raised):
                    texts = [form.format(row.get("answer", "")) for row in rows]
                    apart.score(rows, texts, limit_s)
        except Raised:
            pass
        except Lost as lost:
            when = f"when it is {moment} (reward_timeout_s is {limit_s:g})"
            problems.append(f"reward {spec!r} {lost} {when}: correct it.")
        apart.close()
    return problems


# In the process


def serve(connection: Connection) -> None:
    """Import the reward that the first message names; score the batches of the others."""
    spec, kwargs, style, folder, sys.path[:] = json.loads(connection.recv_bytes())
    os.chdir(folder)
    function = None

    def start() -> dict[str, Any]:
        nonlocal function, style
        function = build_reward(spec, kwargs)
        if is_model(function):
            lacks = "it has no rules, and the audit does not try it."
            raise ValueError(f"reward {spec!r} is a reward model: {lacks}")
        style = style or style_of(function)
        if style == "trl":
            check_signature(function, spec)
        columns = reward_columns(function) if style == "trl" else []
        found = {name: declared(function, name, None) for name in DECLARATIONS}
        return found | {"name": reward_name(function), "columns": columns}

    connection.send_bytes(_reply(start))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        rows, texts, limit_s = json.loads(connection.recv_bytes())
        signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)  # by default it ends the process
        reply = _reply(functools.partial(score_in_style, function, style, rows, texts))
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        connection.send_bytes(reply)


def _reply(call: Callable[[], Any]) -> bytes:
    try:
        return json.dumps(["done", call()]).encode()
    except Exception as error:
        return json.dumps(["raised", f"{type(error).__name__}: {error}"[:500]]).encode()


if __name__ == "__main__":
    with contextlib.suppress(EOFError):  # the last message has been read
        serve(Connection(int(sys.argv[1])))
