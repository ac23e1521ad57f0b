"""The zygote: a small interpreter, started by exec, that forks one confined child for each program.

    python -I -S rewards/sandbox/zygote.py '{"control": 7, "isolation": "sealed", ...}'

A fork of the trainer would copy gigabytes of page tables. A fork of the zygote costs half a
millisecond, and a copy of each page that the child writes. So what all children share (streams, the
filter, functions of libc) is made here, once. The zygote has one thread, an empty environment and
the modules that programs may import. It passes tests and programs on as descriptors, unread.

Promises: one program runs at a time. It is killed at its limit on processor time (which includes
its tests) or on wall time, and reaped. A checker stays for several programs, until it is retired.
The kernel kills all children when the zygote dies, and the zygote ends when its parent is gone.

What is not covered: a child that the kernel cannot kill (stuck in the kernel itself).
"""

import contextlib
import fcntl
import gc
import json
import math
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from os import _exit  # now, since a program can replace `os._exit`
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
for _name, _folder in (("rewards", os.path.dirname(HERE)), ("rewards.sandbox", HERE)):
    if _name not in sys.modules:  # this package without the rest of `rewards`, which imports torch
        sys.modules[_name] = ModuleType(_name)
        sys.modules[_name].__path__ = [_folder]

from rewards.sandbox import checker, confinement, libc, preload, seccomp, worker  # noqa: E402
from rewards.sandbox.clock import Clock, processor_seconds, waiting_seconds  # noqa: E402

ROLES = {"worker": worker.serve_calls, "script": worker.run_script, "checker": checker.check}
# Child's descriptors 0, 1, 2, ...: the place in its request, or None for the null device.
LAYOUT = {
    "worker": (None, 0, 0, 1, 2),
    "script": (0, 1, 2, None, 3),
    "checker": (None, None, None, 0),
}
FIRST_USER, USERS = 60_000, 2_500
PARENT_CHECK_S, SHORTEST_S = 0.2, 0.01
COUNTED_S = 0.5  # how long a count of the user's threads is used before it is taken anew
CHECKER_S = 86_400.0  # a formality: the limits of its programs end it long before


class Zygote:
    """Forks the children, and holds what they share, the running program and the checker."""

    def __init__(self, settings: dict[str, Any]):
        # Moved to a low number: on an old kernel `renumber` closes only numbers below 4096.
        self.control = socket.socket(fileno=os.dup(settings["control"]))
        os.close(settings["control"])
        self.workers = settings["workers"]
        self.parent, self.pid = os.getppid(), os.getpid()
        self.users = _users()
        self.counted, self.counted_at = 0, -math.inf
        self.confirmed, self.confirm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll = select.poll()
        for watched in (self.control.fileno(), self.woken):
            self.poll.register(watched, select.POLLIN)
        self.child: int | None = None
        self.checker: int | None = None
        self.filters, self.counts_apart = (None, None), False
        if settings["isolation"] != "unsafe":
            programs = seccomp.program(), seccomp.program(receives=True)
            self.filters = tuple(map(seccomp.assemble, programs))
            self.counts_apart = os.geteuid() != 0 and confinement.count_threads_apart()

    def run(self) -> None:
        """Answer requests until the trainer closes its end."""
        self._send({"user": "dropped" if self.users else "kept"})
        while True:
            patience = min(max(self._seconds_left(), SHORTEST_S), PARENT_CHECK_S)
            ready = [number for number, _ in self.poll.poll(1000 * patience)]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if self.control.fileno() in ready and not self._handle_message():
                return  # the kernel kills the children of a zygote that ends
            if not ready and os.getppid() != self.parent:
                return
            if self.child:
                self._end_child(is_late=True, if_ended=self._seconds_left() > 0.0)

    # ------------------------------------------------------------------ requests

    def _handle_message(self) -> bool:
        """Read a message and do what it asks; False once the trainer has closed its end."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 4096, 16)
        except ConnectionError:
            return False
        if data == b"kill":
            if self.child:
                self._end_child()
        elif data == b"left":
            self._send({"left": self._seconds_left()})
        elif data == b"retire":
            self._send({"checker": self._retire()})
        elif data:
            self._start(json.loads(data), descriptors)
        return bool(data)

    def _start(self, request: dict, descriptors: list[int]) -> None:
        """Start a program. For a new checker, which gets the last descriptor, start that first."""
        self.seconds, self.wall_s, self.clock = request["seconds"], request["wall_s"], Clock()
        own = descriptors[:-1] if request["new_checker"] else descriptors
        try:
            if request["new_checker"]:
                self._retire()
                self.checker = self._fork("checker", descriptors[-1:])
            self.checker_had = processor_seconds(self.checker)
            self.checker_waited = waiting_seconds(self.checker)
            self.child = self._fork(request["role"], own)
        except OSError as error:
            self._send({"failed": str(error)})
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(self, role: str, descriptors: list[int]) -> int:
        child = libc.fork()
        if child:
            return child
        code = confinement.UNCONFINED_EXIT
        try:
            random.seed()  # as `os.fork` does, so that no two programs draw the same numbers
            # Its own null device: flags set on a shared one would stay for later programs.
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            own = [null if place is None else descriptors[place] for place in LAYOUT[role]]
            self._become(role, own)
            code = 1
            ROLES[role]()
        finally:
            _exit(code)

    def _become(self, role: str, descriptors: list[int]) -> None:
        """In the child: keep only its own descriptors, numbered from 0, and confine it.

        A program's child then confirms that on one more, closed before the program is read.
        """
        signal.set_wakeup_fd(-1)
        self.control.detach()
        is_checker = role == "checker"
        limits = confinement.Limits(
            self.users[is_checker] if self.users else None,
            CHECKER_S if is_checker else self.seconds + 2,
            self.pid,
            self._tasks(),
        )
        renumber([*descriptors, self.confirm])
        confinement.confine(limits, self.filters[is_checker])
        if not is_checker:
            os.write(len(descriptors), b"C")
        os.close(len(descriptors))

    def _tasks(self) -> int:
        """The limit on threads for a child. If its user has other processes too: their threads now,
        plus for each worker as many as a program's memory holds stacks (see `seccomp`).
        """
        if self.users or self.counts_apart:
            return confinement.THREADS
        if time.monotonic() > self.counted_at + COUNTED_S:
            self.counted, self.counted_at = confinement.tasks_of_user(), time.monotonic()
        stacks = confinement.MEMORY_BYTES // seccomp.STACK_BYTES
        return self.counted + self.workers * stacks

    # ------------------------------------------------------------------ children

    def _seconds_left(self) -> float:
        """Seconds until the program can reach a limit; all children share one core."""
        if not self.child:
            return PARENT_CHECK_S
        used = processor_seconds(self.child) + processor_seconds(self.checker) - self.checker_had
        left = self.wall_s - self.clock.seconds()
        return min(self.seconds - used, left if left > 0.0 else left + self._waited())

    def _waited(self) -> float:
        """Seconds for which the program or its checker could not run since the core was busy."""
        waited = waiting_seconds(self.checker) - self.checker_waited
        return waited + waiting_seconds(self.child)

    def _end_child(self, is_late: bool = False, if_ended: bool = False) -> None:
        """Kill the program and report how it ended; `if_ended`: do nothing if it still runs."""
        waited_s = self._waited()
        pid, status, usage = os.wait4(self.child, os.WNOHANG)
        if not pid:
            if if_ended:
                return
            os.kill(self.child, signal.SIGKILL)
            _, status, usage = os.wait4(self.child, 0)
        self.child, is_confirmed = None, False
        with contextlib.suppress(BlockingIOError):
            is_confirmed = os.read(self.confirmed, 2) == b"C"
        self._send(
            {
                "exit": os.waitstatus_to_exitcode(status),
                "late": is_late and not pid,
                "confined": is_confirmed,
                "used_s": usage.ru_utime + usage.ru_stime,
                "waited_s": waited_s,
            }
        )

    def _retire(self) -> int:
        """End the checker; if it was already dead, return its exit code or minus its signal."""
        if self.checker is None:
            return 0
        checker, self.checker = self.checker, None
        pid, status = os.waitpid(checker, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        os.kill(checker, signal.SIGKILL)
        os.waitpid(checker, 0)
        return 0

    def _send(self, message: dict) -> None:
        with contextlib.suppress(OSError):  # a closed end shows in the next read
            self.control.send(json.dumps(message).encode())


def renumber(wanted: list[int]) -> None:
    """Number these descriptors 0, 1, 2, ... and close all others."""
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(wanted)) for descriptor in wanted]
    for place, descriptor in enumerate(moved):
        os.dup2(descriptor, place)
    libc.close_from(len(wanted))


def _users() -> tuple[int, int] | None:
    """Two user ids for worker and checker, not in use elsewhere; None if we cannot change user."""
    first = FIRST_USER + 2 * (os.getpid() % USERS)
    if os.geteuid() != 0:
        return None
    if not (child := os.fork()):
        try:
            confinement.drop_user(first)
            os._exit(0)
        finally:
            os._exit(1)
    return (first, first + 1) if os.waitpid(child, 0)[1] == 0 else None


def main() -> None:
    # The trainer may ignore or block SIGCHLD, and `exec` keeps that.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    settings = json.loads(sys.argv[1])
    sys.argv = [""]
    os.environ.clear()  # Python itself has put variables there
    os.umask(0o777)
    with contextlib.suppress(OSError):  # the core may have been taken away since
        os.sched_setaffinity(0, {settings["core"]})
    with contextlib.suppress(OSError):  # out of memory, the kernel ends us rather than the trainer
        Path("/proc/self/oom_score_adj").write_text("1000")
    threading.stack_size(seccomp.STACK_BYTES)  # whatever limit on stacks was inherited
    preload.prepare(settings["packages"])
    worker.open_streams()
    zygote = Zygote(settings)
    gc.collect()
    gc.disable()
    gc.freeze()
    zygote.run()


if __name__ == "__main__":
    main()
