"""What goes wrong in a run of several processes ends it with a message and costs what was not saved
yet.
"""

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from support.launching import (
    DENSE_REWARD,
    ROOT,
    command,
    run,
    start,
    started_by,
    wait_for,
    wait_for_end,
    warmed,
)

from recipes.common.utils.run_files import checkpoints, read_json

pytestmark = pytest.mark.slow

SLOWLY = {
    "reward_funcs": "tests/support/slow_rewards.py:takes_its_time",
    "num_eval_rows": 0,
    "num_train_rows": 8,
    "per_device_train_batch_size": 4,
    "max_steps": 12,
    "bf16": "false",
    "use_cpu": "true",
}
ON_CPU = {"DS_ACCELERATOR": "cpu", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
ENDS_WITHIN_S = 60


def words_for(model: Path, folder: Path, launch: str = "zero2", **overrides) -> list[str]:
    file, launcher = f"accelerate_configs/{launch}.yaml", ["--num_processes=2"]
    settings = {**SLOWLY, **overrides}
    return command("arithmetic", "quickstart", model, folder, file, launcher, **settings)


def test_a_killed_rank_ends_the_job_and_is_named_and_the_run_is_resumed(model, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "run"
    process = start(warmed(words_for(model, folder)), log, ON_CPU)
    wait_for("step 5/12", log, process)
    (rank_1,) = [pid for pid, env in started_by(process).items() if env.get("RANK") == "1"]
    os.kill(rank_1, signal.SIGKILL)
    wait_for_end(process, timeout_s=ENDS_WITHIN_S)
    assert process.returncode != 0
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", log.read_text())
    last = int(checkpoints(folder)[0].name.rpartition("-")[2])
    assert last >= 4
    printed = run(words_for(model, folder), env=ON_CPU)
    assert f"Resuming from {folder}/checkpoint-{last}" in printed
    assert f"step {last + 1}/12" in printed
    assert read_json(folder / "summary.json")["steps"] == 12


def test_a_reward_that_hangs_on_one_rank_ends_the_job_and_is_named(model, tmp_path):
    log = tmp_path / "log"
    hangs = {"reward_funcs": "tests/support/slow_rewards.py:hangs_on_rank_1", "reward_timeout_s": 5}
    words = words_for(model, tmp_path / "run", "ddp", **hangs)
    process = start(warmed(words), log, ON_CPU)
    wait_for("step 2/12", log, process)
    wait_for_end(process, timeout_s=ENDS_WITHIN_S)
    assert process.returncode != 0
    assert "Timeout (0:00:05)" in log.read_text() and "in hangs_on_rank_1" in log.read_text()
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["checkpoint-2"]


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of some bytes: a function that makes it, once."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(size: int) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", place], capture_output=True)


def test_a_full_disk_leaves_the_checkpoint_before_usable(model, tmp_path, small_disk):
    few = {"max_steps": 6, "reward_funcs": DENSE_REWARD}
    measured = tmp_path / "measured"
    run(words_for(model, measured, "ddp", **few), env=ON_CPU)
    # for one checkpoint and what stands next to it, and half of another
    room = used(measured / "checkpoint-2") * 3 // 2 + used(measured / "completions") + 200_000
    on_disk, copy = small_disk(room) / "run", tmp_path / "run"
    run(words_for(model, on_disk, "ddp", **few), env=ON_CPU, expect=1)
    cut_short, before = [path.name for path in checkpoints(on_disk)[:2]]
    shutil.copytree(on_disk, copy)  # where there is room; the output_dir may be another
    printed = run(words_for(model, copy, "ddp", **few), env=ON_CPU)
    assert f"{copy}/{cut_short} was cut short" in printed
    assert f"Resuming from {copy}/{before}" in printed
    assert read_json(copy / "summary.json")["steps"] == 6


def used(folder: Path) -> int:
    """What a folder takes of a file system with pages of 4 KiB."""
    return sum(-(-file.stat().st_size // 4096) * 4096 + 4096 for file in folder.rglob("*"))
