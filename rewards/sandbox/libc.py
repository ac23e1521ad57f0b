"""The functions of libc that the confinement calls. The zygote looks them up once for all children.

    check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "no dumping")  # OSError if the kernel refuses

Promises: a refusal by the kernel always raises an error.

What is not covered: systems other than Linux. A function that libc does not have is None there.
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
# `PyDLL` keeps the GIL during the call, so the child holds it as well.
_fork = ctypes.PyDLL(None, use_errno=True).fork


def check(answer: int, call: str) -> int:
    """Return the answer of a libc call; raise `OSError` if it is negative."""
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")
    return answer


def forbid_new_privileges() -> None:
    """Stop this process from ever gaining rights; seccomp requires that first."""
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def close_from(first: int) -> None:
    """Close all descriptors >= `first`, in one call if the kernel has one."""
    if syscall(CLOSE_RANGE, first, LAST, 0) < 0:  # an old kernel, or a container that refuses it
        os.closerange(first, 4096)


def fork() -> int:
    """Fork a process that has one thread, faster than `os.fork`.

    `os.fork` also repairs Python's locks and weak references. The zygote does not need that, and it
    makes each child copy some forty pages. The child must seed `random` itself.
    """
    return check(_fork(), "fork")
