"""Two machines, as network namespaces (root, iproute2): they train, and a cut link ends both."""

import contextlib
import os
import re
import shutil
import subprocess

import pytest
from support.launching import SLOWLY, command, start, wait_for, wait_for_end, warmed

pytestmark = pytest.mark.slow

LINK = "node"  # the name of the network interface on both sides
ENVIRONMENT = {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": LINK}
SETTINGS = {**SLOWLY, "max_steps": 500, "ddp_timeout": 15}


def ip(words):
    subprocess.run(["ip", *words.split()], check=True, capture_output=True)


@pytest.fixture
def nodes():
    """The names of two namespaces whose machines see each other as 10.77.0.1 and 10.77.0.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 to make network namespaces")
    one, two = (f"grpo-{os.getpid()}-{side}" for side in (1, 2))
    try:
        ip(f"netns add {one}")
        ip(f"netns add {two}")
        ip(f"link add {LINK} netns {one} type veth peer name {LINK} netns {two}")
        for side, name in enumerate((one, two), 1):
            ip(f"-n {name} address add 10.77.0.{side}/24 dev {LINK}")
            ip(f"-n {name} link set {LINK} up")
            ip(f"-n {name} link set lo up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot make network namespaces: {error.stderr.decode().strip()}")
    else:
        yield one, two
    finally:
        for name in (one, two):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(f"netns delete {name}")


def test_deepspeed_trains_across_two_nodes_and_a_cut_link_ends_both_with_a_message(
    nodes, model, tmp_path
):
    logs, processes = [tmp_path / "log_0", tmp_path / "log_1"], []
    for rank, (name, log) in enumerate(zip(nodes, logs, strict=True)):
        launcher = ["--num_machines=2", f"--machine_rank={rank}", "--num_processes=2"]
        launcher += ["--main_process_ip=10.77.0.1", "--main_process_port=29577"]
        run = ("arithmetic", "quickstart", model, tmp_path / "run")
        words = command(*run, "accelerate_configs/zero2.yaml", launcher, **SETTINGS)
        processes.append(start(["ip", "netns", "exec", name, *warmed(words)], log, ENVIRONMENT))
    wait_for("step 3/500", logs[0], processes[0])
    assert "Engine: ZeRO-2, 2 processes" in logs[0].read_text()
    ip(f"-n {nodes[1]} link set {LINK} down")
    wait_for_end(*processes, timeout_s=300)
    assert all(process.returncode != 0 for process in processes)
    for log in logs:
        printed = log.read_text()
        assert re.search("connection|timed out waiting|timeout", printed, re.I), printed[-3000:]
    assert (tmp_path / "run" / "checkpoint-2" / "trainer_state.json").is_file()
