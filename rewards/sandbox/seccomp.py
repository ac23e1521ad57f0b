"""The seccomp filter of a confined program, assembled by hand: what is not allowed returns EPERM.

    template = assemble(program(files=True))    # once
    install(template)                           # in each child, for good: nothing takes a filter away

Promises: a call under another architecture kills the process and one of the x32 table is refused; `open` has no flag
that writes, creates or only names; threads yes, processes no; signals and limits reach the process itself only.

The kernel tries a new filter on every number there is, in each child: so the numbers are searched by halving, with
which it is ready in three quarters of the time that asking for one after the other takes.

What is not covered: pointers cannot be looked into, so which file is opened is Landlock's part.
"""

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
from typing import NamedTuple

from rewards.sandbox.libc import check, prctl
from rewards.sandbox.syscalls import ABSENT, ALWAYS, AUDIT_ARCH, READING, RECEIVING, machine, number

LOAD, JUMP, JEQ, JGE, JSET, AND, RET = 0x20, 0x05, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NUMBER, ARCH, X32 = 0, 4, 0x40000000

# O_WRONLY O_RDWR, O_CREAT, O_TRUNC, O_APPEND, O_PATH, __O_TMPFILE: the same on both machines
OPEN_FLAGS = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o10000000 | 0o20000000
THREAD_FLAGS = (
    0x3D0F00  # what libc passes to make a thread (musl adds 0x400000, which has no meaning)
)
FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_DUPFD_CLOEXEC
IOCTL = (
    0x5401,
    0x5413,
    0x541B,
    0x5421,
    0x5450,
    0x5451,
)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
PRCTL = (15, 16)  # the name of a thread
MADVISE = (4, 8, 14, 15)  # what allocators ask for: DONTNEED FREE HUGEPAGE NOHUGEPAGE
MSG_OOB = 1
MAP_STACK, STACK_BYTES = 0x20000, 8 << 20
# WAIT WAKE REQUEUE CMP_REQUEUE WAKE_OP WAIT_BITSET WAKE_BITSET, within the process: a shared one reaches other programs
FUTEX = tuple(
    operation | 0x80 | clock for operation in (0, 1, 3, 4, 5, 9, 10) for clock in (0, 0x100)
)
JOINING = (
    (0, 9, 0x109) if sys.version_info >= (3, 13) else ()
)  # there, `pthread_join` waits for the kernel in this way
OWN = 0x7FABCDEF  # beyond any process id and no other operand; the child puts its own id there
NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


class Filter(NamedTuple):
    """A filter as the kernel reads it: its header, its instructions, and where among them the own id belongs."""

    header: ctypes.Array
    code: ctypes.Array
    own: list[int]


def program(files: bool, receives: bool = False) -> list[Instruction]:
    """The instructions, with reading of files or without any file system; `OWN` stands for the process's own id.

    `receives`: for the checker, which is handed descriptors.
    """
    on = machine()
    head = [
        (LOAD, 0, 0, ARCH),
        (JEQ, 1, 0, AUDIT_ARCH[on]),
        (RET, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    if on == "x86_64":
        head += [(JGE, 0, 1, X32), (RET, 0, 0, REFUSE)]
    answers = {name: [(RET, 0, 0, ALLOW)] for name in {**ALWAYS, **(READING if files else {})}}
    answers |= {name: [(RET, 0, 0, ALLOW)] for name in (RECEIVING if receives else {})}
    answers |= _conditions(files) | {name: [(RET, 0, 0, UNKNOWN)] for name in ABSENT}
    by_number = {
        number(name, on): lines for name, lines in answers.items() if number(name, on) is not None
    }
    return [*head, *_search(_ranges(by_number))]


def assemble(instructions: list[Instruction]) -> Filter:
    """The instructions in memory that a child finds ready."""
    packed = b"".join(struct.pack("HBBI", *line) for line in instructions)
    code = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    own = [8 * place + 4 for place, line in enumerate(instructions) if line[3] == OWN]
    return Filter(ctypes.create_string_buffer(header), code, own)


def install(template: Filter) -> None:
    """Put the filter over this thread, for good; an error where the kernel refuses."""
    for place in template.own:
        struct.pack_into("I", template.code, place, os.getpid())
    check(prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    check(prctl(SET_SECCOMP, FILTER, ctypes.addressof(template.header), 0, 0), "the seccomp filter")


def _ranges(by_number: dict[int, list[Instruction]]) -> list[tuple[int, list[Instruction]]]:
    """From which number on which answer is given: `{3: a, 4: a}` is 0 refused, from 3 `a`, from 5 refused."""
    refused = [(RET, 0, 0, REFUSE)]
    found: list[tuple[int, list[Instruction]]] = []
    for call in sorted({0, *by_number, *(call + 1 for call in by_number)}):
        answer = by_number.get(call, refused)
        if not found or answer != found[-1][1]:
            found.append((call, answer))
    return found


def _search(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Find the range of a number by halving; every answer ends in a return."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    below, above = _search(ranges[:middle]), _search(ranges[middle:])
    if len(below) < 256:  # as far as a condition can jump
        return [(JGE, len(below), 0, ranges[middle][0]), *below, *above]
    return [(JGE, 0, 1, ranges[middle][0]), (JUMP, 0, 0, len(below)), *below, *above]


def _conditions(files: bool) -> dict[str, list[Instruction]]:
    checks = {
        "clone": [(LOAD, 0, 0, _low(0)), (AND, 0, 0, 0xFFFFFFFF ^ 0x400000), *_equal(THREAD_FLAGS)],
        "kill": _own_signal(1),
        "tgkill": _own_signal(2),
        "prlimit64": [  # of itself; but no new limit on processor time, by which the kernel would kill it
            *((LOAD, 0, 0, _low(0)), (JEQ, 2, 0, 0), (JEQ, 1, 0, OWN), (RET, 0, 0, REFUSE)),
            *((LOAD, 0, 0, _low(1)), (JEQ, 1, 0, resource.RLIMIT_CPU), (RET, 0, 0, ALLOW)),
            *(
                (LOAD, 0, 0, _low(2)),
                (JEQ, 1, 0, 0),
                (RET, 0, 0, REFUSE),
                (LOAD, 0, 0, _low(2) + 4),
                *_equal(0),
            ),
        ],
        "fcntl": _one_of(1, FCNTL),
        "ioctl": _one_of(1, IOCTL),
        "prctl": _one_of(0, PRCTL),
        "futex": _one_of(1, FUTEX + JOINING),
        "madvise": _one_of(2, MADVISE),
        "recvfrom": _without(3, MSG_OOB),
        "mmap": [  # no stack of a thread is small, so that memory limits their number
            *((LOAD, 0, 0, _low(3)), (JSET, 1, 0, MAP_STACK), (RET, 0, 0, ALLOW)),
            *((LOAD, 0, 0, _low(1) + 4), (JEQ, 1, 0, 0), (RET, 0, 0, ALLOW)),
            *(
                (LOAD, 0, 0, _low(1)),
                (JGE, 1, 0, STACK_BYTES),
                (RET, 0, 0, REFUSE),
                (RET, 0, 0, ALLOW),
            ),
        ],
        "socketpair": [  # a pair within the process, for event loops: AF_UNIX, SOCK_STREAM
            *((LOAD, 0, 0, _low(0)), (JEQ, 1, 0, 1), (RET, 0, 0, REFUSE)),
            *((LOAD, 0, 0, _low(1)), (AND, 0, 0, 0xF), *_equal(1)),
        ],
        "sendto": [  # without an address, and nothing out of band
            *((LOAD, 0, 0, _low(3)), (JSET, 0, 1, MSG_OOB), (RET, 0, 0, REFUSE)),
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


def _own_signal(argument: int) -> list[Instruction]:
    """To the process itself, but neither SIGKILL nor SIGSTOP: a death by these is somebody else's doing."""
    return [
        *(
            (LOAD, 0, 0, _low(0)),
            (JEQ, 1, 0, OWN),
            (RET, 0, 0, REFUSE),
            (LOAD, 0, 0, _low(argument)),
        ),
        *(
            (JEQ, 1, 0, signal.SIGKILL),
            (JEQ, 0, 1, signal.SIGSTOP),
            (RET, 0, 0, REFUSE),
            (RET, 0, 0, ALLOW),
        ),
    ]


def _without(argument: int, bits: int) -> list[Instruction]:
    return [
        (LOAD, 0, 0, _low(argument)),
        (JSET, 0, 1, bits),
        (RET, 0, 0, REFUSE),
        (RET, 0, 0, ALLOW),
    ]
