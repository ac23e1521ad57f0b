"""The worker pool: results in order, a hard limit on time and memory from any thread, and no worker left behind."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.sandbox import is_alive

from rewards import worker_pool
from rewards.worker_pool import Result, WorkerPool

ROOT = Path(__file__).parents[1]


@pytest.fixture
def make_pool():
    """A pool of one of Python's own functions, closed at the end of the test."""
    pools = []

    def make(function: str, timeout_s: float = 5.0, **parameters) -> WorkerPool:
        pools.append(WorkerPool(function, timeout_s, **parameters))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def wait_for_end(pid: int, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_alive(pid)


ERROR = Result("error", None)
SMALL = {"memory_bytes": 256 << 20}


@pytest.mark.parametrize(
    ("function", "options", "calls", "results"),
    [
        (
            "math:gcd",
            {"workers": 2},
            [(12, n) for n in range(1, 9)],
            [Result("done", n) for n in (1, 2, 3, 4, 1, 6, 1, 4)],
        ),
        (
            "time:sleep",
            {"timeout_s": 0.05},
            [(0,)],
            [Result("done")],
        ),  # the start of the worker does not count
        (
            "ctypes:create_string_buffer",
            {"timeout_s": 60.0, **SMALL},
            [(1 << 30,)],
            [Result("timeout")],
        ),
        ("operator:mul", SMALL, [("a", 2)], [Result("done", "aa")]),
        ("os:_exit", {}, [(3,), (0,)], [ERROR] * 2),  # a worker that dies is replaced
        ("math:sqrt", {}, [(-1,)], [Result("error", "ValueError: math domain error")]),
        ("no_such_module:function", {}, [(1,), (2,), (3,)], [ERROR] * 3),
        (
            "builtins:print",
            {},
            [("[1]",), ("[2]",)],
            [Result("done")] * 2,
        ),  # what it prints is no answer
    ],
)
def test_each_call_has_its_result_in_order(make_pool, function, options, calls, results):
    assert make_pool(function, **{"workers": 1, **options}).run(calls) == results


def test_no_calls_start_no_worker(make_pool):
    pool = make_pool("math:gcd")
    assert pool.run([]) == [] and pool._workers == []


def test_a_late_call_is_stopped_at_the_limit_in_a_worker_that_lives_on(make_pool):
    pool = make_pool("time:sleep", timeout_s=0.5, workers=1)
    pool.run([(0,)])
    late, started = pool._workers[0].process.pid, time.monotonic()
    results = pool.run([(0,), (60,), (0,)])
    assert [result.status for result in results] == ["done", "timeout", "done"]
    assert 0.4 < time.monotonic() - started < 15
    assert is_alive(late) and pool._workers[0].process.pid == late


def test_a_call_that_no_alarm_stops_is_killed_soon_after_the_limit(make_pool):
    pool = make_pool("signal:sigwait", timeout_s=0.5, workers=1)
    started = time.monotonic()
    assert [result.status for result in pool.run([([signal.SIGUSR1],)] * 2)] == ["timeout"] * 2
    assert time.monotonic() - started < 30 and pool._workers == []


def test_a_worker_that_died_between_two_batches_costs_no_call(make_pool):
    pool = make_pool("os:getpid", workers=1)
    (first,) = pool.run([()])
    os.kill(first.value, signal.SIGKILL)
    pool._workers[0].process.wait(60)
    (second,) = pool.run([()])
    assert second.status == "done" and second.value != first.value


def test_a_pool_that_is_dropped_leaves_no_worker():
    pool = WorkerPool("os:getpid", 5.0, workers=1)
    (worker,) = pool.run([()])
    del pool
    assert wait_for_end(worker.value)


def test_all_workers_are_kept_busy(make_pool):
    pool = make_pool("time:sleep", workers=2)
    pool.run([(0,), (0,)])
    started = time.monotonic()
    pool.run([(1,), (1,), (1,), (1,)])
    assert time.monotonic() - started < 3.5


def test_the_limit_holds_in_an_event_loop_off_the_main_thread_and_threads_may_share_a_pool(
    make_pool,
):
    pool = make_pool("time:sleep", timeout_s=0.5, workers=2)

    async def call(calls: list[tuple]) -> list[Result]:
        return pool.run(calls)

    with ThreadPoolExecutor(3) as threads:
        batches = list(threads.map(lambda calls: asyncio.run(call(calls)), [[(0,), (60,)]] * 3))
    assert [[result.status for result in batch] for batch in batches] == [["done", "timeout"]] * 3


def _run_in_child(pool: WorkerPool, queue) -> None:
    queue.put([pool.run([()])[0].value, os.getpid()])


def test_a_forked_process_starts_its_own_workers_and_leaves_the_parents_alone(make_pool):
    pool = make_pool("os:getppid", timeout_s=20.0, workers=1)
    assert pool.run([()]) == [Result("done", os.getpid())]
    queue = multiprocessing.get_context("fork").Queue()
    child = multiprocessing.get_context("fork").Process(target=_run_in_child, args=(pool, queue))
    child.start()
    parent_of_worker, pid = queue.get(timeout=60)
    child.join()
    assert parent_of_worker == pid
    assert pool.run([()]) == [Result("done", os.getpid())]


_ORPHAN = """
import os, signal, sys, threading
from rewards.worker_pool import WorkerPool
pool = WorkerPool(sys.argv[1], 1.0, workers=1)
pool.run([eval(sys.argv[2])])
print(pool._workers[0].process.pid, flush=True)
if sys.argv[3] == "busy":
    threading.Thread(target=pool.run, args=([eval(sys.argv[4])],), daemon=True).start()
    import time; time.sleep(0.5)
if sys.argv[3] != "exit":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("time:sleep", "(0,)", "exit"),
        ("time:sleep", "(0,)", "killed"),
        ("time:sleep", "(0,)", "busy", "(60,)"),
        ("operator:pow", "(2, 2)", "busy", "(7**4000, 999999)"),
    ],
    ids=["at exit", "killed while idle", "killed while busy", "killed while C code runs"],
)
def test_no_worker_outlives_the_process_that_started_it(arguments):
    parent = subprocess.run(
        [sys.executable, "-c", _ORPHAN, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert wait_for_end(int(parent.stdout))


def test_a_pool_is_this_ranks_share_of_the_cores_and_at_most_four(monkeypatch):
    for count, size in ((1, 1), (3, 3), (64, 4)):
        monkeypatch.setattr("rewards.sandbox.pool.worker_count", lambda count=count: count)
        assert WorkerPool("math:floor", timeout_s=1.0).size == size


def test_many_slow_calls_share_the_budget_and_what_is_left_over_is_late(make_pool, monkeypatch):
    pool = make_pool("time:sleep", timeout_s=5.0, workers=1)
    pool.run([(0,)])
    monkeypatch.setattr(worker_pool, "BUDGET_S", 1.5)
    started = time.monotonic()
    statuses = [result.status for result in pool.run([*[(60,)] * 5, (0,)])]
    assert statuses == ["timeout"] * 5 + ["done"] and time.monotonic() - started < 10
    monkeypatch.setattr(worker_pool, "BUDGET_S", 0.0)
    assert {result.status for result in pool.run([(60,)] * 30)} == {"timeout"}
