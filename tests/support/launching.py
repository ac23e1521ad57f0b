"""Start recipes as their users do, with `accelerate launch`, on a tiny model."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

MARK = "STARTED_BY_TEST"
ROOT = Path(__file__).resolve().parents[2]
DENSE_REWARD = "tests/support/dense_reward.py:letter_share"
SLOW_REWARD = "tests/support/dense_reward.py:takes_its_time"
LAUNCH = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
# What makes a shipped YAML tiny; everything else stays as shipped.
TINY = {
    "dtype": "float32", "use_peft": "false", "num_eval_rows": 6, "per_device_eval_batch_size": 2,
    "num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
    "max_completion_length": 12, "save_steps": 2, "save_total_limit": 20, "eval_strategy": "no",
}  # fmt: skip
# A run on two processes that a test interrupts between two steps.
SLOWLY = {
    "num_train_rows": 8, "num_eval_rows": 0, "per_device_train_batch_size": 4, "bf16": "false",
    "use_cpu": "true", "reward_funcs": SLOW_REWARD,
}  # fmt: skip


def command(
    recipe: str,
    config: str,
    model: Path,
    output_dir: Path,
    launch: str | None = "accelerate_configs/cpu.yaml",
    launcher: Sequence[str] = (),
    **overrides,
) -> list[str]:
    """`accelerate launch` of a recipe's YAML, made tiny; a list value becomes several words.

    `launch`: None starts the recipe itself, where launching is not what is tested. `launcher`: more
    words for `accelerate launch`; what is no option there runs in front of the recipe.
    """
    arguments = {**TINY, "model_name_or_path": model, "output_dir": output_dir, **overrides}
    if "reward_funcs" in overrides:
        arguments = {"reward_gates": "{}", **arguments}  # a YAML's belong to its own rewards
    if launch is None:
        arguments["use_cpu"] = "true"  # as the launch file says
    words = [f"recipes/{recipe}/train.py", "--config", f"recipes/{recipe}/{config}.yaml"]
    for name, value in arguments.items():
        words += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    if launch is None:
        return [sys.executable, *words]
    return [*LAUNCH, f"--config_file={launch}", *launcher, *words]


def run(words: list[str], env=None, expect: int = 0, timeout_s: float = 600, warm=True) -> str:
    """Run to the end and return what was printed; it ends well, or badly with `expect` 1."""
    words = warmed(words) if warm else words
    options = {"cwd": ROOT, "env": environment(env), "timeout": timeout_s}
    done = subprocess.run(words, capture_output=True, text=True, **options)
    assert (done.returncode == 0) == (expect == 0), done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def run_on_two(script: str | Path, *words: str | Path, **options) -> str:
    """Run a script on two processes of the CPU; the options are those of `run`."""
    launch = [*LAUNCH, "--config_file=accelerate_configs/cpu_2proc.yaml"]
    return run([*launch, str(script), *map(str, words)], **options)


def warmed(words: list[str]) -> list[str]:
    """The same words for a program of this interpreter, without waiting for its imports."""
    is_ours = words[0] == sys.executable and hasattr(os, "pidfd_open")
    return [warm_python()[0], *words[1:]] if is_ours else words


@functools.cache
def warm_python() -> tuple[str, subprocess.Popen]:
    """What stands for the interpreter, and warm.py, which runs as long as its input is open."""
    file = Path(__file__).with_name("warm.py")
    path = Path(tempfile.mkdtemp(prefix="warm-"), "socket")
    atexit.register(shutil.rmtree, path.parent)
    python = Path(f"{path}.python")
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{file}" ask "{path}" "$@"\n')
    python.chmod(0o755)
    words = [sys.executable, str(file), "serve", str(path)]
    server = subprocess.Popen(words, cwd=ROOT, env=environment(), stdin=subprocess.PIPE)
    while not path.exists():
        assert server.poll() is None, "warm.py ended before it served"
        time.sleep(0.1)
    return str(python), server


def start(words: list[str], log: Path, env: dict[str, str] | None = None) -> subprocess.Popen:
    """Start in a process group of its own, with everything printed going to `log`.

    SIGINT does what it does by default, also where the tests themselves run in the background,
    which ignores it.
    """
    ours = signal.signal(signal.SIGINT, signal.SIG_DFL)
    mark = uuid.uuid4().hex
    options = {"cwd": ROOT, "env": environment({MARK: mark, **(env or {})})}
    try:
        with log.open("w") as out:
            options |= {"stdout": out, "stderr": out, "start_new_session": True}
            process = subprocess.Popen(words, **options)
        process.mark = mark
        return process
    finally:
        signal.signal(signal.SIGINT, ours)


def wait_for(text: str, log: Path, process: subprocess.Popen | None = None, timeout_s=600) -> None:
    """Return once `text` was printed; fail where it takes too long, or its process has ended."""
    deadline = time.monotonic() + timeout_s
    while text not in log.read_text():
        has_ended = process is not None and process.poll() is not None
        assert not has_ended and time.monotonic() < deadline, (
            f"{'ended' if has_ended else timeout_s} before {text!r}:\n{log.read_text()[-6000:]}"
        )
        time.sleep(0.1)


def started_by(process: subprocess.Popen) -> dict[int, dict[str, str]]:
    """The processes that still run of all that a command has started: process id -> environment.

    torchrun gives each rank a session of its own, so a mark in the environment tells.
    """
    running = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            env = dict(word.split("=", 1) for word in words if "=" in word)
            is_zombie = (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if env.get(MARK) == process.mark and not is_zombie:
                running[int(folder.name)] = env
    return running


def wait_for_end(*processes: subprocess.Popen, timeout_s: float) -> None:
    """Until all have ended and left nothing behind; what does not is killed, and fails."""
    deadline = time.monotonic() + timeout_s
    try:
        while any(process.poll() is None or started_by(process) for process in processes):
            assert time.monotonic() < deadline, f"did not end in {timeout_s} s"
            time.sleep(0.2)
    finally:
        for process in processes:
            if started_by(process):
                kill_all(process)


def kill_all(process: subprocess.Popen) -> None:
    """SIGKILL the launcher and everything it started."""
    for pid in [process.pid, *started_by(process)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=30)


def environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **quiet, **(extra or {})}
