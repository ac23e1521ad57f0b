"""train.sbatch on a Slurm of two nodes on this machine, one process a node, on the CPU: it trains,
stops on a signal, is requeued, and survives a lost node. tests/test_slurm.py has the script itself.

`make test-slurm` unpacks the Slurm that these tests need.
"""

import os
import sys
import time
from pathlib import Path

import pytest
from support.launching import ROOT, SLOWLY, command, wait_for
from support.slurm_cluster import Cluster

from recipes.common.utils.run_files import checkpoints, read_json, read_log

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="a host name for each node needs root"),
]
SIGNALLED = {"ddp": "DDP", "zero2": "ZeRO-2"}  # launch file -> the name of its engine
SETTINGS = {**SLOWLY, "max_steps": 20}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def submit(cluster, model, tmp_path):
    """Submit a run of a launch file by the script as it stands -> the job's id, and its log."""
    for name in ("accelerate_configs", "recipes", "scripts", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)  # the script writes its logs where it starts

    def submit(launch):
        words = command("arithmetic", "quickstart", model, tmp_path / "run", **SETTINGS)
        recipe = words[words.index("recipes/arithmetic/train.py") :]
        log = tmp_path / "log"
        log.touch()
        job = cluster.run(
            *("sbatch", "--parsable", "--nodes=2", "--gpus-per-node=1", "--cpus-per-task=1"),
            *(f"--output={log}", f"--chdir={tmp_path}", str(ROOT / "scripts/slurm/train.sbatch")),
            *(f"accelerate_configs/{launch}.yaml", *recipe),
            PATH=f"{Path(sys.executable).parent}:{cluster.env['PATH']}",
            PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}",
            DS_ACCELERATOR="cpu",
            HF_HUB_OFFLINE="1",
        )
        return job, log

    return submit


def wait_for_state(cluster, job, state, log, timeout_s=240):
    deadline = time.monotonic() + timeout_s
    while cluster.state(job)["JobState"] != state:
        assert time.monotonic() < deadline, f"{cluster.state(job)}\n{log.read_text()[-4000:]}"
        time.sleep(1)


def assert_resumed_and_finished(cluster, job, log, folder):
    wait_for_state(cluster, job, "COMPLETED", log)
    assert cluster.state(job)["Restarts"] == "1"
    assert f"Resuming from {folder}/checkpoint-" in log.read_text()
    assert read_json(folder / "summary.json")["engine"]["world_size"] == 2
    assert [entry["step"] for entry in read_log(folder) if "reward" in entry] == [*range(1, 21)]


@pytest.mark.parametrize(("launch", "engine"), SIGNALLED.items())
def test_a_job_that_is_signalled_saves_is_requeued_and_goes_on(
    launch, engine, cluster, submit, tmp_path
):
    job, log = submit(launch)
    wait_for("step 3/20", log)
    cluster.run("scancel", "--batch", "--signal=TERM", job)  # as --signal=B:TERM does in time
    assert_resumed_and_finished(cluster, job, log, tmp_path / "run")
    assert f"Engine: {engine}, 2 processes" in log.read_text()
    assert "Stopped after step" in log.read_text()
    assert {path.name for path in (tmp_path / "logs" / job).iterdir()} == {"node-0", "node-1"}


def test_a_job_that_loses_a_node_goes_on_when_the_node_is_back(cluster, submit, tmp_path):
    job, log = submit("ddp")
    wait_for("step 5/20", log)
    cluster.kill_node("n2")
    wait_for_state(cluster, job, "PENDING", log)
    assert checkpoints(tmp_path / "run") and "step 20/20" not in log.read_text()
    cluster.restart_node("n2")
    assert_resumed_and_finished(cluster, job, log, tmp_path / "run")
