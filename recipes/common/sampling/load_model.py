"""A model outside a trainer, as a run of the recipe would hold it: for scripts that evaluate or sample."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from peft import AutoPeftModelForCausalLM
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from recipes.common.utils.machine import make_head_input_contiguous


def load_model(name: str, args: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a Hub id, checkpoint, run folder or adapter, on the accelerator if there is one and `use_cpu` is not set.

    `args` are those of a recipe (`before.arguments.Arguments`). Raises ValueError for what cannot be loaded.
    """
    on_cpu = args.training["use_cpu"] or not torch.accelerator.is_available()
    device = torch.device("cpu") if on_cpu else torch.accelerator.current_accelerator()
    code = {
        "revision": args.model["model_revision"],
        "trust_remote_code": args.training["trust_remote_code"],
    }
    wanted = {
        "dtype": args.model["dtype"] or "auto",
        "attn_implementation": args.model["attn_implementation"],
    }
    try:
        is_adapter = Path(name, "adapter_config.json").is_file()
        loader = AutoPeftModelForCausalLM if is_adapter else AutoModelForCausalLM
        model = loader.from_pretrained(name, **code, **wanted).eval().to(device)
        tokenizer = AutoTokenizer.from_pretrained(name, **code)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token  # as TRL does in a run
        if args.training["chat_template_path"]:
            tokenizer.chat_template = Path(args.training["chat_template_path"]).read_text(
                encoding="utf-8"
            )
    except (OSError, TypeError) as error:
        raise ValueError(f"model {name!r} cannot be loaded: {error}") from error
    make_head_input_contiguous(model)
    return model, tokenizer


def precision_of_a_run(device: torch.device, args: Any) -> AbstractContextManager:
    """In a run accelerate wraps a fully trained model in bf16 autocast; PEFT's generate goes round that."""
    bf16 = (
        args.training["bf16"] is not False
        and not args.training["fp16"]
        and not args.model["use_peft"]
    )
    return torch.autocast(device.type, torch.bfloat16, enabled=bf16)
