"""The engine that the launcher was asked for, read off its environment, and the name of the one in
force.
"""

from types import SimpleNamespace

import pytest

from recipes.common.training.engine import (
    asked_of_the_launcher,
    check_engine,
    engine_line,
    share_held,
)

IN_FORCE = {
    "distributed_type": "FSDP",
    "zero_stage": None,
    "offload": None,
    "fsdp_version": 2,
    "world_size": 4,
    "device": "cuda",
    "mixed_precision": "bf16",
}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"fsdp_version": 1}, "fsdp_version: asked for 2, in force is 1"),
        ({"distributed_type": "MULTI_CPU"}, "distributed_type: asked for FSDP, in force is MULTI"),
    ],
)
def test_the_run_stops_under_another_engine_than_fsdp_with_its_version(monkeypatch, other, message):
    asked = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "WORLD_SIZE": "4"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert asked_of_the_launcher() == {
        "world_size": 4,
        "distributed_type": "FSDP",
        "fsdp_version": 2,
    }
    check_engine(IN_FORCE)
    assert engine_line(IN_FORCE) == "Engine: FSDP2, 4 processes, cuda, bf16."
    with pytest.raises(ValueError, match=message):
        check_engine({**IN_FORCE, **other})


def test_a_rank_holds_its_part_of_a_sharded_parameter():
    whole = SimpleNamespace(numel=lambda: 8)
    fsdp = SimpleNamespace(numel=lambda: 8, to_local=lambda: SimpleNamespace(numel=lambda: 2))
    zero3 = SimpleNamespace(ds_tensor=SimpleNamespace(numel=lambda: 4), ds_numel=8)
    assert [share_held([of]) for of in (whole, fsdp, zero3)] == [1.0, 0.25, 0.5]
