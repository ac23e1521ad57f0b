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

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_share_of_our_own_code_is_of_the_steps_after_the_first(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    monkeypatch.setattr(life, "use_all_cores", lambda training: None)
    settings = yaml.safe_load((ROOT / "recipes/arithmetic/quickstart.yaml").read_text())
    model = str(build_tiny_model(tmp_path / "model"))
    settings |= {**TINY, "use_peft": False, "model_name_or_path": model}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    shutil.copy(ROOT / "recipes/arithmetic/train.py", tmp_path)
    files = ["--config", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["overhead", *files, "--steps", "3"])
    import overhead

    overhead.main()
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["steps"] == 2 and 0.0 < found["our share of a step, median"] < 1.0
    assert found["our milliseconds a step, median"] < 1000 * found["step seconds, median"]
