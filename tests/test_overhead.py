"""The measurement of what our own code costs still runs."""

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
