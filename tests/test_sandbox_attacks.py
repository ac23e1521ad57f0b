"""Attacks by name, in each place where the sandbox runs: as root, as an ordinary user, as in a container, sealed.

A place is a process of its own, the stand-in for a trainer: it takes on the place's limits, makes a sandbox and runs
the jobs that it is handed. Around it lie things worth having: a secret in its environment and in two files, listening
sockets, a process of the same user. An attack that gets at one of them prints `GOT`, or is seen from here.

What is not covered: other kernels than the one at hand; a container's cgroups; what the other
tests/test_sandbox_*.py cover already.
"""

import ctypes
import json
import os
import resource
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.sandbox import SYSTEM_PYTHON, folder_for_everyone

from rewards.sandbox import (
    Asserts,
    Sandbox,
    SandboxError,
    Stdio,
    ZygoteDied,
    jobs,
    landlock,
    preload,
)
from rewards.sandbox.slot import Ran

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
    ),
    pytest.mark.skipif(
        os.uname().machine != "x86_64", reason="the attacks use call numbers of x86_64"
    ),
]
ROOT = Path(__file__).parents[1]
USER = 64_321
TIMEOUT_S = 1.5
LATE_S = 1.0
LEFT_S = 0.5
RIGHT = Asserts("def f(x): return 2 * x", ["assert f(2) == 4"])


# ------------------------------------------------------------------ places


class Place(NamedTuple):
    """`words` must be in what the sandbox says of itself there."""

    words: str
    isolation: str | None = None
    user: bool = False
    container: bool = False
    landlock: bool = True


PLACES = {
    "here": Place("Landlock"),
    "sealed": Place("without any file system", isolation="sealed"),
    "ordinary user": Place("Landlock", user=True),
    "container": Place("Landlock", container=True),
    "container, ordinary user": Place("Landlock", container=True, user=True),
    "old container": Place("without any file system", container=True, landlock=False),
    "old container, ordinary user": Place(
        "without any file system", container=True, landlock=False, user=True
    ),
}

# What Docker leaves of root's capabilities, and which calls its profile refuses.
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
REFUSED_CALLS = (
    *(
        101,
        103,
        135,
        153,
        155,
        156,
        *range(163, 181),
        212,
        237,
        238,
        239,
        246,
        248,
        249,
        250,
        256,
        272,
        279,
        298,
    ),
    *(303, 304, 308, 310, 311, 312, 313, 320, 321, 323, *range(425, 434), 438, 442, 443, 447),
)
CLONE, CLONE3, NAMESPACES, LANDLOCK_CALLS = 56, 435, 0x7E020000, (444, 445, 446)
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50001, 0x50026
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38


def container_filter(with_landlock: bool) -> bytes:
    """Docker's profile as far as it refuses; older ones do not know Landlock."""
    refused = dict.fromkeys(REFUSED_CALLS, EPERM) | {CLONE3: ENOSYS}
    refused |= {} if with_landlock else dict.fromkeys(LANDLOCK_CALLS, ENOSYS)
    lines = [(LOAD, 0, 0, 0)]
    for number, answer in refused.items():
        lines += [(EQUAL, 0, 1, number), (RETURN, 0, 0, answer)]
    lines += [
        (EQUAL, 0, 3, CLONE),
        (LOAD, 0, 0, 16),
        (ANY_BIT, 0, 1, NAMESPACES),
        (RETURN, 0, 0, EPERM),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def keep(capabilities: tuple[int, ...]) -> None:
    """Give up every other, for all programs that this process will run."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in set(range(64)) - set(capabilities):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    kept = sum(1 << number for number in capabilities)
    assert (
        libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[kept] * 3, 0, 0, 0)) == 0
    )


def enter(place: Place) -> None:
    """In a new process: take on what limits every process of the place."""
    libc = ctypes.CDLL(None, use_errno=True)
    if place.container:
        keep(CAPABILITIES)
        code = container_filter(place.landlock)
        buffer = ctypes.create_string_buffer(code, len(code))
        header = ctypes.create_string_buffer(
            struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        )
        assert (
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            and libc.prctl(PR_SET_SECCOMP, 2, header, 0, 0) == 0
        )
    if place.user:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


TRAINER = """
import json, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from rewards.sandbox.pool import Asserts, Sandbox, Stdio
isolation, heap_bytes = json.loads(sys.argv[2])
heap = bytearray(b"x") * heap_bytes
with Sandbox(workers=1, isolation=isolation) as sandbox:
    before = dict(os.environ), os.getcwd(), os.umask(0o022)
    print(json.dumps(sandbox.describe()), flush=True)
    for line in sys.stdin:
        jobs = [{"Asserts": Asserts, "Stdio": Stdio}[kind](**fields) for kind, fields in json.loads(line)]
        outcomes = sandbox.run_batch(jobs)
        assert before == (dict(os.environ), os.getcwd(), os.umask(0o022))
        print(json.dumps(outcomes), flush=True)
"""


class Trainer:
    """A process in a place, and what lies around it."""

    def __init__(self, place: Place, heap_bytes: int = 0):
        self.secret = f"secret-{secrets.token_hex(16)}"
        self.folder = Path(
            tempfile.mkdtemp(prefix="attacks-")
        )  # not pytest's, which other users cannot enter
        self.listeners = [
            socket.create_server(("127.0.0.1", 0)),
            socket.socket(socket.AF_UNIX),
            socket.socket(1),
        ]
        self._lay_out(place)
        command = [
            SYSTEM_PYTHON if place.user else sys.executable,
            "-c",
            TRAINER,
            str(folder_for_everyone()),
        ]
        self.process = subprocess.Popen(
            [*command, json.dumps([place.isolation, heap_bytes])], cwd="/", env={"SECRET_TOKEN": self.secret},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: enter(place),
        )  # fmt: skip
        self.bystander = subprocess.Popen(["sleep", "1000"], preexec_fn=lambda: enter(place))
        if not (words := self.process.stdout.readline()):
            self.close()
            raise RuntimeError("the sandbox did not start in this place: see stderr")
        self.words = json.loads(words)

    def _lay_out(self, place: Place) -> None:
        (self.folder / "marks").mkdir()
        for name, mode in (("hidden", 0o600), ("open", 0o644)):
            (self.folder / name).write_text(self.secret)
            (self.folder / name).chmod(mode)
        self.folder.chmod(0o755)
        (self.folder / "marks").chmod(0o777)
        if place.user:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, USER, USER)
        self.listeners[1].bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o777)
        self.listeners[2].bind(f"\0{self.folder}")
        for listener in self.listeners:
            listener.listen()
            listener.setblocking(False)
        self.before = self._files()

    def _files(self) -> dict[Path, tuple]:
        """Contents, mode, owner and time of each file that there is to change, or that an attack has made."""
        made = [*(self.folder / "marks").iterdir(), *Path("/dev/shm").glob("made")]
        stats = {
            path: path.stat() for path in (self.folder / "hidden", self.folder / "open", *made)
        }
        return {
            path: (path.read_text(), of.st_mode, of.st_uid, of.st_mtime_ns)
            for path, of in stats.items()
        }

    def run(self, *jobs: Asserts | Stdio) -> list[tuple[str, str, float, str, list[bool]]]:
        """The fields of the outcomes of a batch."""
        self.process.stdin.write(
            json.dumps([[type(job).__name__, job._asdict()] for job in jobs]) + "\n"
        )
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def things(self) -> str:
        """Lines of Python that tell a program where to find everything."""
        known = {
            "HIDDEN": str(self.folder / "hidden"),
            "OPEN": str(self.folder / "open"),
            "MARKS": str(self.folder / "marks"),
            "PORT": self.listeners[0].getsockname()[1],
            "UNIX": str(self.folder / "socket"),
            "ABSTRACT": f"\0{self.folder}",
            "BYSTANDER": self.bystander.pid,
            "TRAINER": self.process.pid,
        }
        return "".join(f"{name} = {value!r}\n" for name, value in known.items())

    def harm(self) -> list[str]:
        """What an attack has left or reached, half a second after it at the latest."""
        until = time.monotonic() + LEFT_S
        while (left := grandchildren(self.process.pid)) and time.monotonic() < until:
            time.sleep(0.01)
        harm = [f"process {pid} is left" for pid in left]
        harm += [
            f"{path} was made or changed"
            for path, was in self._files().items()
            if was != self.before.get(path)
        ]
        harm += ["the bystander is dead"] * (self.bystander.poll() is not None)
        return harm + [
            f"somebody called at {listener.getsockname()}"
            for listener in self.listeners
            if called(listener)
        ]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        self.bystander.kill()
        self.bystander.wait()
        for listener in self.listeners:
            listener.close()
        shutil.rmtree(self.folder)


def grandchildren(pid: int) -> list[str]:
    """What the zygotes of a trainer have running, or dead and not yet reaped."""
    below = [
        child
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [
        child
        for zygote in below
        for child in Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    ]


def called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def held_capabilities() -> int:
    lines = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["CapPrm"], 16)


def trainer_in(name: str) -> Trainer:
    place = PLACES[name]
    if (place.user or place.container) and os.geteuid() != 0:
        pytest.skip("takes on another user or the limits of a container: needs root")
    if place.container and any(not held_capabilities() >> number & 1 for number in CAPABILITIES):
        pytest.skip("this root has fewer capabilities than a container gives")
    if place.user and not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"no {SYSTEM_PYTHON} for every user")
    if "Landlock" in place.words and not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    return Trainer(place)


@pytest.fixture(scope="module", params=PLACES)
def trainer(request):
    made = trainer_in(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as made:
        yield made


@pytest.mark.parametrize("name", PLACES)
def test_the_isolation_in_force_is_what_the_place_allows(name):
    trainer = trainer_in(name)
    try:
        assert PLACES[name].words in trainer.words
        assert ("user kept" in trainer.words) == PLACES[name].user or os.geteuid() != 0
    finally:
        trainer.close()


# ------------------------------------------------------------------ hostile programs

BEGIN = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def try_to(call, *arguments, **keywords):
    try:
        answer = call(*arguments, **keywords)
    except BaseException:
        return None
    print("GOT", repr(answer)[:200], flush=True)
    return answer

def system_call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if type(a) is int else a for a in arguments]) >= 0:
        print("GOT", number, flush=True)

def run_code(code):
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, 4096, 7, 0x22, -1, 0)
    ctypes.memmove(place, code, len(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(place)()

def threads(work):
    try:
        for count in range(5000):
            threading.Thread(target=work, daemon=True).start()
    except RuntimeError:
        pass
    if count > 200:
        print("GOT", count, "threads", flush=True)

def f(x): return 0
"""

ATTACKS = {
    # reading
    "files by any path": (
        "for path in (HIDDEN, OPEN, *('../' * n + OPEN[1:] for n in range(1, 12))): try_to(lambda: open(path).read())\n"
        "for pid in ('self', os.getppid(), TRAINER): try_to(lambda: open(f'/proc/{pid}/mem', 'rb').read(1))\n"
        "try_to(open, '/proc/self/mem', 'r+b')\nsystem_call(2, OPEN.encode(), 0)"
    ),
    "its own output, opened again to take away what the harness wrote": (
        "for number in range(16):\n    try: os.read(os.open(f'/proc/self/fd/{number}', os.O_NONBLOCK), 1 << 16)\n"
        "    except OSError: pass"
    ),
    "a limit at which the kernel kills it, as if somebody else had": (
        "import resource\nfor limit in ((0, 0), (0, -1), (1, 1)): try_to(resource.setrlimit, 0, limit)"
    ),
    "a confirmation of its own": "for number in range(4, 64): try_to(os.write, number, b'C' * 9)",
    "every process's environment": (
        "for pid in ('self', *range(1, 3000), TRAINER): try_to(lambda: open(f'/proc/{pid}/environ').read(1))\n"
        "if os.environ: print('GOT', os.environ)"
    ),
    "memory of another: process_vm_readv and writev, ptrace": (
        "for pid in (os.getppid(), TRAINER, BYSTANDER):\n"
        "    for call in (310, 311): system_call(call, pid, 0, 0, 0, 0, 0)\n"
        "    for request in (16, 0x4206): system_call(101, request, pid, 0, 0)\n"
        "system_call(101, 0, 0, 0, 0)"
    ),
    "descriptors of another: pidfd_open, pidfd_getfd": "system_call(434, TRAINER, 0)\nsystem_call(438, 3, 0, 0)",
    "descriptors that nobody counted": (
        "open_ones = [n for n in range(5, 1 << 16) if libc.fcntl(n, 1) >= 0]\nif open_ones: print('GOT', open_ones)"
    ),
    "keys of the session": (
        "system_call(250, 0, -3, 1)\nsystem_call(248, b'user', b'x', b'y', 1, -3)\n"
        "system_call(249, b'user', b'x', 0, -3)"
    ),
    "files by handle, for which no path is needed": (
        "system_call(303, -100, b'/etc/passwd', b'\\x80' + bytes(200), bytes(8), 0)\n"
        "system_call(304, -100, b'\\x08\\0\\0\\0\\x01\\0\\0\\0' + bytes(64), 0)"
    ),
    "folders and links": (
        "for path in ('/', '/tmp', '/proc', f'/proc/{TRAINER}/fd', MARKS, '..', '../..'): try_to(os.listdir, path)\n"
        "for path in ('/', '.', OPEN): try_to(os.open, path, os.O_PATH)\n"
        "try_to(os.readlink, '/proc/self/exe')\ntry_to(os.statvfs, '/')\ntry_to(os.listxattr, OPEN)"
    ),
    "the kernel: bpf, perf, kcmp, its log": (
        "system_call(321, 0, bytes(128), 128)\nsystem_call(298, bytes(128), 0, -1, -1, 0)\n"
        "system_call(312, os.getpid(), os.getppid(), 0, 0, 0)\nsystem_call(103, 3, bytes(99), 99)"
    ),
    "memory and queues of system five, which outlive it, and memory files": (
        "for number in range(40): system_call(30, number, 0, 0)\n"
        "for call in (29, 64, 68): system_call(call, 0x1234, 1, 0o1666)\n"
        "system_call(240, b'queue', 0o102, 0o666, 0)\ntry_to(os.memfd_create, 'x')"
    ),
    # writing
    "every way to open for writing": (
        "for flags in (1, 2, 3, 0o100, 0o102, 0o1000, 0o1101, 0o2001, os.O_TMPFILE, os.O_TMPFILE | 2):\n"
        "    for path in (MARKS + '/made', '/dev/shm/made', MARKS, OPEN, HIDDEN, os.__file__):\n"
        "        try_to(os.open, path, flags, 0o666)"
    ),
    "every way to make and remove": (
        "new, old = (MARKS + '/made').encode(), OPEN.encode()\n"
        "for call in (85, 83): system_call(call, new, 0o777)\n"
        "system_call(133, new, 0o10666, 0)\nfor call in (86, 88, 82): system_call(call, old, new)\n"
        "for call in (87, 84, 76): system_call(call, old, 0)\nsystem_call(258, -100, new, 0o777)\n"
        "system_call(259, -100, new, 0o10666, 0)\nsystem_call(263, -100, old, 0)\n"
        "for call in (264, 265, 316): system_call(call, -100, old, -100, new, 0)"
    ),
    "mode, owner and times of what it holds": (
        "for number in range(5):\n"
        "    try_to(os.fchmod, number, 0o777)\n    try_to(os.utime, number, (1, 1))\n"
        "    try_to(os.ftruncate, number, 0)\n"
        "for path in (MARKS, OPEN, '.', os.__file__):\n"
        "    try_to(os.chmod, path, 0o777)\n    try_to(os.chown, path, os.getuid(), os.getgid())\n"
        "    try_to(os.utime, path)\n    try_to(os.setxattr, path, 'user.x', b'x')"
    ),
    "a compiled module that the zygote would import": (
        "import importlib._bootstrap_external as machinery, tempfile\n"
        "try_to(machinery._write_atomic, machinery.cache_from_source(os.__file__), b'x')\n"
        "try_to(tempfile.mkstemp)"
    ),
    "another current folder": "for path in ('/', '..', MARKS): try_to(os.chdir, path)\ntry_to(os.fchdir, 0)",
    "mounts by the old calls and the new; the machine's name, clock and modules": (
        "system_call(165, b'none', b'/tmp', b'tmpfs', 0, 0)\nsystem_call(430, b'tmpfs', 0)\n"
        "system_call(428, -100, b'/', 1)\ntry_to(os.chroot, '/')\n"
        "system_call(155, b'/', b'/')\nfor call in (170, 171): system_call(call, b'x', 1)\n"
        "system_call(227, 0, bytes(16))\nsystem_call(175, b'x', 1, b'')\nsystem_call(163, 0)"
    ),
    # multiplying
    "every kind of process": (
        "for call, flags in ((57, 0), *((56, flags) for flags in FLAGS)):\n"
        "    child = libc.syscall(call, flags, 0, 0, 0, 0)\n    if child == 0: os._exit(0)\n"
        "    if child > 0: print('GOT', call, hex(flags), flush=True)\n"
        "system_call(435, bytes(88), 88)".replace(
            "FLAGS", "(17, 0, 0x3C0F00, 0x3D0F00 | 1 << 28, 0x3D0F00 | 1 << 29)"
        )
    ),
    "every way to run a program, its own source by descriptor too": (
        "for path in ('/bin/true', sys.executable or '/usr/bin/python3'): try_to(os.posix_spawn, path, [path], {})\n"
        "try_to(os.execve, 4, ['x'], {})\nsystem_call(322, 4, b'', 0, 0, 0x1000)\n"
        "if os.system('true') == 0: print('GOT system')"
    ),
    "more of everything": (
        "import fcntl, resource\nfor limit in range(16):\n"
        "    if resource.getrlimit(limit)[1] != -1: try_to(resource.setrlimit, limit, (-1, -1))\n"
        "for pid in (os.getppid(), TRAINER):\n"
        "    system_call(302, pid, 7, bytes(16), 0)\n    try_to(resource.prlimit, pid, resource.RLIMIT_CORE)\n"
        "try_to(fcntl.fcntl, 1, 1031, 1 << 20)\n"
        "try_to(bytearray, 2 << 30)\ntry_to(lambda: [bytearray(1 << 20) for _ in range(2 << 10)])\n"
        "try_to(lambda: [os.dup(0) for _ in range(1000)])"
    ),
    # escape
    "a signal to a bystander": "try_to(os.kill, BYSTANDER, 9)",
    "signals in other forms": (
        "for pid in (0, -1, -os.getppid(), os.getppid(), TRAINER): try_to(os.kill, pid, 0)\n"
        "system_call(200, BYSTANDER, 9)\nsystem_call(234, BYSTANDER, BYSTANDER, 9)\n"
        "system_call(129, BYSTANDER, 9, bytes(128))\n"
        "system_call(297, BYSTANDER, BYSTANDER, 9, bytes(128))\nsystem_call(424, 3, 9, 0, 0)"
    ),
    "a signal that the kernel sends to the owner of a pipe or socket": (
        "import fcntl, socket\nend, other = socket.socketpair()\n"
        "for number in (8, 10, 15): try_to(fcntl.fcntl, end, number, BYSTANDER)\n"
        "for request in (0x8901, 0x8902): try_to(fcntl.ioctl, end, request, BYSTANDER.to_bytes(4, 'little'))\n"
        "try_to(fcntl.ioctl, end, 0x5452, b'\\1\\0\\0\\0')"
    ),
    "namespaces": "for flag in (17, 25, 26, 27, 28, 29, 30): system_call(272, 1 << flag)\nsystem_call(308, 0, 0)",
    "its own bonds": (
        "for option in (4, 1, 36, 22, 0x59616D61): system_call(157, option, 1, 0, 0, 0)\n"
        "system_call(317, 1, 0, bytes(16))\nsystem_call(444, b'\\xff' * 8, 8, 0)\n"
        "system_call(446, 3, 0)\ntry_to(os.setsid)"
    ),
    "another user": (
        "for call in (105, 106): system_call(call, 0) if os.getuid() else None\n"
        "system_call(117, 0, 0, 0)\n"
        "system_call(119, 0, 0, 0)\nsystem_call(116, 0, bytes(4))\n"
        "system_call(126, b'\\x22\\x05\\x08\\x20' + bytes(4), b'\\xff' * 24)"
    ),
    "priority and place": (
        "try_to(os.setpriority, 0, 0, -5)\ntry_to(os.setpriority, 0, os.getppid(), 0)\n"
        "try_to(os.sched_setaffinity, TRAINER, {0})\nsystem_call(251, 1, 0, 0)\n"
        "try_to(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))"
    ),
    "a fork by the 32-bit table": "print('GOT', run_code(bytes.fromhex('b802000000cd80c3')))",
    "calls that go round the filter: io_uring, aio, x32, faults of its own": (
        "system_call(425, 1, bytes(120))\nsystem_call(206, 1, bytes(8))\nsystem_call(323, 0)\n"
        "system_call(300, 0, 0)\n"
        "system_call(294, 0)\nsystem_call(319, b'x', 0)\nsystem_call(447, 0)\n"
        "for number in (2, 41, 57, 59, 520): system_call(0x40000000 | number, 0, 0, 0)"
    ),
    "the machine's ports: iopl, ioperm, personality, local descriptor table": (
        "system_call(172, 3)\nsystem_call(173, 0, 1, 1)\nsystem_call(135, 0x40000)\nsystem_call(154, 0, bytes(16), 16)"
    ),
    "the terminal": (
        "import fcntl\ntry_to(os.open, '/dev/tty', 0)\n"
        "for number in (0, 1, 2): try_to(fcntl.ioctl, number, 0x5412, b'x')"
    ),
    "descriptors handed out or taken in next to a message": (
        "for call in (46, 47, 307, 299): system_call(call, 3, bytes(64), 1, 0x40)"
    ),
    # network
    "the listeners": (
        "import socket\ntry_to(socket.create_connection, ('127.0.0.1', PORT), 1)\n"
        "pair = socket.socketpair()\n"
        "for address in (UNIX, ABSTRACT):\n    try_to(pair[0].connect, address)\n"
        "    try_to(pair[0].sendto, b'x', address)\n"
        "    try_to(lambda: socket.socket(socket.AF_UNIX).connect(address))\n"
        "try_to(pair[1].bind, '\\0mine')\ntry_to(pair[1].listen, 1)"
    ),
    "every family of sockets, and pairs that are no stream": (
        "import socket\nfor family in (1, 2, 10, 16, 17, 30, 38, 40, 44):\n"
        "    for kind in (1, 2, 3, 5): try_to(socket.socket, family, kind)\n"
        "for kind in (2, 3, 5): try_to(socket.socketpair, socket.AF_UNIX, kind)"
    ),
    "libraries that connect": (
        "import asyncio, socket\n"
        "async def serve():\n    if not (await asyncio.start_server(print, '127.0.0.1', 0)).sockets: raise OSError\n"
        "try_to(lambda: asyncio.run(serve()))\ntry_to(socket.getaddrinfo, 'localhost', 80)\n"
        "try_to(lambda: __import__('urllib.request').request.urlopen(f'http://127.0.0.1:{PORT}/', timeout=1))"
    ),
    # crashes
    "recursion without a limit": "sys.setrecursionlimit(1 << 30)\ndef f(x): return f(x)",
    "a bad address": "ctypes.string_at(0)",
    "an abort": "os.abort()",
    "its own death, and a stop": "for number in (9, 19): try_to(os.kill, os.getpid(), number)",
    "a null byte": "\0",
    "no such instruction": "run_code(bytes.fromhex('0f0b'))",
    "Python overwritten": "ctypes.memset(id(int), 0, 200)\nf(1) + 1",
    "rubbish freed": "libc.free(ctypes.c_void_p(0x41414141))",
    "a core file": "import signal\nos.kill(os.getpid(), signal.SIGQUIT)",
    "source too deep": "exec('-' * 200000 + '1')",
    "half a message": "import struct\nos.write(3, struct.pack('!I', 1000) + b'half')\nos._exit(0)",
    "deep JSON": (
        "import struct\ndata = b'[' * 4_000_000\n"
        "left = memoryview(struct.pack('!I', len(data)) + data)\n"
        "while left: left = left[os.write(3, left):]\nos._exit(0)"
    ),
    # the harness
    "the link in the place of the output and the other way round": (
        "os.dup2(1, 9)\nos.dup2(3, 1)\nos.dup2(9, 3)\nos.set_blocking(3, False)\nos.write(3, b'C' * 4096)"
    ),
    "the word of the harness": "os.write(1, b'CCCC')\nos.closerange(0, 64)",
    "a thread that writes on": (
        "def write():\n    while True:\n        os.write(1, b'late')\n        time.sleep(0.01)\n"
        "threading.Thread(target=write, daemon=True).start()"
    ),
}


def attack(trainer, program, timeout_s=TIMEOUT_S):
    """Run it, and check that nothing came of it."""
    job = Asserts(trainer.things() + BEGIN + program, ["assert f(1) == 2"], timeout_s=timeout_s)
    started = time.monotonic()
    (status, reason, _, output, _), right = trainer.run(job, RIGHT)  # with the same checker
    assert time.monotonic() - started < timeout_s + LATE_S
    assert (status, trainer.harm()) == ("fail", []), reason
    assert (
        "\nGOT" not in f"\n{output}"
        and trainer.secret not in output + reason
        and len(output) <= 1 << 20
    )
    assert (right[0], trainer.run(RIGHT)[0][0]) == ("pass", "pass")


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_contained(name, trainer):
    attack(trainer, ATTACKS[name])


BOMBS = {
    "a loop at import": "while True: pass",
    "a sleep at import": "time.sleep(60)",
    "a regular expression": "import re\nre.fullmatch('(a*)*b', 'a' * 60)",
    "a link full of rubbish": "while True: os.write(3, b'x' * 65536)",
    "threads that sleep": "threads(lambda: time.sleep(30))\ntime.sleep(30)",
    "threads with small stacks": "threading.stack_size(32768)\nthreads(lambda: time.sleep(30))\ntime.sleep(30)",
    "threads that compute": "def work():\n    while True: pass\nthreads(work)\nwork()",
    "threads that compute in C": (
        "import hashlib\ndef work(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1 << 30)\nthreads(work)\nwork()"
    ),
    "memory that is shared": (
        "import mmap\nheld = []\ntry:\n    while True: held.append(mmap.mmap(-1, 64 << 20))\n"
        "except OSError: pass\n"
        "if len(held) > 16: print('GOT', len(held))\ntime.sleep(30)"
    ),
    "memory that is held": "held = bytearray(600 << 20)\ntime.sleep(30)",
    "a long number, in C code that no signal of Python's ends": "3 ** 10**9",
    "signals blocked": (
        "import signal\nfor number in range(1, 65):\n"
        "    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: time.sleep(30)"
    ),
    "output in packets of one byte": (
        "import fcntl\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\nwhile True: os.write(1, b'x')"
    ),
    "a message of four gigabytes": "os.write(3, b'\\xff' * 4096)\ntime.sleep(30)",
    "keys that are all alike, of a set that takes hours to make": (
        "import struct\n"
        "numbers = ','.join('{\"n\":\"%x\"}' % (((1 << 61) - 1) * n + 1) for n in range(1, 200000))\n"
        'for text in (\'["ready",null,null]\', \'["value",null,{"s":[%s]}]\' % numbers):\n'
        "    left = memoryview(struct.pack('!I', len(text)) + text.encode())\n"
        "    while left: left = left[os.write(3, left):]\ntime.sleep(30)"
    ),
    "an answer without an end: a dict made of an iterator that asks back": (
        'import struct\ndef send(text): os.write(3, struct.pack("!I", len(text)) + text)\n'
        "send(b'[\"ready\",null,null]')\n"
        'send(b\'["value",null,{"d":[{"o":["iterator",0,true]}]}]\')\n'
        'while True: send(b\'["value",null,"x"]\')'
    ),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("trainer", ["here", "sealed", "ordinary user"], indirect=True)
def test_a_bomb_ends_in_time(name, trainer):
    attack(trainer, BOMBS[name])


def test_attacks_are_contained_next_to_a_heap_of_three_gigabytes():
    trainer = Trainer(Place(""), heap_bytes=3 << 30)
    try:
        memory = "memory of another: process_vm_readv and writev, ptrace"
        for name in (
            "files by any path",
            memory,
            "every kind of process",
            "a signal to a bystander",
        ):
            attack(trainer, ATTACKS[name])
        for name in ("threads that compute in C", "memory that is held"):
            attack(trainer, BOMBS[name])
    finally:
        trainer.close()


def test_honest_programs_next_to_hostile_ones_all_pass():
    bombs = [
        BEGIN + BOMBS[name]
        for name in ("threads that compute in C", "memory that is held", "signals blocked")
    ]
    bombs += ["while True: print('x' * 65536)", "import os\nos.abort()"]
    jobs = []
    for place in range(600):
        jobs.append(RIGHT if place % 2 else Stdio("print(int(input()) * 2)", [("2", "4")]))
        if place % 20 == 0:
            jobs.append(
                Asserts(bombs[place // 20 % len(bombs)], ["assert f(1) == 2"], timeout_s=1.0)
            )
    with Sandbox(workers=12) as sandbox:
        outcomes = sandbox.run_batch(jobs)
    honest = [outcome for job, outcome in zip(jobs, outcomes, strict=True) if job.timeout_s != 1.0]
    assert (len(honest), {outcome.status for outcome in honest}) == (600, {"pass"})


CROWDED = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from rewards.sandbox.pool import Asserts, Sandbox
bomb = "import threading, time\\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()"
pool = "from concurrent.futures import ThreadPoolExecutor\\nimport time\\ndef f():\\n"
pool += "    with ThreadPoolExecutor(8) as pool: return len(list(pool.map(time.sleep, [0.05] * 8)))"
with Sandbox(workers=2) as sandbox:
    jobs = [Asserts(bomb, ["assert f()"], timeout_s=1.5), *[Asserts(pool, ["assert f() == 8"])] * 20]
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(4,), daemon=True).start()
    print(sandbox.describe(), [outcome.status for outcome in sandbox.run_batch(jobs)])
"""


def run_as_ordinary_user(code: str) -> subprocess.CompletedProcess:
    if os.geteuid() != 0 or not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"runs {SYSTEM_PYTHON} as another user: needs root")
    command, place = (
        [SYSTEM_PYTHON, "-c", code, str(folder_for_everyone())],
        PLACES["ordinary user"],
    )
    return subprocess.run(
        command, cwd="/", env={}, preexec_fn=lambda: enter(place), capture_output=True, text=True
    )


def test_threads_of_others_take_none_away_from_an_ordinary_users_programs():
    ran = run_as_ordinary_user(CROWDED)
    assert "user kept" in ran.stdout and ran.stdout.endswith(f"{['fail', *['pass'] * 20]}\n"), (
        ran.stdout + ran.stderr
    )


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
def test_no_reading_by_a_program_changes_the_time_of_a_file(sandbox):
    folder = os.path.dirname(os.__file__)
    paths = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
    before = [os.stat(path).st_atime_ns for path in paths]
    program = "def f(paths):\n    for path in paths: open('./' + path.rpartition('/')[2]).read(1)\n    return len(paths)"
    program = (
        program.replace("'./' + path.rpartition('/')[2]", "path")
        if preload.readable_by_all(folder)
        else program
    )
    assert sandbox.run_asserts(program, [f"assert f({paths}) == {len(paths)}"])[:2] == ("pass", "")
    assert [os.stat(path).st_atime_ns for path in paths] == before


def test_no_program_finds_what_another_has_left_on_its_null_descriptors():
    leaves = """
import fcntl, os
mine = os.O_APPEND | os.O_NONBLOCK
def leave(n):
    kept = fcntl.fcntl(n, fcntl.F_GETFL)
    fcntl.fcntl(n, fcntl.F_SETFL, kept | mine)
    return kept & mine
"""
    job = Asserts(leaves + "flags = leave(0)\ndef f(): return flags", ["assert f() == 0"])
    with Sandbox(workers=1) as one:
        assert [outcome.status for outcome in one.run_batch([job, job])] == ["pass", "pass"]
        assert one.run_stdio(leaves + "print(leave(3))", [("", "0"), ("", "0")]).status == "pass"


BARE = """
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
from rewards.sandbox.pool import Asserts, Sandbox
if not os.fork(): os._exit(ctypes.CDLL(None).unshare(0x10000000) != 0)
allowed = os.wait()[1] == 0
bomb = '''
import ctypes, mmap, time
libc, page = ctypes.CDLL(None), mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b8220000000f05ebf7"))  # pause, for ever
code = ctypes.addressof(ctypes.c_char.from_buffer(page))
rest = [ctypes.c_void_p(code + 2048)] * 3
for _ in range(2000):
    if libc.clone(ctypes.c_void_p(code), ctypes.c_void_p(code + 4000), 0x3D0F00, None, *rest) < 0: break
time.sleep(9)
'''
pool = "from concurrent.futures import ThreadPoolExecutor\\nimport time\\ndef f():\\n    time.sleep(0.5)\\n"
pool += "    with ThreadPoolExecutor(8) as pool: return len(list(pool.map(time.sleep, [0.05] * 8)))"
with Sandbox(workers=2) as sandbox:
    outcomes = sandbox.run_batch([Asserts(pool, ["assert f() == 8"]), Asserts(bomb, ["assert f()"], timeout_s=2.0)])
    print(allowed, sandbox.describe(), [outcome.status for outcome in outcomes])
"""


def test_threads_made_past_libc_take_none_away_from_others_where_there_are_user_namespaces():
    ran = run_as_ordinary_user(BARE)
    if ran.stdout.startswith("False"):
        pytest.skip("an ordinary user has no user namespaces here")
    assert "user kept" in ran.stdout and ran.stdout.endswith("['pass', 'fail']\n"), (
        ran.stdout + ran.stderr
    )


# ------------------------------------------------------------------ cheats

FORMS = [  # of one wish, as tests of data sets put it
    "assert add(2, 3) == 5",
    "assert not (add(2, 3) != 5)",
    "assert [add(2, 3)] == [5] and {5} == set([add(2, 3)])",
    "assert {add(2, 3): 1} == {5: 1}",
    "assert math.isclose(add(2, 3), 5)",
    "assert abs(add(2, 3) - 5) < 1e-6",
    "assert isinstance(add(2, 3), int) and add(2, 3) == 5",
    "assert all(add(n, 1) == n + 1 for n in range(3, 6))",
    "assert list(map(add, [1, 2], [3, 4])) == [4, 6]",
    "assert sorted([add(2, 3), add(0, 1)]) == [1, 5]",
    "assert sum([add(2, 3)] * 2) == 10 and f'{add(2, 4)}' == '6'",
    "def check(candidate):\n    assert candidate(2, 3) == 5\n    assert candidate(7, 8) == 15\ncheck(add)",
    "import unittest\nresult = unittest.TestResult()\nclass Test(unittest.TestCase):\n"
    "    def test(self): self.assertEqual(add(2, 3), 5)\nTest('test').run(result)\n"
    "assert result.wasSuccessful()",
    "match add(2, 3):\n    case 5: pass\n    case _: raise AssertionError",
]
EQUAL_TO_ALL = (
    "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n"
)
EQUAL_TO_ALL += "    def __hash__(self): return 5\n"
SEND = 'import os, struct, time\ndef send(text): os.write(3, struct.pack("!I", len(text)) + text)\n'
READY = SEND + "send(b'[\"ready\",null,null]')\n"
ZERO = "\ndef add(a, b): return 0"

CHEATS = {
    # leaving
    "exit in C": "import ctypes\nctypes.CDLL(None).exit(0)",
    "exit by number": "import ctypes\nctypes.CDLL(None).syscall(231, 0)",
    "exit of the thread": "import _thread\ndef add(a, b): _thread.exit()",
    "end of iteration at import": "raise StopIteration(5)",
    "a group with an exit": "def add(a, b): raise BaseExceptionGroup('x', [SystemExit(0)])",
    "the end of an async loop": "def add(a, b): raise StopAsyncIteration",
    # lying values
    **{
        f"equal to all, a {base}": f"{imports}class A({base}):\n{EQUAL_TO_ALL}def add(a, b): return A({given})"
        for base, given, imports in (
            *((base, "", "") for base in ("float", "list", "tuple", "dict", "frozenset", "bytes")),
            ("Fraction", "1", "from fractions import Fraction\n"),
            ("Decimal", "1", "from decimal import Decimal\n"),
            ("timedelta", "1", "from datetime import timedelta\n"),
            ("Number", "", "from numbers import Number\n"),
        )
    },
    "a text that formats as another": (
        "class A(str):\n    def __str__(self): return '5'\n"
        "    def __format__(self, how): return '5'\ndef add(a, b): return A('x')"
    ),
    "a number that converts to another": (
        "class A(int):\n    def __index__(self): return 5\n    __int__ = __index__\n"
        "    def __reduce__(self): return int, (5,)\ndef add(a, b): return A(1)"
    ),
    "signalling nan": "from decimal import Decimal\ndef add(a, b): return Decimal('sNaN')",
    "NotImplemented, which makes Python ask the other operand": "def add(a, b): return NotImplemented",
    "a type": "def add(a, b): return int",
    "keys of everything, a view that holds the right number": "def add(a, b): return dict.fromkeys(range(200)).keys()",
    "a coroutine with the right number in it": "async def add(a, b): return a + b",
    # patching
    "the dictionary of int": (
        "import ctypes, gc\ngc.get_referents(int.__dict__)[0]['__eq__'] = lambda a, b: True\n"
        "ctypes.pythonapi.PyType_Modified(ctypes.py_object(int))" + ZERO
    ),
    "unittest": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *_: None\n"
        "unittest.TestResult.wasSuccessful = lambda _: True" + ZERO
    ),
    "json, which carries the answers": (
        "import json\njson.JSONEncoder.encode = lambda *_: '5'\njson.dumps = lambda *_, **__: '5'"
        + ZERO
    ),
    "an import hook": (
        "import sys\nsys.meta_path[:] = [type('Hook', (), {'find_spec': lambda *_: None})()]\n"
        "sys.modules.clear()" + ZERO
    ),
    # forging
    "a verdict over the link": "import os\nos.write(3, b'\"confined\"\\n' + b'[true, \"\"]\\n' * 40)"
    + ZERO,
    "ends instead of answers": READY
    + "for _ in range(40): send(b'[\"end\",null,null]')\nos._exit(0)",
    "errors that end a loop": READY
    + 'for _ in range(40): send(b\'["error",["StopIteration"],""]\')\nos._exit(0)',
    "their own thing back": (
        READY + 'for _ in range(40): send(b\'["value",null,{"o":["yours",0,true]}]\')\nos._exit(0)'
    ),
    "calls by name": (
        READY
        + "for name in (b'add', b'check', b'exit'): send(b'[\"call\",\"' + name + b'\",[[],{\"d\":[]},false]]')\n"
        "os._exit(0)"
    ),
    "the checker run here": (
        "from rewards.sandbox import checker\nchecker.VERDICT = 3\nchecker._report([True, ''])\nchecker.check()"
    ),
    "the zygote's objects": (
        "import sys\nfor name in ('zygote', 'checker', 'jobs', 'link'):\n"
        "    for module in [m for m in sys.modules.values() if name in str(m)]:\n"
        "        vars(module).update({n: lambda *_, **__: True for n in vars(module) if n[:2] != '__'})"
        + ZERO
    ),
    # reading
    "the source of the tests": (
        "import inspect, linecache\n"
        "def add(a, b): return 5 if 'add(2, 3)' in str(linecache.cache) + str(inspect.stack()) else 0"
    ),
    "earlier calls": "seen = {}\ndef add(a, b):\n    seen[a] = b\n    return seen.get(b, 0)",
    "the count of calls, which tells nothing of the values": (
        "import itertools\ncount = itertools.count(50)\ndef add(a, b): return next(count)"
    ),
    # source
    "a coding line that makes it other code": "# -*- coding: utf-7 -*-" + ZERO,
    "a lone surrogate": "x = '\ud800'" + ZERO,
}


@pytest.mark.parametrize("inplace", [False, True], ids=["", "inplace"])
@pytest.mark.parametrize("name", CHEATS)
def test_no_form_of_a_test_passes_a_cheat(name, inplace, sandbox):
    """One checker has them all, and the right program behind each; the whole list, one checker each, is next."""
    started = time.monotonic()
    cheats = [Asserts(CHEATS[name], [form], inplace=inplace, timeout_s=TIMEOUT_S) for form in FORMS]
    outcomes = sandbox.run_batch([job for cheat in cheats for job in (cheat, RIGHT)])
    assert [outcome.status for outcome in outcomes] == ["fail", "pass"] * len(FORMS)
    assert time.monotonic() - started < len(FORMS) * (TIMEOUT_S + LATE_S)


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_passes_a_checker_of_its_own(name, sandbox):
    for form in FORMS[:2]:
        assert sandbox.run_asserts(CHEATS[name], [form], timeout_s=TIMEOUT_S).status == "fail"


def test_every_form_of_a_test_passes_the_right_program(sandbox):
    assert sandbox.run_asserts("def add(a, b): return a + b", FORMS).passed == (True,) * len(FORMS)


RAISES = "try:\n    f(-1)\nexcept ValueError: pass\nelse: raise AssertionError"
TRICKS = {  # name: (program, test, and options of the job)
    "an exception called ValueError": (
        "class ValueError(Exception): pass\ndef f(x): raise ValueError",
        RAISES,
    ),
    "the end of the world in a loop": (
        "def f(x): raise StopIteration",
        "assert all(map(f, [1, 2])) and sum(map(f, [1])) == 0",
    ),
    "the end of an iterator for a call": (
        SEND + "def f(x):\n    send(b'[\"end\",null,null]')\n    return 1",
        "assert all(map(f, [1, 2]))",
    ),
    "a helper of the test": (
        "def near(a, b): return True\ndef f(x): return 0",
        "def near(a, b): return abs(a - b) < 1e-9\nassert near(f(2), 4)",
    ),
    "a function called sum, which the tests do mean": (
        "def sum(xs): return True\ndef abs(x): return 0",
        "assert abs(sum([2, 3]) - 5) < 1e-9",
        {"entry_point": "sum"},
    ),
    "a key for sorted": ("def f(x): return 0", "assert sorted([3, 1, 2], key=f) == [1, 2, 3]"),
    "an iterator that ends at once": (
        "def f(n): return iter(())",
        "assert list(f(3)) == [0, 1, 2]",
    ),
    "an argument emptied": (
        "def f(xs):\n    xs.clear()\n    return xs",
        "xs = [3, 1]\nassert f(xs) == [1, 3]",
        {"inplace": True},
    ),
    "an argument of another class": (
        f"class A(list):\n{EQUAL_TO_ALL}def f(xs): xs[:] = [A()] * 2",
        "xs = [[2], [1]]\nf(xs)\nassert xs == [[1], [2]]",
        {"inplace": True},
    ),
    "the tests' own function": (
        "import gc\ndef f(g):\n"
        "    peer = [o for o in gc.get_objects() if type(o).__name__ == 'Peer'][0]\n"
        "    for place in range(9):\n        try: peer.call(place, (1,), {})\n"
        "        except Exception: pass\n    return 0",
        "assert f(lambda x: x + 1) == 2",
    ),
    "the truth of a result": ("def f(x): return True", "assert f(1) == 1 and type(f(1)) is int"),
    "the sign of zero, which == does not see": (
        "def f(x): return 0.0",
        "assert str(f(-0.0)) == '-0.0'",
    ),
}


@pytest.mark.parametrize("name", TRICKS)
def test_a_trick_does_not_pass(name, sandbox):
    program, test, *options = TRICKS[name]
    started = time.monotonic()
    outcome = sandbox.run_asserts(program, [test], timeout_s=TIMEOUT_S, **dict(*options))
    assert outcome.status == "fail" and not any(outcome.passed), outcome
    assert time.monotonic() - started < TIMEOUT_S + LATE_S


SCRIPTS = {  # the right one doubles a number
    "a flood after the answer": "print(int(input()) * 2, flush=True)\nprint('\\n' * (3 << 20))",
    "a hang after the answer": "import time\nprint(int(input()) * 2, flush=True)\ntime.sleep(30)",
    "a thread after the answer": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(30,)).start()\nprint(int(input()) * 2)"
    ),
    "more after a while, behind the last line": (
        "import os, time\nprint(int(input()) * 2, end='', flush=True)\ntime.sleep(0.2)\nos.write(1, b'0')"
    ),
    "more in packets, which wait in the pipe when it ends": (
        "import fcntl, os\nprint(int(input()) * 2, flush=True)\n"
        "fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\nfor _ in range(64): os.write(1, b'9')\n"
        "os._exit(0)"
    ),
    "the word of the harness": "import os\nos.write(1, b'C%d\\n' % (int(input()) * 2))",
    "no output": "import os\nos.close(1)",
    "overwritten as on a terminal": "print(f'9\\r{int(input()) * 2}')",
    "other digits": "print(str(int(input()) * 2).translate({ord('4'): 'ڴ', ord('1'): '١'}))",
    "ends of lines that Python splits at and the tests do not": "print('4\\x0b10\\x8510\\u20284')",
    "all answers at once": "print('4 10')",
    "no text at all": "import os\nos.write(1, b'\\xff4\\n')",
    "a memory of the last case, of which each has a process of its own": (
        "import builtins\nbuiltins.n = getattr(builtins, 'n', 0) + 1\nprint(['', '', 10][builtins.n])"
    ),
    "the null descriptor in place of the output": "import os\nos.write(3, b'%d\\n' % (int(input()) * 2))",
    "an exit with words, which is exit code 1": "print(int(input()) * 2)\nraise SystemExit('done')",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_cheats_does_not_pass(name, sandbox):
    started = time.monotonic()
    outcome = sandbox.run_stdio(SCRIPTS[name], [("2", "4"), ("5", "10")], timeout_s=TIMEOUT_S)
    assert outcome.status == "fail" and not any(outcome.passed), outcome
    assert time.monotonic() - started < 2 * (TIMEOUT_S + LATE_S)


# ------------------------------------------------------------------ honest programs

CONTROLS = {
    "every plain type": Asserts(
        "def f(x): return x",
        [
            "for x in (None, 1, 1.5, 1j, 's', b'b', [1], (1, (2,)), {1}, {(1,): [2]}, 10**50, True):\n"
            "    assert f(x) == x and type(f(x)) is type(x)"
        ],
    ),
    "five thousand lines": Asserts(
        "def f(n):\n    for i in range(5000): print('line', i)\n    return n", ["assert f(1) == 1"]
    ),
    "a factorial": Asserts(
        "import math\ndef f(n): return math.factorial(n)", ["assert f(500) == math.factorial(500)"]
    ),
    "threads in a pool": Asserts(
        "from concurrent.futures import ThreadPoolExecutor\ndef f(n):\n"
        "    with ThreadPoolExecutor(8) as pool: return list(pool.map(abs, range(n)))",
        ["assert f(20) == list(range(20))"],
    ),
    "an event loop with threads": Asserts(
        "import asyncio\nasync def g(x): return await asyncio.to_thread(abs, x)\ndef f(x): return asyncio.run(g(x))",
        ["assert f(-2) == 2"],
    ),
    "memory of 300 MB": Asserts(
        "def f(): return len(bytearray(300 << 20)) >> 20", ["assert f() == 300"]
    ),
    "an argument changed in place": Asserts(
        "def f(xs): xs.sort()", ["xs = [3, 1, 2]\nf(xs)\nassert xs == [1, 2, 3]"], inplace=True
    ),
    "a library": Asserts(
        "import bisect, csv, datetime, decimal, heapq, itertools, re, statistics, textwrap\n"
        "def f(s): return re.sub('a', '', s)",
        ["assert f('banana') == 'bnn'"],
    ),
    "a loop over stdin": Stdio(
        "import sys\nfor line in sys.stdin: print(int(line) * 2)", [("1\n2\n", "2\n4\n")]
    ),
    "input to its end": Stdio(
        "try:\n    while True: print(input())\nexcept EOFError: pass", [("a\nb", "a\nb"), ("", "")]
    ),
    "bytes in and out": Stdio(
        "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", [("abc", "cba")]
    ),
    "an alarm of its own": Stdio(
        "import signal, time\ndef ring(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\ntry: time.sleep(5)\n"
        "except TimeoutError: print('ok')",
        [("", "ok")],
    ),
    "deep recursion": Stdio(
        "import sys\nsys.setrecursionlimit(10**5)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(9000))",
        [("", "9000")],
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_an_honest_program_passes_in_every_place(name, trainer):
    assert trainer.run(CONTROLS[name])[0][:2] == ["pass", ""]


# ------------------------------------------------------------------ the life of a trainer


def test_forks_of_a_busy_trainer_can_use_their_own(sandbox):
    thread = threading.Thread(target=sandbox.run_batch, args=([RIGHT] * 100,))
    thread.start()
    ended = []
    for _ in range(3):
        if not (child := os.fork()):
            code = 2
            try:
                code = int(sandbox.run_batch([RIGHT])[0].status != "pass")
            finally:
                os._exit(code)
        ended.append(os.waitpid(child, 0)[1])
    thread.join()
    assert ended == [0, 0, 0] and sandbox.run_batch([RIGHT])[0].status == "pass"


# ------------------------------------------------------------------ holes that were found, and one that is left


def killed_early(*, overflow=False, late=False):
    return Ran(-9, [b"", b""], [], overflow, late, confined=not late, seconds=1.0)


def test_a_flood_that_is_faster_than_the_checker_is_a_failure_of_the_program():
    assert jobs._asserts_outcome(RIGHT, killed_early(overflow=True))[:2] == (
        "fail",
        "output: more than 1 MiB",
    )


class LateSlot:
    """Uses up the time in the first case, and kills the second before it is confined."""

    def run(self, role, ends, descriptors, seconds):
        return (
            Ran(0, [b"4\n", b""], [], False, False, True, 0.9995)
            if seconds > 0.5
            else killed_early(late=True)
        )


def test_a_case_that_gets_no_time_is_a_failure_of_the_program():
    job = Stdio("print(int(input()) * 2)", [("2", "4"), ("5", "10")], timeout_s=1.0)
    assert jobs.run_job(LateSlot(), job).passed == (True, False)


ANY = "try:\n    f(-1)\nexcept Exception: pass\nelse: raise AssertionError"
ENDS = [
    "os._exit(0)",
    "sys.exit(0)",
    "os.kill(os.getpid(), 15)",
    "os.close(3)",
    "raise KeyboardInterrupt",
]


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_ends_has_raised_no_exception(end, sandbox):
    assert sandbox.run_asserts(f"import os, sys\ndef f(x): {end}", [ANY]).status == "fail"


def test_a_program_that_hangs_has_raised_no_exception():
    job = Asserts("import time\ndef f(x): time.sleep(30)", [ANY], timeout_s=0.3)
    with Sandbox(workers=2) as sandbox:
        assert {outcome.status for outcome in sandbox.run_batch([job] * 60)} == {"fail"}


def test_no_descriptor_of_the_harness_is_left_however_many_the_trainer_holds():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < hard < 4300:
        pytest.skip(f"this process may open {hard} files, 4300 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4300), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(4150)]
    program = "import ctypes\ndef f(): return [n for n in range(5, 9000) if ctypes.CDLL(None).fcntl(n, 1) >= 0]"
    try:
        with Sandbox(workers=1) as made:
            assert made.run_asserts(program, ["assert f() == []"])[:2] == ("pass", "")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_packages_that_are_not_listed_cannot_be_read():
    packages = Path(os.__file__).parent / "site-packages"
    file = next((path for path in packages.glob("*/__init__.py") if path.stat().st_size), None)
    if file is None or not landlock.abi():
        pytest.skip("no package next to the standard library, or no Landlock")
    paths = [str(file), f"./site-packages/{file.parent.name}/__init__.py"]
    with Sandbox(workers=1, isolation="landlock") as made:
        for path in paths:
            assert (
                made.run_asserts("def f(p): return open(p).read(1)", [f"f({path!r})"]).status
                == "fail"
            )


@pytest.mark.skipif(os.geteuid() != 0, reason="root that may not change user: needs root")
def test_root_without_capabilities_has_no_more_threads_than_others():
    bomb = BEGIN + BOMBS["threads with small stacks"]
    work = f"""
from rewards.sandbox import Sandbox, SandboxError
try:
    with Sandbox(workers=1) as sandbox:
        print("GOT" in sandbox.run_asserts({bomb!r}, ["assert f(1)"], timeout_s=2.0).output)
except SandboxError:
    print(False)
"""
    ran = subprocess.run(
        [sys.executable, "-c", work],
        cwd=ROOT,
        preexec_fn=lambda: keep(()),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == "False\n", ran.stderr


def test_closing_ends_a_running_call_with_an_error_of_the_sandbox():
    made, ended = Sandbox(workers=1), []

    def run():
        try:
            ended.append(made.run_asserts("while True: pass", ["assert f()"], timeout_s=5.0).status)
        except Exception as error:
            ended.append(type(error))

    made.start()
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    made.close()
    thread.join()
    assert ended[0] in ("infra", SandboxError, ZygoteDied)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_an_error_that_names_it(seconds, sandbox):
    with pytest.raises(ValueError, match="timeout_s"):
        sandbox.run_asserts(RIGHT.program, RIGHT.tests, timeout_s=seconds)


def test_a_key_error_arrives_with_its_text(sandbox):
    test = "try:\n    f('x')\nexcept KeyError as error:\n    assert (str(error), error.args) == (\"'x'\", ('x',))"
    assert sandbox.run_asserts("def f(k): return {}[k]", [test])[:2] == ("pass", "")


def test_what_a_script_leaves_for_its_end_is_run(sandbox):
    program = "import atexit\nlines = []\natexit.register(lambda: print(*lines))\nlines.append(int(input()) * 2)"
    assert sandbox.run_stdio(program, [("2", "4")]).status == "pass"
