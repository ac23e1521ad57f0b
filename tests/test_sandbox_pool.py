"""The pool: all workers busy, limits, nothing left, no verdict lost to a failure of ours."""

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
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.sandbox import descendants, on_linux

from rewards.code_tests import CodeTests
from rewards.sandbox import Asserts, Sandbox, SandboxError, Stdio, ZygoteDied, pool, shared_sandbox
from rewards.sandbox.self_test import REFUSED, probe

pytestmark = on_linux
ROOT = Path(__file__).parents[1]
RIGHT = Asserts("def f(x): return 2 * x", ["assert f(2) == 4"])
WRONG = Asserts("def f(x): return x", ["assert f(2) == 4"])
SLOW = Asserts("import time\ndef f(x): time.sleep(x); return 1", ["assert f(0.4) == 1"])
HANGS = Asserts("def f(x):\n    while True: pass", ["assert f(1) == 1"], timeout_s=0.5)
PRINTS = Stdio("print(1)", [("", "1")])


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=2) as made:
        yield made


def zygotes(sandbox):
    return [slot.process.pid for slot in sandbox._all if slot.process]


def statuses(outcomes):
    return [outcome.status for outcome in outcomes]


def later(seconds, work):
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


# ------------------------------------------------------------------ batches


def test_a_batch_keeps_all_workers_busy(sandbox):
    span = "import time\nprint(time.monotonic())\ntime.sleep(2)\nprint(time.monotonic())"
    outcomes = sandbox.run_batch([Stdio(span, [("", "")])] * 2)
    began, ended = zip(*(map(float, one.output.split()) for one in outcomes), strict=True)
    assert max(began) < min(ended)


def test_batches_of_several_threads_come_back_in_order(sandbox):
    scripts = [Stdio("print(input())", [(str(n), str(n % 3))]) for n in (2, 3)]
    with ThreadPoolExecutor(6) as threads:
        futures = [threads.submit(sandbox.run_batch, [WRONG, RIGHT, *scripts]) for _ in range(12)]
        answers = [statuses(future.result()) for future in futures]
    assert answers == [["fail", "pass", "pass", "fail"]] * 12


def test_the_limit_holds_and_nothing_is_left(sandbox):
    assert statuses(sandbox.run_batch([HANGS, RIGHT, HANGS])) == ["fail", "pass", "fail"]
    assert [descendants(pid) for pid in zygotes(sandbox)] == [[], []]


def test_processor_time_is_the_limit_and_not_that_on_the_wall(sandbox, monkeypatch):
    work = "import time\ndef f():\n    time.sleep(0.7)\n    return 1"
    job = Asserts(work, ["assert f() == 1"], timeout_s=0.5)
    assert statuses(sandbox.run_batch([job])) == ["pass"]
    # The tests' own time counts too: they end long before 20 seconds on the wall.
    monkeypatch.setattr("rewards.sandbox.jobs.WALL", 40.0)
    forever = Asserts("def f(): return 1", ["f()\nwhile True: pass"], timeout_s=0.5)
    outcome = sandbox.run_batch([forever])[0]
    assert outcome[:2] == ("fail", "timeout: more than 0.5 s") and outcome.seconds < 20.0


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not count")
def test_other_work_on_its_core_takes_no_time_from_a_program():
    work = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\n"
    work += "def f(): return 1\nprint(1)"
    with Sandbox(workers=1) as sandbox, ExitStack() as stack:
        core = {sandbox._all[0].settings["core"]}
        for _ in range(4):  # so that the program gets a fifth of its core
            busy = subprocess.Popen(
                [sys.executable, "-S", "-c", "while True: pass"],
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, core),
            )
            stack.callback(busy.wait)
            stack.callback(busy.kill)
        jobs = [Asserts(work, ["assert f() == 1"], timeout_s=0.3), Stdio(work, [("", "1")], 0.3)]
        assert statuses(sandbox.run_batch(jobs)) == ["pass", "pass"]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_an_error_that_names_it(seconds, sandbox):
    with pytest.raises(ValueError, match="timeout_s"):
        sandbox.run_asserts(RIGHT.program, RIGHT.tests, timeout_s=seconds)


# ------------------------------------------------------------------ failures of ours


def test_a_call_without_descriptors_left_leaks_none_and_is_our_failure(sandbox):
    sandbox.run_batch([RIGHT])
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for more in range(1, 14):
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + more, hard))
        try:
            (asserts,) = sandbox.run_batch([RIGHT])
            (stdio,) = sandbox.run_batch([PRINTS])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert {asserts.status, stdio.status} <= {"pass", "infra"}
        assert len(os.listdir("/proc/self/fd")) <= before
    assert asserts.status == "pass"
    of_every_kind = [RIGHT, HANGS, PRINTS, WRONG, Asserts("(", ["f()"])]
    ended = ["pass", "fail", "pass", "fail", "fail"]
    assert statuses(sandbox.run_batch(of_every_kind)) == ended
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_checker_or_zygote_that_somebody_ends_costs_no_verdict(sandbox):
    def end_a_checker():
        children = [descendants(pid) for pid in zygotes(sandbox)]
        os.kill(next(child for child in children if child)[0], signal.SIGTERM)

    def end_the_zygotes():
        for pid in zygotes(sandbox):
            os.kill(pid, signal.SIGKILL)

    for harm in (end_a_checker, end_the_zygotes):
        harming = later(0.2, harm)
        assert statuses(sandbox.run_batch([SLOW, WRONG] * 3)) == ["pass", "fail"] * 3
        harming.join()


def test_a_stopped_zygote_is_given_up(monkeypatch):
    monkeypatch.setattr("rewards.sandbox.slot.SILENT_S", 2.0)
    with Sandbox(workers=1) as sandbox:
        stopped = zygotes(sandbox)[0]
        os.kill(stopped, signal.SIGSTOP)
        assert sandbox.run_batch([RIGHT._replace(timeout_s=0.5)])[0].status == "pass"
        assert zygotes(sandbox) != [stopped]


def test_an_error_of_ours_costs_the_row_that_it_happened_in(sandbox, monkeypatch):
    def fails_once(slot, job, run=pool.run_job):
        return run(slot, job) if job is RIGHT else [][0]

    monkeypatch.setattr(pool, "run_job", fails_once)
    outcomes = sandbox.run_batch([RIGHT, WRONG, RIGHT])
    assert statuses(outcomes) == ["pass", "infra", "pass"]
    assert outcomes[1].reason == "IndexError: list index out of range"


# ------------------------------------------------------------------ life


CALLS = ["signal(signal.SIGCHLD, signal.SIG_IGN)", "pthread_sigmask(0, {signal.SIGCHLD})"]


@pytest.mark.parametrize("call", CALLS)
def test_a_trainer_that_ignores_or_blocks_the_death_of_children_can_start(call):
    work = f"import signal\nsignal.{call}\nfrom rewards.sandbox import Sandbox\n"
    work += "with Sandbox(workers=1) as made:\n"
    work += "    print(made.run_asserts('def f(): return 1', ['assert f() == 1'])[:2])"
    ran = subprocess.run([sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "('pass', '')\n", ran.stderr


def test_after_closing_no_process_is_left_and_the_next_call_starts_anew():
    sandbox = Sandbox(workers=2)
    assert sandbox.run_batch([RIGHT, RIGHT])[1].status == "pass"
    pids = zygotes(sandbox)
    sandbox.close()
    assert pids and not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert sandbox.run_batch([RIGHT])[0].status == "pass"
    sandbox.close()


TRAINER = """
import sys
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
    while len(children := descendants(zygote)) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    while any(map(is_alive, [zygote, *children])) and time.monotonic() < until:
        time.sleep(0.02)
    assert len(children) == 2 and not any(map(is_alive, [zygote, *children]))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_forked_process_leaves_the_zygotes_alone_and_may_make_its_own(sandbox):
    before = zygotes(sandbox)
    if not (child := os.fork()):
        code = 2
        try:
            with Sandbox(workers=1) as own:
                outcomes = [sandbox.run_batch([RIGHT])[0], own.run_batch([RIGHT])[0]]
            code = int(statuses(outcomes) != ["infra", "pass"])
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert sandbox.run_batch([RIGHT])[0].status == "pass" and zygotes(sandbox) == before


def test_closing_ends_a_running_call_with_an_error_of_the_sandbox():
    made, ended = Sandbox(workers=1), []
    made.start()
    closing = later(0.3, made.close)
    try:
        ended.append(made.run_asserts("while True: pass", ["assert f()"], timeout_s=60.0).status)
    except (SandboxError, ZygoteDied):
        ended.append("infra")
    closing.join()
    assert ended == ["infra"]


@pytest.mark.parametrize(("ranks", "count"), [("1", 8), ("4", 2), ("16", 1), ("many", 8)])
def test_the_number_of_workers_is_this_ranks_share_of_the_cores(monkeypatch, ranks, count):
    monkeypatch.setattr(
        "joblib.externals.loky.cpu_count", lambda: 8
    )  # by affinity and by a container's quota
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
    assert pool.worker_count() == count


def test_another_system_than_linux_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    with pytest.raises(SandboxError, match=r"Darwin has no sandbox .* need Linux \(Docker"):
        Sandbox(isolation="unsafe").start()


def test_one_sandbox_is_shared_by_all_who_wish_the_same_or_nothing_but_never_unsafe(monkeypatch):
    monkeypatch.setattr(pool, "_shared", {})
    unsafe = shared_sandbox(isolation="unsafe", packages=["numpy"])
    assert shared_sandbox(isolation="unsafe", packages=["numpy"]) is unsafe
    first = shared_sandbox(packages=["numpy"])
    assert first is not unsafe and first is shared_sandbox()
    assert shared_sandbox(packages=["torch"]) is not first
    pool._shared.clear()  # a reward is loaded before any metric runs a program
    CodeTests(packages=["numpy"])
    assert list(shared_sandbox().packages) == ["numpy"]


# ------------------------------------------------------------------ isolation


def test_every_probe_can_miss(monkeypatch):
    """Without isolation it comes through; so none of them is refused by accident."""
    refused = {}
    with Sandbox(workers=1, isolation="unsafe") as unsafe:
        for name in [name for name in REFUSED if "trainer" not in name]:
            monkeypatch.setattr("rewards.sandbox.self_test.REFUSED", (name,))
            refused[name] = probe(lambda job: unsafe.run_batch([job])[0])[name] == "ok"
    # Root has given up its user, to whom the parent is a stranger.
    strangers = os.geteuid() == 0
    of_the_parent = ("reads_the_environment_of_its_parent", "signals_its_parent")
    of_the_parent += ("traces_its_parent",)
    assert refused == {name: strangers and name in of_the_parent for name in refused}


def test_where_the_isolation_does_not_hold_no_program_is_run(monkeypatch):
    monkeypatch.setattr("rewards.sandbox.self_test.probe", lambda run: {"forks": "came through"})
    sandbox = Sandbox(workers=1)
    with pytest.raises(SandboxError, match=r"no program is run: forks: came through"):
        sandbox.run_batch([RIGHT])
    sandbox.close()


def test_unsafe_is_a_choice_that_is_logged(caplog):
    with caplog.at_level(logging.WARNING), Sandbox(workers=1, isolation="unsafe") as sandbox:
        assert sandbox.run_batch([RIGHT])[0].status == "pass"
    assert "NO ISOLATION" in caplog.text
    with pytest.raises(ValueError, match="isolation is 'landlock'; it is sealed or unsafe"):
        Sandbox(isolation="landlock")


def test_a_package_can_be_imported_where_it_is_named(sandbox):
    program = "def f():\n    import numpy\n    return int(numpy.arange(4).sum())"
    assert sandbox.run_asserts(program, ["assert f() == 6"]).status == "fail"
    with Sandbox(workers=1, packages=["numpy"]) as with_numpy:
        assert with_numpy.run_asserts(program, ["assert f() == 6"])[:2] == ("pass", "")
    with pytest.raises(ValueError, match="'no_such_package' is not installed"):
        Sandbox(packages=["no_such_package"])


def test_flags_that_a_program_sets_on_its_output_fail_it_and_not_us(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")  # so that its output is a file on disk
    flags = "import fcntl, os\nprint(1, flush=True)\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_DIRECT)\n"
    program = f"{flags}def f(x): return x"
    with Sandbox(workers=1) as made:
        outcomes = made.run_batch([Asserts(program, RIGHT.tests), Stdio(flags, [("", "4")])])
    assert statuses(outcomes) == ["fail", "fail"]
