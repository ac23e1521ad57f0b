"""Rights taken from a child of the zygote before it runs a line that a model wrote. A function a
promise.

    chosen = seccomp.assemble(seccomp.program())                        # once, in the zygote
    confine(Limits(uid=60001, seconds=10, parent=1234), chosen)         # in a child

In this order, since each step needs rights that a later one takes away: user, dumping and death
with the parent (a change of user clears both), limits, seccomp. Any step that fails raises: the
child must then end, unused.

What is not covered: where root cannot change user (no capabilities, a user namespace), the limit on
threads does not bind, and memory alone ends a bomb of threads; where an ordinary user has no user
namespaces (in most containers), a program that makes threads past libc can use up the room of those
that run next to it; bugs of the kernel, timing, the memory bus and caches. Two programs that want
to can pass each other words by process numbers, which tell how many threads were made in between.
The memory limit is one of addresses and is per process, not a share of the machine's.
"""

import contextlib
import math
import os
import resource
import signal
import struct
from typing import NamedTuple

from rewards.sandbox import seccomp
from rewards.sandbox.libc import capset, check, prctl, unshare

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
MEMORY_BYTES = 1 << 30
OPEN_FILES = 64
OUTPUT_BYTES = 1 << 20  # of each file that a program writes to, which are its outputs alone
UNCONFINED_EXIT = 96  # of a child for which this failed
THREADS = 64
CLONE_NEWUSER = 0x10000000
COUNTED_S = 0.5  # how long a count of a user's threads is good

_NO_CAPABILITIES = struct.pack("Ii", 0x20080522, 0), bytes(24)


class Limits(NamedTuple):
    """`uid`: None to stay who we are; `seconds` of processor time; `tasks`: the user's threads."""

    uid: int | None
    seconds: float
    parent: int
    tasks: int = THREADS


def confine(limits: Limits, chosen: seccomp.Filter | None) -> None:
    """Every promise, for good; without a filter the user, his death and the limits alone."""
    if limits.uid is not None:
        drop_user(limits.uid)
    if chosen is not None:
        drop_capabilities()
        forbid_dumping()
    die_with(limits.parent)
    limit_resources(limits.seconds, limits.tasks)
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
        is_apart = False
        try:
            check(unshare(CLONE_NEWUSER), "a user namespace")
            # Of which who started us would be one.
            resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
            grandchild = os.fork()
            if not grandchild:
                os._exit(0)
            is_apart = os.waitpid(grandchild, 0)[1] == 0
        finally:
            os._exit(not is_apart)
    return os.waitpid(child, 0)[1] == 0 and unshare(CLONE_NEWUSER) == 0


def die_with(parent: int) -> None:
    """The kernel kills this process when its parent ends, whatever either is doing."""
    check(prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death with the parent")
    if os.getppid() != parent:  # it ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def limit_resources(seconds: float, tasks: int) -> None:
    """Hard limits on memory, processor time, output, files and threads; no core."""
    wanted = {
        resource.RLIMIT_AS: MEMORY_BYTES,
        resource.RLIMIT_CPU: math.ceil(seconds),
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: OUTPUT_BYTES,
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
