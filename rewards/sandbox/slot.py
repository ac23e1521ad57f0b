"""One zygote seen from the trainer: starts it, hands it descriptors, collects what its children
write.

Promises: a request returns when its program is dead and reaped and its tests are done, at the
latest shortly after its wall limit; what a program writes is read up to a cap, beyond which it is
killed. A checker serves `CHECKER_PROGRAMS` at most, fewer where it does not end its tests, and none
after `end_checker`. `ZygoteDied` is a failure of ours: a zygote that died or hangs, a child that
was not confined, or that somebody else has killed or stopped.

What is not covered: several threads must not share a slot at one time; the pool sees to that.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewards.sandbox.checker import CHECKER_PROGRAMS
from rewards.sandbox.clock import Clock
from rewards.sandbox.confinement import UNCONFINED_EXIT

START_S = 60.0
OVERDUE_S = 5.0  # after the wall limit, before the zygote itself is given up
LINGER_S = 0.1  # a program may take so long to end after its tests
GRACE_S = 0.5  # tests may take so long to end after the wall limit
POLL_S = 0.5
OUTPUT_BYTES = 1 << 20
PACKET = 1 << 16
ADD_SEALS, SEALS = 1033, 0b1111  # F_ADD_SEALS; no more seals, no shrinking, growing, writing
FOREIGN_DEATH = "somebody else has killed or stopped a process of the sandbox"
FOREIGN = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class ZygoteDied(Exception):
    """Our machinery, not the program, has failed."""


class Ran(NamedTuple):
    """The end of a program.

    `exit`: its code, negative for a signal; `written`: what came out of each pipe; `verdicts`: the
    words of its checker; `late`: killed at the limit; `confined`: False where it did not get so
    far; `orphaned`: its checker, which had served others before, ended before its tests did.
    """

    exit: int
    written: list[bytes]
    verdicts: list
    overflow: bool
    late: bool
    confined: bool
    seconds: float
    orphaned: bool = False


class Ends:
    """The descriptors of one run, closed whatever happens: those for others once they are sent.

    What comes out of a pipe is read without ever waiting.
    """

    def __init__(self) -> None:
        self.written: dict[int, bytearray] = {}  # by the end of its pipe that is read here
        self.sent: list[int] = []
        self.overflow = False

    def pipe(self) -> int:
        """The end to write to."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reading, False)
        self.written[reading] = bytearray()
        self.sent.append(writing)
        return writing

    def pair(self) -> tuple[int, int]:
        one, other = socket.socketpair()
        self.sent += [one.detach(), other.detach()]
        return self.sent[-2], self.sent[-1]

    def file(self, data: bytes) -> int:
        self.sent.append(sealed_file(data))
        return self.sent[-1]

    def read(self, pipe: int) -> bool:
        """Take what is there; False at the end of the pipe."""
        try:
            data = os.read(pipe, PACKET)
        except BlockingIOError:
            return True
        part = self.written[pipe]
        if len(part) <= OUTPUT_BYTES:
            part += data
        self.overflow = self.overflow or len(part) > OUTPUT_BYTES
        return bool(data)

    def read_rest(self) -> list[bytes]:
        """What came out of each pipe; all writers are dead, so none holds more than its buffer."""
        for pipe, part in self.written.items():
            for _ in range(32):
                before = len(part)
                if not self.read(pipe) or len(part) == before:
                    break
        return [bytes(part[:OUTPUT_BYTES]) for part in self.written.values()]

    def close_sent(self) -> None:
        while self.sent:
            os.close(self.sent.pop())

    def __enter__(self) -> "Ends":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sent()
        while self.written:
            os.close(self.written.popitem()[0])


class Slot:
    """A zygote, started when it is first needed and again after it died."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.checker: socket.socket | None = None
        self.served, self.longest = 0, 0.0  # by this checker: programs, and its first's seconds
        self.state: dict[str, Any] = {}
        self.running = self.retired = False

    # ------------------------------------------------------------------ life

    def start(self) -> dict[str, Any]:
        """The zygote's report of itself, once it is ready."""
        if self.retired:
            raise ZygoteDied("the sandbox was closed")
        if self.process is not None and self.process.poll() is None:
            return self.state
        self.close()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = json.dumps({**self.settings, "control": theirs.fileno()})
            zygote = str(Path(__file__).with_name("zygote.py"))
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", zygote, settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Each thread would reserve 64 MiB of the addresses that a program may have.
                env={"MALLOC_ARENA_MAX": "1"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.state = self._receive(START_S)
        return self.state

    def close(self) -> None:
        """End the zygote and with it its children."""
        self._close_sockets()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def retire(self) -> None:
        """Close for good, from whatever thread: a call that runs finds its zygote dead."""
        self.retired = True
        if self.running and self.process is not None:
            self.process.kill()
        else:
            self.close()

    def disown(self) -> None:
        """After a fork, in the child: this zygote is another process's."""
        self._close_sockets()
        if self.process is not None:
            self.process.returncode = 0  # not our child: nothing to wait for
        self.process = None

    def _close_sockets(self) -> None:
        for end in filter(None, (self.control, self.checker)):
            end.close()
        self.control = self.checker = None

    def end_checker(self) -> int:
        """End the checker, if any: 0, or how it had ended before (code or minus signal)."""
        if self.checker is None:
            return 0
        before, self.running = self.running, True
        self.checker.close()
        self.checker = None
        try:
            self._tell(b"retire")
            return self._receive(OVERDUE_S)["checker"]
        finally:
            self.running = before

    # ------------------------------------------------------------------ a program

    def run(
        self,
        role: str,
        ends: Ends,
        descriptors: Sequence[int],
        seconds: float,
        tests: Sequence[int] | None = None,
        shares: bool = False,
    ) -> Ran:
        """Run a program (role worker or script) on its descriptors; its checker gets `tests`.

        `shares`: the checker may have served other programs, and may serve others after it.
        """
        self.running = True
        try:
            self.start()
            if tests is not None and not shares:
                self.end_checker()
            clock = Clock()
            self._request(role, descriptors, seconds, tests)
            ends.close_sent()
            return self._watch(ends, clock, seconds, tests is not None, shares)
        finally:
            self.running = False

    def _request(
        self, role: str, descriptors: Sequence[int], seconds: float, tests: Sequence[int] | None
    ) -> None:
        """Tell the zygote and the checker; where there is none yet, the zygote makes one first."""
        is_new = tests is not None and not self._hand(tests, seconds)
        request = json.dumps({"role": role, "seconds": seconds, "checker": is_new}).encode()
        if not is_new:
            self._tell(request, descriptors)
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._tell(request, [*descriptors, theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        self.checker, self.served, self.longest = ours, 0, seconds
        if not self._hand(tests, seconds):
            raise self._died("its checker ended")

    def _hand(self, tests: Sequence[int], seconds: float) -> bool:
        """Send the checker what it needs for a program; False where there is none that could serve
        it.

        A checker's own limit on CPU time follows from that of its first program: none serves one
        with a longer limit.
        """
        if self.checker is not None and seconds <= self.longest:
            with contextlib.suppress(OSError):  # it has died since
                socket.send_fds(self.checker, [b"tests"], tests)
                self.served += 1
                return True
        self.end_checker()
        return False

    def _watch(
        self, ends: Ends, clock: Clock, seconds: float, has_tests: bool, shares: bool
    ) -> Ran:
        """Read until the program has ended and its tests are done."""
        poll, verdicts, ended = select.poll(), [], None
        done, killed = not has_tests, False
        for pipe in (self.control, *ends.written, *([self.checker] if has_tests else [])):
            poll.register(pipe, select.POLLIN)
        until = seconds + OVERDUE_S
        while ended is None or not done:
            if (left := until - clock.seconds()) <= 0:
                if ended is not None:
                    break  # the tests do not end
                if killed or not done:
                    raise self._died("it does not answer")
                killed, until = self._kill(), until + OVERDUE_S
            ready = {number for number, _ in poll.poll(1000 * max(0.0, min(left, POLL_S)) + 1)}
            for pipe in ready.intersection(ends.written):
                if not ends.read(pipe):
                    poll.unregister(pipe)
            if ends.overflow and not killed:
                killed = self._kill()
            if has_tests and not done and self.checker.fileno() in ready:
                verdicts.append(self._verdict())
                if done := verdicts[-1] in ("done", "spent", None):
                    poll.unregister(self.checker)
                    until = until if killed else clock.seconds() + LINGER_S
            if ended is None and self.control.fileno() in ready:
                ended = self._receive(1.0)
                if "exit" not in ended:
                    raise self._died(f"no process for a program: {ended.get('failed')}")
                poll.unregister(self.control)
                until = max(seconds, clock.seconds()) + GRACE_S
        is_second_hand = has_tests and self.served > 1
        if has_tests:
            self._replace_checker(shares and verdicts[-1:] == ["done"])
        if ended["foreign"]:
            raise ZygoteDied(FOREIGN_DEATH)
        written = ends.read_rest()
        return Ran(
            exit=ended["exit"],
            written=written,
            verdicts=verdicts,
            overflow=ends.overflow,
            late=ended["late"] or not done,
            confined=ended["confined"],
            seconds=clock.seconds(),
            orphaned=is_second_hand and verdicts[-1:] == [None],
        )

    def _verdict(self) -> Any:
        """A word of the checker; None at its end."""
        try:
            data = self.checker.recv(PACKET)
        except OSError:
            data = b""
        return json.loads(data) if data else None

    def _replace_checker(self, is_fit: bool) -> None:
        """End a checker that may serve no other; an error where the program did not end it."""
        code = 0 if is_fit and self.served < CHECKER_PROGRAMS else self.end_checker()
        if -code in FOREIGN:
            raise ZygoteDied(FOREIGN_DEATH)
        if code == UNCONFINED_EXIT:
            raise ZygoteDied("the checker could not be confined")

    # ------------------------------------------------------------------ messages

    def _kill(self) -> bool:
        """Have the program killed; True, which says that it was asked for."""
        self._tell(b"kill")
        return True

    def _tell(self, message: bytes, descriptors: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self.control, [message], descriptors)
        except OSError as error:
            raise self._died(str(error)) from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        self.control.settimeout(seconds)
        try:
            data = self.control.recv(4096)
        except OSError as error:
            raise self._died(str(error)) from None
        if not data:
            raise self._died("it ended, see its words on standard error, if any")
        self.control.settimeout(None)
        return json.loads(data)

    def _died(self, why: str) -> ZygoteDied:
        self.close()
        return ZygoteDied(f"the zygote is gone: {why}")


def sealed_file(data: bytes) -> int:
    """A descriptor from which `data` can be read once, and which nobody can write to."""
    try:
        file = os.memfd_create("program", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
    os.lseek(file, 0, os.SEEK_SET)
    with contextlib.suppress(OSError):
        fcntl.fcntl(file, ADD_SEALS, SEALS)
    return file
