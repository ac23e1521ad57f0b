"""Containment: programs that try to read, fill, multiply, escape, connect or crash get nowhere, and end in time.

Each runs confined, with little memory and time, and only what an earlier test of the confinement has shown to hold.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.sandbox import SYSTEM_PYTHON, folder_for_everyone

from rewards.sandbox import Sandbox, landlock

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")
needs_landlock = pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
TIMEOUT_S = 1.0


@pytest.fixture(scope="module", params=[pytest.param("landlock", marks=needs_landlock), "sealed"])
def sandbox(request):
    with Sandbox(workers=1, isolation=request.param, memory_bytes=256 << 20) as made:
        yield made


# Each defines f, which returns "out" when its attack works. {secret}, {trainer} and {folder} are filled in.
HOSTILE = {
    # reading
    "a file": "def f(): return open({secret!r}).read() and 'out'",
    "a file past Python": """
import ctypes
def f(): return 'out' if ctypes.CDLL(None).open({secret!r}.encode(), 0) >= 0 else None""",
    "the trainer's environment": "def f(): return open('/proc/{trainer}/environ').read() and 'out'",
    "the trainer's memory": "def f(): return open('/proc/{trainer}/mem', 'rb') and 'out'",
    "own memory": "def f(): return open('/proc/self/mem', 'r+b') and 'out'",
    "another's descriptors": "import os\ndef f(): return os.listdir('/proc/{trainer}/fd') and 'out'",
    "inherited descriptors": """
import os
def f():
    for number in range(4, 256):
        try: os.fstat(number)
        except OSError: continue
        return 'out'""",
    "inherited environment": "import os\ndef f(): return 'out' if os.environ else None",
    "a folder": "import os\ndef f(): return os.listdir({folder!r}) and 'out'",
    # writing
    "a new file": "def f(): return open({folder!r} + '/made', 'w') and 'out'",
    "a file in the place of another": "import os\ndef f(): return os.rename({secret!r}, {secret!r} + 'x') or 'out'",
    "shared memory": "def f(): return open('/dev/shm/sandbox-test', 'w') and 'out'",
    "a temporary file": "import tempfile\ndef f(): return tempfile.TemporaryFile() and 'out'",
    "system five memory": """
import ctypes
def f(): return 'out' if ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0 else None""",
    "a memory file": "import os\ndef f(): return os.memfd_create('x') and 'out'",
    "the mode of a file": "import os\ndef f(): return os.chmod({secret!r}, 0o777) or 'out'",
    "the times of a file": "import os\ndef f(): return os.utime({secret!r}) or 'out'",
    "an attribute of a file": "import os\ndef f(): return os.setxattr({secret!r}, 'user.x', b'x') or 'out'",
    "a link": "import os\ndef f(): return os.symlink({secret!r}, {folder!r} + '/made') or 'out'",
    # multiplying
    "a fork": "import os\ndef f(): return os.fork() + 1 and 'out'",
    "many forks": """
import os
def f():
    for _ in range(50):
        try: os.fork()
        except OSError: pass
        else: return 'out'""",
    "a subprocess": "import subprocess\ndef f(): return subprocess.run(['true']) and 'out'",
    "multiprocessing": """
import multiprocessing
def f():
    process = multiprocessing.get_context('fork').Process(target=int)
    process.start()
    return 'out'""",
    "many threads": """
import threading, time
def f():
    for _ in range(2000):
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
    return 'out'""",
    "memory": "def f(): return bytearray(1 << 30) and 'out'",
    "memory in small pieces": """
def f():
    pieces = []
    for _ in range(1 << 10): pieces.append(bytearray(1 << 20))
    return 'out'""",
    "many descriptors": "import os\ndef f(): return [os.dup(0) for _ in range(1000)] and 'out'",
    "output": "def f():\n    for _ in range(1 << 10): print('x' * (1 << 16), flush=True)\n    return 'out'",
    "a long loop": "def f():\n    while True: pass",
    "a loop in C": "def f(): return sum(range(1 << 60)) and 'out'",
    "a loop that will not stop": """
import signal
def f():
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass""",
    "sleep": "import time\ndef f(): time.sleep(60); return 'out'",
    "sleep at once": "import time\ntime.sleep(60)",
    "a deep regular expression": "import re\ndef f(): return re.fullmatch('(a*)*b', 'a' * 60) or 'out'",
    # escaping
    "a new session": "import os\ndef f(): return os.setsid() and 'out'",
    "a signal to the parent": "import os\ndef f(): return os.kill(os.getppid(), 0) or 'out'",
    "a signal to the trainer": "import os\ndef f(): return os.kill({trainer}, 0) or 'out'",
    "a signal to all": "import os\ndef f(): return os.kill(-1, 0) or 'out'",
    "a trace": """
import ctypes, os
def f(): return 'out' if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0 else None""",
    "another's limits": """
import resource, os
def f(): return resource.prlimit(os.getppid(), resource.RLIMIT_CORE) and 'out'""",
    "another's priority": "import os\ndef f(): return os.setpriority(os.PRIO_PROCESS, os.getppid(), 0) or 'out'",
    "own priority": "import os\ndef f(): return os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)) or 'out'",
    "higher limits": """
import resource
def f(): return resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or 'out'""",
    "root": "import os\ndef f(): return os.setuid(0) or 'out'",
    "a mount": """
import ctypes
def f(): return 'out' if ctypes.CDLL(None).mount(b'none', b'/mnt', b'tmpfs', 0, None) == 0 else None""",
    "a namespace": """
import ctypes
def f(): return 'out' if ctypes.CDLL(None).unshare(0x10000000) == 0 else None""",
    "another root": "import os\ndef f(): return os.chroot('/') or 'out'",
    "another program": "import os\ndef f(): return os.execv('/bin/true', ['true'])",
    # connecting
    "a socket": "import socket\ndef f(): return socket.socket() and 'out'",
    "a datagram": "import socket\ndef f(): return socket.socket(type=socket.SOCK_DGRAM) and 'out'",
    "a unix socket": "import socket\ndef f(): return socket.socket(socket.AF_UNIX) and 'out'",
    "netlink": "import socket\ndef f(): return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW) and 'out'",
    # crashing
    "recursion": "def f(): return f()",
    "recursion without a limit": "import sys\ndef f():\n    sys.setrecursionlimit(1 << 30)\n    return f()",
    "a bad address": "import ctypes\ndef f(): return ctypes.string_at(0)",
    "an abort": "import os\ndef f(): os.abort()",
    "its own death": "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGKILL)",
    "a null byte": "def f(): return 'out'\n\0",
    "deep source": "(" * 5000,
    "a long number": "def f(): return int('9' * 10**6)",
    "an endless import": "def f(): return 'out'\nwhile True: pass",
    "a closed link": "import os\ndef f():\n    os.closerange(0, 64)\n    return 'out'",
    "a link full of rubbish": "import os\ndef f():\n    while True: os.write(3, b'x' * 65536)",
    "a stop": "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGSTOP); return 'out'",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_contained(name, sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    before = secret.stat()
    program = HOSTILE[name]
    for word, value in (("secret", str(secret)), ("trainer", os.getpid()), ("folder", str(tmp_path))):
        program = program.replace(f"{{{word}!r}}", repr(value)).replace(f"{{{word}}}", str(value))
    started = time.monotonic()
    outcome = sandbox.run_asserts(program, ["assert f() == 'out'"], timeout_s=TIMEOUT_S)
    assert time.monotonic() - started < TIMEOUT_S + 1.5
    assert outcome.status == "fail" and outcome.reason
    assert len(outcome.output) <= 1 << 20
    assert [path.name for path in tmp_path.iterdir()] == ["secret"] and not Path("/dev/shm/sandbox-test").exists()
    after = secret.stat()
    assert (before.st_mode, before.st_mtime_ns) == (after.st_mode, after.st_mtime_ns)
    assert sandbox.run_asserts("def f(): return 1", ["assert f() == 1"]).status == "pass"
    assert children_of(sandbox) == []


def children_of(sandbox):
    """The processes that the zygotes have."""
    pids = [slot.process.pid for slot in sandbox._all if slot.process]
    return [child for pid in pids for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


PLAIN_USER = """
import os, sys, time
from rewards.sandbox import Sandbox
assert os.getuid() != 0
probes = sys.argv[2:]
with Sandbox(workers=1, isolation=sys.argv[1], memory_bytes=256 << 20) as sandbox:
    print(sandbox.describe())
    for program in probes:
        print(sandbox.run_asserts(program, ["assert f() == 'out'"], timeout_s=1.0)[:2])
    print(sandbox.run_asserts("def f(): return 'out'", ["assert f() == 'out'"])[:2])
"""
SHORT = ["a fork", "a signal to the parent", "many threads", "a trace", "a socket", "memory", "own memory"]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: needs root")
@pytest.mark.skipif(not os.access(SYSTEM_PYTHON, os.X_OK), reason=f"no {SYSTEM_PYTHON} for every user")
@pytest.mark.parametrize("isolation", [pytest.param("landlock", marks=needs_landlock), "sealed"])
def test_contained_for_an_ordinary_user(isolation):
    command = [SYSTEM_PYTHON, "-B", "-c", PLAIN_USER, isolation, *(HOSTILE[name] for name in SHORT)]
    ran = subprocess.run(
        command, cwd=folder_for_everyone(), env={}, user=64_123, group=64_123, extra_groups=[],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    words, *outcomes, last = ran.stdout.splitlines() or [ran.stderr]
    assert "user kept" in words, ran.stderr
    assert [outcome.split(",")[0] for outcome in outcomes] == ["('fail'"] * len(SHORT)
    assert last == "('pass', '')"
