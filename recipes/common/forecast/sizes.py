"""What a plan is made from besides the recipe's own values: the model's config.json and the launch file.

The model is built on the meta device: its parameters are counted exactly, LoRA's too, and no weight is read.

Refused: a `deepspeed_config_file` beside the launch file, FSDP version 1, Megatron, TPUs, quantised weights and eager
attention. Not covered: the experts of a mixture beyond their number of parameters.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml
from peft import get_peft_model
from peft.tuners.lora import LoraLayer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from trl import ModelConfig, get_peft_config

DISTRIBUTED = {"NO": "one process", "MULTI_CPU": "one process", "MULTI_GPU": "DDP", "FSDP": "FSDP2"}
DEFAULT_ZERO_STAGE = 2  # accelerate's, for a file that names none


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


@dataclass(frozen=True)
class Launch:
    """What a launch file starts: engine ("one process", "DDP", "ZeRO-1" to "ZeRO-3", "FSDP2") and processes."""

    engine: str
    processes: int
    distributed_type: str
    use_cpu: bool = False
    offload_optimizer: bool = False
    offload_weights: bool = False

    @property
    def zero(self) -> bool:
        """Whether DeepSpeed runs it."""
        return self.engine.startswith("ZeRO")

    @property
    def shards_weights(self) -> bool:
        """Whether each process holds a part of the weights only."""
        return self.engine in ("ZeRO-3", "FSDP2")


def read_launch(path: Path, num_processes: int | None = None) -> Launch:
    """Read an accelerate launch file; `num_processes` wins over the file, as on the command line.

    Example: `read_launch(Path("accelerate_configs/zero3.yaml"), 4)` is
    `Launch("ZeRO-3", 4, "DEEPSPEED")`

    Raises:
        ValueError: the file cannot be read, or asks for what is not planned here.
    """
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read --launch {path}: {error}") from error
    if not isinstance(values, dict) or "distributed_type" not in values:
        raise ValueError(f"{path} is no launch file of accelerate: it has no distributed_type.")
    kind = str(values["distributed_type"]).upper() if values["distributed_type"] else "NO"  # YAML reads NO as False
    processes = num_processes or values.get("num_processes", 1)
    if not isinstance(processes, int) or processes < 1:
        raise ValueError(f"num_processes is {processes!r} in {path}; give --num_processes.")
    deepspeed = values.get("deepspeed_config") or {}
    return Launch(
        engine=_engine(kind, deepspeed, values.get("fsdp_config") or {}, path),
        processes=processes,
        distributed_type=kind,
        use_cpu=bool(values.get("use_cpu")),
        offload_optimizer=deepspeed.get("offload_optimizer_device", "none") != "none",
        offload_weights=deepspeed.get("offload_param_device", "none") != "none",
    )


def _engine(kind: str, deepspeed: dict, fsdp: dict, path: Path) -> str:
    if kind == "DEEPSPEED":
        if "deepspeed_config_file" in deepspeed:
            raise ValueError(f"{path} points to a deepspeed_config_file; write its zero_stage into {path} to plan it.")
        stage = deepspeed.get("zero_stage", DEFAULT_ZERO_STAGE)
        if stage not in (1, 2, 3):
            raise ValueError(f"zero_stage is {stage!r} in {path}; it must be 1, 2 or 3.")
        return f"ZeRO-{stage}"
    if kind == "FSDP" and fsdp.get("fsdp_version", 1) != 2:
        raise ValueError(f"{path} asks for FSDP version 1; set fsdp_version: 2 in its fsdp_config.")
    if kind not in DISTRIBUTED:
        raise ValueError(
            f"distributed_type {kind} of {path} is not planned here; known are {[*DISTRIBUTED]}, DEEPSPEED."
        )
    return DISTRIBUTED[kind]


def read_model(model: ModelConfig) -> ModelSizes:
    """Count a model from its config.json, in a folder or on the Hub, with the LoRA adapter that `model` asks for.

    Raises:
        ValueError: no config.json, an adapter that does not go with the model, or what is not planned here.
    """
    _check_planned(model)
    config = _read_config(model)
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
        parameters = sum(p.numel() for p in built.parameters())
        embeddings = sum(p.numel() for p in built.parameters() if p.shape[0] == config.get_text_config().vocab_size)
        if model.use_peft:
            built = get_peft_model(built, get_peft_config(model))
    return _sizes(config, built, parameters, embeddings, model)


def _check_planned(model: ModelConfig) -> None:
    if model.load_in_4bit or model.load_in_8bit:
        raise ValueError(
            "quantised weights are not planned here; without load_in_4bit and load_in_8bit the plan is high."
        )
    if model.attn_implementation == "eager":
        raise ValueError(
            "eager attention is not planned here: it keeps every pair of positions. Leave it out for sdpa."
        )


def _sizes(
    config: PreTrainedConfig, built: PreTrainedModel, parameters: int, embeddings: int, model: ModelConfig
) -> ModelSizes:
    text = config.get_text_config()
    heads, hidden = text.num_attention_heads, text.hidden_size
    head_width = getattr(text, "head_dim", None) or hidden // heads
    targets = [module for module in built.modules() if isinstance(module, LoraLayer)]
    return ModelSizes(
        parameters=parameters,
        embeddings=embeddings,
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
        weight_bytes=_bytes_of(model.dtype, config),
    )


def _bytes_of(dtype: str | None, config: PreTrainedConfig) -> int:
    chosen = getattr(config, "dtype", None) if dtype in (None, "auto") else getattr(torch, dtype)
    return (chosen or torch.float32).itemsize


def _read_config(model: ModelConfig) -> PreTrainedConfig:
    name = model.model_name_or_path
    if not name:
        raise ValueError("model_name_or_path is missing: give a Hub id or the path of a checkpoint.")
    if name.startswith((".", "/", "~", "models/")) and not os.path.isfile(os.path.join(name, "config.json")):
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        raise ValueError(f"model_name_or_path {name!r} holds no config.json.{hint}")
    try:
        return AutoConfig.from_pretrained(name, revision=model.model_revision)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"cannot read the config.json of {name!r}, neither as a folder nor from the Hub ({_first_line(error)}) "
            "Put that one file into a folder and give --model_name_or_path FOLDER; weights are not needed."
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
