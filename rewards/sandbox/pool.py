"""`Sandbox`: runs model-written programs against tests, isolated, on all cores that this rank may
use.

    with Sandbox() as sandbox:
        sandbox.run_asserts("def f(x): return 2 * x", ["assert f(2) == 4"]).status      # 'pass'
        sandbox.run_stdio("print(int(input()) * 2)", [("2", "4")]).status               # 'pass'

Promises: it starts no program before its self-test has passed: with Landlock, else sealed (no file
system at all), else it refuses. `unsafe` is a choice, logged at each start and refused where the
environment holds secrets. Batches keep all workers busy; every call works from any thread or forked
process; nothing is left 0.5 s after.

What is not covered: the confined programs share the processor with the trainer; see `confinement`.
"""

import atexit
import contextlib
import importlib.util
import logging
import math
import os
import queue
import re
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rewards.sandbox import cgroups, confinement, landlock
from rewards.sandbox.jobs import (
    TIMEOUT_S,
    Asserts,
    Job,
    Outcome,
    Stdio,
    failure_of_ours,
    run_job,
    tests_of,
)
from rewards.sandbox.slot import Slot, ZygoteDied

logger = logging.getLogger(__name__)
SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL|PRIVATE", re.IGNORECASE)

_sandboxes: weakref.WeakSet["Sandbox"] = weakref.WeakSet()
_shared: dict[tuple, "Sandbox"] = {}
_shared_lock = threading.Lock()


def worker_count() -> int:
    """How many programs this rank may run at a time: its share of the cores it may use, at least 1.

    A quota of the container (`docker run --cpus`) counts as well.
    """
    cores = len(_cores())
    cores = min(cores, math.ceil(cgroups.core_limit() or cores))
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // max(1, int(ranks) if ranks.isdigit() else 1))


def _cores() -> list[int]:
    """The numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class SandboxError(RuntimeError):
    """Programs cannot be isolated here: what was tried, and which probes came through."""


class Sandbox:
    """A pool of zygotes, started by the first call or by `with`.

    Args:
        isolation: None for the best that works here, or landlock, sealed, unsafe.
        packages: installed packages that programs may import next to the standard library.
    """

    def __init__(
        self,
        workers: int | None = None,
        isolation: str | None = None,
        packages: Sequence[str] = (),
    ):
        if isolation not in (None, *confinement.ISOLATIONS):
            allowed = ", ".join(confinement.ISOLATIONS)
            raise ValueError(f"isolation is {isolation!r}; one of {allowed}, or None")
        self.workers, self.wanted = workers or worker_count(), isolation
        self.packages = {name: _folder_of(name) for name in packages}
        self._forget()
        _sandboxes.add(self)

    # ------------------------------------------------------------------ programs

    def run_batch(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcome of each job, in order, all workers at work."""
        for job in jobs:
            tests_of(job)
        self.start()
        slots = self._slots
        try:
            if len(jobs) == 1:
                return [self._run(jobs[0])]
            return list(self._threads.map(self._run, jobs))
        finally:
            _end_checkers(slots)

    def run_asserts(self, program: str, tests: Sequence[str], **options: Any) -> Outcome:
        """One program against tests, with the options of `Asserts`."""
        return self.run_batch([Asserts(program, tests, **options)])[0]

    def run_stdio(
        self, program: str, cases: Sequence[tuple[str, str]], timeout_s: float = TIMEOUT_S
    ) -> Outcome:
        """One program, started afresh for each pair (stdin, expected stdout)."""
        return self.run_batch([Stdio(program, cases, timeout_s)])[0]

    def _run(self, job: Job) -> Outcome:
        """In a free slot; where our machinery fails, once more, then `infra` for this job alone."""
        slots = self._slots
        slot = slots.get()
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
            slots.put(slot)
        return failure_of_ours(job, why)

    # ------------------------------------------------------------------ life

    def start(self) -> str:
        """Start, test the isolation, and return the one in force; `SandboxError` if none holds."""
        with self._lock:
            if self.isolation is None:
                self.isolation = self._first_that_holds()
                level = logging.WARNING if self.isolation == "unsafe" else logging.INFO
                logger.log(level, "sandbox: %s", self.describe())
                _warn_of_few_tasks(self.workers)
            return self.isolation

    def close(self) -> None:
        """End every zygote, and with them all programs; the next call starts anew."""
        for slot in self._all:
            slot.retire()
        self._threads.shutdown(wait=False)
        self._all = []  # what still runs in them closes them
        self._forget()

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> str:
        """The isolation in force, in words."""
        words = {
            "landlock": f"Landlock (ABI {landlock.abi()}) and seccomp",
            "sealed": "seccomp without any file system",
            "unsafe": "NO ISOLATION, by choice: programs can do whatever this user can",
            None: "not started",
        }
        user = self._all[0].state.get("user", "kept") if self._all else "kept"
        return f"{words[self.isolation]}; user {user}; {self.workers} workers"

    def _first_that_holds(self) -> str:
        if self.wanted == "unsafe":
            _refuse_next_to_secrets()
            self._make_slots("unsafe")
            self._all[0].start()
            return "unsafe"
        tried = []
        for isolation in [self.wanted] if self.wanted else ["landlock", "sealed"]:
            if not (missed := self._misses(isolation)):
                return isolation
            tried.append(f"{isolation}: {'; '.join(missed)}")
            logger.warning("sandbox: %s", tried[-1])
        raise SandboxError(f"no isolation holds here, so no program is run. {' | '.join(tried)}")

    def _misses(self, isolation: str) -> list[str]:
        from rewards.sandbox.self_test import misses

        if isolation == "landlock" and not landlock.abi():
            return ["this kernel has no Landlock"]
        self._make_slots(isolation)
        try:
            return misses(lambda job: run_job(self._all[0], job))
        finally:
            _end_checkers(self._slots)

    def _make_slots(self, isolation: str) -> None:
        for slot in self._all:
            slot.retire()
        settings = {"isolation": isolation, "packages": self.packages, "workers": self.workers}
        # Each on a core of its own, next to those of the other ranks: on one core, a zygote and its
        # two children hand over to each other without a wait, and find their memory in its cache.
        cores, rank = _cores(), os.environ.get("LOCAL_RANK", "0")
        first = self.workers * int(rank) if rank.isdecimal() else 0
        self._all = [
            Slot(settings | {"is_first": place == 0, "core": cores[(first + place) % len(cores)]})
            for place in range(self.workers)
        ]
        self._slots: queue.LifoQueue[Slot] = queue.LifoQueue()
        for slot in reversed(self._all):
            self._slots.put(slot)

    def _forget(self) -> None:
        """Start from nothing: at first, after closing, and in a fork, which has no zygotes."""
        for slot in getattr(self, "_all", []):
            slot.disown()
        self.isolation: str | None = None
        self._all: list[Slot] = []
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="sandbox")


def shared_sandbox(isolation: str | None = None, packages: Sequence[str] = ()) -> Sandbox:
    """The sandbox that all rewards of this process with the same wish share.

    Who has no wish gets the first that isolates: an evaluation runs programs where the reward of
    its run does. `unsafe` is for those who ask for it.
    """
    wish = (isolation, tuple(packages))
    with _shared_lock:
        if wish == (None, ()):
            for made in _shared.values():
                if made.wanted != "unsafe":
                    return made
        if wish not in _shared:
            _shared[wish] = Sandbox(isolation=isolation, packages=packages)
        return _shared[wish]


def _folder_of(package: str) -> str:
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        raise ValueError(f"package {package!r} is not installed: programs cannot import it")
    origin = Path(found.origin)
    return str(origin.parent if found.submodule_search_locations else origin)


def _refuse_next_to_secrets() -> None:
    held = sorted(name for name, value in os.environ.items() if value and SECRET.search(name))
    if held:
        raise SandboxError(
            f"isolation is 'unsafe', and the environment holds {', '.join(held)}: programs could "
            "read them. Unset them, or let the sandbox isolate"
        )


def _warn_of_few_tasks(workers: int) -> None:
    needed, left = workers * (confinement.THREADS + 2), cgroups.tasks_left()
    if left is not None and left < needed:
        logger.warning(
            f"sandbox: this container lets {left} more processes and threads start (pids.max), and "
            f"{workers} programs with threads need up to {needed}: honest ones may fail. Raise the "
            "limit (docker run --pids-limit)."
        )


def _end_checkers(slots: queue.SimpleQueue) -> None:
    """Of the slots that are free: a checker is gone once no call runs, for the last finds all."""
    free = []
    with contextlib.suppress(queue.Empty):
        while True:
            free.append(slots.get_nowait())
    for slot in free:
        with contextlib.suppress(ZygoteDied):
            slot.end_checker()
        slots.put(slot)


def _close_all() -> None:
    for sandbox in list(_sandboxes):
        with contextlib.suppress(Exception):
            sandbox.close()


def _forget_all() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for sandbox in list(_sandboxes):
        sandbox._forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
