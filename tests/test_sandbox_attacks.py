"""Attacks by name, where their outcome can differ: as root, as an ordinary user, as in a container.

A place is a process of its own, the stand-in for a trainer: it takes on the place's limits, makes a
sandbox and runs the jobs that it is handed. Around it lie things worth having: a secret in its
environment and in two files, listening sockets, a process of the same user. An attack that gets at
one of them prints `GOT`, or is seen from here.

What is not covered: other kernels than the one at hand; a container's cgroups.
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

import pytest
from support.sandbox import SYSTEM_PYTHON, descendants, folder_for_everyone, programs

from rewards.sandbox import Asserts, Sandbox, Stdio

on_linux, on_x86 = sys.platform.startswith("linux"), os.uname().machine == "x86_64"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux"),
    pytest.mark.skipif(not on_x86, reason="the attacks use call numbers of x86_64"),
]
ROOT = Path(__file__).parents[1]
USER = 64_321
TIMEOUT_S = 1.0
LEFT_S = 0.5
RIGHT = Asserts("def f(x): return 2 * x", ["assert f(2) == 4"])


# ------------------------------------------------------------------ places


PLACES = ["here", "ordinary user", "container", "container, ordinary user"]
# Where the outcome of an attack can differ. The filter alone decides on a call; a user decides
# about processes and limits; a container about the rest.
WHERE = {"here": PLACES[:1], "users": PLACES[:2], "every": PLACES}

# What Docker leaves of root's capabilities, and which calls its profile refuses.
CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
REFUSED_CALLS = [101, 103, 135, 153, 155, 156, *range(163, 181), 212, 237, 238, 239, 246, 248, 249]
REFUSED_CALLS += [250, 256, 272, 279, 298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323]
REFUSED_CALLS += [*range(425, 434), 438, 442, 443, 447]
# Older profiles refuse memory files, descriptors of processes and closing a range: we make do.
REFUSED_CALLS += [319, 434, 436]
CLONE, CLONE3, NAMESPACES = 56, 435, 0x7E020000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x50001, 0x50026
PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 22, 24, 38


def container_filter() -> bytes:
    """Docker's profile as far as it refuses."""
    lines = [(LOAD, 0, 0, 0)]
    for number, answer in (dict.fromkeys(REFUSED_CALLS, EPERM) | {CLONE3: ENOSYS}).items():
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


def enter(place: str) -> None:
    """In a new process: take on what limits every process of the place."""
    libc = ctypes.CDLL(None, use_errno=True)
    if "container" in place:
        keep(CAPABILITIES)
        code = container_filter()
        buffer = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
        assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert libc.prctl(PR_SET_SECCOMP, 2, ctypes.create_string_buffer(header), 0, 0) == 0
    if "user" in place:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)


TRAINER = """
import json, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from rewards.sandbox.pool import Asserts, Sandbox, Stdio
with Sandbox(workers=1) as sandbox:
    before = dict(os.environ), os.getcwd(), os.umask(0o022)
    print(json.dumps(sandbox.describe()), flush=True)
    for line in sys.stdin:
        outcomes = sandbox.run_batch([globals()[kind](**job) for kind, job in json.loads(line)])
        assert before == (dict(os.environ), os.getcwd(), os.umask(0o022))
        print(json.dumps(outcomes), flush=True)
"""


class Trainer:
    """A process in a place, and what lies around it."""

    def __init__(self, place: str):
        self.secret = f"secret-{secrets.token_hex(16)}"
        # Not pytest's folder, which other users cannot enter.
        self.folder = Path(tempfile.mkdtemp(prefix="attacks-"))
        self.listeners = [socket.create_server(("127.0.0.1", 0))]
        self.listeners += [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
        self._lay_out(place)
        python = SYSTEM_PYTHON if "user" in place else sys.executable
        self.process = subprocess.Popen(
            [python, "-c", TRAINER, str(folder_for_everyone())],
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

    def _lay_out(self, place: str) -> None:
        (self.folder / "marks").mkdir()
        for name, mode in (("hidden", 0o600), ("open", 0o644)):
            (self.folder / name).write_text(self.secret)
            (self.folder / name).chmod(mode)
        self.folder.chmod(0o755)
        (self.folder / "marks").chmod(0o777)
        if "user" in place:
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
        states = {}
        for path in (*paths, *Path("/dev/shm").glob("made")):
            stat = path.stat()
            states[path] = (path.read_text(), stat.st_mode, stat.st_uid, stat.st_mtime_ns)
        return states

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
        while (left := descendants(self.process.pid)[1:]) and time.monotonic() < until:
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


def was_called(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def held_capabilities() -> int:
    lines = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["CapPrm"], 16)


@pytest.fixture(scope="module")
def trainer(request):
    place, held = request.param, held_capabilities()
    if place != "here" and os.geteuid() != 0:
        pytest.skip("takes on another user or the limits of a container: needs root")
    if "container" in place and not all(held >> number & 1 for number in CAPABILITIES):
        pytest.skip("this root has fewer capabilities than a container gives")
    if "user" in place and not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"no {SYSTEM_PYTHON} for every user")
    made = Trainer(place)
    yield made
    made.close()


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

HOSTILE = programs("attacks") | programs("bombs")


@pytest.mark.parametrize(
    ("trainer", "name"),
    [
        (place, name)
        for place in PLACES
        for name, (where, *_) in HOSTILE.items()
        if place in WHERE[where]
    ],
    indirect=["trainer"],
)
def test_an_attack_is_contained_and_ends(trainer, name):
    program = trainer.things() + BEGIN + HOSTILE[name].source.replace("NULL", "\0")
    job = Asserts(program, ["assert f(1) == 2"], timeout_s=TIMEOUT_S)
    (status, reason, _, output, _), right = trainer.run(job, RIGHT)  # with the same checker
    assert (status, trainer.harm()) == ("fail", []), reason
    assert "\nGOT" not in f"\n{output}" and trainer.secret not in output + reason
    assert len(output) <= 1 << 20
    assert (right[0], trainer.run(RIGHT)[0][0]) == ("pass", "pass")


HONEST = programs("honest_anywhere")


@pytest.mark.parametrize("trainer", PLACES, indirect=True)
def test_honest_programs_pass_in_every_place(trainer, request):
    place = request.node.callspec.params["trainer"]
    assert ("user kept" in trainer.words) == ("user" in place) or os.geteuid() != 0
    jobs = [Asserts(program, ["assert f() is True"]) for _, program, _ in HONEST.values()]
    jobs.append(Stdio("import sys\nprint(sys.stdin.read()[::-1])", [("ab", "ba")]))
    assert [outcome[:2] for outcome in trainer.run(*jobs)] == [["pass", ""]] * len(jobs)


# ------------------------------------------------------------------ threads of an ordinary user

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
    statuses = [outcome.status for outcome in sandbox.run_batch(jobs)]
    print(sandbox.describe(), statuses[: 1 + (set(statuses[1:]) == {"pass"})])
"""

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
    jobs = [Asserts(bomb, ["assert f()"], timeout_s=2.0), Asserts(pool, ["assert f() == 8"])]
    outcomes = sandbox.run_batch(jobs)
    print(allowed, sandbox.describe(), [outcome.status for outcome in outcomes])
"""


@pytest.mark.parametrize("code", [CROWDED, BARE], ids=["of other processes", "made past libc"])
def test_threads_of_others_take_none_away_from_an_ordinary_users_programs(code):
    if os.geteuid() != 0 or not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip(f"runs {SYSTEM_PYTHON} as another user: needs root")
    ran = subprocess.run(
        [SYSTEM_PYTHON, "-c", code, str(folder_for_everyone())],
        cwd="/",
        env={},
        preexec_fn=lambda: enter("ordinary user"),
        capture_output=True,
        text=True,
    )
    if ran.stdout.startswith("False"):
        pytest.skip("an ordinary user has no user namespaces here")
    assert "user kept" in ran.stdout, ran.stderr
    assert ran.stdout.endswith("['fail', 'pass']\n"), ran.stdout + ran.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root that may not change user: needs root")
def test_root_without_capabilities_has_no_more_threads_than_others():
    bomb = BEGIN + HOSTILE["threads with small stacks"].source
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


# ------------------------------------------------------------------ descriptors


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
