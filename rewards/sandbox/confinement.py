"""Take rights from a child of the zygote before it runs model-written code. Each function below
takes one kind of right.

    chosen = seccomp.assemble(seccomp.program())                            # once, in the zygote
    confine(Limits(uid=60001, seconds=10, parent=1234, tasks=64), chosen)   # in a child

The order is fixed, since each step needs rights that a later step takes away. A step that fails
raises an error, and the child must then end without running a program.

What is not covered: if root cannot change user (no capabilities, a user namespace), only the memory
limit stops a bomb of threads. If an ordinary user has no user namespaces (in most containers), a
program that makes threads without libc can use up the threads of the programs next to it. Bugs of
the kernel, timing, the memory bus and caches. Two programs can signal each other by thread ids,
which show how many threads were made in between. The memory limit counts addresses of one process.
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
OUTPUT_BYTES = 1 << 20  # limit of each file; a program can write only to its outputs
UNCONFINED_EXIT = 96  # exit code of a child that could not be confined
THREADS = 64
CLONE_NEWUSER = 0x10000000

_NO_CAPABILITIES = struct.pack("Ii", 0x20080522, 0), bytes(24)


class Limits(NamedTuple):
    """`uid`: None keeps the user; `seconds`: of processor time; `parent`: its process id;
    `tasks`: the most threads of the user.
    """

    uid: int | None
    seconds: float
    parent: int
    tasks: int


def confine(limits: Limits, chosen: seccomp.Filter | None) -> None:
    """Take all rights for good. Without a filter: only user, death with the parent and limits."""
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
    """Become, for good, a user that owns nothing and has no other group."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (uid,) * 3:
        raise OSError(f"still user {os.getresuid()}, group {os.getresgid()}")


def drop_capabilities() -> None:
    """Drop every capability of root, which matters if the user could not be changed."""
    check(capset(*_NO_CAPABILITIES), "capset")


def forbid_dumping() -> None:
    """Stop other processes of this user from tracing this one, and its core dumps."""
    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "no dumping")


def count_threads_apart() -> bool:
    """Enter a user namespace, in which the limit on threads counts only this process and its
    children, not the user's other processes.

    Return False if that fails: the container refuses user namespaces, or the kernel (before 5.14)
    counts across them. A child tries it first.
    """
    child = os.fork()
    if not child:
        is_apart = False
        try:
            check(unshare(CLONE_NEWUSER), "a user namespace")
            # Counted across namespaces, trainer, zygote and child are 3: the fork then fails.
            resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
            grandchild = os.fork()
            if not grandchild:
                os._exit(0)
            is_apart = os.waitpid(grandchild, 0)[1] == 0
        finally:
            os._exit(not is_apart)
    return os.waitpid(child, 0)[1] == 0 and unshare(CLONE_NEWUSER) == 0


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends."""
    check(prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "death with the parent")
    if os.getppid() != parent:  # the parent ended before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def limit_resources(seconds: float, tasks: int) -> None:
    """Set hard limits on memory, processor time, output, files and threads; no core dumps."""
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
    """The number of threads of this user, in all processes, as the limit on threads counts."""
    count = 0
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            tasks = os.stat(f"/proc/{process}/task")  # a folder with a folder for each thread
            count += (tasks.st_nlink - 2) * (os.stat(f"/proc/{process}").st_uid == os.getuid())
    return count
