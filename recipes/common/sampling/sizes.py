"""The sizes of a model, from its config.json: a plan follows from these, the arguments and the launch file.

The model is built on the meta device: its parameters are counted exactly, LoRA's too, and no weight is read.

Refused: quantised weights and eager attention. Not covered: the experts of a mixture beyond their number of parameters.
"""

import os
from dataclasses import dataclass

import torch
from peft import get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from trl import ModelConfig, get_peft_config


@dataclass(frozen=True)
class ModelSizes:
    """The numbers of a model that memory follows from; widths are in elements, `lora_width` is summed over a layer."""

    parameters: int
    embeddings: int
    trainable: int
    head_is_trained: bool
    lora: bool
    lora_width: int
    layers: int
    hidden: int
    intermediate: int
    query: int
    key: int
    vocabulary: int
    positions: int | None
    weight_bytes: int


def read_model(model: ModelConfig) -> ModelSizes:
    """Count a model from its config.json, with the LoRA adapter that `model` asks for; `ValueError` if that fails."""
    if model.load_in_4bit or model.load_in_8bit:
        without = "without load_in_4bit and load_in_8bit the plan is high."
        raise ValueError(f"quantised weights are not planned here; {without}")
    if model.attn_implementation == "eager":
        reason = "it keeps every pair of positions. Leave it out for sdpa."
        raise ValueError(f"eager attention is not planned here: {reason}")
    config = _read_config(model)
    text = config.get_text_config()
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
        sizes = {p: p.numel() for p in built.parameters()}
        if model.use_peft:
            built = get_peft_model(built, get_peft_config(model))
    heads, hidden = text.num_attention_heads, text.hidden_size
    head_width = getattr(text, "head_dim", None) or hidden // heads
    dtype = (
        getattr(config, "dtype", None)
        if model.dtype in (None, "auto")
        else getattr(torch, model.dtype)
    )
    targets = [module for module in built.modules() if isinstance(module, LoraLayer)]
    return ModelSizes(
        parameters=sum(sizes.values()),
        embeddings=sum(size for p, size in sizes.items() if p.shape[0] == text.vocab_size),
        trainable=sum(p.numel() for p in built.parameters() if p.requires_grad),
        head_is_trained=built.get_output_embeddings().weight.requires_grad,
        lora=model.use_peft,
        lora_width=sum(target.in_features for target in targets) // text.num_hidden_layers,
        layers=text.num_hidden_layers,
        hidden=hidden,
        intermediate=getattr(text, "intermediate_size", None) or 4 * hidden,
        query=heads * head_width,
        key=(getattr(text, "num_key_value_heads", None) or heads) * head_width,
        vocabulary=text.vocab_size,
        positions=getattr(text, "max_position_embeddings", None),
        weight_bytes=(dtype or torch.float32).itemsize,
    )


def _read_config(model: ModelConfig) -> PreTrainedConfig:
    name = model.model_name_or_path
    if not name:
        raise ValueError(
            "model_name_or_path is missing: give a Hub id or the path of a checkpoint."
        )
    if name.startswith((".", "/", "~", "models/")) and not os.path.isfile(
        os.path.join(name, "config.json")
    ):
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        raise ValueError(f"model_name_or_path {name!r} holds no config.json.{hint}")
    try:
        return AutoConfig.from_pretrained(name, revision=model.model_revision)
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"cannot read the config.json of {name!r}, neither as a folder nor from the Hub ({reason}) Put that one "
            "file into a folder and give --model_name_or_path FOLDER; weights are not needed."
        ) from error
