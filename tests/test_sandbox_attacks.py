"""Attacks by name, where their outcome can differ: as root, as an ordinary user, as in a container,
sealed.

A place is a process of its own, the stand-in for a trainer: it takes on the place's limits, makes a
sandbox and runs the jobs that it is handed. Around it lie things worth having: a secret in its
environment and in two files, listening sockets, a process of the same user. An attack that gets at
one of them prints `GOT`, or is seen from here.

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
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from support.sandbox import SYSTEM_PYTHON, Program, folder_for_everyone, programs

from rewards.sandbox import Asserts, Sandbox, Stdio, landlock, preload

on_linux, on_x86 = sys.platform.startswith("linux"), os.uname().machine == "x86_64"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux"),
    pytest.mark.skipif(not on_x86, reason="the attacks use call numbers of x86_64"),
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

# Where the outcome of an attack can differ. The filter alone decides on a call, and there are two
# of them; a user decides about files, processes and limits; Landlock and a container about the
# rest.
WHERE = {
    "here": ["here"],
    "filters": ["here", "sealed"],
    "users": ["here", "sealed", "ordinary user"],
    "every": list(PLACES),
}

# What Docker leaves of root's capabilities, and which calls its profile refuses.
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
REFUSED_CALLS = [101, 103, 135, 153, 155, 156, *range(163, 181), 212, 237, 238, 239, 246, 248, 249]
REFUSED_CALLS += [250, 256, 272, 279, 298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323]
REFUSED_CALLS += [*range(425, 434), 438, 442, 443, 447]
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
    lines += [(EQUAL, 0, 3, CLONE), (LOAD, 0, 0, 16), (ANY_BIT, 0, 1, NAMESPACES)]
    lines += [(RETURN, 0, 0, EPERM)]
    return b"".join(struct.pack("HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


def keep(capabilities: tuple[int, ...]) -> None:
    """Give up every other, for all programs that this process will run."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in set(range(64)) - set(capabilities):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    kept = sum(1 << number for number in capabilities)
    data = struct.pack("6I", *[kept] * 3, 0, 0, 0)
    assert libc.capset(struct.pack("Ii", 0x20080522, 0), data) == 0


def enter(place: Place) -> None:
    """In a new process: take on what limits every process of the place."""
    libc = ctypes.CDLL(None, use_errno=True)
    if place.container:
        keep(CAPABILITIES)
        code = container_filter(place.landlock)
        buffer = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert libc.prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(header), 0, 0) == 0
    if place.user:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


TRAINER = """
import json, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from rewards.sandbox.pool import Asserts, Sandbox, Stdio
with Sandbox(workers=1, isolation=sys.argv[2] or None) as sandbox:
    before = dict(os.environ), os.getcwd(), os.umask(0o022)
    print(json.dumps(sandbox.describe()), flush=True)
    for line in sys.stdin:
        jobs = [globals()[kind](**fields) for kind, fields in json.loads(line)]
        outcomes = sandbox.run_batch(jobs)
        assert before == (dict(os.environ), os.getcwd(), os.umask(0o022))
        print(json.dumps(outcomes), flush=True)
"""


class Trainer:
    """A process in a place, and what lies around it."""

    def __init__(self, place: Place):
        self.secret = f"secret-{secrets.token_hex(16)}"
        # Not pytest's folder, which other users cannot enter.
        self.folder = Path(tempfile.mkdtemp(prefix="attacks-"))
        self.listeners = [socket.create_server(("127.0.0.1", 0))]
        self.listeners += [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self._lay_out(place)
        python = SYSTEM_PYTHON if place.user else sys.executable
        self.process = subprocess.Popen(
            [python, "-c", TRAINER, str(folder_for_everyone()), place.isolation or ""],
            cwd="/",
            env={"SECRET_TOKEN": self.secret},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: enter(place),
        )
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
        """Contents, mode, owner and time of each file to be changed, or that an attack made."""
        paths = [self.folder / "hidden", self.folder / "open", *(self.folder / "marks").iterdir()]
        found = {}
        for path in (*paths, *Path("/dev/shm").glob("made")):
            stat = path.stat()
            found[path] = (path.read_text(), stat.st_mode, stat.st_uid, stat.st_mtime_ns)
        return found

    def run(self, *jobs: Asserts | Stdio) -> list[tuple[str, str, float, str, list[bool]]]:
        """The fields of the outcomes of a batch."""
        batch = [[type(job).__name__, job._asdict()] for job in jobs]
        self.process.stdin.write(json.dumps(batch) + "\n")
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
        for path, now in self._files().items():
            if now != self.before.get(path):
                harm.append(f"{path} was made or changed")
        if self.bystander.poll() is not None:
            harm.append("the bystander is dead")
        called = [listener.getsockname() for listener in self.listeners if was_called(listener)]
        return harm + [f"somebody called at {address}" for address in called]

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
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for zygote in (task / "children").read_text().split():
            found += Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    return found


def was_called(listener: socket.socket) -> bool:
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


@pytest.fixture(scope="module")
def trainer(request):
    made = trainer_in(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1) as made:
        yield made


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
    arguments = [ctypes.c_long(a) if type(a) is int else a for a in (number, *arguments)]
    if libc.syscall(*arguments) >= 0:
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

ATTACKS = programs(r"""
=== every | files by any path
paths = [HIDDEN, OPEN, *('../' * n + OPEN[1:] for n in range(1, 12))]
for path in paths: try_to(lambda: open(path).read())
for pid in ('self', os.getppid(), TRAINER): try_to(lambda: open(f'/proc/{pid}/mem', 'rb').read(1))
try_to(open, '/proc/self/mem', 'r+b')
system_call(2, OPEN.encode(), 0)
=== users | its own output, opened again to take away what the harness wrote
for number in range(16):
    try: os.read(os.open(f'/proc/self/fd/{number}', os.O_NONBLOCK), 1 << 16)
    except OSError: pass
=== filters | a limit at which the kernel kills it, as if somebody else had
import resource
for limit in ((0, 0), (0, -1), (1, 1)): try_to(resource.setrlimit, 0, limit)
=== here | a confirmation of its own
for number in range(4, 64): try_to(os.write, number, b'C' * 9)
=== every | every process's environment
for pid in ('self', *range(1, 3000), TRAINER): try_to(lambda: open(f'/proc/{pid}/environ').read(1))
if os.environ: print('GOT', os.environ)
=== every | memory of another: process_vm_readv and writev, ptrace
for pid in (os.getppid(), TRAINER, BYSTANDER):
    for call in (310, 311): system_call(call, pid, 0, 0, 0, 0, 0)
    for request in (16, 0x4206): system_call(101, request, pid, 0, 0)
system_call(101, 0, 0, 0, 0)
=== filters | descriptors of another: pidfd_open, pidfd_getfd
system_call(434, TRAINER, 0)
system_call(438, 3, 0, 0)
=== filters | descriptors that nobody counted
open_ones = [n for n in range(5, 1 << 16) if libc.fcntl(n, 1) >= 0]
if open_ones: print('GOT', open_ones)
=== filters | keys of the session
system_call(250, 0, -3, 1)
system_call(248, b'user', b'x', b'y', 1, -3)
system_call(249, b'user', b'x', 0, -3)
=== filters | files by handle, for which no path is needed
system_call(303, -100, b'/etc/passwd', b'\x80' + bytes(200), bytes(8), 0)
system_call(304, -100, b'\x08\0\0\0\x01\0\0\0' + bytes(64), 0)
=== every | folders and links
folders = ('/', '/tmp', '/proc', f'/proc/{TRAINER}/fd', MARKS, '..', '../..')
for path in folders: try_to(os.listdir, path)
for path in ('/', '.', OPEN): try_to(os.open, path, os.O_PATH)
try_to(os.readlink, '/proc/self/exe')
try_to(os.statvfs, '/')
try_to(os.listxattr, OPEN)
=== filters | the kernel: bpf, perf, kcmp, its log
system_call(321, 0, bytes(128), 128)
system_call(298, bytes(128), 0, -1, -1, 0)
system_call(312, os.getpid(), os.getppid(), 0, 0, 0)
system_call(103, 3, bytes(99), 99)
=== filters | memory and queues of system five, which outlive it, and memory files
for number in range(40): system_call(30, number, 0, 0)
for call in (29, 64, 68): system_call(call, 0x1234, 1, 0o1666)
system_call(240, b'queue', 0o102, 0o666, 0)
try_to(os.memfd_create, 'x')
=== every | every way to open for writing
for flags in (1, 2, 3, 0o100, 0o102, 0o1000, 0o1101, 0o2001, os.O_TMPFILE, os.O_TMPFILE | 2):
    for path in (MARKS + '/made', '/dev/shm/made', MARKS, OPEN, HIDDEN, os.__file__):
        try_to(os.open, path, flags, 0o666)
=== users | every way to make and remove
new, old = (MARKS + '/made').encode(), OPEN.encode()
for call in (85, 83): system_call(call, new, 0o777)
system_call(133, new, 0o10666, 0)
for call in (86, 88, 82): system_call(call, old, new)
for call in (87, 84, 76): system_call(call, old, 0)
system_call(258, -100, new, 0o777)
system_call(259, -100, new, 0o10666, 0)
system_call(263, -100, old, 0)
for call in (264, 265, 316): system_call(call, -100, old, -100, new, 0)
=== users | mode, owner and times of what it holds
for number in range(5):
    try_to(os.fchmod, number, 0o777)
    try_to(os.utime, number, (1, 1))
    try_to(os.ftruncate, number, 0)
for path in (MARKS, OPEN, '.', os.__file__):
    try_to(os.chmod, path, 0o777)
    try_to(os.chown, path, os.getuid(), os.getgid())
    try_to(os.utime, path)
    try_to(os.setxattr, path, 'user.x', b'x')
=== users | a compiled module that the zygote would import
import importlib._bootstrap_external as machinery, tempfile
try_to(machinery._write_atomic, machinery.cache_from_source(os.__file__), b'x')
try_to(tempfile.mkstemp)
=== filters | another current folder
for path in ('/', '..', MARKS): try_to(os.chdir, path)
try_to(os.fchdir, 0)
=== filters | mounts by the old calls and the new; the machine's name, clock and modules
system_call(165, b'none', b'/tmp', b'tmpfs', 0, 0)
system_call(430, b'tmpfs', 0)
system_call(428, -100, b'/', 1)
try_to(os.chroot, '/')
system_call(155, b'/', b'/')
for call in (170, 171): system_call(call, b'x', 1)
system_call(227, 0, bytes(16))
system_call(175, b'x', 1, b'')
system_call(163, 0)
=== every | every kind of process
flags = (17, 0, 0x3C0F00, 0x3D0F00 | 1 << 28, 0x3D0F00 | 1 << 29)
for call, flags in ((57, 0), *((56, flag) for flag in flags)):
    child = libc.syscall(call, flags, 0, 0, 0, 0)
    if child == 0: os._exit(0)
    if child > 0: print('GOT', call, hex(flags), flush=True)
system_call(435, bytes(88), 88)
=== filters | every way to run a program, its own source by descriptor too
for path in ('/bin/true', sys.executable or '/usr/bin/python3'):
    try_to(os.posix_spawn, path, [path], {})
try_to(os.execve, 4, ['x'], {})
system_call(322, 4, b'', 0, 0, 0x1000)
if os.system('true') == 0: print('GOT system')
=== users | more of everything
import fcntl, resource
for limit in range(16):
    if resource.getrlimit(limit)[1] != -1: try_to(resource.setrlimit, limit, (-1, -1))
for pid in (os.getppid(), TRAINER):
    system_call(302, pid, 7, bytes(16), 0)
    try_to(resource.prlimit, pid, resource.RLIMIT_CORE)
try_to(fcntl.fcntl, 1, 1031, 1 << 20)
try_to(bytearray, 2 << 30)
try_to(lambda: [bytearray(1 << 20) for _ in range(2 << 10)])
try_to(lambda: [os.dup(0) for _ in range(1000)])
=== every | a signal to a bystander
try_to(os.kill, BYSTANDER, 9)
=== users | signals in other forms
for pid in (0, -1, -os.getppid(), os.getppid(), TRAINER): try_to(os.kill, pid, 0)
system_call(200, BYSTANDER, 9)
system_call(234, BYSTANDER, BYSTANDER, 9)
system_call(129, BYSTANDER, 9, bytes(128))
system_call(297, BYSTANDER, BYSTANDER, 9, bytes(128))
system_call(424, 3, 9, 0, 0)
=== filters | a signal that the kernel sends to the owner of a pipe or socket
import fcntl, socket
end, other = socket.socketpair()
for number in (8, 10, 15): try_to(fcntl.fcntl, end, number, BYSTANDER)
for request in (0x8901, 0x8902): try_to(fcntl.ioctl, end, request, BYSTANDER.to_bytes(4, 'little'))
try_to(fcntl.ioctl, end, 0x5452, b'\1\0\0\0')
=== users | namespaces
for flag in (17, 25, 26, 27, 28, 29, 30): system_call(272, 1 << flag)
system_call(308, 0, 0)
=== users | its own bonds
for option in (4, 1, 36, 22, 0x59616D61): system_call(157, option, 1, 0, 0, 0)
system_call(317, 1, 0, bytes(16))
system_call(444, b'\xff' * 8, 8, 0)
system_call(446, 3, 0)
try_to(os.setsid)
=== every | another user
for call in (105, 106): system_call(call, 0) if os.getuid() else None
system_call(117, 0, 0, 0)
system_call(119, 0, 0, 0)
system_call(116, 0, bytes(4))
system_call(126, b'\x22\x05\x08\x20' + bytes(4), b'\xff' * 24)
=== users | priority and place
try_to(os.setpriority, 0, 0, -5)
try_to(os.setpriority, 0, os.getppid(), 0)
try_to(os.sched_setaffinity, TRAINER, {0})
system_call(251, 1, 0, 0)
try_to(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
=== filters | a fork by the 32-bit table
print('GOT', run_code(bytes.fromhex('b802000000cd80c3')))
=== filters | calls that go round the filter: io_uring, aio, x32, faults of its own
system_call(425, 1, bytes(120))
system_call(206, 1, bytes(8))
system_call(323, 0)
system_call(300, 0, 0)
system_call(294, 0)
system_call(319, b'x', 0)
system_call(447, 0)
for number in (2, 41, 57, 59, 520): system_call(0x40000000 | number, 0, 0, 0)
=== filters | the machine's ports: iopl, ioperm, personality, local descriptor table
system_call(172, 3)
system_call(173, 0, 1, 1)
system_call(135, 0x40000)
system_call(154, 0, bytes(16), 16)
=== filters | the terminal
import fcntl
try_to(os.open, '/dev/tty', 0)
for number in (0, 1, 2): try_to(fcntl.ioctl, number, 0x5412, b'x')
=== filters | descriptors handed out or taken in next to a message
for call in (46, 47, 307, 299): system_call(call, 3, bytes(64), 1, 0x40)
=== every | the listeners
import socket
try_to(socket.create_connection, ('127.0.0.1', PORT), 1)
pair = socket.socketpair()
for address in (UNIX, ABSTRACT):
    try_to(pair[0].connect, address)
    try_to(pair[0].sendto, b'x', address)
    try_to(lambda: socket.socket(socket.AF_UNIX).connect(address))
try_to(pair[1].bind, '\0mine')
try_to(pair[1].listen, 1)
=== filters | every family of sockets, and pairs that are no stream
import socket
for family in (1, 2, 10, 16, 17, 30, 38, 40, 44):
    for kind in (1, 2, 3, 5): try_to(socket.socket, family, kind)
for kind in (2, 3, 5): try_to(socket.socketpair, socket.AF_UNIX, kind)
=== filters | libraries that connect
import asyncio, socket
async def serve():
    if not (await asyncio.start_server(print, '127.0.0.1', 0)).sockets: raise OSError
try_to(lambda: asyncio.run(serve()))
try_to(socket.getaddrinfo, 'localhost', 80)
try_to(lambda: __import__('urllib.request').request.urlopen(f'http://127.0.0.1:{PORT}/', timeout=1))
=== here | recursion without a limit
sys.setrecursionlimit(1 << 30)
def f(x): return f(x)
=== here | a bad address
ctypes.string_at(0)
=== here | an abort
os.abort()
=== here | its own death, and a stop
for number in (9, 19): try_to(os.kill, os.getpid(), number)
=== here | no such instruction
run_code(bytes.fromhex('0f0b'))
=== here | Python overwritten
ctypes.memset(id(int), 0, 200)
f(1) + 1
=== here | rubbish freed
libc.free(ctypes.c_void_p(0x41414141))
=== here | a core file
import signal
os.kill(os.getpid(), signal.SIGQUIT)
=== here | source too deep
exec('-' * 200000 + '1')
=== here | half a message
import struct
os.write(3, struct.pack('!I', 1000) + b'half')
os._exit(0)
=== here | deep JSON
import struct
data = b'[' * 4_000_000
left = memoryview(struct.pack('!I', len(data)) + data)
while left: left = left[os.write(3, left):]
os._exit(0)
=== here | the link in the place of the output and the other way round
os.dup2(1, 9)
os.dup2(3, 1)
os.dup2(9, 3)
os.set_blocking(3, False)
os.write(3, b'C' * 4096)
=== here | the word of the harness
os.write(1, b'CCCC')
os.closerange(0, 64)
=== here | a thread that writes on
def write():
    while True:
        os.write(1, b'late')
        time.sleep(0.01)
threading.Thread(target=write, daemon=True).start()
""")
ATTACKS["a null byte"] = Program("here", "\0", [])
BOMBS = programs(r"""
=== here | a loop at import
while True: pass
=== here | a sleep at import
time.sleep(60)
=== here | a regular expression
import re
re.fullmatch('(a*)*b', 'a' * 60)
=== here | a link full of rubbish
while True: os.write(3, b'x' * 65536)
=== users | threads that sleep
threads(lambda: time.sleep(30))
time.sleep(30)
=== users | threads with small stacks
threading.stack_size(32768)
threads(lambda: time.sleep(30))
time.sleep(30)
=== users | threads that compute
def work():
    while True: pass
threads(work)
work()
=== users | threads that compute in C
import hashlib
def work(): hashlib.pbkdf2_hmac('sha256', b'x', b'y', 1 << 30)
threads(work)
work()
=== users | memory that is shared
import mmap
held = []
try:
    while True: held.append(mmap.mmap(-1, 64 << 20))
except OSError: pass
if len(held) > 16: print('GOT', len(held))
time.sleep(30)
=== users | memory that is held
held = bytearray(600 << 20)
time.sleep(30)
=== here | a long number, in C code that no signal of Python's ends
3 ** 10**9
=== here | signals blocked
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: time.sleep(30)
=== here | output in packets of one byte
import fcntl
fcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)
while True: os.write(1, b'x')
=== here | a message of four gigabytes
os.write(3, b'\xff' * 4096)
time.sleep(30)
=== here | keys that are all alike, of a set that takes hours to make
import struct
numbers = ','.join('{"n":"%x"}' % (((1 << 61) - 1) * n + 1) for n in range(1, 200000))
for text in ('["ready",null,null]', '["value",null,{"s":[%s]}]' % numbers):
    left = memoryview(struct.pack('!I', len(text)) + text.encode())
    while left: left = left[os.write(3, left):]
time.sleep(30)
=== here | an answer without an end: a dict made of an iterator that asks back
import struct
def send(text): os.write(3, struct.pack("!I", len(text)) + text)
send(b'["ready",null,null]')
send(b'["value",null,{"d":[{"o":["iterator",0,true]}]}]')
while True: send(b'["value",null,"x"]')
""")


def in_places(table):
    """A case for each program and each place where its outcome can differ."""
    return [
        (place, name)
        for place in PLACES
        for name, (where, *_) in table.items()
        if place in WHERE[where]
    ]


def attack(trainer, program):
    """Run it, and check that nothing came of it."""
    job = Asserts(trainer.things() + BEGIN + program, ["assert f(1) == 2"], timeout_s=TIMEOUT_S)
    started = time.monotonic()
    (status, reason, _, output, _), right = trainer.run(job, RIGHT)  # with the same checker
    assert time.monotonic() - started < TIMEOUT_S + LATE_S
    assert (status, trainer.harm()) == ("fail", []), reason
    assert "\nGOT" not in f"\n{output}" and trainer.secret not in output + reason
    assert len(output) <= 1 << 20
    assert (right[0], trainer.run(RIGHT)[0][0]) == ("pass", "pass")


@pytest.mark.parametrize(("trainer", "name"), in_places(ATTACKS), indirect=["trainer"])
def test_an_attack_is_contained(trainer, name):
    attack(trainer, ATTACKS[name].source)


@pytest.mark.parametrize(("trainer", "name"), in_places(BOMBS), indirect=["trainer"])
def test_a_bomb_ends_in_time(trainer, name):
    attack(trainer, BOMBS[name].source)


HONEST = programs(r"""
=== a pool of threads
from concurrent.futures import ThreadPoolExecutor
def f():
    with ThreadPoolExecutor(8) as pool: return list(pool.map(abs, range(20))) == list(range(20))
=== an event loop with threads
import asyncio
async def g(x): return await asyncio.to_thread(abs, x)
def f(): return asyncio.run(g(-2)) == 2
=== memory of 300 MB
def f(): return len(bytearray(300 << 20)) >> 20 == 300
=== modules that are not preloaded
import bisect, csv, datetime, decimal, heapq, itertools, re, statistics, textwrap
def f(): return re.sub('a', '', 'banana') == 'bnn'
=== five thousand lines
def f():
    for i in range(5000): print('line', i)
    return True
=== an alarm of its own
import signal, time
def ring(*_): raise TimeoutError
def f():
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try: time.sleep(5)
    except TimeoutError: return True
=== deep recursion
import sys
sys.setrecursionlimit(10**5)
def g(n): return n and 1 + g(n - 1)
def f(): return g(9000) == 9000
""")


@pytest.mark.parametrize("trainer", PLACES, indirect=True)
def test_honest_programs_pass_in_a_place_with_the_isolation_that_it_allows(trainer, request):
    place = PLACES[request.node.callspec.params["trainer"]]
    assert place.words in trainer.words
    assert ("user kept" in trainer.words) == place.user or os.geteuid() != 0
    jobs = [Asserts(program, ["assert f() is True"]) for _, program, _ in HONEST.values()]
    outcomes = trainer.run(
        *jobs, Stdio("import sys\nprint(sys.stdin.read()[::-1])", [("ab", "ba")])
    )
    assert [outcome[:2] for outcome in outcomes] == [["pass", ""]] * (len(jobs) + 1)


def test_honest_programs_next_to_hostile_ones_all_pass():
    names = ("threads that compute in C", "memory that is held", "signals blocked")
    bombs = [BEGIN + BOMBS[name].source for name in names]
    bombs += ["while True: print('x' * 65536)", "import os\nos.abort()"]
    jobs = []
    for place in range(600):
        jobs.append(RIGHT if place % 2 else Stdio("print(int(input()) * 2)", [("2", "4")]))
        if place % 20 == 0:
            bomb = bombs[place // 20 % len(bombs)]
            jobs.append(Asserts(bomb, ["assert f(1) == 2"], timeout_s=1.0))
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
    jobs = [Asserts(bomb, ["assert f()"], timeout_s=1.5)]
    jobs += [Asserts(pool, ["assert f() == 8"])] * 20
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(4,), daemon=True).start()
    print(sandbox.describe(), [outcome.status for outcome in sandbox.run_batch(jobs)])
"""


def run_as_ordinary_user(code: str) -> subprocess.CompletedProcess:
    if os.geteuid() != 0 or not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"runs {SYSTEM_PYTHON} as another user: needs root")
    return subprocess.run(
        [SYSTEM_PYTHON, "-c", code, str(folder_for_everyone())],
        cwd="/",
        env={},
        preexec_fn=lambda: enter(PLACES["ordinary user"]),
        capture_output=True,
        text=True,
    )


def test_threads_of_others_take_none_away_from_an_ordinary_users_programs():
    ran = run_as_ordinary_user(CROWDED)
    assert "user kept" in ran.stdout, ran.stderr
    assert ran.stdout.endswith(f"{['fail', *['pass'] * 20]}\n"), ran.stdout + ran.stderr


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
def test_no_reading_by_a_program_changes_the_time_of_a_file(sandbox):
    folder = os.path.dirname(os.__file__)
    paths = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".py")]
    before = [os.stat(path).st_atime_ns for path in paths]
    # A program in a folder that its user cannot enter reads from the current one.
    names = (
        paths if preload.readable_by_all(folder) else ["./" + os.path.basename(p) for p in paths]
    )
    program = "def f(paths): return len([open(path).read(1) for path in paths])"
    assert sandbox.run_asserts(program, [f"assert f({names}) == {len(paths)}"])[:2] == ("pass", "")
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
    stack = ctypes.c_void_p(code + 4000)
    if libc.clone(ctypes.c_void_p(code), stack, 0x3D0F00, None, *rest) < 0: break
time.sleep(9)
'''
pool = "from concurrent.futures import ThreadPoolExecutor\\nimport time\\n"
pool += "def f():\\n    time.sleep(0.5)\\n"
pool += "    with ThreadPoolExecutor(8) as pool: return len(list(pool.map(time.sleep, [0.05] * 8)))"
with Sandbox(workers=2) as sandbox:
    jobs = [Asserts(pool, ["assert f() == 8"]), Asserts(bomb, ["assert f()"], timeout_s=2.0)]
    outcomes = sandbox.run_batch(jobs)
    print(allowed, sandbox.describe(), [outcome.status for outcome in outcomes])
"""


def test_threads_made_past_libc_take_none_away_from_others_where_there_are_user_namespaces():
    ran = run_as_ordinary_user(BARE)
    if ran.stdout.startswith("False"):
        pytest.skip("an ordinary user has no user namespaces here")
    assert "user kept" in ran.stdout, ran.stderr
    assert ran.stdout.endswith("['pass', 'fail']\n"), ran.stdout + ran.stderr


def test_no_descriptor_of_the_harness_is_left_however_many_the_trainer_holds():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < hard < 4300:
        pytest.skip(f"this process may open {hard} files, 4300 are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4300), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(4150)]
    program = "import ctypes\nfcntl = ctypes.CDLL(None).fcntl\n"
    program += "def f(): return [n for n in range(5, 9000) if fcntl(n, 1) >= 0]"
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
            outcome = made.run_asserts("def f(p): return open(p).read(1)", [f"f({path!r})"])
            assert outcome.status == "fail"


@pytest.mark.skipif(os.geteuid() != 0, reason="root that may not change user: needs root")
def test_root_without_capabilities_has_no_more_threads_than_others():
    bomb = BEGIN + BOMBS["threads with small stacks"].source
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
