"""`Sandbox`: runs model-written programs against tests, in isolation, on all cores of this rank.

    with Sandbox() as sandbox:
        sandbox.run_asserts("def f(x): return 2 * x", ["assert f(2) == 4"]).status      # 'pass'
        sandbox.run_stdio("print(int(input()) * 2)", [("2", "4")]).status               # 'pass'

Promises: a `sealed` program has no file system, no network and no other process. A self-test checks
that before the first program; if it fails, the sandbox refuses to run any. `unsafe` isolates
nothing: the user must choose it, and each start logs it. Batches keep all workers busy. Every call
works from any thread. No process of a call is left after it.

What is not covered: a forked process must make a sandbox of its own; the programs share the
processor with the trainer; see also `confinement`.
"""

import atexit
import contextlib
import importlib.util
import logging
import os
import platform
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rewards.sandbox.jobs import Asserts, Job, Outcome, Stdio, failure_of_ours, run_job, tests_of
from rewards.sandbox.self_test import failed_probes
from rewards.sandbox.slot import Slot, ZygoteDied

logger = logging.getLogger(__name__)
ISOLATIONS = {
    "sealed": "seccomp without any file system",
    "unsafe": "NO ISOLATION, by choice: programs can do whatever this user can",
}

_started: weakref.WeakSet["Sandbox"] = weakref.WeakSet()
_shared: dict[tuple, "Sandbox"] = {}
_shared_lock = threading.Lock()


def worker_count() -> int:
    """How many programs this rank runs at a time: its share of the cores, at least 1."""
    from joblib.externals.loky import cpu_count  # knows a container's quota, too

    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cpu_count() // max(1, int(ranks) if ranks.isdigit() else 1))


def _cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class SandboxError(RuntimeError):
    """Programs cannot be isolated here; the message names the probes that came through."""


class Sandbox:
    """A pool of zygotes, started by the first call or by `with`.

    Args:
        isolation: `sealed`, or `unsafe`, which isolates nothing.
        packages: installed packages that programs may import besides the standard library. Name a
            submodule too if its package does not import it at once, such as `numpy.random`.
    """

    def __init__(
        self, workers: int | None = None, isolation: str = "sealed", packages: Sequence[str] = ()
    ):
        if isolation not in ISOLATIONS:
            raise ValueError(f"isolation is {isolation!r}; it is sealed or unsafe")
        self.workers, self.isolation = workers or worker_count(), isolation
        self.packages = {name: _folder_of(name) for name in packages}
        self._all: list[Slot] = []
        self._free: queue.LifoQueue[Slot] = queue.LifoQueue()
        self._is_started = False
        self._lock = threading.Lock()

    def run_batch(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs on all workers; return their outcomes in the order of the jobs."""
        for job in jobs:
            tests_of(job)  # ValueError for a bad job, before any has run
        self.start()
        if len(jobs) == 1:
            return [self._run(jobs[0])]
        threads = ThreadPoolExecutor(self.workers, thread_name_prefix="sandbox")
        try:
            return list(threads.map(self._run, jobs))
        finally:
            threads.shutdown(wait=False)  # after Ctrl-C, wait for no program

    def run_asserts(self, program: str, tests: Sequence[str], **options: Any) -> Outcome:
        """Run one program against tests, with the options of `Asserts`."""
        return self.run_batch([Asserts(program, tests, **options)])[0]

    def run_stdio(self, program: str, cases: Sequence[tuple[str, str]], **options: Any) -> Outcome:
        """Run one program anew for each pair (stdin, expected stdout), with options of `Stdio`."""
        return self.run_batch([Stdio(program, cases, **options)])[0]

    def _run(self, job: Job) -> Outcome:
        """Run a job in a free slot. If its zygote fails, try once more, then return `infra`."""
        free = self._free  # a new start replaces it
        slot = free.get()
        try:
            for _ in range(2):
                try:
                    return run_job(slot, job)
                except (ZygoteDied, OSError) as error:
                    why = str(error)
                    logger.warning("sandbox: %s", why)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            logger.exception("sandbox: an error of its own")
        finally:
            free.put(slot)
        return failure_of_ours(job, why)

    def start(self) -> None:
        """Start the sandbox and test the isolation; raise `SandboxError` if it does not hold."""
        with self._lock:
            if self._is_started:
                return
            if platform.system() != "Linux":
                raise SandboxError(
                    f"{platform.system()} has no sandbox for programs: code rewards need Linux "
                    "(Docker, or WSL2 on Windows)"
                )
            self._make_slots()
            level = logging.INFO
            if self.isolation == "unsafe":
                level = logging.WARNING
                self._all[0].start()
            elif missed := failed_probes(lambda job: run_job(self._all[0], job)):
                raise SandboxError(
                    f"no isolation holds here, so no program is run: {'; '.join(missed)}"
                )
            logger.log(level, "sandbox: %s", self.describe())
            self._is_started = True

    def _make_slots(self) -> None:
        """Make a slot (a zygote's handle) for each worker, on its own core, not one of other ranks.

        A zygote and its two children work in turn: on one core they do not wait, and share its
        cache.
        """
        for slot in self._all:
            slot.retire()
        cores, rank = _cores(), os.environ.get("LOCAL_RANK", "0")
        first = self.workers * int(rank) if rank.isdecimal() else 0
        settings = {"isolation": self.isolation, "packages": self.packages, "workers": self.workers}
        own_cores = [cores[(first + worker) % len(cores)] for worker in range(self.workers)]
        self._all = [Slot({**settings, "core": core}) for core in own_cores]
        self._free = queue.LifoQueue()
        for slot in reversed(self._all):
            self._free.put(slot)
        _started.add(self)

    def close(self) -> None:
        """End every zygote and all programs; the next call starts new zygotes."""
        with self._lock:
            for slot in self._all:
                slot.retire()
            self._all, self._is_started = [], False

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> str:
        """Describe the isolation in use, for the log."""
        if not self._all:
            return "not started"
        user = self._all[0].state.get("user", "kept")  # "dropped": programs run as another one
        workers = f"{self.workers} worker{'s' * (self.workers != 1)}"
        return f"{ISOLATIONS[self.isolation]}; user {user}; {workers}"


def shared_sandbox(isolation: str = "sealed", packages: Sequence[str] = ()) -> Sandbox:
    """The sandbox that all rewards of this process with the same settings share.

    A caller that asks for no packages gets the first sealed sandbox: so an evaluation uses that of
    its run's reward. Only a caller that asks for `unsafe` gets it.
    """
    wish = (isolation, tuple(packages))
    with _shared_lock:
        if wish == ("sealed", ()):
            for made in _shared.values():
                if made.isolation == "sealed":
                    return made
        if wish not in _shared:
            _shared[wish] = Sandbox(isolation=isolation, packages=packages)
        return _shared[wish]


def _folder_of(package: str) -> str:
    """The folder in which Python finds a package, to be put on `sys.path`."""
    spec = importlib.util.find_spec(package.partition(".")[0])
    if spec is None or not spec.origin:
        raise ValueError(f"package {package!r} is not installed: programs cannot import it")
    origin = Path(spec.origin)
    return str(origin.parents[1] if spec.submodule_search_locations else origin.parent)


@atexit.register
def _close_all() -> None:
    for sandbox in list(_started):
        with contextlib.suppress(Exception):
            sandbox.close()


def _leave_to_parent() -> None:
    """In a forked process: leave the zygotes alone, and fail each call of these sandboxes."""
    for sandbox in _started:
        for slot in sandbox._all:
            slot.retired = True
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
