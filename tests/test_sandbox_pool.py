"""The pool: all workers busy, hard limits, nothing left, no verdict lost to a failure of ours."""

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.sandbox import is_alive

from rewards.sandbox import (
    Asserts,
    Sandbox,
    SandboxError,
    Stdio,
    ZygoteDied,
    cgroups,
    pool,
    shared_sandbox,
)
from rewards.sandbox.clock import Clock
from rewards.sandbox.self_test import REFUSED, probe

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)
ROOT = Path(__file__).parents[1]
RIGHT = Asserts("def f(x): return 2 * x", ["assert f(2) == 4"])
WRONG = Asserts("def f(x): return x", ["assert f(2) == 4"])
SLOW = Asserts("import time\ndef f(x): time.sleep(x); return 1", ["assert f(0.2) == 1"])
HANGS = Asserts("def f(x):\n    while True: pass", ["assert f(1) == 1"], timeout_s=1.0)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=2) as made:
        yield made


def zygotes(sandbox):
    return [slot.process.pid for slot in sandbox._all if slot.process]


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


def descendants(pid):
    try:
        children = [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []
    return children + [below for child in children for below in descendants(child)]


def test_a_batch_keeps_all_workers_busy(sandbox):
    started = time.monotonic()
    outcomes = sandbox.run_batch([SLOW] * 6)
    assert statuses(outcomes) == ["pass"] * 6
    assert time.monotonic() - started < 0.75 * sum(outcome.seconds for outcome in outcomes)


def test_batches_of_several_threads_come_back_in_order(sandbox):
    scripts = [Stdio("print(input())", [(str(n), str(n % 3))]) for n in (2, 3)]
    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(sandbox.run_batch, [WRONG, RIGHT, *scripts]) for _ in range(12)]
        answers = [statuses(future.result()) for future in futures]
    assert answers == [["fail", "pass", "pass", "fail"]] * 12


def test_the_limit_holds_and_nothing_is_left(sandbox):
    started = time.monotonic()
    assert statuses(sandbox.run_batch([HANGS, RIGHT, HANGS])) == ["fail", "pass", "fail"]
    assert time.monotonic() - started < 4
    assert [descendants(pid) for pid in zygotes(sandbox)] == [[], []]


def test_a_call_without_descriptors_left_leaks_none_and_is_our_failure(sandbox):
    sandbox.run_batch([RIGHT])
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for more in range(1, 14):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + more, hard))
        try:
            (asserts,) = sandbox.run_batch([RIGHT])
            (stdio,) = sandbox.run_batch([Stdio("print(1)", [("", "1")])])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert {asserts.status, stdio.status} <= {"pass", "infra"}
        assert len(os.listdir("/proc/self/fd")) <= before
    assert asserts.status == "pass"
    of_every_kind = [RIGHT, HANGS, Stdio("print(1)", [("", "1")]), WRONG, Asserts("(", ["f()"])]
    ended = ["pass", "fail", "pass", "fail", "fail"]
    assert statuses(sandbox.run_batch(of_every_kind)) == ended
    assert len(os.listdir("/proc/self/fd")) <= before


CHECKER, WORKER = 0, 1


@pytest.mark.parametrize(
    ("place", "number"),
    [
        (CHECKER, signal.SIGKILL),
        (CHECKER, signal.SIGTERM),  # a program may end itself in this way, a checker never does
        (WORKER, signal.SIGKILL),
        pytest.param(CHECKER, signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param(WORKER, signal.SIGSTOP, marks=pytest.mark.slow),
    ],
)
def test_a_child_that_somebody_else_ends_or_stops_costs_no_verdict(place, number, sandbox):
    job = SLOW._replace(tests=["assert f(0.4) == 1"], timeout_s=1.5)

    def harm():
        children = [descendants(pid) for pid in zygotes(sandbox)]
        os.kill(next(child for child in children if child)[place], number)

    killer = threading.Timer(0.2, harm)
    killer.start()
    assert statuses(sandbox.run_batch([job])) == ["pass"]
    killer.join()


@pytest.mark.slow
def test_time_in_which_the_whole_job_is_stopped_is_not_the_programs(sandbox):
    def stop():
        pids = [pid for zygote in zygotes(sandbox) for pid in (zygote, *descendants(zygote))]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                os.kill(pid, number)
            time.sleep(3.0 if number == signal.SIGSTOP else 0)

    stopper = threading.Timer(0.2, stop)
    stopper.start()
    outcome = sandbox.run_batch([SLOW._replace(tests=["assert f(0.6) == 1"], timeout_s=2.0)])[0]
    stopper.join()
    assert outcome[:2] == ("pass", "")


def test_a_clock_counts_a_stop_as_a_second_at_most(monkeypatch):
    now = iter([10.0, 10.25, 10.5, 70.0, 70.5])
    monkeypatch.setattr("rewards.sandbox.clock.time.monotonic", lambda: next(now))
    clock = Clock()
    assert [clock.seconds() for _ in range(4)] == [0.25, 0.5, 1.5, 2.0]


def test_a_trainer_that_ignores_or_blocks_the_death_of_children_can_start():
    for line in (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
        "signal.pthread_sigmask(0, {signal.SIGCHLD})",
    ):
        work = f"import signal\n{line}\nfrom rewards.sandbox import Sandbox\n"
        work += "with Sandbox(workers=1) as made:\n"
        work += "    print(made.run_asserts('def f(): return 1', ['assert f() == 1'])[:2])"
        ran = subprocess.run(
            [sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert ran.stdout == "('pass', '')\n", ran.stderr


def test_one_checker_serves_many_programs_and_is_gone_after_the_last():
    with Sandbox(workers=1) as sandbox:
        assert statuses(sandbox.run_batch([WRONG, RIGHT] * 40)) == ["fail", "pass"] * 40
        slot = sandbox._all[0]
        assert slot.served == 16 and slot.checker is None and descendants(slot.process.pid) == []


def test_a_zygote_killed_in_mid_batch_costs_no_verdict(sandbox):
    killer = threading.Timer(
        0.3, lambda: [os.kill(pid, signal.SIGKILL) for pid in zygotes(sandbox)]
    )
    killer.start()
    assert statuses(sandbox.run_batch([SLOW, WRONG] * 5)) == ["pass", "fail"] * 5
    killer.join()


def test_a_zygote_that_dies_twice_is_infra_and_no_grade():
    with Sandbox(workers=1) as sandbox:
        sandbox._all[0].run = lambda *_: (_ for _ in ()).throw(pool.ZygoteDied("planted"))
        outcome = sandbox.run_batch([RIGHT])[0]
        assert outcome[:2] == ("infra", "planted") and outcome.passed == (False,)


def test_an_error_of_ours_costs_the_row_that_it_happened_in(sandbox, monkeypatch):
    def fails_once(slot, job, run=pool.run_job):
        return run(slot, job) if job is RIGHT else [][0]

    monkeypatch.setattr(pool, "run_job", fails_once)
    outcomes = sandbox.run_batch([RIGHT, WRONG, RIGHT])
    assert statuses(outcomes) == ["pass", "infra", "pass"]
    assert outcomes[1].reason == "IndexError: list index out of range"


def test_a_stopped_zygote_is_given_up(monkeypatch):
    monkeypatch.setattr("rewards.sandbox.slot.OVERDUE_S", 0.5)
    with Sandbox(workers=1) as sandbox:
        os.kill(zygotes(sandbox)[0], signal.SIGSTOP)
        started = time.monotonic()
        assert sandbox.run_batch([RIGHT._replace(timeout_s=0.5)])[0].status == "pass"
        assert time.monotonic() - started < 10


def test_after_closing_no_process_is_left_and_the_next_call_starts_anew():
    sandbox = Sandbox(workers=2)
    assert sandbox.run_batch([RIGHT, RIGHT])[1].status == "pass"
    pids = zygotes(sandbox)
    sandbox.close()
    assert pids and not any(
        Path(f"/proc/{pid}").exists() for pid in pids
    )  # nor dead and not reaped
    assert sandbox.run_batch([RIGHT])[0].status == "pass"
    sandbox.close()


TRAINER = """
import os, sys, time
from rewards.sandbox import Asserts, Sandbox
sandbox = Sandbox(workers=1)
sandbox.start()
print(sandbox._all[0].process.pid, flush=True)
sandbox.run_batch([Asserts("def f():\\n    while True: pass", ["assert f() == 1"], timeout_s=60.0)])
"""


def test_everything_ends_with_the_trainer():
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    zygote = int(trainer.stdout.readline())
    until = time.monotonic() + 20
    while not (children := descendants(zygote)) and time.monotonic() < until:
        time.sleep(0.02)
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    time.sleep(0.5)
    assert children and not any(map(is_alive, [zygote, *children]))


@pytest.mark.parametrize(("ranks", "count"), [("1", 8), ("4", 2), ("16", 1), ("many", 8)])
def test_the_number_of_workers_is_this_ranks_share_of_the_cores(monkeypatch, ranks, count):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cgroups, "core_limit", lambda: None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert pool.worker_count() == count


@pytest.mark.parametrize(
    ("group", "files", "cores", "left"),
    [
        ("/", {"cpu.max": "150000 100000\n", "pids.max": "100\n", "pids.current": "30\n"}, 1.5, 70),
        ("/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4.0, None),
        ("/a", {"a/pids.max": "max", "pids.max": "9", "pids.current": "4"}, None, 5),
        ("/", {}, None, None),
    ],
)
def test_the_limits_of_a_container_are_read(group, files, cores, left, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(f"5:cpu:/x\n0::{group}\n")
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(cgroups, "OWN", tmp_path / "own")
    assert (cgroups.core_limit(), cgroups.tasks_left()) == (cores, left)


def test_a_container_with_few_tasks_or_cores_is_taken_into_account(monkeypatch, caplog):
    monkeypatch.setattr(cgroups, "tasks_left", lambda: 60)
    monkeypatch.setattr(cgroups, "core_limit", lambda: 0.5)
    assert pool.worker_count() == 1
    with Sandbox(workers=1):
        assert "60 more processes and threads" in caplog.text and "need up to 66" in caplog.text


def test_one_sandbox_is_shared_by_all_who_wish_the_same_or_nothing_but_never_unsafe(monkeypatch):
    monkeypatch.setattr(pool, "_shared", {})
    unsafe = shared_sandbox(isolation="unsafe", packages=["numpy"])
    assert shared_sandbox().wanted is None
    assert shared_sandbox(isolation="unsafe", packages=["numpy"]) is unsafe
    monkeypatch.setattr(pool, "_shared", {})
    first = shared_sandbox(isolation="sealed")
    assert first is shared_sandbox(isolation="sealed") is shared_sandbox()
    assert shared_sandbox(isolation="landlock") is not first


def test_forks_of_a_busy_trainer_can_use_their_own(sandbox):
    thread = threading.Thread(target=sandbox.run_batch, args=([RIGHT] * 100,))
    thread.start()
    ended = []
    for _ in range(3):
        if not (child := os.fork()):
            code = 2
            try:
                code = int(sandbox.run_batch([RIGHT])[0].status != "pass")
            finally:
                os._exit(code)
        ended.append(os.waitpid(child, 0)[1])
    thread.join()
    assert ended == [0, 0, 0] and sandbox.run_batch([RIGHT])[0].status == "pass"


def test_closing_ends_a_running_call_with_an_error_of_the_sandbox():
    made, ended = Sandbox(workers=1), []

    def run():
        try:
            ended.append(made.run_asserts("while True: pass", ["assert f()"], timeout_s=5.0).status)
        except Exception as error:
            ended.append(type(error))

    made.start()
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.3)
    made.close()
    thread.join()
    assert ended[0] in ("infra", SandboxError, ZygoteDied)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_an_error_that_names_it(seconds, sandbox):
    with pytest.raises(ValueError, match="timeout_s"):
        sandbox.run_asserts(RIGHT.program, RIGHT.tests, timeout_s=seconds)


# ------------------------------------------------------------------ fail closed


def test_every_probe_can_miss(monkeypatch):
    """Without isolation it comes through; so none of them is refused by accident."""
    monkeypatch.setattr(pool, "_refuse_next_to_secrets", lambda: None)
    found = {}
    with Sandbox(workers=1, isolation="unsafe") as unsafe:
        for name in [name for name in REFUSED if "trainer" not in name]:
            monkeypatch.setattr("rewards.sandbox.self_test.REFUSED", (name,))
            found[name] = probe(lambda job: unsafe.run_batch([job])[0])[name] == "ok"
    # Root has given up its user, to whom the parent is a stranger.
    strangers = os.geteuid() == 0
    assert found == {name: strangers and name.endswith("its_parent") for name in found}


def test_where_nothing_holds_no_program_is_run(monkeypatch):
    monkeypatch.setattr("rewards.sandbox.self_test.probe", lambda run: {"forks": "came through"})
    sandbox = Sandbox(workers=1)
    with pytest.raises(SandboxError, match=r"landlock: .*sealed: forks: came through"):
        sandbox.run_batch([RIGHT])
    assert sandbox.isolation is None
    sandbox.close()


def test_unsafe_is_logged_and_refused_next_to_secrets(monkeypatch, caplog):
    for name in [name for name in os.environ if pool.SECRET.search(name)]:
        monkeypatch.delenv(name)
    with caplog.at_level(logging.WARNING), Sandbox(workers=1, isolation="unsafe") as sandbox:
        assert sandbox.run_batch([RIGHT])[0].status == "pass"
    assert "NO ISOLATION" in caplog.text
    monkeypatch.setenv("HF_TOKEN", "x")
    with pytest.raises(SandboxError, match="HF_TOKEN"):
        Sandbox(workers=1, isolation="unsafe").start()


def test_an_unknown_isolation_or_package_is_an_error():
    with pytest.raises(ValueError, match="isolation is 'none'; one of landlock, sealed, unsafe"):
        Sandbox(isolation="none")
    with pytest.raises(ValueError, match="'no_such_package' is not installed"):
        Sandbox(packages=["no_such_package"])


def test_a_package_can_be_imported_where_it_is_named(sandbox):
    program = "def f():\n    import numpy\n    return int(numpy.arange(4).sum())"
    assert sandbox.run_asserts(program, ["assert f() == 6"]).status == "fail"
    with Sandbox(workers=1, packages=["numpy"]) as with_numpy:
        assert with_numpy.run_asserts(program, ["assert f() == 6"])[:2] == ("pass", "")


# Calls that a container's own filter may refuse: Landlock, and what we make do without.
CONTAINER = """
import sys
from rewards.sandbox import Asserts, Sandbox, landlock, seccomp
refused = [444, 445, 446, 434, 319 if seccomp.machine() == "x86_64" else 279, 436]
lines = [(seccomp.LOAD, 0, 0, seccomp.NUMBER)]
for number in refused:
    lines += [(seccomp.JEQ, 0, 1, number), (seccomp.RET, 0, 0, seccomp.REFUSE)]
seccomp.install(seccomp.assemble([*lines, (seccomp.RET, 0, 0, seccomp.ALLOW)]))
with Sandbox(workers=1) as sandbox:
    right, wrong = (Asserts(f"def f(x): return {n} * x", ["assert f(2) == 4"]) for n in (2, 3))
    print(sandbox.isolation, [outcome.status for outcome in sandbox.run_batch([right, wrong])])
"""


def test_it_works_inside_a_container_that_refuses_landlock_and_memory_files():
    ran = subprocess.run(
        [sys.executable, "-c", CONTAINER], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.split("\n")[0] == "sealed ['pass', 'fail']", ran.stderr
