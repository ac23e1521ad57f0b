"""The measurements of what our own code costs, and of where a step's time goes, still run."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from support.launching import TINY
from support.tiny_model import build_tiny_model

from recipes.common import run as life

RECIPE = Path(__file__).resolve().parents[1] / "recipes" / "arithmetic"
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Run a benchmark on the tiny quickstart and return the figures that it wrote."""
    monkeypatch.syspath_prepend(RECIPE.parents[1] / "scripts" / "benchmarks")
    monkeypatch.setattr(life, "use_all_cores", lambda training: None)
    settings = {
        **yaml.safe_load((RECIPE / "quickstart.yaml").read_text()),
        **TINY,
        "use_peft": False,
    }
    settings |= {"model_name_or_path": str(build_tiny_model(tmp_path / "model"))}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    shutil.copy(RECIPE / "train.py", tmp_path)

    def run(name: str, *words: str) -> dict:
        fixed = ["--config", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "out.json")]
        monkeypatch.setattr(sys, "argv", [name, *fixed, *words])
        __import__(name).main()
        return json.loads((tmp_path / "out.json").read_text())

    return run


def test_both_arms_train_and_the_share_of_our_own_code_is_left(measure):
    found = measure("overhead", "--pairs", "1", "--steps", "3")
    assert found["steps"] == 2 and 0.0 < found["our share of a step, median"] < 1.0


def test_the_parts_of_a_step_add_up_to_it(measure, capsys):
    found = measure("step_time", "--steps", "3")
    names, parts = "generation rewards preparation loss backward rest step", found["parts"]
    assert found["steps"] == 2 and list(parts) == names.split()
    assert all(part["median seconds"] > 0.0 for part in parts.values())
    assert sum(part["share"] for part in parts.values()) == pytest.approx(
        2.0
    )  # the parts, and the step itself
    assert "generation" in capsys.readouterr().out
