"""The zygote: a small interpreter, started by exec, that forks confined children for each program.

    python -I -S rewards/sandbox/zygote.py '{"control": 7, "isolation": "sealed", ...}'

A fork of the trainer would copy gigabytes of page tables; a fork of the zygote costs half a
millisecond, and a copy of each page that the child writes. So what all children share (modules,
streams, the filter) is made here, once. The zygote has one thread and an empty environment. It
passes tests and programs on as descriptors, unread.

Promises: one program runs at a time, with its checker. Both are killed at the limit on their
processor time or on wall time, and reaped before the report. Other work on their core takes no time
from them. The kernel kills them when the zygote dies, and the zygote ends when its parent is gone.

What is not covered: a child that the kernel cannot kill. Where the kernel does not say how long a
process waited for its core, that counts as wall time; of several threads only the first is known.
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

ROLES = {"worker": worker.serve_calls, "script": worker.run_script, "checker": checker.check}
FIRST_USER, USERS = 60_000, 2_500
PARENT_CHECK_S, SHORTEST_S = 0.2, 0.01
SIGN_OF_LIFE_S = 1.0
LINGER_S = 0.1  # a program may take this long to end after its tests


class Zygote:
    """Forks the children, and holds what they share and the running program."""

    def __init__(self, settings: dict[str, Any]):
        # Moved to a low number: on an old kernel `renumber` closes only numbers below 4096.
        self.control = socket.socket(fileno=os.dup(settings["control"]))
        os.close(settings["control"])
        self.workers = settings["workers"]
        self.parent, self.pid = os.getppid(), os.getpid()
        self.users = _users()
        # A child writes into `confirm` once it is confined.
        self.confirmed, self.confirm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # The end of a child wakes `poll`, through the signal that Python writes into a pipe.
        self.woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll = select.poll()
        for watched in (self.control.fileno(), self.woken):
            self.poll.register(watched, select.POLLIN)
        self.filter, self.counts_apart = None, False
        if settings["isolation"] != "unsafe":
            self.filter = seccomp.assemble(seccomp.program())
            self.counts_apart = os.geteuid() != 0 and confinement.count_threads_apart()
        self.children: dict[str, int] = {}  # the process of each role, while it runs

    def run(self) -> None:
        """Answer requests and watch the children until the trainer closes its end."""
        self._send({"user": "dropped" if self.users else "kept"})
        while True:
            patience = min(max(self._seconds_left(), SHORTEST_S), PARENT_CHECK_S)
            ready = [number for number, _ in self.poll.poll(1000 * patience)]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if self.control.fileno() in ready and not self._handle_request():
                return  # the kernel kills the children of a zygote that ends
            if not ready and os.getppid() != self.parent:
                return
            if self.children:
                self._watch()

    def _send(self, message: dict, flags: int = 0) -> None:
        with contextlib.suppress(OSError):  # a closed end shows in the next read
            self.control.send(json.dumps(message).encode(), flags)

    # ------------------------------------------------------------------ start

    def _handle_request(self) -> bool:
        """Fork the children that a request asks for; False once the trainer has closed its end.

        It names the roles, and how many of the descriptors sent with it each child gets. In
        between, as descriptor LINK, a child gets an end of a link: for a script it leads nowhere.
        """
        try:
            data, descriptors, _, _ = socket.recv_fds(self.control, 4096, 16)
        except ConnectionError:
            return False
        if not data:
            return False
        request = json.loads(data)
        self.seconds, self.wall_s = request["seconds"], request["wall_s"]  # the limits
        self.started_at = self.said_at = time.monotonic()
        self.exits: dict[str, int] = {}
        self.used_s = self.waited_s = 0.0  # of the children that have ended
        self.linger_until, self.is_late = math.inf, False
        try:
            if len(descriptors) != sum(request["roles"].values()):
                raise OSError("descriptors were lost")
            first = 0
            links = socket.socketpair()
            with links[0], links[1]:
                for (role, count), link in zip(request["roles"].items(), links, strict=False):
                    of_child = descriptors[first : first + count]
                    of_child.insert(checker.LINK, link.fileno())
                    self.children[role] = self._fork(role, of_child)
                    first += count
        except OSError as error:
            self._send({"failed": str(error)})
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, role: str, descriptors: list[int]) -> int:
        """Fork a child for a role and return its process id.

        The child keeps only these descriptors, numbered from 0, and is confined. It confirms that
        on one more descriptor, which it closes before a program is read.
        """
        child = libc.fork()
        if child:
            return child
        code = confinement.UNCONFINED_EXIT
        try:
            random.seed()  # as `os.fork` does, so that no two programs draw the same numbers
            signal.set_wakeup_fd(-1)
            self.control.detach()
            user = self.users[role == "checker"] if self.users else None
            # The zygote kills it after `self.seconds`; should it fail, the kernel 2 seconds later.
            limits = confinement.Limits(user, self.seconds + 2, self.pid, self._most_threads())
            renumber([*descriptors, self.confirm])
            confinement.confine(limits, self.filter)
            os.write(len(descriptors), b"C")
            os.close(len(descriptors))
            code = 1
            ROLES[role]()
            code = 0
        except OSError as error:
            if code == confinement.UNCONFINED_EXIT:  # no program was read
                os.write(len(descriptors), f"{error}; ".encode())
        finally:
            _exit(code)

    def _most_threads(self) -> int:
        """The limit on the threads of a child's user.

        If the user has other processes too, it is their threads now, plus for each worker as many
        as a program's memory holds stacks (see `seccomp`).
        """
        if self.users or self.counts_apart:
            return confinement.THREADS
        stacks = confinement.MEMORY_BYTES // seccomp.STACK_BYTES
        return confinement.tasks_of_user() + self.workers * stacks

    # ------------------------------------------------------------------ end

    def _seconds_left(self) -> float:
        """Seconds until the children can reach a limit: on processor time (all of them share one
        core), on wall time, or on the time that a program has to end after its tests.
        """
        if not self.children:
            return PARENT_CHECK_S
        used_s = self.used_s + sum(map(processor_seconds, self.children.values()))
        now = time.monotonic()
        wall_s = self.started_at + self.wall_s - now
        if wall_s <= 0.0:  # the time for which the core was busy does not count
            wall_s += self.waited_s + sum(map(waiting_seconds, self.children.values()))
        return min(self.seconds - used_s, wall_s, self.linger_until - now)

    def _watch(self) -> None:
        """Reap what has ended, kill what has no time left, and report once nothing runs."""
        for role in list(self.children):
            self._reap(role, os.WNOHANG)
        if self.children and self._seconds_left() <= 0.0:
            self.is_late = self.linger_until == math.inf  # not after its tests have ended
            for role in list(self.children):
                os.kill(self.children[role], signal.SIGKILL)
                self._reap(role, 0)
        now = time.monotonic()
        if self.children:
            if "checker" in self.exits:
                self.linger_until = min(self.linger_until, now + LINGER_S)
            if now > self.said_at + SIGN_OF_LIFE_S:
                self.said_at = now
                self._send({}, socket.MSG_DONTWAIT)  # a sign of life
            return
        confirmations = b""  # a C of each child that was confined, see `_fork`
        with contextlib.suppress(BlockingIOError):
            confirmations = os.read(self.confirmed, 4096)
        is_confined = confirmations == b"C" * len(self.exits)
        report = {"exits": self.exits, "late": self.is_late, "confined": is_confined}
        report |= {"used_s": self.used_s, "waited_s": self.waited_s}
        why = confirmations.lstrip(b"C").decode(errors="replace")
        self._send({**report, "wall_s": now - self.started_at, "why": why})

    def _reap(self, role: str, options: int) -> None:
        """Note how a child has ended, and its times; with WNOHANG not if it still runs."""
        waited_s = waiting_seconds(self.children[role])
        pid, status, usage = os.wait4(self.children[role], options)
        if pid:
            del self.children[role]
            self.exits[role] = os.waitstatus_to_exitcode(status)
            self.used_s += usage.ru_utime + usage.ru_stime
            self.waited_s += waited_s


def processor_seconds(pid: int) -> float:
    """Processor time that a process has used, over all its threads; 0.0 if the kernel refuses."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | 2)  # the number of its clock in the kernel
    return 0.0


def waiting_seconds(pid: int) -> float:
    """Seconds for which a process could run but its core was busy; 0.0 if that is not known."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        statistics = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)  # faster than `open`
        try:
            return int(os.read(statistics, 100).split()[1]) / 1e9
        finally:
            os.close(statistics)
    return 0.0


def renumber(wanted: list[int]) -> None:
    """Number these descriptors 0, 1, 2, ... and close all others."""
    # Copied to higher numbers first, so that none is overwritten before its turn.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, len(wanted)) for descriptor in wanted]
    for place, descriptor in enumerate(moved):
        os.dup2(descriptor, place)
    libc.close_from(len(wanted))


def _users() -> tuple[int, int] | None:
    """Two user ids for worker and checker, not in use elsewhere; None if we cannot change user."""
    first = FIRST_USER + 2 * (os.getpid() % USERS)
    if os.geteuid() != 0:
        return None
    if not (child := os.fork()):  # a child tries it, since there is no way back
        try:
            confinement.drop_user(first)
            os._exit(0)
        finally:
            os._exit(1)
    return (first, first + 1) if os.waitpid(child, 0)[1] == 0 else None


def main() -> None:
    """Prepare what all children share, then serve the trainer."""
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
