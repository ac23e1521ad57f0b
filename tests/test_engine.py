"""The engine that the launcher was asked for, by its environment or words, and the one in force."""

from types import SimpleNamespace

import psutil
import pytest
from support.launching import ROOT

from recipes.common.checks.launch import check_launch
from recipes.common.training.engine import check_engine, engine_line

IN_FORCE = {
    "distributed_type": "FSDP", "zero_stage": None, "offload": None, "fsdp_version": 2,
    "world_size": 4, "device": "cuda", "mixed_precision": "bf16",
}  # fmt: skip


def test_the_run_stops_under_another_engine_than_fsdp_with_its_version(monkeypatch):
    asked = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "WORLD_SIZE": "4"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    check_engine(IN_FORCE)
    assert engine_line(IN_FORCE) == "Engine: FSDP2, 4 processes, cuda, bf16."
    message = "asked for FSDP, in force is MULTI_CPU; fsdp_version: asked for 2, in force is 1"
    with pytest.raises(ValueError, match=f"distributed_type: {message}"):
        check_engine({**IN_FORCE, "distributed_type": "MULTI_CPU", "fsdp_version": 1})


def test_deepspeed_on_the_cpu_by_the_launch_file_or_the_launchers_words_is_refused(
    monkeypatch, tmp_path
):
    """That the words are found at a real launcher is in test_launch."""
    file, shipped = tmp_path / "zero2.yaml", ROOT / "accelerate_configs/zero2.yaml"
    file.write_text(shipped.read_text().replace("use_cpu: false", "use_cpu: true"))
    for words in ([f"--config_file={file}"], ["--config_file", str(shipped), "--cpu"]):
        parent = SimpleNamespace(cmdline=lambda words=words: ["accelerate", "launch", *words])
        monkeypatch.setattr(psutil.Process, "parent", lambda self, parent=parent: parent)
        with pytest.raises(ValueError, match="asks for DeepSpeed and for the CPU"):
            check_launch()
