"""The measurement of what our own code costs still runs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.tiny_model import build_tiny_model

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = "scripts/benchmarks/overhead.py"
RECIPE = ROOT / "recipes" / "arithmetic"


@pytest.mark.slow
def test_both_arms_train_and_the_share_of_our_own_code_is_left(tmp_path):
    settings = yaml.safe_load((RECIPE / "quickstart.yaml").read_text())
    settings |= {"model_name_or_path": str(build_tiny_model(tmp_path / "model")), "use_peft": False, "dtype": "float32"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(settings))
    shutil.copy(RECIPE / "train.py", tmp_path)
    words = [
        "--config",
        str(tmp_path / "tiny.yaml"),
        "--pairs",
        "1",
        "--steps",
        "3",
        "--output",
        str(tmp_path / "out.json"),
    ]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["steps"] == 2 and 0.0 < found["our share of a step, median"] < 1.0
