"""Confinement: each promise is attacked alone, by a harmless stand-in, in a forked child."""

import ctypes
import errno
import json
import os
import resource
import signal
import struct
from pathlib import Path

import pytest
from support.sandbox import on_linux

from rewards.sandbox import Sandbox, SandboxError, confinement, libc, seccomp

pytestmark = on_linux
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes user: needs root")
UID = 61234


def in_child(work, *confinements):
    """What `work` returns, or the name of its error, in a forked child under the confinements."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            for put in confinements:
                put()
            answer = work()
        except BaseException as error:
            answer = type(error).__name__
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if text else status


def filtered():
    seccomp.install(seccomp.assemble(seccomp.program()))


def limited(tasks=8):
    def limit():
        if os.geteuid() == 0:
            confinement.drop_user(UID)
        confinement.limit_resources(1, tasks)

    return limit


def raw_call(number, *arguments):
    """The error number of a call made past Python."""
    libc = ctypes.CDLL(None, use_errno=True)
    answer = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return ctypes.get_errno() if answer < 0 else 0


# ------------------------------------------------------------------ seccomp


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("futex", (0, operation)) for operation in (0, 1, 6, 9, 11, 13, 0x86, 0x87, 0x8B, 0x8D)),
        *(("madvise", (0, 0, advice)) for advice in (3, 9, 12, 20, 21, 22, 23, 100, 101)),
        ("recvmsg", (0, 0, 0)),
        ("sendto", (0, 0, 0, 1, 0, 0)),
        ("recvfrom", (0, 0, 0, 1, 0, 0)),
        ("mmap", (0, 4 << 20, 3, 0x20022, -1, 0)),
        ("prlimit64", (0, 0, 4096, 0)),
        ("prlimit64", ("own", 0, 1 << 40, 0)),
        ("kill", (1, 0)),
        ("tgkill", (1, 1, 0)),
        *((name, (~1 << 3 | 2, 0, 0, 0)) for name in ("clock_gettime", "clock_getres")),
        ("clock_nanosleep", (~1 << 3 | 2, 0, 0, 0)),
        ("clone", (0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)),
    ],
)
def test_the_filter_refuses_these_arguments(name, arguments):
    def work():
        values = [os.getpid() if value == "own" else value for value in arguments]
        machine = seccomp.machine()
        number = NUMBERS[machine].get(name) or seccomp.CALLS[name][machine]
        return raw_call(number, *values)

    assert in_child(work, filtered) == 1


def answer_of(instructions, number, arch, arguments=(0,) * 6):
    """What a filter answers to a call, by running it as the kernel does."""
    data = struct.pack("IIQ6Q", number, arch, 0, *arguments)
    place = value = 0
    while True:
        code, yes, no, operand = instructions[place]
        place += 1
        if code == seccomp.LOAD:
            value = struct.unpack_from("I", data, operand)[0]
        elif code == seccomp.AND:
            value &= operand
        elif code == seccomp.RET:
            return operand
        else:
            holds = {
                seccomp.JEQ: value == operand,
                seccomp.JGE: value >= operand,
                seccomp.JSET: value & operand,
            }
            place += yes if holds[code] else no


# Calls that no table may ever allow, by their numbers.
NUMBERS = {
    "x86_64": dict(ptrace=101, shmget=29, process_vm_readv=310, io_uring_setup=425, bpf=321,
                   unshare=272, mount=165, setxattr=188, userfaultfd=323, perf_event_open=298,
                   keyctl=250, pidfd_open=434, msgget=68, fork=57, vfork=58, execveat=322,
                   inotify_init1=294, sendmsg=46, truncate=76, rename=82, recvmsg=47,
                   open=2, openat=257, stat=4, statx=332, getdents64=217, access=21, readlink=89,
                   arch_prctl=158, get_robust_list=274, sysinfo=99, x32_getpid=0x40000000 | 39),
    "aarch64": dict(ptrace=117, shmget=194, process_vm_readv=270, io_uring_setup=425, bpf=280,
                    unshare=97, mount=40, setxattr=5, userfaultfd=282, perf_event_open=241,
                    keyctl=219, pidfd_open=434, msgget=186, execveat=281, inotify_init1=26,
                    openat=56, statx=291, newfstatat=79, getdents64=61, faccessat=48, readlinkat=78,
                    sendmsg=211, truncate=45, recvmsg=212, get_robust_list=100, sysinfo=179),
}  # fmt: skip


@pytest.mark.parametrize("machine", NUMBERS)
def test_every_number_is_answered_as_its_table_says(machine, monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: machine)
    lines, arch = seccomp.program(), seccomp.AUDIT_ARCH[machine]
    assert all(jump < 256 for _, *jumps, _ in lines for jump in jumps)
    answers = dict.fromkeys(range(1024), seccomp.REFUSE)
    for table, answer in ((seccomp.ALWAYS, seccomp.ALLOW), (seccomp.ABSENT, seccomp.UNKNOWN)):
        answers |= {numbers[machine]: answer for numbers in table.values()}
    for numbers in seccomp.CONDITIONAL.values():
        answers.pop(numbers[machine], None)
    answers.pop(None, None)
    assert {number: answer_of(lines, number, arch) for number in answers} == answers
    assert {answer_of(lines, n, arch) for n in NUMBERS[machine].values()} == {seccomp.REFUSE}
    assert answer_of(lines, 0, 0x40000003) == seccomp.KILL  # of another architecture


def test_another_machine_is_an_error(monkeypatch):
    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no sandbox for Linux on riscv64"):
        seccomp.machine()


# ------------------------------------------------------------------ user, dumping, limits


def capabilities():
    lines = Path("/proc/self/status").read_text().splitlines()
    return [int(line.split()[1], 16) for line in lines if line.startswith(("CapEff", "CapPrm"))]


def prctl(number):
    return lambda: ctypes.CDLL(None).prctl(number, 0, 0, 0, 0)


def dropped():
    confinement.drop_user(UID)


def limit_of(name):
    return lambda: list(resource.getrlimit(getattr(resource, name)))


@pytest.mark.parametrize(
    ("attack", "answer", "confine"),
    [
        pytest.param(os.getresuid, [UID] * 3, dropped, marks=needs_root),
        pytest.param(os.getresgid, [UID] * 3, dropped, marks=needs_root),
        pytest.param(os.getgroups, [], dropped, marks=needs_root),
        pytest.param(lambda: os.setuid(0), "PermissionError", dropped, marks=needs_root),
        pytest.param(capabilities, [0, 0], confinement.drop_capabilities, marks=needs_root),
        pytest.param(libc.fork, "BlockingIOError", limited(tasks=1), marks=needs_root),
        (prctl(3), 0, confinement.forbid_dumping),
        (prctl(39), 1, libc.forbid_new_privileges),
        (lambda: len(bytearray(2 << 30)), "MemoryError", limited()),
        (lambda: [os.dup(0) for _ in range(100)], "OSError", limited()),
        (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)), "ValueError", limited()),
        (limit_of("RLIMIT_CORE"), [0, 0], limited()),
        (limit_of("RLIMIT_CPU"), [1, 1], limited()),
        (limit_of("RLIMIT_FSIZE"), [1 << 20] * 2, limited()),
        (limit_of("RLIMIT_MEMLOCK"), [0, 0], limited()),
        (lambda: confinement.die_with(1), -signal.SIGKILL, lambda: None),  # an orphan by now
    ],
)
def test_a_confined_child_gets_this_answer_and_no_other(attack, answer, confine):
    assert in_child(attack, confine) == answer


def test_a_refused_sandbox_says_which_step_failed():
    def without_filters():  # as on an emulator
        number, argument = seccomp.CALLS["prctl"][seccomp.machine()], 16
        refused = 0x00050000 | errno.EINVAL
        lines = [
            (seccomp.LOAD, 0, 0, seccomp.NUMBER), (seccomp.JEQ, 0, 3, number),
            (seccomp.LOAD, 0, 0, argument), (seccomp.JEQ, 0, 1, seccomp.PR_SET_SECCOMP),
            (seccomp.RET, 0, 0, refused), (seccomp.RET, 0, 0, seccomp.ALLOW),
        ]  # fmt: skip
        seccomp.install(seccomp.assemble(lines))

    def start():
        try:
            Sandbox(workers=1).start()
        except SandboxError as error:
            return str(error)

    assert "confined: [Errno 22] the seccomp filter" in in_child(start, without_filters)
