"""`E2BSandbox`: the same sandbox inside a machine hired from E2B, for who cannot run programs on the training machine.

    pip install -e '.[e2b]'; export E2B_API_KEY=...
    with E2BSandbox() as sandbox:
        sandbox.run_asserts("def double(x): return 2 * x", ["assert double(2) == 4"]).status     # 'pass'

Programs AND TESTS leave this machine: they are sent to E2B, because whoever makes an `E2BSandbox` chose that. Nothing
else is sent but the files of this package.

Promises: the verdict is given by the split harness of this package (`batch`), which runs there under its own
confinement, as root so that it can drop to other users; the machine, without internet, is a second wall around it. The
harness tests itself before every batch, and where it refuses, so does this: `SandboxError`, nothing weaker is tried.
Where the service fails (no connection, an error, no answer in time, a machine that is gone), the machine is given back
and the batch sent once more, to a new one; a second failure is `infra` for its jobs, never `fail`. A program cannot
bring that about: the time allowed is what all would take if each ran to its limit. Machines are ended by `close` and at
exit; after a kill -9 E2B ends them, `timeout_s` after their start.

What is not covered: no account was at hand. All of this was run against a fake server (tests/test_sandbox_hosted.py)
with the official client, never against E2B: its prices, quotas, speed and kernel are not known here. A program that
broke out of the confinement would own that machine, and with it the verdicts it gives. A program may use 1 GiB of
memory, whatever the machine has. A machine whose creation was not answered cannot be ended from here. The client has
retries of its own, before ours. What programs print comes back cut (`batch`). One batch runs at a time; each rank hires
its own machine. A forked process cannot use the client: that is an error.
"""

import asyncio
import atexit
import contextlib
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rewards.sandbox.batch import pack
from rewards.sandbox.face import Face, SandboxError
from rewards.sandbox.jobs import PROGRAM_BYTES, Asserts, Outcome, Stdio

logger = logging.getLogger(__name__)
FOLDER = "/opt/grpo-recipes"  # on the hired machine
LEAST_LIFE_S, LIFE_S = 300, 3600  # an hour is the most that E2B gives without a paid plan
START_S = 60.0  # for the interpreter and the self-test there
SPAWN_S = 1.0  # on top of the limit of each run
END_S = 10.0

_sandboxes: weakref.WeakSet["E2BSandbox"] = weakref.WeakSet()
_client_used_in: int | None = None


class ServiceFailed(Exception):
    """E2B gave no answer, twice."""


class E2BSandbox(Face):
    """What rewards use of `Sandbox`, on one machine at a time, hired by the first call or by `with`.

    `template` and `timeout_s` (the life of a machine) are E2B's own; the template needs `python3`, 3.10 or newer, and
    the `packages` that programs may import. `workers`: None for as many as the machine has cores. `runs` counts
    outcomes, `infra` those that are failures of ours or of E2B.
    """

    def __init__(
        self,
        template: str | None = None,
        workers: int | None = None,
        timeout_s: int = LIFE_S,
        packages: Sequence[str] = (),
    ):
        if timeout_s < LEAST_LIFE_S:
            raise ValueError(f"timeout_s is {timeout_s}: a machine needs at least {LEAST_LIFE_S} s to be of use")
        self.template, self.wanted, self.timeout_s, self.packages = template, workers, timeout_s, list(packages)
        self.infra = self.runs = 0
        self._forget()
        _sandboxes.add(self)

    # ------------------------------------------------------------------ programs

    def run_batch(self, jobs: Sequence[Asserts | Stdio]) -> list[Outcome]:
        """The outcome of each job, in order; `infra` for those to which E2B gave no answer, twice."""
        with self._lock:
            parts = list(parts_of(jobs, self.workers, self._longest))
            return [outcome for part in parts for outcome in self._run_part(part)]

    async def run_batch_async(self, jobs: Sequence[Asserts | Stdio]) -> list[Outcome]:
        """The same beside other coroutines: the waiting is done in a thread."""
        return await asyncio.to_thread(self.run_batch, jobs)

    def _run_part(self, jobs: list[Asserts | Stdio]) -> list[Outcome]:
        try:
            outcomes = [Outcome(**fields | {"passed": tuple(fields["passed"])}) for fields in self._answer(jobs)]
        except ServiceFailed as error:
            outcomes = [Outcome("infra", str(error), 0.0, "", (False,) * len(tests_of(job))) for job in jobs]
        self.runs += len(outcomes)
        self.infra += sum(outcome.status == "infra" for outcome in outcomes)
        return outcomes

    # ------------------------------------------------------------------ life

    def start(self) -> str:
        """Hire a machine and have the harness test itself there: `e2b`; `SandboxError` where one of them fails."""
        with self._lock:
            if self._machine is None:
                try:
                    self._answer([])
                except ServiceFailed as error:
                    raise SandboxError(f"E2B gives no machine to run programs on: {error}") from error
                logger.info("sandbox: programs and tests are sent to E2B; %s", self.describe())
            return "e2b"

    def close(self) -> None:
        """End the machine, after the batch that runs on it; the next call hires another."""
        with self._lock:
            self._give_back()

    def describe(self) -> str:
        """The machine, and the isolation in force there, in words."""
        if self._machine is None:
            return "E2B: not started"
        template = self.template or self._machine.default_template
        return f"E2B machine {self._machine.sandbox_id}, template {template}: {self._isolation}"

    def _forget(self) -> None:
        """Start from nothing: at first, and in a forked process, whose parent keeps the machine."""
        self._lock = threading.RLock()
        self._machine: Any = None
        self._ends, self._isolation = 0.0, ""
        self.workers = self.wanted or 1  # until the machine has said how many it has

    # ------------------------------------------------------------------ the service

    @property
    def _longest(self) -> float:
        """Half a life for one part of a batch, so that a machine serves more than one."""
        return self.timeout_s / 2

    def _answer(self, jobs: list[Asserts | Stdio]) -> list[dict[str, Any]]:
        """The outcomes of these jobs, as `batch` says them; the second try is on a new machine."""
        client, name = load_client(), uuid.uuid4().hex
        question = self._question(jobs, name)
        for _ in range(2):
            try:
                return self._ask(client, name, question, seconds_for(jobs, self.workers))
            except SandboxError:
                raise
            except client.AuthenticationException as error:
                raise SandboxError(f"E2B does not accept E2B_API_KEY; get a valid one at e2b.dev: {error}") from error
            except Exception as error:  # the client lets many kinds through, its own slips among them
                why = f"E2B: {type(error).__name__}: {error}"[:1000]
                logger.warning("sandbox: %s", why)
        raise ServiceFailed(why)

    def _question(self, jobs: list[Asserts | Stdio], name: str) -> str:
        """What `batch` is asked; a program too long to be run is sent no longer than it takes to see that."""
        packed = [pack(job._replace(program=job.program[: PROGRAM_BYTES + 1])) for job in jobs]
        return json.dumps({"id": name, "jobs": packed, "workers": self.wanted, "packages": self.packages})

    def _ask(self, client: Any, name: str, question: str, seconds: float) -> list[dict[str, Any]]:
        """A machine that failed in any way is given back: its programs may still be running, and disturb others."""
        try:
            answer = exchange(self._hired(client, seconds), question, seconds)
            if why := answer.get("refused"):
                raise SandboxError(f"the sandbox refuses to run on the E2B machine: {why}")
            if answer["id"] != name:
                raise ValueError("an answer to another question")
        except BaseException:
            self._give_back()
            raise
        self._isolation, self.workers = answer["isolation"], answer["workers"]
        return answer["outcomes"]

    def _hired(self, client: Any, seconds: float) -> Any:
        """The machine, with our files on it; a new one where the old would not live long enough."""
        if self._machine is not None and time.monotonic() + seconds > self._ends:
            self._give_back()
        if self._machine is None:
            self._ends = time.monotonic() + self.timeout_s
            self._machine = client.Sandbox.create(
                self.template, timeout=self.timeout_s, allow_internet_access=False, metadata={"by": "grpo-recipes"}
            )
            self._machine.files.write_files(our_files(), user="root")
        return self._machine

    def _give_back(self) -> None:
        machine, self._machine = self._machine, None
        if machine is None:
            return
        try:
            machine.kill(request_timeout=END_S)
        except Exception as error:
            left = max(0.0, self._ends - time.monotonic())
            logger.warning("sandbox: E2B machine %s lives on for %.0f s: %s", machine.sandbox_id, left, error)


def load_client() -> Any:
    """The module `e2b`, or `SandboxError` saying what is missing."""
    global _client_used_in
    if _client_used_in not in (None, os.getpid()):
        raise SandboxError("this process was forked from one that uses E2B, where its client hangs: use spawn instead")
    try:
        import e2b
    except ImportError as error:
        raise SandboxError(f"E2B needs its client: pip install -e '.[e2b]' (Python 3.11 or newer; {error})") from error
    if not os.environ.get("E2B_API_KEY"):
        raise SandboxError("E2B_API_KEY is not set: get a key at e2b.dev and export it")
    _client_used_in = os.getpid()
    return e2b


def exchange(machine: Any, question: str, seconds: float) -> dict[str, Any]:
    """The question goes up as a file; `batch` writes the answer to another."""
    asked, answered = f"{FOLDER}/question.json", f"{FOLDER}/answer.json"
    machine.files.write(asked, question, user="root", request_timeout=seconds)
    command = f"python3 -I {FOLDER}/rewards/sandbox/batch.py {asked} {answered}"
    machine.commands.run(command, user="root", cwd="/", timeout=seconds)
    return json.loads(machine.files.read(answered, user="root", request_timeout=seconds))


def our_files() -> list[dict[str, str]]:
    """This package, as the client takes files: `{"path": "/opt/.../sandbox/batch.py", "data": ...}` and its like."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [{"path": f"{FOLDER}/rewards/sandbox/{file.name}", "data": file.read_text()} for file in files]


def tests_of(job: Asserts | Stdio) -> Sequence:
    """Its asserts, or its cases."""
    return job.tests if isinstance(job, Asserts) else job.cases


def seconds_of(job: Asserts | Stdio) -> float:
    """The most that one job may take: `seconds_of(Stdio("", [("", "")] * 3, timeout_s=10))` is 33.0."""
    return (1 if isinstance(job, Asserts) else len(job.cases)) * (job.timeout_s + SPAWN_S)


def seconds_for(jobs: Sequence[Asserts | Stdio], workers: int) -> float:
    """The most that these may take together, whoever waits for whom."""
    each = [seconds_of(job) for job in jobs]
    return START_S + sum(each) / workers + max(each, default=0.0)


def parts_of(jobs: Sequence[Asserts | Stdio], workers: int, longest: float) -> Iterator[list[Asserts | Stdio]]:
    """A batch in parts, none of which can take longer than that; a job that alone could is a `ValueError`."""
    part: list[Asserts | Stdio] = []
    for job in jobs:
        if not tests_of(job):
            raise ValueError("no tests: any program would pass")
        if (alone := seconds_for([job], workers)) > longest:
            raise ValueError(
                f"a program with {len(tests_of(job))} tests of timeout_s={job.timeout_s:g} may take {alone:.0f} s, and "
                f"half the life of a machine is {longest:.0f} s: lower its timeout_s, or raise that of E2BSandbox"
            )
        if part and seconds_for([*part, job], workers) > longest:
            yield part
            part = []
        part.append(job)
    yield part


def _close_all() -> None:
    for sandbox in list(_sandboxes):
        with contextlib.suppress(Exception):
            sandbox.close()


def _forget_all() -> None:
    for sandbox in list(_sandboxes):
        sandbox._forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
