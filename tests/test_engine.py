"""The engine that the launcher was asked for, by its environment or words, and the one in force."""

from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest
from support.launching import ROOT

from recipes.common.checks.launch import check_launch, notes_on_gpus
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


@pytest.mark.parametrize(
    ("words", "visible", "problem"),
    [
        ([], None, None),
        ([], "0", None),
        ([], "0,1", None),
        (["--gpu_ids=1"], "1", None),
        ([], "1", "CUDA_VISIBLE_DEVICES is '1', and the launch file makes gpu_ids '0' of it"),
    ],
)
def test_the_launch_file_does_not_take_another_gpu_than_the_one_asked_for(
    words, visible, problem, monkeypatch
):
    words = [
        "accelerate",
        "launch",
        f"--config_file={ROOT}/accelerate_configs/single_gpu.yaml",
        *words,
    ]
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    parent = SimpleNamespace(cmdline=lambda: words, environ=lambda: environ)
    monkeypatch.setattr(psutil.Process, "parent", lambda self: parent)
    with pytest.raises(ValueError, match=problem) if problem else nullcontext():
        check_launch()


@pytest.mark.parametrize(
    ("sees_gpu", "programs", "words"),
    [
        (False, {"nvidia-smi"}, "sees no GPU: the run is on the CPU"),
        (False, set(), None),
        (True, set(), "no C compiler or no headers"),
        (True, {"gcc"}, None),
    ],
)
def test_a_gpu_that_torch_does_not_see_and_a_missing_compiler_are_noted(
    sees_gpu, programs, words, monkeypatch, tmp_path
):
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: sees_gpu)
    monkeypatch.setattr("shutil.which", lambda name: name if name in programs else None)
    notes = notes_on_gpus(asked_for_cpu=False)
    assert [words in note for note in notes] == [True] * (words is not None)
    assert notes_on_gpus(asked_for_cpu=True) == []
