"""What a run takes of its machines: the fastest dtype, measured once and kept, and the hardware."""

from types import SimpleNamespace

import pytest
import torch

from recipes.common.checks.run_folder import dtype_of_run
from recipes.common.utils import machine
from recipes.common.utils.run_files import RECORD, write_json


# The exact one where bfloat16 gains nothing.
@pytest.mark.parametrize(("of_bfloat16", "dtype"), [(0.5, "bfloat16"), (1.0, "float32")])
def test_the_faster_precision_is_taken(monkeypatch, of_bfloat16, dtype):
    seconds = {torch.float32: 1.0, torch.bfloat16: of_bfloat16}
    monkeypatch.setattr(machine, "_seconds_of_products", seconds.get)
    assert machine.fastest_dtype(use_cpu=True) == (dtype, 1.0 / of_bfloat16)


@pytest.mark.parametrize(("major", "dtype"), [(7, "float32"), (8, "bfloat16")])  # 7: emulates it
def test_a_gpu_gets_the_precision_that_its_hardware_has(monkeypatch, major, dtype):
    gpu = {"is_available": True, "current_device": 0, "_check_bf16_tensor_supported": True}
    for name, value in (gpu | {"get_device_properties": SimpleNamespace(major=major)}).items():
        monkeypatch.setattr(torch.cuda, name, lambda *device, value=value: value)
    assert machine.fastest_dtype(use_cpu=False) == (dtype, 1.0)


@pytest.mark.parametrize(("fresh", "expected"), [(False, "bfloat16"), (True, "float32")])
def test_a_resumed_run_keeps_the_precision_of_its_record(tmp_path, monkeypatch, fresh, expected):
    monkeypatch.setattr("recipes.common.checks.run_folder.fastest_dtype", lambda _: ("float32", 1))
    write_json(tmp_path / RECORD, {"dtype": "bfloat16"})
    training = SimpleNamespace(output_dir=str(tmp_path), world_size=1, use_cpu=True)
    assert dtype_of_run(SimpleNamespace(fresh=fresh), training) == expected


def test_the_hardware_of_a_run_is_that_of_all_its_machines(monkeypatch):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    on_cpu = SimpleNamespace(device=torch.device("cpu"))
    monkeypatch.setattr(machine, "PartialState", lambda: on_cpu)
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert machine.versions()["hardware"] == "12 CPU cores"
