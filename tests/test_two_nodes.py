"""Two machines, as two network namespaces: DeepSpeed trains across them, and a cut link ends both
sides.

Skipped with the reason where namespaces cannot be made (that needs root and iproute2).
"""

import contextlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.launching import ROOT, command, start, wait_for, wait_for_end

pytestmark = pytest.mark.slow

LINK = "node"  # the name of the network interface on both sides
ENV = {
    "DS_ACCELERATOR": "cpu",
    "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    "GLOO_SOCKET_IFNAME": LINK,
}
SETTINGS = {
    "num_train_rows": 8,
    "num_eval_rows": 0,
    "max_steps": 500,
    "save_steps": 2,
    "bf16": "false",
}
SETTINGS |= {"per_device_train_batch_size": 4, "use_cpu": "true", "ddp_timeout": 15}
SETTINGS["reward_funcs"] = "tests/support/slow_rewards.py:takes_its_time"
ENDS_WITHIN_S = 90


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def nodes():
    """The names of two namespaces whose machines see each other as 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make network namespaces")
    names = [f"grpo-{os.getpid()}-{side}" for side in (1, 2)]
    try:
        ip("netns", "add", names[0])
        ip("netns", "add", names[1])
        ip(*f"link add {LINK} netns {names[0]} type veth peer name {LINK} netns {names[1]}".split())
        for side, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"10.77.0.{side}/24", "dev", LINK)
            ip("-n", name, "link", "set", LINK, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot make network namespaces: {error.stderr.decode().strip()}")
    else:
        yield names
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


def start_on_both(nodes: list[str], model: Path, folder: Path, logs: list[Path]) -> list:
    processes = []
    for rank, (name, log) in enumerate(zip(nodes, logs, strict=True)):
        launcher = ["--num_machines=2", f"--machine_rank={rank}", "--num_processes=2"]
        launcher += ["--main_process_ip=10.77.0.1", "--main_process_port=29577"]
        file = "accelerate_configs/zero2.yaml"
        words = command("arithmetic", "quickstart", model, folder, file, launcher, **SETTINGS)
        processes.append(start(["ip", "netns", "exec", name, *words], log, ENV))
    return processes


def test_deepspeed_trains_across_two_nodes_and_a_cut_link_ends_both_with_a_message(
    nodes, model, tmp_path
):
    logs = [tmp_path / "log_0", tmp_path / "log_1"]
    processes = start_on_both(nodes, model, tmp_path / "run", logs)
    wait_for("step 3/500", logs[0], processes[0])
    assert "Engine: ZeRO-2, 2 processes" in logs[0].read_text()
    ip("-n", nodes[1], "link", "set", LINK, "down")
    wait_for_end(*processes, timeout_s=ENDS_WITHIN_S)
    assert all(process.returncode != 0 for process in processes)
    for log in logs:
        printed = log.read_text()
        assert re.search("connection|timed out waiting|timeout", printed, re.I), printed[-3000:]
    assert (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").is_file()
