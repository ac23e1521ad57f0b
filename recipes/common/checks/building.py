"""The model as it will be built, without its weights: attention, arguments, and where LoRA goes."""

import inspect
import re
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from trl import ModelConfig, get_peft_config

# Arguments of `from_pretrained` that its signature does not name.
LOADING = {"attn_implementation", "code_revision", "device_map", "dtype", "torch_dtype"}
LOADING |= {"low_cpu_mem_usage", "max_memory", "offload_folder", "offload_state_dict", "proxies"}
LOADING |= {"experts_implementation", "quantization_config", "subfolder", "tp_plan", "variant"}
LOADING |= {"trust_remote_code"}
DTYPES = (None, "auto", "bfloat16", "float16", "float32")


def check_building(folder: Path, model: dict[str, Any], training: dict[str, Any]) -> list[str]:
    """Build the model of a folder on no device, with its adapter; whatever refuses is a problem."""
    given = training.get("model_init_kwargs") or {}
    remote = bool(training.get("trust_remote_code") or model.get("trust_remote_code"))
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
    except Exception:  # reported by check_model
        return []
    known = LOADING | inspect.signature(PreTrainedModel.from_pretrained).parameters.keys()
    if unknown := sorted(name for name in given if name not in known and not hasattr(config, name)):
        return [
            f"model_init_kwargs has {', '.join(unknown)}, which neither from_pretrained nor the "
            "model's config.json knows."
        ]
    if given.get("dtype") not in DTYPES:
        allowed = ", ".join(filter(None, DTYPES))
        return [f"model_init_kwargs: dtype is {given['dtype']!r}; it must be one of {allowed}."]
    if not config.architectures:
        return ["the model's config.json names no architectures: TRL would not know what to build."]
    kind = getattr(transformers, config.architectures[0], AutoModelForCausalLM)  # as TRL does it
    build = getattr(kind, "_from_config", AutoModelForCausalLM.from_config)
    more = {"trust_remote_code": remote} if kind is AutoModelForCausalLM else {}
    attention = given.get("attn_implementation") or model.get("attn_implementation")
    try:
        with torch.device("meta"):
            built = build(config, attn_implementation=attention, **more)
    except Exception as error:  # of a package that is not there, or of a name that is none
        name = f"attn_implementation {attention!r}" if attention else "its config.json"
        return [f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:400]}"]
    if foreign := _foreign_weights(folder, built):
        return [f"model_name_or_path {model['model_name_or_path']!r}: {foreign}"]
    return _check_lora(built, model) if model.get("use_peft") else []


def _foreign_weights(folder: Path, built: PreTrainedModel) -> str | None:
    """Name the weights of the model that its files do not hold; transformers would only warn.

    Those that are tied need none. Where transformers puts weights together of others, by its table
    of conversions, only a model of which most is missing is told.
    """
    named: dict[str, list[int]] = {}
    for file in folder.glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            names = list(weights.keys())
            named |= {name: weights.get_slice(name).get_shape() for name in names}
    prefix = f"{built.base_model_prefix}."  # a checkpoint of the model without its head has none
    wanted = [name for name, _ in built.named_parameters() if not _may_be_absent(name, built)]
    missing = [name for name in wanted if not {name, name.removeprefix(prefix)} & named.keys()]
    converted = get_checkpoint_conversion_mapping(built.config.model_type) is not None
    packed = getattr(built.config, "quantization_config", None) is not None
    for name, parameter in built.named_parameters() if not (converted or packed) else ():
        shape = named.get(name, list(parameter.shape))
        if shape != list(parameter.shape):
            return f"{name} has the shape {shape}, and by its config.json {list(parameter.shape)}."
    if not named or not missing or (converted and 2 * len(missing) <= len(wanted)):
        return None
    would = f"{len(missing)} of {len(wanted)} weights of the model would start at random"
    like = next((name for name in sorted(named) if name.endswith(wanted[0])), min(named))
    if len(missing) == len(wanted):
        return (
            f"its weights have other names than the model's: {like}, where the model has "
            f"{wanted[0]}. {would}: save them again without what wraps the model."
        )
    return f"its weights lack {', '.join(missing[:3])}: {would}. Give the whole checkpoint."


def _may_be_absent(name: str, built: PreTrainedModel) -> bool:
    ignored = built._keys_to_ignore_on_load_missing or ()
    is_ignored = any(re.search(pattern, name) for pattern in ignored)
    return is_ignored or name in built.all_tied_weights_keys


def _check_lora(built: PreTrainedModel, model: dict[str, Any]) -> list[str]:
    from peft import inject_adapter_in_model

    saved = model.get("lora_modules_to_save") or []
    if missing := [each for each in saved if not _is_there(each, built)]:
        return [f"lora_modules_to_save: nothing in the model has the name {', '.join(missing)}."]
    names = {name for name, module in built.named_modules() if isinstance(module, torch.nn.Linear)}
    ends = sorted({name.rpartition(".")[2] for name in names})
    remedy = f"the model has {', '.join(ends)}; or give all-linear."
    asked = model.get("lora_target_modules") or []
    if missing := [each for each in asked if len(asked) > 1 and not _is_there(each, built)]:
        return [f"lora_target_modules: nothing has the name {', '.join(missing)}: {remedy}"]
    try:
        config = get_peft_config(ModelConfig(**model))
    except Exception:  # reported by check_settings
        return []
    try:
        inject_adapter_in_model(config, built, low_cpu_mem_usage=True)
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        hint = ""
        if len(asked) == 1:  # TRL hands PEFT a text in its place
            hint = f" One name alone is a regular expression of a whole name: give '.*{asked[0]}'."
        return [f"lora_target_modules is {asked or None}: {words}{hint} By their ends {remedy}"]
    return []


def _is_there(target: str, built: PreTrainedModel) -> bool:
    return any(f".{name}".endswith(f".{target}") for name, _ in built.named_modules())
