"""What a run takes of its machines: the fastest dtype, measured once and kept, and the hardware."""

from types import SimpleNamespace

import pytest
import torch

from recipes.common.checks.run_folder import dtype_of_run
from recipes.common.utils import machine
from recipes.common.utils.run_files import RECORD, write_json

SLOW, FAST = 2.0, 1.0


@pytest.mark.parametrize(
    ("seconds", "dtype"),
    [
        ({torch.float32: SLOW, torch.bfloat16: FAST}, "bfloat16"),  # a CPU with products of its own
        ({torch.float32: FAST, torch.bfloat16: FAST}, "float32"),  # no gain: the exact one
    ],
)
def test_the_faster_precision_is_taken(monkeypatch, seconds, dtype):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(machine, "_seconds_of_products", seconds.get)
    assert machine.fastest_dtype() == (dtype, max(seconds.values()) / min(seconds.values()))


@pytest.mark.parametrize(("fresh", "expected"), [(False, "bfloat16"), (True, "float32")])
def test_a_resumed_run_keeps_the_precision_of_its_record(tmp_path, monkeypatch, fresh, expected):
    monkeypatch.setattr("recipes.common.checks.run_folder.fastest_dtype", lambda: ("float32", 1.0))
    write_json(tmp_path / RECORD, {"dtype": "bfloat16"})
    training = SimpleNamespace(output_dir=str(tmp_path), world_size=1)
    assert dtype_of_run(SimpleNamespace(fresh=fresh), training) == expected


def test_the_hardware_of_a_run_is_that_of_all_its_machines(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert machine.versions()["hardware"] == "12 CPU cores"
