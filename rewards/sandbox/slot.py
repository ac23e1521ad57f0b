"""One zygote seen from the trainer: starts it, hands it descriptors, collects what its children write.

Promises: a request returns when every child is dead and reaped, at the latest shortly after its wall limit; what a
child writes is read up to a cap, beyond which the children are killed. A zygote that dies or hangs is `ZygoteDied`.

What is not covered: several threads must not share a slot at one time; the pool sees to that.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

START_S = 60.0
OVERDUE_S = 5.0  # after the wall limit, before the zygote itself is given up
OUTPUT_BYTES = 1 << 20
ADD_SEALS, SEALS = 1033, 0b1111  # F_ADD_SEALS; no more seals, no shrinking, growing, writing
PIPE = 1 << 16


class ZygoteDied(Exception):
    """Our machinery, not the program, has failed."""


class Child(NamedTuple):
    """What a child does (worker, script, checker) and its descriptors, in the order of their numbers."""

    role: str
    descriptors: Sequence[int]


class Ran(NamedTuple):
    """`exits`: codes, negative for a signal; `written`: what came out of each pipe; `late`: killed at the limit."""

    exits: list[int]
    written: list[bytes]
    overflow: bool
    late: bool
    seconds: float


class Slot:
    """A zygote, started when it is first needed and again after it died."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.state: dict[str, Any] = {}
        self.running = self.retired = False

    def start(self) -> dict[str, Any]:
        """What the zygote says of itself, once it is ready."""
        if self.retired:
            raise ZygoteDied("the sandbox was closed")
        if self.process is not None and self.process.poll() is None:
            return self.state
        self.close()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            settings = json.dumps({**self.settings, "control": theirs.fileno()})
            command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("zygote.py")), settings]
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={}, cwd="/",
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        self.state = self._receive(START_S)
        return self.state

    def run(self, children: Sequence[Child], pipes: Sequence[int], seconds: float) -> Ran:
        """Start the children, close their descriptors here, and read the pipes until all children are gone."""
        self.running = True
        try:
            return self._run(children, pipes, seconds)
        finally:
            self.running = False

    def _run(self, children: Sequence[Child], pipes: Sequence[int], seconds: float) -> Ran:
        try:
            self.start()
            started = time.monotonic()
            self._request(children, seconds)
        finally:
            for descriptor in {number for child in children for number in child.descriptors}:
                os.close(descriptor)
        reader = _Reader(pipes)
        message = self._watch(reader, started + seconds + OVERDUE_S)
        if "exits" not in message:
            raise ZygoteDied(f"no process for a program: {message.get('failed')}")
        reader.finish()
        written = [bytes(part[:OUTPUT_BYTES]) for part in reader.written]
        return Ran(message["exits"], written, reader.overflow, message["late"], time.monotonic() - started)

    def close(self) -> None:
        """End the zygote and with it its children."""
        if self.control is not None:
            self.control.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = self.control = None

    def retire(self) -> None:
        """Close for good, from whatever thread: a call that runs finds its zygote dead, and ends."""
        self.retired = True
        if self.running and self.process is not None:
            self.process.kill()
        else:
            self.close()

    def disown(self) -> None:
        """After a fork, in the child: this zygote is another process's."""
        if self.control is not None:
            self.control.close()
        if self.process is not None:
            self.process.returncode = 0  # not our child: nothing to wait for
        self.process = self.control = None

    def _request(self, children: Sequence[Child], seconds: float) -> None:
        numbers = list(dict.fromkeys(number for child in children for number in child.descriptors))
        listed = [
            {"role": child.role, "descriptors": [numbers.index(number) for number in child.descriptors]}
            for child in children
        ]
        request = json.dumps({"children": listed, "seconds": seconds}).encode()
        try:
            socket.send_fds(self.control, [request], numbers)
        except OSError as error:
            raise self._died(str(error)) from None

    def _watch(self, reader: "_Reader", until: float) -> dict[str, Any]:
        """Read until the zygote answers; beyond the cap, have the children killed."""
        poll, asked = select.poll(), False
        poll.register(self.control, select.POLLIN)
        for pipe in reader.pipes:
            poll.register(pipe, select.POLLIN)
        while True:
            if (left := until - time.monotonic()) <= 0:
                raise self._died("it does not answer")
            ready = {number for number, _ in poll.poll(1000 * left + 1)}
            for pipe in ready.intersection(reader.pipes):
                if not reader.read(pipe):
                    poll.unregister(pipe)
            if reader.overflow and not asked:
                asked = True
                with contextlib.suppress(OSError):
                    self.control.send(b"kill")
            if self.control.fileno() in ready:
                return self._receive(1.0)

    def _receive(self, seconds: float) -> dict[str, Any]:
        self.control.settimeout(seconds)
        try:
            data = self.control.recv(4096)
        except OSError as error:
            raise self._died(str(error)) from None
        if not data:
            raise self._died("it ended")
        self.control.settimeout(None)
        return json.loads(data)

    def _died(self, why: str) -> ZygoteDied:
        self.close()
        return ZygoteDied(f"the zygote is gone: {why}")


class _Reader:
    """Reads pipes without ever waiting."""

    def __init__(self, pipes: Sequence[int]):
        self.pipes = {pipe: place for place, pipe in enumerate(pipes)}
        self.written = [bytearray() for _ in pipes]
        self.overflow = False
        for pipe in pipes:
            os.set_blocking(pipe, False)

    def read(self, pipe: int) -> bool:
        """Take what is there; False at the end of the pipe."""
        try:
            data = os.read(pipe, PIPE)
        except BlockingIOError:
            return True
        part = self.written[self.pipes[pipe]]
        if len(part) <= OUTPUT_BYTES:
            part += data
        self.overflow = self.overflow or len(part) > OUTPUT_BYTES
        return bool(data)

    def finish(self) -> None:
        """Take what is left: all who could write are dead, so a pipe holds no more than its buffer."""
        for pipe in self.pipes:
            for _ in range(32):
                before = len(self.written[self.pipes[pipe]])
                if not self.read(pipe) or len(self.written[self.pipes[pipe]]) == before:
                    break


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
