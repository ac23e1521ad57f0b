"""The engine that the launcher was asked for, read off its environment, and the name of the one in
force.
"""

from types import SimpleNamespace

import pytest

from recipes.common.training.engine import (
    _share_held,
    asked_of_the_launcher,
    check_engine,
    differences,
    engine_line,
)

IN_FORCE = {
    "distributed_type": "FSDP",
    "zero_stage": None,
    "offload": None,
    "fsdp_version": 2,
    "world_size": 4,
}
IN_FORCE |= {"device": "cuda", "mixed_precision": "bf16"}


def test_the_run_stops_under_another_engine_than_fsdp_with_its_version(monkeypatch):
    given = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "WORLD_SIZE": "4"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    asked = asked_of_the_launcher()
    assert asked == {"world_size": 4, "distributed_type": "FSDP", "fsdp_version": 2}
    check_engine(IN_FORCE)
    assert differences(asked, {**IN_FORCE, "fsdp_version": 1}) == [
        "fsdp_version: asked for 2, in force is 1"
    ]
    with pytest.raises(ValueError, match="fsdp_version: asked for 2, in force is 1"):
        check_engine({**IN_FORCE, "fsdp_version": 1})
    with pytest.raises(ValueError, match="distributed_type: asked for FSDP, in force is MULTI_CPU"):
        check_engine({**IN_FORCE, "distributed_type": "MULTI_CPU", "fsdp_version": None})


def test_the_line_in_the_log_names_the_version():
    assert engine_line(IN_FORCE) == "Engine: FSDP2, 4 processes, cuda, bf16."
    zero = {**IN_FORCE, "distributed_type": "DEEPSPEED", "zero_stage": 2, "fsdp_version": None}
    assert engine_line(zero) == "Engine: ZeRO-2, 4 processes, cuda, bf16."


def test_a_rank_holds_its_part_of_a_sharded_parameter():
    whole = SimpleNamespace(numel=lambda: 8)
    fsdp = SimpleNamespace(numel=lambda: 8, to_local=lambda: SimpleNamespace(numel=lambda: 2))
    zero3 = SimpleNamespace(ds_tensor=SimpleNamespace(numel=lambda: 4), ds_numel=8)
    assert [_share_held([of]) for of in (whole, fsdp, zero3)] == [1.0, 0.25, 0.5]
