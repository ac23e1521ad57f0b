"""A Slurm of two nodes, n1 and n2, from packages in .slurm/root (`make test-slurm`); needs root."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from support.launching import ROOT

PACKAGES = ROOT / ".slurm/root"
PORTS = {"n1": 27818, "n2": 27819}
CONFIG = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=27817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CryptoType=crypto/munge
CredType=cred/munge
PluginDir={plugins}
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
JobRequeue=1
SlurmdTimeout=15
PartitionName=lab Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class Cluster:
    """Its commands, by `run`, and its nodes; `folder` holds its settings and logs."""

    def __init__(self, folder: Path):
        self.folder, self.config = folder, folder / "slurm.conf"
        (plugins,) = PACKAGES.glob("usr/lib/*/slurm-wlm")
        libraries = f"{plugins}:{plugins.parent}"
        self.env = {**os.environ, "LD_LIBRARY_PATH": libraries, "SLURM_CONF": str(self.config)}
        self.env["PATH"] = f"{PACKAGES / 'usr/bin'}:{os.environ['PATH']}"
        text = CONFIG.format(folder=folder, plugins=plugins, host=socket.gethostname())
        for name, port in PORTS.items():
            text += f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=64\n"
        self.config.write_text(text)
        hosts = Path("/etc/hosts").read_text() + "\n127.0.0.1 n1 n2\n"
        (folder / "hosts").write_text(hosts)
        (folder / "munge.key").write_bytes(os.urandom(32))
        (folder / "munge.key").chmod(0o400)

    def run(self, *words: str, **env: str) -> str:
        """Run a command, one of Slurm's or a daemon, and return what it prints."""
        options = {"env": {**self.env, **env}, "cwd": self.folder, "text": True}
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=60, check=True, **options)
        return done.stdout.strip()

    def start(self) -> None:
        munge = ("socket", "pid-file", "log-file", "seed-file", "key-file")
        words = [f"--{name}={self.folder}/munge.{name.partition('-')[0]}" for name in munge]
        self.run(f"{PACKAGES}/usr/sbin/munged", "--force", *words)
        self.run(f"{PACKAGES}/usr/sbin/slurmctld-wlm", "-c", "-f", str(self.config))
        for name in PORTS:
            self.start_node(name)
        self.open_nodes()

    def open_nodes(self) -> None:
        """Wait until both nodes are idle, then count one GPU on each.

        Slurm finds no device that it would take for a GPU: one is counted, and none is looked at.
        """
        deadline = time.monotonic() + 60
        states = "scontrol update NodeName=n1,n2 State=RESUME; sinfo --noheader --format='%D %T'"
        while self.run("bash", "-c", f"({states}) 2> /dev/null || true") != "2 idle":
            assert time.monotonic() < deadline, f"no two idle nodes: see the logs in {self.folder}"
            time.sleep(0.5)
        self.run("scontrol", "update", "NodeName=n1,n2", "Gres=gpu:1")

    def restart_node(self, name: str) -> None:
        """Bring a killed node back. Slurm closes nodes that report fewer GPUs than it counts."""
        self.run("scontrol", "update", "NodeName=n1,n2", "Gres=")
        self.run("scontrol", "reconfigure")
        self.start_node(name)
        self.open_nodes()

    def start_node(self, name: str) -> None:
        daemon, step = (f"{PACKAGES}/usr/sbin/{of}-wlm" for of in ("slurmd", "slurmstepd"))
        node = (
            f"hostname {name} && mount --bind {self.folder}/hosts /etc/hosts && "
            f"exec {daemon} -f {self.config} -N {name} -d {step}"
        )
        self.run("unshare", "-m", "-u", "bash", "-c", node)

    def kill_node(self, name: str) -> None:
        """SIGKILL to everything that runs on a node, as when its power is cut."""
        daemon = (self.folder / f"slurmd.{name}.pid").read_text().strip()
        machine = os.readlink(f"/proc/{daemon}/ns/uts")
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if os.readlink(process / "ns/uts") == machine:
                    os.kill(int(process.name), signal.SIGKILL)

    def state(self, job: str) -> dict[str, str]:
        """What Slurm says of a job: JobState, Restarts, ExitCode, Reason and so on."""
        words = self.run("scontrol", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def stop(self) -> None:
        for name in PORTS:
            with contextlib.suppress(OSError):  # it has not started
                self.kill_node(name)
        for name in ("slurmctld.pid", "munge.pid"):
            with contextlib.suppress(OSError):
                os.kill(int((self.folder / name).read_text()), signal.SIGTERM)
