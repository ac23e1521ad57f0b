"""Landlock: which files a confined program may read, and that it may do nothing else with files,
ports and processes.

    rules = ruleset(["/usr/lib/python3.11"])        # once, in the zygote
    restrict(rules)                                 # in each child, for good

Promises: every right that the running kernel knows is handled, so all are refused but reading files
and folders under the given paths; TCP ports (ABI 4), abstract sockets and signals to others (ABI 6)
are refused as well.

What is not covered: `stat` and `chdir` (Landlock has no right for them; the seccomp filter refuses
the second).
"""

import ctypes
import os
import struct
from collections.abc import Sequence

from rewards.sandbox.libc import check, forbid_new_privileges, syscall

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on x86_64 and aarch64
READ_FILE, READ_DIR = 1 << 2, 1 << 3
NET, SCOPES = 0b11, 0b11
PACKAGES = {"site-packages", "dist-packages"}  # what is installed may hold data sets with answers
FILE_RIGHTS = (0, 13, 14, 15, 15, 16)  # how many an ABI has; later ones as many as 5


def abi() -> int:
    """The version of Landlock that this kernel has, 0 for none."""
    return max(0, syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def ruleset(readable: Sequence[str]) -> int:
    """A descriptor of rules: reading under the paths that exist; an error without Landlock."""
    version = abi()
    if not version:
        raise OSError("this kernel has no Landlock")
    rights = (1 << FILE_RIGHTS[min(version, 5)]) - 1
    handled = [rights, NET if version >= 4 else None, SCOPES if version >= 6 else None]
    data = b"".join(struct.pack("Q", right) for right in handled if right is not None)
    rules = _call(CREATE_RULESET, data, ctypes.c_size_t(len(data)), ctypes.c_uint(0))
    for path in readable:
        _allow(rules, path)
    return rules


def restrict(rules: int) -> None:
    """Put this thread under the rules, for good."""
    forbid_new_privileges()
    _call(RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0))


def _allow(rules: int, path: str) -> None:
    """Let a path be read; of a library in which packages are installed all but those."""
    if not os.path.exists(path):
        return
    rights = READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE
    if rights & READ_DIR and not PACKAGES.isdisjoint(entries := os.listdir(path)):
        for name in set(entries) - PACKAGES:
            _allow(rules, os.path.join(path, name))
        rights = READ_DIR
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, place)
        _call(ADD_RULE, ctypes.c_int(rules), ctypes.c_uint(1), rule, ctypes.c_uint(0))
    finally:
        os.close(place)


def _call(number: int, *arguments: object) -> int:
    return check(syscall(number, *arguments), f"Landlock call {number}")
