"""The trainer's side of one zygote: start it, send it descriptors, collect what its children write.

Promises: `run` returns when a program and its tests are dead and reaped. `ZygoteDied` means that
the sandbox failed: a zygote died or hangs, or a child was not confined.

What is not covered: two threads must not use a slot at the same time; the pool ensures that.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from rewards.sandbox.confinement import OUTPUT_BYTES

START_S = 60.0
SILENT_S = 10.0  # a zygote that says nothing for so long hangs; it speaks every second


class ZygoteDied(Exception):
    """The sandbox itself has failed, not the program."""


class Times(NamedTuple):
    """Seconds of processor time, and of wall time without waiting for a busy core."""

    seconds: float
    wall_s: float


class Ran(NamedTuple):
    """What a program left when it ended.

    `exits`: exit codes by role, negative for a signal; `written`: the bytes of each output; `late`:
    it was killed at a limit; `used`: what counts towards its limits; `wall_s`: all of its wall
    time.
    """

    exits: dict[str, int]
    written: list[bytes]
    late: bool
    used: Times
    wall_s: float

    def has_flooded(self) -> bool:
        """Whether an output has reached the limit on its length."""
        return any(len(data) == OUTPUT_BYTES for data in self.written)


def memory_file(files: ExitStack, data: bytes = b"") -> BinaryIO:
    """A file without a name that holds `data`, at its start; `files` will close it."""
    try:
        file = files.enter_context(os.fdopen(os.memfd_create("program"), "w+b"))
    except (OSError, AttributeError):  # a container that refuses it
        file = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 files closes it
    file.write(data)
    file.seek(0)
    return file


class Slot:
    """A zygote (the process that forks programs), started when first needed or after it died."""

    def __init__(self, settings: dict[str, Any]):
        self.settings = settings
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.state: dict[str, Any] = {}  # the zygote's report of itself
        self.running = self.retired = False

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

    def run(self, roles: dict[str, list[BinaryIO]], outputs: list[BinaryIO], times: Times) -> Ran:
        """Run a program: a child for each role, with these files as its descriptors.

        Roles are `script` alone, or `checker` and `worker`. The zygote adds the link between them.
        `outputs` are those of the files that the children write.
        """
        self.running = True
        try:
            self.start()
            descriptors = [file.fileno() for files in roles.values() for file in files]
            counts = {role: len(files) for role, files in roles.items()}
            request = json.dumps({"roles": counts, **times._asdict()}).encode()
            try:
                socket.send_fds(self.control, [request], descriptors)
            except OSError as error:
                raise self._died(str(error)) from None
            while not (report := self._receive(SILENT_S)):
                pass  # the zygote says that it is alive
            if "failed" in report:
                raise self._died(f"no process for a program: {report['failed']}")
        finally:
            self.running = False
        if not report["confined"]:
            raise ZygoteDied(f"a program or its tests could not be confined: {report['why']}")
        # Time for which its core was busy with other work does not count.
        used = Times(report["used_s"], max(0.0, report["wall_s"] - report["waited_s"]))
        for output in outputs:  # else reading fails by flags that a program has set (O_DIRECT)
            fcntl.fcntl(output, fcntl.F_SETFL, 0)
        written = [os.pread(output.fileno(), OUTPUT_BYTES, 0) for output in outputs]
        return Ran(report["exits"], written, report["late"], used, report["wall_s"])

    def close(self) -> None:
        """End the zygote; its children then end too."""
        if self.control is not None:
            self.control.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = self.control = None

    def retire(self) -> None:
        """Close for good, from any thread; a call that still runs finds its zygote dead."""
        self.retired = True
        if self.running and self.process is not None:
            self.process.kill()
        else:
            self.close()

    def _receive(self, patience_s: float) -> dict[str, Any]:
        """The zygote's next message; `ZygoteDied` if there is none for so long."""
        if not wait([self.control], patience_s):
            raise self._died("it does not answer")
        try:
            data = self.control.recv(4096)
        except OSError as error:
            raise self._died(str(error)) from None
        if not data:
            raise self._died("it ended, see its words on standard error, if any")
        return json.loads(data)

    def _died(self, why: str) -> ZygoteDied:
        self.close()
        return ZygoteDied(f"the zygote is gone: {why}")
