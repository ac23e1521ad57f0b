"""Rights taken from a child of the zygote before it runs a line that a model wrote. A function a
promise.

    rules, filters = prepare("landlock", ["/usr/lib/python3.11"])       # once, in the zygote
    confine(Limits("landlock", uid=60001, seconds=10, parent=1234), rules, filters[0])  # in a child

In this order, since each step needs rights that a later one takes away: user, dumping and death
with the parent (a change of user clears both), limits, Landlock, seccomp. Any step that fails
raises: the child must then end, unused.

What is not covered: where root cannot change user (no capabilities, a user namespace), the limit on
threads does not bind, and memory alone ends a bomb of threads; where an ordinary user has no user
namespaces (in most containers), a program that makes threads past libc can use up the room of those
that run next to it; bugs of the kernel, timing, the memory bus and caches. Two programs that want
to can pass each other words: by process numbers, which tell how many threads were made in between,
and by `stat` of `/proc/PID/task`, which tells how many there are now. The memory limit is one of
addresses and is per process, not a share of the machine's.
"""

import contextlib
import math
import os
import resource
import signal
import struct
from collections.abc import Sequence
from typing import NamedTuple

from rewards.sandbox import landlock, seccomp
from rewards.sandbox.libc import capset, check, prctl, unshare

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
MEMORY_BYTES = 1 << 30
OPEN_FILES = 64
UNCONFINED_EXIT = 96  # of a child for which this failed
THREADS = 64
CLONE_NEWUSER = 0x10000000
COUNTED_S = 0.5  # how long a count of a user's threads is good
ISOLATIONS = ("landlock", "sealed", "unsafe")

_NO_CAPABILITIES = struct.pack("Ii", 0x20080522, 0), bytes(24)


class Limits(NamedTuple):
    """`uid`: None to stay who we are; `seconds` of processor time; `tasks`: the user's threads."""

    isolation: str
    uid: int | None
    seconds: float
    parent: int
    tasks: int = THREADS


class Prepared(NamedTuple):
    """Made once, before any child: the Landlock descriptor, and the seccomp filters of programs
    and of checkers, if any.
    """

    rules: int | None
    filters: tuple[seccomp.Filter | None, seccomp.Filter | None]


def prepare(isolation: str, readable: Sequence[str]) -> Prepared:
    """The parts of an isolation that its children share; `readable`: what Landlock leaves open."""
    if isolation == "unsafe":
        return Prepared(None, (None, None))
    files = isolation == "landlock"
    rules = landlock.ruleset(readable) if files else None
    filters = (seccomp.assemble(seccomp.program(files, receives)) for receives in (False, True))
    return Prepared(rules, tuple(filters))


def confine(limits: Limits, rules: int | None, chosen: seccomp.Filter | None) -> None:
    """Every promise, for good. The Landlock descriptor is closed."""
    if limits.uid is not None:
        drop_user(limits.uid)
    if limits.isolation != "unsafe":
        drop_capabilities()
        forbid_dumping()
    die_with(limits.parent)
    limit_resources(limits.seconds, limits.tasks)
    if rules is not None:
        landlock.restrict(rules)
        os.close(rules)
    if chosen is not None:
        seccomp.install(chosen)


def drop_user(uid: int) -> None:
    """Become a user that owns nothing, in no group, with no way back."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (uid,) * 3:
        raise OSError(f"still user {os.getresuid()}, group {os.getresgid()}")


def drop_capabilities() -> None:
    """No capability of root is left, even where the user could not be changed."""
    check(capset(*_NO_CAPABILITIES), "capset")


def forbid_dumping() -> None:
    """Others of the same user can neither trace it nor read its memory; it leaves no core."""
    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "no dumping")


def count_threads_apart() -> bool:
    """From now on, the limit on the threads of our children counts theirs and ours, and no others
    of this user.

    False where it cannot: the container refuses user namespaces, or the kernel (before 5.14) counts
    across them.
    """
    child = os.fork()
    if not child:
        apart = False
        try:
            check(unshare(CLONE_NEWUSER), "a user namespace")
            # Of which who started us would be one.
            resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
            grandchild = os.fork()
            if not grandchild:
                os._exit(0)
            apart = os.waitpid(grandchild, 0)[1] == 0
        finally:
            os._exit(not apart)
    return os.waitpid(child, 0)[1] == 0 and unshare(CLONE_NEWUSER) == 0


def die_with(parent: int) -> None:
    """The kernel kills this process when its parent ends, whatever either is doing."""
    check(prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death with the parent")
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def limit_resources(seconds: float, tasks: int) -> None:
    """Hard limits on memory, processor time, files and threads; no core, no file that grows."""
    wanted = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: math.ceil(seconds),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_NPROC: tasks,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for limit, value in wanted.items():
        ceiling = resource.getrlimit(limit)[1]
        if ceiling != resource.RLIM_INFINITY:
            value = min(value, ceiling)
        resource.setrlimit(limit, (value, value))


def tasks_of_user() -> int:
    """How many threads this user has now: the limit on threads counts those of every process."""
    count = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            tasks = os.stat(f"/proc/{process}/task")  # a folder with a folder for each thread
            count += (tasks.st_nlink - 2) * (os.stat(f"/proc/{process}").st_uid == os.getuid())
    return count
