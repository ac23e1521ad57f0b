"""The zygote: a small interpreter, started by exec, that forks one confined child for each program.

    python -I -S rewards/sandbox/zygote.py '{"control": 7, "isolation": "landlock", ...}'

Forking the trainer would copy gigabytes of page tables; forking this costs half a millisecond. It has one thread, an
empty environment and the modules that solutions use; tests and programs pass by it as descriptors that it never reads.
What a child costs beyond that is the pages that it writes and so copies: whatever is the same for all children (their
streams, the filter, functions of libc) is made here, once.

Promises: one request at a time. Every child is killed at the wall limit, whatever it does, and reaped; all are killed
when the zygote dies (they asked the kernel for that) and the zygote ends when the process that started it is gone.

What is not covered: a child that the kernel cannot kill (stuck in the kernel itself).
"""

import contextlib
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
from os import _exit  # before a program can put something in its place
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
for _name, _folder in (("rewards", os.path.dirname(HERE)), ("rewards.sandbox", HERE)):
    if _name not in sys.modules:  # this package without the rest of `rewards`, which imports torch
        sys.modules[_name] = ModuleType(_name)
        sys.modules[_name].__path__ = [_folder]

from rewards.sandbox import checker, confinement, libc, preload, worker  # noqa: E402

ROLES = {"worker": worker.serve_calls, "script": worker.run_script, "checker": checker.check}
FIRST_USER, USERS = 60_000, 2_500
LINGER_S = 0.1  # a worker may take so long to end after its checker has
PARENT_CHECK_S = 0.2
UNCONFINED_EXIT = 96


class Zygote:
    """The settings of all children, and those that run now."""

    def __init__(self, settings: dict[str, Any]):
        self.control = socket.socket(fileno=os.dup(settings["control"]))  # a low number, which `arrange` closes
        os.close(settings["control"])
        self.settings = settings
        self.parent, self.pid = os.getppid(), os.getpid()
        self.users = _users()
        self.tasks = confinement.THREADS if self.users else confinement.THREADS + confinement.tasks_of_user()
        self.prepared = confinement.prepare(settings["isolation"], preload.readable_paths(settings["packages"]))
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll = select.poll()
        for watched in (self.control.fileno(), self.woken):
            self.poll.register(watched, select.POLLIN)
        self.children: dict[int, int] = {}  # pid: its place in the request
        self.roles: list[str] = []
        self.exits: list[int] = []
        self.deadline = self.limit = 0.0
        self.late = False

    def run(self) -> None:
        """Answer requests until the other end is closed."""
        self._send({"ready": self.settings["isolation"], "user": "dropped" if self.users else "kept"})
        while True:
            ready = [number for number, _ in self.poll.poll(self._patience())]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if self.control.fileno() in ready and not self._take():
                return self._kill()
            if not ready and os.getppid() != self.parent:
                return self._kill()
            if self.children:
                self._tend()

    # ------------------------------------------------------------------ requests

    def _take(self) -> bool:
        """Read a request and start its children; False at the end."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 4096, 16)
        except ConnectionError:
            return False
        if not data:
            return False
        if data == b"kill":
            if self.children:
                self._kill()
                self._send({"exits": self.exits, "late": False})
        else:
            self._start(json.loads(data), descriptors)
        return True

    def _start(self, request: dict, descriptors: list[int]) -> None:
        self.roles = [child["role"] for child in request["children"]]
        self.exits = [0] * len(self.roles)
        self.deadline = self.limit = time.monotonic() + request["seconds"]
        self.late = False
        try:
            for place, child in enumerate(request["children"]):
                own = [descriptors[number] for number in child["descriptors"]]
                self.children[self._fork(place, child["role"], own, request["seconds"])] = place
        except OSError as error:
            self._kill()
            self._send({"failed": str(error)})
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(self, place: int, role: str, descriptors: list[int], seconds: float) -> int:
        child = libc.fork()
        if child:
            return child
        code = UNCONFINED_EXIT
        try:
            random.seed()  # as `os.fork` would, so that no two programs draw the same numbers
            self._become(place, descriptors, seconds)
            code = 1
            ROLES[role]()
        finally:
            _exit(code)

    def _become(self, place: int, descriptors: list[int], seconds: float) -> None:
        """In the child: only its own descriptors, numbered from 0, then confined."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.control.detach()
        limits = confinement.Limits(
            self.settings["isolation"],
            self.users[min(place, 1)] if self.users else None,
            seconds,
            self.pid,
            self.tasks,
            self.settings["memory_bytes"],
        )
        kept = arrange(descriptors, self.prepared.rules)
        confinement.confine(limits, self.prepared._replace(rules=kept))

    # ------------------------------------------------------------------ children

    def _patience(self) -> float:
        """Milliseconds until something is due."""
        if not self.children:
            return 1000 * PARENT_CHECK_S
        return 1000 * max(0.0, min(self.deadline - time.monotonic(), PARENT_CHECK_S)) + 1

    def _tend(self) -> None:
        """Reap who has ended, kill who is late, and say when nobody is left."""
        for child in list(self.children):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                self._reaped(child, status)
        if self.children and time.monotonic() >= self.deadline:
            self.late = self.deadline == self.limit
            self._kill()
        if not self.children:
            self._send({"exits": self.exits, "late": self.late})

    def _reaped(self, child: int, status: int) -> None:
        place = self.children.pop(child)
        self.exits[place] = os.waitstatus_to_exitcode(status)
        if self.roles[place] == "checker":
            self.deadline = min(self.deadline, time.monotonic() + LINGER_S)

    def _kill(self) -> None:
        # The checker, which comes last, dies first: it must not take the end of the worker for an answer.
        for child in reversed(self.children):
            os.kill(child, signal.SIGKILL)
        for child in list(self.children):
            self.exits[self.children.pop(child)] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _send(self, message: dict) -> None:
        with contextlib.suppress(OSError):  # the end of requests says the same
            self.control.send(json.dumps(message).encode())


def arrange(descriptors: list[int], rules: int | None) -> int | None:
    """Number the descriptors 0, 1, 2, ... and the rules after them; close every other. The new number of the rules."""
    wanted = descriptors if rules is None else [*descriptors, rules]
    high = [os.dup(descriptor) for descriptor in wanted]
    moved = [_above(len(wanted), descriptor) for descriptor in high]
    for place, descriptor in enumerate(moved):
        os.dup2(descriptor, place)
    os.closerange(len(wanted), 4096)
    return None if rules is None else len(wanted) - 1


def _above(least: int, descriptor: int) -> int:
    while descriptor < least:
        descriptor = os.dup(descriptor)
    return descriptor


def _users() -> tuple[int, int] | None:
    """Two users that nobody else is, for worker and checker; None where we may not change user."""
    if os.geteuid() != 0:
        return None
    first = FIRST_USER + 2 * (os.getpid() % USERS)
    child = os.fork()
    if not child:
        try:
            confinement.drop_user(first)
            os._exit(0)
        finally:
            os._exit(1)
    return (first, first + 1) if os.waitpid(child, 0)[1] == 0 else None


def main() -> None:
    settings = json.loads(sys.argv[1])
    sys.argv = [""]
    os.environ.clear()  # of what Python itself has put there
    os.umask(0o777)
    preload.offer_to_the_killer()
    preload.prepare(settings["isolation"], settings["packages"])
    worker.open_streams()
    zygote = Zygote(settings)
    gc.collect()
    gc.disable()
    gc.freeze()
    zygote.run()


if __name__ == "__main__":
    main()
