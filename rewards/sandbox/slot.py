"""The trainer's side of one zygote: start it, send it descriptors, collect what its children write.

Promises: `run` returns when the program is dead and reaped and its tests are done, at the latest
shortly after its limit on wall time (which other work on its core does not use up). A checker
serves `CHECKER_PROGRAMS` programs at most. It is replaced earlier if it does not finish its tests,
and ended by `end_checker`. `ZygoteDied` means that the sandbox failed: a zygote died or hangs, or a
child was not confined.

What is not covered: two threads must not use a slot at the same time; the pool ensures that.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from rewards.sandbox.checker import CHECKER_PROGRAMS
from rewards.sandbox.clock import Clock
from rewards.sandbox.confinement import OUTPUT_BYTES, UNCONFINED_EXIT

START_S = 60.0
OVERDUE_S = 5.0  # after the limit on wall time, until the zygote itself counts as hung
LINGER_S = 0.1  # a program may take this long to end after its tests
GRACE_S = 0.5  # tests may take this long to end after the program
POLL_S = 0.5
PACKET = 1 << 16


class ZygoteDied(Exception):
    """The sandbox itself has failed, not the program."""


class Times(NamedTuple):
    """Seconds of processor time, and of wall time without waiting for a busy core."""

    seconds: float
    wall_s: float


class Ran(NamedTuple):
    """What a program left when it ended.

    `exit`: its exit code, negative for a signal; `written`: the bytes of each output; `verdicts`:
    the messages of its checker, None if the checker died; `late`: it was killed at a limit; `used`:
    what counts towards its limits; `wall_s`: all of its wall time.
    """

    exit: int
    written: list[bytes]
    verdicts: list
    late: bool
    used: Times
    wall_s: float

    def has_flooded(self) -> bool:
        """Whether an output has reached the limit on its length."""
        return any(len(data) == OUTPUT_BYTES for data in self.written)


class Ends:
    """The descriptors of one run. All are closed at its end; those in `sent` once sent."""

    def __init__(self) -> None:
        self.sent, self.outputs = [], []

    def file(self, data: bytes) -> int:
        """A file from which `data` can be read once."""
        self.sent.append(file := memory_file())
        with os.fdopen(file, "wb", closefd=False) as writing:
            writing.write(data)
        os.lseek(file, 0, os.SEEK_SET)
        return file

    def output(self) -> int:
        """A file for the program to write to; `OUTPUT_BYTES` limits its length."""
        self.outputs.append(memory_file())
        return self.outputs[-1]

    def pair(self) -> tuple[int, int]:
        self.sent += [end.detach() for end in socket.socketpair()]
        return self.sent[-2], self.sent[-1]

    def written(self) -> list[bytes]:
        return [os.pread(output, OUTPUT_BYTES, 0) for output in self.outputs]

    def close_sent(self) -> None:
        while self.sent:
            os.close(self.sent.pop())

    def __enter__(self) -> "Ends":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sent()
        while self.outputs:
            os.close(self.outputs.pop())


def memory_file() -> int:
    try:
        return os.memfd_create("program")
    except (OSError, AttributeError):  # a container that refuses it
        with tempfile.TemporaryFile() as temporary:
            return os.dup(temporary.fileno())


class Slot:
    """A zygote, started when it is first needed and again after it died."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.checker: socket.socket | None = None
        self.served = 0  # programs served by this checker
        self.state: dict[str, Any] = {}  # the zygote's report of itself
        self.running = self.retired = False

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Start the zygote if it does not run, and wait until it is ready."""
        if self.retired:
            raise ZygoteDied("the sandbox was closed")
        if self.process is not None and self.process.poll() is None:
            return
        self.close()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = json.dumps({**self.settings, "control": theirs.fileno()})
            zygote = str(Path(__file__).with_name("zygote.py"))
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", zygote, settings],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # Else each thread would reserve 64 MiB of the program's limited address space.
                env={"MALLOC_ARENA_MAX": "1"},
                cwd="/",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.state = self._receive(START_S)

    def close(self) -> None:
        """End the zygote; its children then end too."""
        self._close_sockets()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def retire(self) -> None:
        """Close for good, from any thread; a call that still runs finds its zygote dead."""
        self.retired = True
        if self.running and self.process is not None:
            self.process.kill()
        else:
            self.close()

    def disown(self) -> None:
        """Forget the zygote in a forked process: it belongs to the parent."""
        self._close_sockets()
        if self.process is not None:
            self.process.returncode = 0  # not our child: nothing to wait for
        self.process = None

    def _close_sockets(self) -> None:
        for end in filter(None, (self.control, self.checker)):
            end.close()
        self.control = self.checker = None

    def end_checker(self) -> int:
        """End the checker; if it was already dead, return its exit code or minus its signal."""
        if self.checker is None:
            return 0
        self.checker.close()
        self.checker = None
        before, self.running = self.running, True
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
        times: Times,
        tests: Sequence[int] = (),
        is_shared: bool = False,
    ) -> Ran:
        """Run a program (role worker or script) with its descriptors; its checker gets `tests`.

        `is_shared`: the checker may have served other programs, and may serve others after it.
        """
        self.running = True
        try:
            self.start()
            clock = Clock()
            is_new = bool(tests) and not (is_shared and self._send_tests(tests))
            request = json.dumps({"role": role, "new_checker": is_new, **times._asdict()}).encode()
            if not is_new:
                self._tell(request, descriptors)
            else:
                self.end_checker()
                self.checker, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self.served = 0
                with theirs:
                    self._tell(request, [*descriptors, theirs.fileno()])
                if not self._send_tests(tests):
                    raise self._died("its checker ended")
            ends.close_sent()
            return self._watch(ends, clock, times.wall_s, bool(tests), is_shared)
        finally:
            self.running = False

    def _send_tests(self, tests: Sequence[int]) -> bool:
        """Send the tests of a program to the checker; False if there is no living checker."""
        if self.checker is not None:
            with contextlib.suppress(OSError):  # the checker has died
                socket.send_fds(self.checker, [b"tests"], tests)
                self.served += 1
                return True
        return False

    def _watch(
        self, ends: Ends, clock: Clock, wall_s: float, has_tests: bool, is_shared: bool
    ) -> Ran:
        """Read until the program has ended and its tests are done."""
        verdicts, ended, is_done, is_asked = [], None, not has_tests, False
        until = wall_s + OVERDUE_S
        while ended is None or not is_done:
            left = until - clock.seconds()
            if left <= 0:
                if ended is not None:
                    break  # the tests do not end
                if is_asked:
                    raise self._died("it does not answer")
                self._tell(b"kill" if is_done else b"left")
                is_asked, until = True, clock.seconds() + OVERDUE_S
            waits = [self.control] * (ended is None) + [self.checker] * (not is_done)
            ready = wait(waits, max(0.0, min(left, POLL_S)))
            if self.checker in ready:
                verdicts.append(self._verdict())
                if is_done := verdicts[-1] in ("done", "spent", None):
                    until = clock.seconds() + LINGER_S
            if self.control in ready:
                message = self._receive(1.0)
                if "left" in message:  # on a busy core a program may take longer than its limit
                    is_asked, until = False, clock.seconds() + message["left"] + OVERDUE_S
                    continue
                if "exit" not in message:
                    raise self._died(f"no process for a program: {message.get('failed')}")
                ended, until = message, clock.seconds() + GRACE_S
        can_serve_more = is_shared and verdicts[-1:] == ["done"] and self.served < CHECKER_PROGRAMS
        if has_tests and not can_serve_more and self.end_checker() == UNCONFINED_EXIT:
            raise ZygoteDied("the checker could not be confined")
        if not ended["confined"]:
            raise ZygoteDied("a program could not be confined")
        wall_s, is_late = clock.seconds(), ended["late"] or not is_done
        used = Times(ended["used_s"], max(0.0, wall_s - ended["waited_s"]))
        return Ran(ended["exit"], ends.written(), verdicts, is_late, used, wall_s)

    def _verdict(self) -> Any:
        """The next message of the checker; None if it has ended."""
        data = b""
        with contextlib.suppress(OSError):
            data = self.checker.recv(PACKET)
        return json.loads(data) if data else None

    # ------------------------------------------------------------------ messages

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
