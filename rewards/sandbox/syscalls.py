"""Numbers of the system calls that a confined program may make, by machine, and the conditions on some of them.

What is not here is refused with EPERM. Promises: nothing that makes a process, runs a program, opens a socket, writes,
creates, renames or removes a file, changes its mode, owner or times, traces or reads another process, maps anonymous
shared files, loads code into the kernel or changes a limit, priority or affinity of another process.

What is not covered: in the mode with a file system, `stat` tells whether any path exists (Landlock does not hide it).
"""

import platform

Numbers = dict[str, tuple[int, int | None]]


def _read(table: str) -> Numbers:
    """A table of `name x86_64 aarch64`, three words a call; a dash where aarch64 has no such call."""
    calls = zip(*[iter(table.split())] * 3, strict=True)
    return {
        name: (int(on_x86), None if on_arm == "-" else int(on_arm))
        for name, on_x86, on_arm in calls
    }


ALWAYS = _read("""
    read 0 63  write 1 64  munmap 11 215  brk 12 214  rt_sigaction 13 134  rt_sigprocmask 14 135  close 3 57
    fstat 5 80  lseek 8 62  mprotect 10 226  mremap 25 216  rt_sigreturn 15 139  pread64 17 67  readv 19 65
    writev 20 66  poll 7 -  ppoll 271 73  select 23 -  pselect6 270 72  sched_yield 24 124  dup 32 23  dup2 33 -
    dup3 292 24  pipe 22 -  pipe2 293 59  pause 34 -  nanosleep 35 101  clock_nanosleep 230 115
    getitimer 36 102  setitimer 38 103  alarm 37 -  getpid 39 172  gettid 186 178  getppid 110 173
    getuid 102 174  geteuid 107 175  getgid 104 176  getegid 108 177  getresuid 118 148  getresgid 120 150
    getgroups 115 158  exit 60 93  exit_group 231 94  wait4 61 260  uname 63 160  getcwd 79 17
    gettimeofday 96 169  time 201 -  times 100 153  clock_gettime 228 113  clock_getres 229 114
    getrlimit 97 163  getrusage 98 165  sysinfo 99 179  rt_sigpending 127 136  rt_sigtimedwait 128 137
    rt_sigsuspend 130 133  sigaltstack 131 132  restart_syscall 219 128  sched_getaffinity 204 123
    getcpu 309 168  set_tid_address 218 96  set_robust_list 273 99  rseq 334 293  membarrier 324 283
    getrandom 318 278  epoll_create 213 -  epoll_create1 291 20  epoll_ctl 233 21  epoll_wait 232 -
    epoll_pwait 281 22
""")
# Reading files: left out where there is no file system at all. Which files, Landlock says.
READING = _read("""
    stat 4 -  lstat 6 -  access 21 -  newfstatat 262 79  statx 332 291  faccessat 269 48  faccessat2 439 439
    getdents64 217 61
""")
RECEIVING = _read("recvmsg 47 212")  # for the checker alone, which takes no program
CONDITIONAL = _read("""
    open 2 -  futex 202 98  madvise 28 233  mmap 9 222  recvfrom 45 207  openat 257 56  clone 56 220
    kill 62 129  tgkill 234 131  prlimit64 302 261  fcntl 72 25  ioctl 16 29  prctl 157 167  socketpair 53 199
    sendto 44 206
""")
ABSENT = _read(
    "clone3 435 435  openat2 437 437"
)  # answered ENOSYS, so that libc takes the older way
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def machine() -> str:
    """`x86_64` or `aarch64`; on any other, and on any system but Linux, an error."""
    system, name = platform.system(), platform.machine()
    if system != "Linux" or name not in AUDIT_ARCH:
        raise OSError(
            f"no sandbox for {system} on {name}: it is built for Linux on {' and '.join(AUDIT_ARCH)}"
        )
    return name


def number(name: str, on: str) -> int | None:
    """The number of a call on a machine, None where there is none."""
    for table in (ALWAYS, READING, RECEIVING, CONDITIONAL, ABSENT):
        if name in table:
            return table[name][list(AUDIT_ARCH).index(on)]
    raise KeyError(name)
