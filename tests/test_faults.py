"""A rank that is killed ends the whole job, with its name and after a checkpoint."""

import os
import re
import signal

import pytest
from support.launching import SLOWLY, command, start, started_by, wait_for, wait_for_end, warmed

from recipes.common.utils.run_files import checkpoints


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_is_named(model, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "run"
    launch, settings = "accelerate_configs/cpu_2proc.yaml", {**SLOWLY, "max_steps": 12}
    words = command("arithmetic", "quickstart", model, folder, launch, **settings)
    process = start(warmed(words), log)
    wait_for("step 5/12", log, process)
    (rank_1,) = [pid for pid, env in started_by(process).items() if env.get("RANK") == "1"]
    os.kill(rank_1, signal.SIGKILL)
    wait_for_end(process, timeout_s=300)
    assert process.returncode != 0
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", log.read_text())
    assert int(checkpoints(folder)[0].name.rpartition("-")[2]) >= 4
