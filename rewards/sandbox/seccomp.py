"""The seccomp filter of a confined program, assembled by hand: what is not allowed returns EPERM.

    template = assemble(program(files=True))    # once
    install(template)                           # in each child, for good: nothing takes a filter away

Promises: a call under another architecture kills the process and one of the x32 table is refused; `open` has no flag
that writes, creates or only names; threads yes, processes no; signals and limits reach the process itself only.

What is not covered: pointers cannot be looked into, so which file is opened is Landlock's part.
"""

import ctypes
import errno
import os
import struct

from rewards.sandbox.syscalls import ABSENT, ALWAYS, AUDIT_ARCH, READING, machine, number

LOAD, JEQ, JGE, JSET, AND, RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NUMBER, ARCH, X32 = 0, 4, 0x40000000

# O_WRONLY O_RDWR, O_CREAT, O_TRUNC, O_APPEND, O_PATH, __O_TMPFILE: the same on both machines
OPEN_FLAGS = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o10000000 | 0o20000000
THREAD_FLAGS = 0x3D0F00  # what libc passes to make a thread (musl adds 0x400000, which has no meaning)
FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_DUPFD_CLOEXEC
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
PRCTL = (15, 16)  # the name of a thread
OWN = 0x7FABCDEF  # beyond any process id and no other operand; the child puts its own id there
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2

_libc = ctypes.CDLL(None, use_errno=True)

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def program(files: bool) -> list[Instruction]:
    """The instructions, with reading of files or without any file system; `OWN` stands for the process's own id."""
    on = machine()
    head = [(LOAD, 0, 0, ARCH), (JEQ, 1, 0, AUDIT_ARCH[on]), (RET, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if on == "x86_64":
        head += [(JGE, 0, 1, X32), (RET, 0, 0, REFUSE)]
    always = {**ALWAYS, **(READING if files else {})}
    body = [line for name in always for line in _for_call(on, name, [(RET, 0, 0, ALLOW)])]
    for name, check in _conditions(files).items():
        body += _for_call(on, name, check)
    for name in ABSENT:
        body += _for_call(on, name, [(RET, 0, 0, UNKNOWN)])
    return [*head, *body, (RET, 0, 0, REFUSE)]


def assemble(instructions: list[Instruction]) -> bytes:
    """The instructions as the kernel reads them."""
    return b"".join(struct.pack("HBBI", *line) for line in instructions)


def install(template: bytes) -> None:
    """Put the filter over this thread, for good; an error where the kernel refuses."""
    code = template.replace(struct.pack("I", OWN), struct.pack("I", os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer)))
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if _libc.prctl(NO_NEW_PRIVS, one, zero, zero, zero) or _libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), header):
        raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")


def _for_call(on: str, name: str, lines: list[Instruction]) -> list[Instruction]:
    """`lines`, which end in a return, for one call; nothing where the machine has no such call."""
    call = number(name, on)
    return [] if call is None else [(JEQ, 0, len(lines), call), *lines]


def _conditions(files: bool) -> dict[str, list[Instruction]]:
    own = _one_of(0, (OWN,))
    checks = {
        "clone": [(LOAD, 0, 0, _low(0)), (AND, 0, 0, 0xFFFFFFFF ^ 0x400000), *_equal(THREAD_FLAGS)],
        "kill": own,
        "tgkill": own,
        "prlimit64": _one_of(0, (0, OWN)),
        "fcntl": _one_of(1, FCNTL),
        "ioctl": _one_of(1, IOCTL),
        "prctl": _one_of(0, PRCTL),
        "socketpair": [  # a pair within the process, for event loops: AF_UNIX, SOCK_STREAM
            *((LOAD, 0, 0, _low(0)), (JEQ, 1, 0, 1), (RET, 0, 0, REFUSE)),
            *((LOAD, 0, 0, _low(1)), (AND, 0, 0, 0xF), *_equal(1)),
        ],
        "sendto": [  # without an address
            *((LOAD, 0, 0, _low(4)), (JEQ, 1, 0, 0), (RET, 0, 0, REFUSE)),
            *((LOAD, 0, 0, _low(4) + 4), *_equal(0)),
        ],
    }
    if files:
        checks |= {"openat": _without(2, OPEN_FLAGS), "open": _without(1, OPEN_FLAGS)}
    return checks


def _low(argument: int) -> int:
    """Where the lower half of an argument lies; the kernel reads no more of those compared here."""
    return 16 + 8 * argument


def _equal(value: int) -> list[Instruction]:
    return [(JEQ, 0, 1, value), (RET, 0, 0, ALLOW), (RET, 0, 0, REFUSE)]


def _one_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    tests = [(JEQ, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [(LOAD, 0, 0, _low(argument)), *tests, (RET, 0, 0, REFUSE), (RET, 0, 0, ALLOW)]


def _without(argument: int, bits: int) -> list[Instruction]:
    return [(LOAD, 0, 0, _low(argument)), (JSET, 0, 1, bits), (RET, 0, 0, REFUSE), (RET, 0, 0, ALLOW)]
