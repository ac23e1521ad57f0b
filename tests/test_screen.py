"""What a user sees: the lines of steps, and how a process ends on the screen."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from recipes.common.training.callbacks import StepLineCallback
from recipes.common.utils.screen import explain_endings

SCRIPTS = Path(__file__).parents[1] / "scripts"
STEP = {
    "reward": 0.5, "rewards/right/mean": 0.25, "reward_parts/right": 0.25,
    "rewards/short/mean": 0.5,  # over the completions that its gate lets count
    "reward_parts/short": 0.25, "completions/mean_length": 20.0, "completions/clipped_ratio": 0.5,
    "groups/without_spread": 0.75, "groups/verifier_spread": 0.25, "step_time": 2.0,
}  # fmt: skip


def step_line(capsys, step: int, **logs) -> str:
    """The line of a step, 6 seconds after the start at step 1, of a run of 10 steps."""
    callback = StepLineCallback()
    state = SimpleNamespace(global_step=1, max_steps=10, is_world_process_zero=True)
    callback.on_train_begin(None, state, None)
    callback.first_step, callback.started = 1, time.monotonic() - 6.0
    state.global_step = step
    capsys.readouterr()
    callback.on_log(None, state, None, {**STEP, **logs})
    return capsys.readouterr().out


def test_a_step_is_one_line_with_the_time_that_is_left(capsys):
    line = "step 4/10  reward 0.50 = right 0.25 + short 0.25  length 20  truncated 50 %"
    line += "  groups that teach 25 % (by correctness 25 %)  2.0 s, 0:00:12 left\n"
    assert step_line(capsys, 4) == line
    lost = {"completions/voided": 0.125, "groups/without_spread": 1.0}
    end = "  groups that teach 0 % (by correctness 25 %)  left out 12 %  2.0 s\n"
    assert step_line(capsys, 10, **lost).endswith(end)


def test_a_process_ends_though_a_thread_of_a_reward_never_does():
    code = "import threading, time\nfrom recipes.common.utils import screen\n"
    code += "screen.THREADS_WAIT_S = 0.1\n"
    code += "threading.Thread(target=time.sleep, args=(999,)).start()\nscreen.end(3)"
    words = [sys.executable, "-c", code]
    assert subprocess.run(words, cwd=SCRIPTS.parent, timeout=60).returncode == 3


def test_ctrl_c_ends_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    explain_endings()
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    printed = capsys.readouterr()
    assert printed.out.startswith("\nInterrupted. Run the same command again to go on from the ")
    assert (printed.out.count("\n"), printed.err) == (2, "")


@pytest.mark.parametrize(
    ("code", "out"),
    [
        ("from recipes.common.utils.screen import announce\nannounce('\u03c0 = 3.14')",
         "\\u03c0 = 3.14\n"),
        ("from command import make_parser\nmake_parser('help')\nprint('\u03c0')", "\\u03c0\n"),
    ],
)  # fmt: skip
def test_a_letter_that_the_terminal_does_not_know_is_printed_by_its_number(code, out):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, cwd=SCRIPTS, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, out)


def test_a_pipe_that_its_reader_closes_is_no_error_and_a_full_disk_is_one():
    code = "from command import refusals\nwith refusals():\n    print('x')\n    raise SystemExit(1)"
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full:
        for output, status, words in ((writer, 0, b""), (full, 2, b"error: [Errno 28]")):
            ended = subprocess.run(
                [sys.executable, "-c", code], cwd=SCRIPTS, stdout=output, stderr=subprocess.PIPE
            )
            assert ended.returncode == status and ended.stderr.startswith(words)
    os.close(writer)
