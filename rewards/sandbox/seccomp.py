"""Which system calls a confined program may make: a seccomp filter, assembled by hand.

    template = assemble(program())      # once
    install(template)                   # in each child, for good: nothing takes it away

Promises: a call that is not in the tables below is refused with EPERM. No allowed call opens, looks
up or changes a file, makes a process, runs a program, opens a socket, traces or reads another
process or its clock, maps anonymous shared files, loads code into the kernel or changes a limit,
priority or affinity of another process. A call under another architecture kills the process; a call
of the x32 table is refused. A program may make threads. Its signals and limits reach only itself.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from typing import NamedTuple

from rewards.sandbox.libc import check, forbid_new_privileges, prctl

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
Numbers = dict[str, dict[str, int | None]]


def _numbers_of(table: str) -> Numbers:
    """The numbers of calls in a table of `name x86_64 aarch64`; a dash: aarch64 lacks the call."""
    calls = zip(*[iter(table.split())] * 3, strict=True)
    return {
        name: {"x86_64": int(on_x86), "aarch64": None if on_arm == "-" else int(on_arm)}
        for name, on_x86, on_arm in calls
    }


ALWAYS = _numbers_of("""
    read 0 63  write 1 64  munmap 11 215  brk 12 214  rt_sigaction 13 134  rt_sigprocmask 14 135
    close 3 57  fstat 5 80  lseek 8 62  mprotect 10 226  mremap 25 216  rt_sigreturn 15 139
    pread64 17 67  readv 19 65  writev 20 66  poll 7 -  ppoll 271 73  select 23 -  pselect6 270 72
    sched_yield 24 124  dup 32 23  dup2 33 -  dup3 292 24  pipe 22 -  pipe2 293 59  pause 34 -
    nanosleep 35 101  getitimer 36 102  setitimer 38 103  alarm 37 -
    getpid 39 172  gettid 186 178  getppid 110 173  getuid 102 174  geteuid 107 175  getgid 104 176
    getegid 108 177  getresuid 118 148  getresgid 120 150  getgroups 115 158  exit 60 93
    exit_group 231 94  wait4 61 260  uname 63 160  getcwd 79 17  gettimeofday 96 169  time 201 -
    times 100 153  getrlimit 97 163  getrusage 98 165
    rt_sigpending 127 136  rt_sigtimedwait 128 137  rt_sigsuspend 130 133
    sigaltstack 131 132  restart_syscall 219 128  sched_getaffinity 204 123  getcpu 309 168
    set_tid_address 218 96  set_robust_list 273 99  rseq 334 293  membarrier 324 283
    getrandom 318 278  epoll_create 213 -  epoll_create1 291 20  epoll_ctl 233 21  epoll_wait 232 -
    epoll_pwait 281 22
""")
CONDITIONAL = _numbers_of("""
    futex 202 98  madvise 28 233  mmap 9 222  recvfrom 45 207  clone 56 220  kill 62 129
    tgkill 234 131  prlimit64 302 261  fcntl 72 25  ioctl 16 29  prctl 157 167  socketpair 53 199
    sendto 44 206  clock_nanosleep 230 115  clock_gettime 228 113  clock_getres 229 114
""")
ABSENT = _numbers_of("clone3 435 435  openat2 437 437")  # ENOSYS, so that libc uses the older call
CALLS = ALWAYS | CONDITIONAL | ABSENT

LOAD, JEQ, JGE, JSET, AND, RET = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
NUMBER, ARCH, X32 = 0, 4, 0x40000000

# What libc passes to make a thread; musl adds MUSL_FLAG, which has no meaning.
THREAD_FLAGS, MUSL_FLAG = 0x3D0F00, 0x400000
FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_DUPFD_CLOEXEC
# TCGETS TIOCGWINSZ FIONREAD FIONBIO FIONCLEX FIOCLEX
IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
PRCTL = (15, 16)  # the name of a thread
MADVISE = (4, 8, 14, 15)  # what allocators ask for: DONTNEED FREE HUGEPAGE NOHUGEPAGE
MSG_OOB = 1
CLOCKS = 16  # the system's clocks have lower numbers; those of processes do not
AF_UNIX, SOCK_STREAM, SOCK_TYPES = 1, 1, 0xF
MAP_STACK, STACK_BYTES = 0x20000, 8 << 20
# WAIT WAKE REQUEUE CMP_REQUEUE WAKE_OP WAIT_BITSET WAKE_BITSET, with or without the flag for the
# clock. Only private ones (0x80): a shared futex reaches other programs.
FUTEX = tuple(op | 0x80 | clock for op in (0, 1, 3, 4, 5, 9, 10) for clock in (0, 0x100))
if sys.version_info >= (3, 13):
    FUTEX += (0, 9, 0x109)  # Python now calls `pthread_join`, whose futex is not private
OWN = 0x7FABCDEF  # placeholder beyond any process id: `install` writes the own id there
PR_SET_SECCOMP, FILTER = 22, 2

Instruction = tuple[int, int, int, int]  # code, how many to skip if true, and if false, operand


class Filter(NamedTuple):
    """A filter as the kernel reads it: header, code, and the places for the own process id."""

    header: ctypes.Array
    code: ctypes.Array
    own: list[int]


def machine() -> str:
    """`x86_64` or `aarch64`; `OSError` on another machine or a system other than Linux."""
    system, name = platform.system(), platform.machine()
    if system != "Linux" or name not in AUDIT_ARCH:
        built_for = " and ".join(AUDIT_ARCH)
        raise OSError(f"no sandbox for {system} on {name}: it is built for Linux on {built_for}")
    return name


def program() -> list[Instruction]:
    """The filter: instructions (code, skip if true, skip if false, operand).

    `OWN` as an operand stands for the id of the process.
    """
    on = machine()
    # A call under another architecture kills the process, one of the x32 table is refused.
    lines = [(LOAD, 0, 0, ARCH), (JEQ, 1, 0, AUDIT_ARCH[on]), (RET, 0, 0, KILL)]
    lines.append((LOAD, 0, 0, NUMBER))
    if on == "x86_64":
        lines += [(JGE, 0, 1, X32), (RET, 0, 0, REFUSE)]
    answers = {name: [(RET, 0, 0, ALLOW)] for name in ALWAYS}
    answers |= {name: [(RET, 0, 0, UNKNOWN)] for name in ABSENT}
    for name, conditions in _conditions().items():
        answers[name] = [*conditions, (RET, 0, 0, ALLOW)]
    for name, answer in answers.items():  # behind a test for its number, skipped by other calls
        number = CALLS[name][on]
        if number is not None:  # else this machine does not have the call
            lines += [(JEQ, 0, len(answer), number), *answer]
    return [*lines, (RET, 0, 0, REFUSE)]


def assemble(instructions: list[Instruction]) -> Filter:
    """Pack the instructions as the kernel's `sock_fprog`, once, so that a child need not."""
    packed = b"".join(struct.pack("HBBI", *line) for line in instructions)
    code = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(code))
    # An instruction has 8 bytes, the last 4 for its operand.
    id_places = [8 * place + 4 for place, line in enumerate(instructions) if line[3] == OWN]
    return Filter(ctypes.create_string_buffer(header), code, id_places)


def install(template: Filter) -> None:
    """Put this thread under the filter, for good; `OSError` if the kernel refuses."""
    for place in template.own:  # where the filter compares with the own process id
        struct.pack_into("I", template.code, place, os.getpid())
    forbid_new_privileges()
    header = ctypes.addressof(template.header)
    check(prctl(PR_SET_SECCOMP, FILTER, header, 0, 0), "the seccomp filter")


# --------------------------------------------------------------------------- conditions


def _conditions() -> dict[str, list[Instruction]]:
    """For each call of `CONDITIONAL` the instructions that refuse it if a condition fails.

    Each is (code, skip if true, skip if false, operand). If all hold, the one behind them runs.
    """
    no_new_limit = [*_one_of(_low(2), 0), *_one_of(_high(2), 0)]
    # Only system clocks: a larger number holds a process id and is the clock of that process.
    a_clock = [(LOAD, 0, 0, _low(0)), (JGE, 0, 1, CLOCKS), (RET, 0, 0, REFUSE)]
    return {
        "clone": _one_of(_low(0), THREAD_FLAGS, mask=0xFFFFFFFF ^ MUSL_FLAG),
        "kill": _one_of(_low(0), OWN),
        "tgkill": _one_of(_low(0), OWN),
        "prlimit64": [
            *_one_of(_low(0), 0, OWN),
            (LOAD, 0, 0, _low(1)),
            (JEQ, 0, len(no_new_limit), resource.RLIMIT_CPU),
            *no_new_limit,
        ],
        "clock_gettime": a_clock,
        "clock_getres": a_clock,
        "clock_nanosleep": a_clock,
        "fcntl": _one_of(_low(1), *FCNTL),
        "ioctl": _one_of(_low(1), *IOCTL),
        "prctl": _one_of(_low(0), *PRCTL),
        "futex": _one_of(_low(1), *FUTEX),
        "madvise": _one_of(_low(2), *MADVISE),
        "recvfrom": _without(_low(3), MSG_OOB),
        # Without an address and without out-of-band data.
        "sendto": [*_without(_low(3), MSG_OOB), *_one_of(_low(4), 0), *_one_of(_high(4), 0)],
        # Event loops need a pair of sockets within the process.
        "socketpair": [*_one_of(_low(0), AF_UNIX), *_one_of(_low(1), SOCK_STREAM, mask=SOCK_TYPES)],
        # A thread's stack must be large, so that the memory limit also limits threads.
        "mmap": [
            (LOAD, 0, 0, _low(3)),
            (JSET, 0, 5, MAP_STACK),
            (LOAD, 0, 0, _high(1)),
            (JEQ, 0, 3, 0),
            (LOAD, 0, 0, _low(1)),
            (JGE, 1, 0, STACK_BYTES),
            (RET, 0, 0, REFUSE),
        ],
    }


def _low(argument: int) -> int:
    """The offset of an argument's lower half in what the kernel shows a filter of a call.

    Of most arguments the kernel reads only this half.
    """
    return 16 + 8 * argument


def _high(argument: int) -> int:
    """The offset of an argument's upper half."""
    return _low(argument) + 4


def _one_of(place: int, *values: int, mask: int | None = None) -> list[Instruction]:
    """Refuse the call unless the word at this offset, under the mask, is one of the values."""
    masked = [] if mask is None else [(AND, 0, 0, mask)]
    # A value that is equal skips the other tests and the refusal.
    tests = [(JEQ, len(values) - number, 0, value) for number, value in enumerate(values)]
    return [(LOAD, 0, 0, place), *masked, *tests, (RET, 0, 0, REFUSE)]


def _without(place: int, bits: int) -> list[Instruction]:
    """Refuse the call if the word at this offset has any of the bits."""
    return [(LOAD, 0, 0, place), (JSET, 0, 1, bits), (RET, 0, 0, REFUSE)]
