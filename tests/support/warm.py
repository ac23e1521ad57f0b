"""Start Python programs without waiting for their imports: a process that has made them forks.

Four fifths of a short launch are imports. `warm.py serve SOCKET` makes them once and then forks
for each program that `warm.py ask SOCKET WORDS` hands over, with the environment, the working
directory, the network and the open files of who asked. Launchers find it under the name of the
interpreter, so `accelerate launch` and its ranks are what they are elsewhere but for their imports.
Its parent is not who asked for it: a program that looks at its parent, or is to end with it, is
started without.
"""

import atexit
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading

IMPORTED = ["accelerate.commands.launch", "matplotlib.pyplot", "peft", "reasoning_gym"]
IMPORTED += ["scipy.stats"]  # of the verdict
IMPORTED += [f"recipes.common.{name}" for name in ("run", "checks.preflight", "report.record")]
IMPORTED += [f"recipes.common.{name}" for name in ("sampling.idle", "training.tracking")]
CLONE_NEWNET = 0x40000000  # os.setns is of Python 3.12


def ask(path: str, words: list[str]) -> int:
    """The exit status of the program; it gets the signals of this process, and dies with it."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, frame: link.sendall(b"%d\n" % number))
        network = os.open("/proc/self/ns/net", os.O_RDONLY)  # of the machine that a test plays
        socket.send_fds(link, [b"-"], [0, 1, 2, network])
        request = {"words": words, "env": dict(os.environ), "cwd": os.getcwd()}
        link.sendall(json.dumps(request).encode() + b"\n")
        return int(link.makefile().readline() or 1)


def serve(path: str) -> None:
    """Fork for each that asks, until the process that started this one is gone."""
    runpy.run_path("recipes/gsm8k/train.py", run_name="recipe")  # test_rooms reads what that loads
    with open(path.removesuffix("socket") + "modules", "w") as file:
        print(*sys.modules, file=file)
    for name in IMPORTED:
        importlib.import_module(name)
    # Each trainer imports DeepSpeed, whatever its engine. It looks for accelerators as it is
    # imported, and a process that has found one could not fork.
    if sys.modules["torch"].version.cuda is None:
        importlib.import_module("deepspeed.launcher.runner")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(f"{path}.new")
        link.listen()
        os.rename(f"{path}.new", path)
        while link in select.select([link, sys.stdin], [], [])[0]:
            asked, _ = link.accept()
            if not os.fork():
                link.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                watch(asked, f"{path}.python")
            asked.close()


def watch(asked: socket.socket, python: str) -> None:
    """Fork once more for the program, and tell its status to the one that asked."""
    _, (*files, network), *_ = socket.recv_fds(asked, 1, 4)
    request = json.loads(asked.makefile().readline())
    program = os.fork()
    if not program:
        asked.close()
        if os.stat(network).st_ino != os.stat("/proc/self/ns/net").st_ino:
            assert ctypes.CDLL(None).setns(network, CLONE_NEWNET) == 0
        os.close(network)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        run_program(**request, python=python)
    for file in (*files, network):
        os.close(file)
    ended = os.pidfd_open(program)
    while ended not in select.select([ended, asked], [], [])[0]:
        for number in asked.recv(64).split() or [signal.SIGKILL]:
            os.kill(program, int(number))
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    try:
        asked.sendall(f"{status if status >= 0 else 128 - status}\n".encode())
    finally:
        os._exit(0)


def run_program(words: list[str], env: dict[str, str], cwd: str, python: str) -> None:
    """Be `python WORDS`; `python` is what a launcher starts its own programs by."""
    import torch
    from wandb.sdk.data_types._private import MEDIA_TMP

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    # What is read when these are imported, and a folder that a program removes at its end.
    torch.set_num_threads(int(env.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))))
    MEDIA_TMP.name += f"-{os.getpid()}"
    os.mkdir(MEDIA_TMP.name)
    words = words[1:] if words[0] == "-u" else words
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    sys.path[0] = cwd if is_module else os.path.dirname(os.path.abspath(words[0]))
    sys.path[1:1] = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p not in sys.path]
    status = 0
    try:
        if is_module:
            sys.executable = python
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    # As the interpreter ends, but for its threads in C++: one that still runs would abort it.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
