"""The Slurm script against stand-ins for Slurm: what each node launches, when a job is requeued."""

import os
import signal
import subprocess
import time

import pytest
from support.launching import ROOT

STAND_INS = {
    "scontrol": '[ "$1" = show ] && printf "alpha\\nbeta\\n" || echo "$@" >> "$SEEN/scontrol"',
    # Two nodes, one after the other: what `srun` starts side by side.
    "srun": 'shift 2; for SLURM_NODEID in 0 1; do export SLURM_NODEID; "$@" || exit; done',
    "accelerate": (
        'printf "%s\\n" "$@" "$SRUN_CPUS_PER_TASK" > "$SEEN/node-$SLURM_NODEID"; eval "$THEN"'
    ),
    "scancel": 'echo "$@" >> "$SEEN/scancel"; touch "$SEEN/stop"',
}
JOB = {
    "SLURM_JOB_ID": "31", "SLURM_JOB_NODELIST": "x", "SLURM_NNODES": "2",
    "SLURM_CPUS_PER_TASK": "16", "SLURM_GPUS_PER_NODE": "a100:4",
}  # fmt: skip
SAVES = 'while [ ! -e "$SEEN/stop" ]; do sleep 0.05; done; sleep 0.3; touch "$SEEN/saved"; exit 130'


@pytest.fixture
def slurm(tmp_path):
    """Start the script with words, on two nodes of four GPUs; `then` is what the launcher does."""
    commands = tmp_path / "commands"
    commands.mkdir()
    for name, body in STAND_INS.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)

    def start(*words, then="true", **job):
        script = ["bash", ROOT / "scripts/slurm/train.sbatch", *words]
        env = {"PATH": f"{commands}:{os.environ['PATH']}", "SEEN": str(tmp_path), "THEN": then}
        options = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(script, env={**env, **JOB, **job}, **options)

    return start


def test_a_requeued_job_goes_on_although_its_command_says_fresh(slurm, tmp_path):
    assert slurm("zero2.yaml", "train.py", "--fresh", SLURM_RESTART_COUNT="1").wait(timeout=20) == 0
    words = (tmp_path / "node-0").read_text().split()
    assert " ".join(words).count("train.py --fresh --fresh false") == 1


@pytest.mark.parametrize("words", [["--config", "long.yaml"], ["--config=long.yaml"]])
def test_the_timeout_of_the_yaml_wins(words, slurm, tmp_path):
    (tmp_path / "long.yaml").write_text("seed: 1\nddp_timeout: 7200\n")
    assert slurm("zero2.yaml", "train.py", *words).wait(timeout=20) == 0
    assert "--ddp_timeout" not in (tmp_path / "node-0").read_text()


@pytest.mark.parametrize(("job", "processes"), [({}, "8"), ({"SLURM_GPUS_ON_NODE": "2"}, "4")])
def test_every_node_launches_the_recipe_with_its_rank_and_the_first_nodes_address(
    job, processes, slurm, tmp_path
):
    recipe = ["recipes/x/train.py", "--config", "my run.yaml"]
    recipe += ["--ddp_timeout", "3600"] if job else []  # else it is that of the script
    assert slurm("zero2.yaml", *recipe, **job).wait(timeout=20) == 0
    for rank in ("0", "1"):
        first, *words = (tmp_path / f"node-{rank}").read_text().splitlines()
        options = dict(zip(words[:16:2], words[1:16:2], strict=True))
        assert (first, options["--config_file"]) == ("launch", "zero2.yaml")
        assert (options["--num_machines"], options["--num_processes"]) == ("2", processes)
        assert (options["--machine_rank"], options["--main_process_ip"]) == (rank, "alpha")
        timeout = [] if job else ["--ddp_timeout", "600"]
        assert words[18:] == [*recipe, *timeout, "16"]  # and the cores of a step


def test_a_signal_reaches_the_launchers_and_the_job_is_requeued_when_they_have_saved(
    slurm, tmp_path
):
    job = slurm("zero2.yaml", "train.py", then=SAVES)
    while not (tmp_path / "node-0").exists():
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=20) == 0
    assert (tmp_path / "scancel").read_text() == "--signal=TERM 31\n"
    assert (tmp_path / "saved").exists() and (tmp_path / "scontrol").read_text() == "requeue 31\n"


def test_a_failure_is_no_reason_to_requeue_and_without_a_recipe_the_usage_is_shown(slurm, tmp_path):
    assert slurm("zero2.yaml", "train.py", then="exit 3").wait(timeout=20) == 3
    assert not (tmp_path / "scontrol").exists()
    job = slurm("zero2.yaml")
    assert (job.wait(timeout=20), job.stderr.read().split(":")[0]) == (2, "usage")
