"""Worker processes with a hard limit on the time and the memory of every call.

    pool = WorkerPool("rewards.latex.prove:ask_math_verify", timeout_s=2.0)
    pool.run([("x", "x"), ("x", "y")])          # [Result("done", True), Result("done", False)]

A limit inside the caller's process would be `signal.alarm`, which raises in the main thread only and not while C code
runs. Here the worker stops a late call by its own alarm, and one that does not stop loses its process, by SIGKILL, from
whatever thread, event loop or forked process `run` was called. Workers are started when they are first needed, as fresh
interpreters (a fork would inherit the locks of torch's threads), and end with their pool and the process that started
them.

What is not covered: a worker is not a sandbox. It may do what its function does.

Not pebble (tried 5.2.3): its pool raises after a fork, its workers outlive a killed parent while C code runs, and
multiprocessing's `spawn` would import the script that trains, with torch, in each of them.
"""

import atexit
import contextlib
import importlib
import json
import math
import os
import queue
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

MAX_WORKERS = 4
START_S = 120.0  # for the imports of a worker, on a machine that is busy
GRACE_S = 0.5  # a call that has not stopped so long after its limit loses its process
LEAST_S = 0.1  # for a call, however many there are
MEMORY_BYTES = 2 << 30
BUDGET_S = 120.0  # for all calls of a batch: less than a trainer waits for a reward

_pools: weakref.WeakSet["WorkerPool"] = weakref.WeakSet()


class Result(NamedTuple):
    """`status` is done, timeout (the call took too long, or too much memory) or error (the worker died or raised)."""

    status: str
    value: Any = None


class WorkerPool:
    """Calls one function, named `module:function`, in worker processes; arguments and results travel as JSON."""

    def __init__(
        self,
        function: str,
        timeout_s: float,
        workers: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ):
        from rewards.sandbox.pool import worker_count  # importing a reward stays light

        self.function, self.timeout_s, self.memory_bytes = function, timeout_s, memory_bytes
        self.size = workers or min(MAX_WORKERS, worker_count())
        self._forget()
        _pools.add(self)

    def run(self, calls: Sequence[tuple]) -> list[Result]:
        """The result of each call, in order; several threads take turns.

        Where many calls are slow, each gets its share of `BUDGET_S` instead of `timeout_s`, so that none is left out.
        """
        with self._lock:
            until = time.monotonic() + BUDGET_S
            results: list[Result] = [Result("error")] * len(calls)
            waiting = list(enumerate(calls))[::-1]
            self._failed_starts = 0
            self._workers = [worker for worker in self._workers if worker.process.poll() is None]
            while waiting or any(worker.call is not None for worker in self._workers):
                self._hand_out(waiting, until)
                if not self._workers:
                    break
                self._collect(results)
                if (
                    time.monotonic() > until
                ):  # their share went to calls that were killed, and to new workers
                    for place, _ in waiting:
                        results[place] = Result("timeout")
                    waiting.clear()
            return results

    def close(self) -> None:
        """Kill the workers; the next `run` starts new ones."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    __del__ = close

    def _hand_out(self, waiting: list[tuple[int, tuple]], until: float) -> None:
        while (
            len(self._workers) < min(self.size, len(waiting))
            and self._failed_starts < 2 * self.size
        ):
            self._workers.append(_Worker(self.function, self.memory_bytes))
        for worker in self._workers:
            if waiting and worker.ready and worker.call is None:
                share = self.size * (until - time.monotonic()) / len(waiting)
                worker.send(*waiting.pop(), min(self.timeout_s, max(LEAST_S, share)))

    def _collect(self, results: list[Result]) -> None:
        """Wait until a worker has answered, died or run out of time, and take note."""
        with selectors.DefaultSelector() as selector:
            pending = [
                worker for worker in self._workers if worker.call is not None or not worker.ready
            ]
            for worker in pending:
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            until = min(worker.deadline for worker in pending)
            answered = {key.data for key, _ in selector.select(max(0.0, until - time.monotonic()))}
        for worker in pending:
            is_late = worker not in answered and time.monotonic() >= worker.deadline
            result = worker.receive() if worker in answered else None
            result = Result("timeout" if worker.ready else "error") if is_late else result
            if result is None:  # nothing yet, part of a line, or the news that the worker is ready
                continue
            if worker.call is not None:
                results[worker.call] = result
            worker.call = None
            if result.status == "error" or is_late:
                self._failed_starts += not worker.ready
                worker.kill()
                self._workers.remove(worker)

    def _forget(self) -> None:
        """Let go of workers that another process talks to: after a fork, this one starts its own."""
        for worker in getattr(self, "_workers", []):
            worker.disown()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()


class _Worker:
    """One process, its two pipes and the call that it is busy with."""

    def __init__(self, function: str, memory_bytes: int):
        command = [sys.executable, "-m", "rewards.worker_pool", function, str(memory_bytes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        root = Path(__file__).resolve().parents[1]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=root,
            env=environment,
            bufsize=0,
        )
        self.ready, self.call, self.buffer = False, None, b""
        self.deadline = time.monotonic() + START_S

    def send(self, call: int, arguments: tuple, limit_s: float) -> None:
        self.call, self.deadline = call, time.monotonic() + limit_s + GRACE_S
        with contextlib.suppress(BrokenPipeError):  # it has died: the end of its output says so
            self.process.stdin.write(json.dumps([limit_s, *arguments]).encode() + b"\n")

    def receive(self) -> Result | None:
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            return Result("error")
        self.buffer += data
        if not self.buffer.endswith(b"\n"):
            return None
        line, self.buffer = self.buffer, b""
        if not self.ready:
            self.ready = True
            return None
        return Result(*json.loads(line))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.disown()

    def disown(self) -> None:
        """Close this process's ends of the pipes; a worker whose pipes are all closed ends by itself."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.process.returncode = self.process.returncode or 0  # not our child: nothing to wait for


atexit.register(lambda: [pool.close() for pool in list(_pools)])
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [pool._forget() for pool in list(_pools)])


# --------------------------------------------------------------------------- in the worker


class _Late(BaseException):
    """Not an Exception, which the function may catch."""


def serve(function: str, memory_bytes: int) -> None:
    """Answer calls from stdin until it ends. What the function prints does not mix with the answers."""
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    getattr(call, "warm_up", lambda: None)()
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    output.write(b"ready\n")
    while True:
        limit_s, *arguments = json.loads(lines.get())
        _limit_cpu(limit_s)
        output.write(json.dumps(_answer(call, arguments, limit_s)).encode() + b"\n")


def _answer(call: Any, arguments: list, limit_s: float) -> Result:
    is_running = True

    def stop(*_: Any) -> None:
        if is_running:
            raise _Late

    signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(
            signal.ITIMER_REAL, limit_s, GRACE_S / 5
        )  # again and again, should the function catch it
        try:
            return Result("done", call(*arguments))
        finally:
            is_running = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    except (MemoryError, _Late):
        return Result("timeout")
    except Exception as error:
        return Result("error", f"{type(error).__name__}: {error}"[:500])


def _limit_cpu(limit_s: float) -> None:
    """The kernel ends a call that nobody is left to kill: no Python code runs while C code holds the lock."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(usage.ru_utime + usage.ru_stime + limit_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _read(lines: queue.SimpleQueue) -> None:
    """Pass on the lines of stdin, in a thread of its own, so that their end also ends a worker that is busy."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
