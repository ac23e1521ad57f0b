"""The engine that the launcher was asked for, read off its environment, and the name of the one in
force.
"""

import pytest

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
