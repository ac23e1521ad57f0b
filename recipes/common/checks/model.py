"""The model: its files, and what is built of them without a weight, with LoRA where it goes."""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from trl import ModelConfig, get_peft_config

from recipes.common.checks.model_files import (
    Shapes,
    check_absent,
    check_files,
    check_reading,
    model_folder,
)
from recipes.common.utils.problems import told

# Arguments of `from_pretrained` that its signature does not name.
LOADING = {"attn_implementation", "code_revision", "device_map", "dtype", "torch_dtype"}
LOADING |= {"low_cpu_mem_usage", "max_memory", "offload_folder", "offload_state_dict", "proxies"}
LOADING |= {"experts_implementation", "quantization_config", "subfolder", "tp_plan", "variant"}
LOADING |= {"trust_remote_code"}


def check_model(
    model: dict[str, Any],
    training: dict[str, Any],
    rows: list[dict],
    tools: list[Callable],
) -> tuple[list[str], Any]:
    """What keeps a model that is on this disk from loading or from reading the rows.

    And its tokenizer; None where something does, or where the model is not on this disk.
    """
    name = model.get("model_name_or_path")
    if not name:
        return ["model_name_or_path is missing: give a Hub id or the path of a checkpoint."], None
    try:
        folder = model_folder(name, model.get("model_revision"))
        if folder is None:
            check_absent(name)
            return [], None
        shapes = check_files(folder)
        tokenizer = check_reading(folder, training, rows, tools)
        _check_building(folder, shapes, model, training)
    except ValueError as problem:
        return [f"model_name_or_path {name!r}: {problem}"], None
    return [], tokenizer


def check_reward_model(name: str, training: dict[str, Any], rows: list[dict]) -> list[str]:
    """What keeps a reward model from loading, and a head that TRL would make anew, at random."""
    try:
        folder = model_folder(name)
        if folder is None:
            check_absent(name)
            return []
        check_files(folder)
        check_reading(folder, training, rows, [])
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kinds = ", ".join(config.get("architectures") or ())
        if kinds and "SequenceClassification" not in kinds:
            raise ValueError(
                f"it is a {kinds}: its scores would come from a random head. Give a model for "
                "sequence classification."
            )
    except ValueError as problem:
        return [f"the reward model {name!r}: {problem}"]
    return []


def _check_building(
    folder: Path, shapes: Shapes, model: dict[str, Any], training: dict[str, Any]
) -> None:
    """Build the model of a folder on no device, with its adapter; ValueError for what refuses.

    `shapes` are those of its weights.
    """
    given = training.get("model_init_kwargs") or {}
    remote = bool(training.get("trust_remote_code") or model.get("trust_remote_code"))
    config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
    known = LOADING | inspect.signature(PreTrainedModel.from_pretrained).parameters.keys()
    unknown = sorted(name for name in given if name not in known and not hasattr(config, name))
    elsewhere = given.keys() & {"dtype", "torch_dtype", "device_map"}
    wrong = {
        f"model_init_kwargs has {', '.join(unknown)}, which neither from_pretrained nor the "
        "model's config.json knows.": unknown,
        f"model_init_kwargs sets {', '.join(sorted(elsewhere))}: the setting dtype says the type, "
        "and the trainer places the model. Leave it out there.": elsewhere,
        "its config.json names no architectures: TRL would not know what to build.": (
            not config.architectures
        ),
    }
    if problems := told(wrong):
        raise ValueError(problems[0])
    kind = getattr(transformers, config.architectures[0], AutoModelForCausalLM)  # as TRL does it
    build = getattr(kind, "_from_config", AutoModelForCausalLM.from_config)
    more = {"trust_remote_code": remote} if kind is AutoModelForCausalLM else {}
    attention = given.get("attn_implementation") or model.get("attn_implementation")
    try:
        with torch.device("meta"):
            built = build(config, attn_implementation=attention, **more)
    except Exception as error:  # of a package that is not there, or of a name that is none
        name = f"attn_implementation {attention!r}" if attention else "its config.json"
        raise ValueError(f"{name}: {_words(error)}") from error
    if shapes:
        _check_weights(shapes, built)
    if model.get("use_peft"):
        _check_lora(built, model)


def _check_weights(shapes: Shapes, built: PreTrainedModel) -> None:
    """Each weight of the model is there, with its shape; transformers would only warn.

    Those that are tied need none. Where transformers puts weights together of others, by its table
    of conversions, only a model of which most is missing is told.
    """
    parameters = dict(built.named_parameters())
    prefix = f"{built.base_model_prefix}."  # a checkpoint of the model without its head has none
    given = {name: shapes.get(name, shapes.get(name.removeprefix(prefix))) for name in parameters}
    absent = [re.compile(pattern) for pattern in built._keys_to_ignore_on_load_missing or ()]
    wanted = [name for name in parameters if name not in built.all_tied_weights_keys]
    wanted = [name for name in wanted if not any(each.search(name) for each in absent)]
    missing = [name for name in wanted if given[name] is None]
    converted = get_checkpoint_conversion_mapping(built.config.model_type) is not None
    packed = getattr(built.config, "quantization_config", None) is not None
    for name, parameter in parameters.items() if not (converted or packed) else ():
        there, built_of = given[name], list(parameter.shape)
        if there not in (None, built_of):
            raise ValueError(f"{name} has the shape {there}, and by its config.json {built_of}.")
    if not missing or (converted and 2 * len(missing) <= len(wanted)):
        return
    would = f"{len(missing)} of {len(wanted)} weights of the model would start at random"
    if len(missing) < len(wanted):
        first = ", ".join(missing[:3])
        raise ValueError(f"its weights lack {first}: {would}. Give the whole checkpoint.")
    like = next((name for name in sorted(shapes) if name.endswith(wanted[0])), min(shapes))
    raise ValueError(
        f"its weights have other names than the model's: {like}, where the model has {wanted[0]}. "
        f"{would}: save them again without what wraps the model."
    )


def _check_lora(built: PreTrainedModel, model: dict[str, Any]) -> None:
    """LoRA finds each of its targets, and what it is to save."""
    from peft import inject_adapter_in_model

    modules = [f".{name}" for name, _ in built.named_modules()]
    parameters = [f".{name}" for name, _ in built.named_parameters()]
    linear = {name for name, of in built.named_modules() if isinstance(of, torch.nn.Linear)}
    ends = sorted({name.rpartition(".")[2] for name in linear})
    remedy = f"the model has {', '.join(ends)}; or give all-linear."
    asked = model.get("lora_target_modules") or []
    named = {
        "lora_modules_to_save": (model.get("lora_modules_to_save") or [], modules),
        # One alone may be all-linear.
        "lora_target_modules": (asked if len(asked) > 1 else [], modules),
        "lora_target_parameters": (model.get("lora_target_parameters") or [], parameters),
    }
    for setting, (names, paths) in named.items():
        there = {name for name in names for path in paths if path.endswith(f".{name}")}
        if missing := [name for name in names if name not in there]:
            lacks = f"nothing has the name {', '.join(missing)}"
            raise ValueError(f"{setting}: {lacks}: {remedy}")
    try:
        config = get_peft_config(ModelConfig(**model))
    except Exception:  # reported by check_settings
        return
    try:
        inject_adapter_in_model(config, built, low_cpu_mem_usage=True)
    except Exception as error:
        hint = ""
        if len(asked) == 1:  # TRL hands PEFT a text in its place
            hint = f" One name alone is a regular expression of a whole name: give '.*{asked[0]}'."
        raise ValueError(
            f"lora_target_modules is {asked or None}: {_words(error)}{hint} By their ends {remedy}"
        ) from error


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
