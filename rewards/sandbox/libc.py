"""The functions of libc that the confinement calls, looked up once, in the zygote, and not again in
each child.

    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "no dumping")     # an OSError with the kernel's
    reason where it refuses

Promises: a refusal of the kernel is never taken for an answer.

What is not covered: systems other than Linux, where a function that is missing is None.
"""

import ctypes
import os
from typing import Any

PR_SET_NO_NEW_PRIVS = 38
CLOSE_RANGE, LAST = 436, 0x7FFFFFFF  # the same on x86_64 and aarch64
_libc = ctypes.CDLL(None, use_errno=True)


def _function(name: str, *arguments: Any) -> Any:
    function = getattr(_libc, name, None)
    if function is not None and arguments:
        function.argtypes = arguments
    return function


prctl = _function("prctl", ctypes.c_int, *[ctypes.c_ulong] * 4)
capset = _function("capset", ctypes.c_char_p, ctypes.c_char_p)
syscall = _function("syscall")
unshare = _function("unshare", ctypes.c_int)
# Keeps Python's lock, which the child then holds as well.
_fork = ctypes.PyDLL(None, use_errno=True).fork


def check(answer: int, call: str) -> int:
    """The answer of a call, or an error where it is negative."""
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
    return answer


def forbid_new_privileges() -> None:
    """Nothing run by this process gains rights, which seccomp wants first."""
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def close_from(first: int) -> None:
    """Close every descriptor from this one on, in one call where the kernel has it."""
    if syscall(CLOSE_RANGE, first, LAST, 0) < 0:  # an old kernel, or a container that refuses it
        os.closerange(first, 4096)


def fork() -> int:
    """`os.fork` for a process of one thread, without the repair of Python's locks and weak
    references.

    Nothing in the zygote needs it, and it makes each child copy some forty pages. Random numbers
    are the caller's part.
    """
    return check(_fork(), "fork")
