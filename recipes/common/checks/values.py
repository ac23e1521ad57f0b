"""The values of a run, by themselves: their types, ranges and choices, and the objects that are built from them.

TRL, torch, PEFT and the trackers refuse most of these as well, but late, one at a time, or in other words.
"""

import dataclasses
import enum
import inspect
import math
import os
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, SchedulerType, get_scheduler
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.training_args import OptimizerNames
from trl import ModelConfig, get_peft_config

from recipes.common.trainer import GRPOConfig

WORDS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}
# What is allowed -> the test, and the fields. A value that may be left out (None) is not tested where it is.
RANGES: dict[str, tuple[Callable[[Any], bool], tuple[str, ...]]] = {
    "a whole number of at least 1": (
        lambda v: v >= 1,
        (
            *(
                "max_completion_length",
                "per_device_eval_batch_size",
                "num_train_rows",
                "save_total_limit",
                "early_stopping_patience",
            ),
            *("lora_r", "lora_alpha", "ddp_timeout", "torch_empty_cache_steps"),
        ),
    ),
    "a whole number of at least 0": (
        lambda v: v >= 0,
        (
            *("num_eval_rows", "num_validation_rows", "num_eval_samples", "num_gsm8k_rows"),
            *("num_completions_to_print", "top_k", "dataloader_num_workers"),
        ),
    ),
    "from 0 to 2**32 - 1": (lambda v: 0 <= v < 2**32, ("seed", "data_seed")),
    "at least 1, or -1 for num_train_epochs": (lambda v: v >= 1 or v == -1, ("max_steps",)),
    "a number of more than 0": (
        lambda v: 0 < v < math.inf,
        (
            *(
                "temperature",
                "repetition_penalty",
                "learning_rate",
                "num_train_epochs",
                "adam_epsilon",
                "delta",
            ),
            *("reward_timeout_s", "logging_steps", "sapo_temperature_neg", "sapo_temperature_pos"),
        ),
    ),
    "a number of at least 0": (
        lambda v: 0 <= v < math.inf,
        (
            *(
                "beta",
                "weight_decay",
                "max_grad_norm",
                "warmup_steps",
                "epsilon_high",
                "entropy_coef",
            ),
            "off_policy_mask_threshold",
        ),
    ),
    "more than 0 and at most 1": (
        lambda v: 0 < v <= 1,
        ("top_p", "top_entropy_quantile", "vllm_gpu_memory_utilization"),
    ),
    "from 0 to 1": (
        lambda v: 0 <= v <= 1,
        ("min_p", "max_reward_error_rate", "label_smoothing_factor"),
    ),
    "at least 0 and less than 1": (
        lambda v: 0 <= v < 1,
        ("epsilon", "adam_beta1", "adam_beta2", "lora_dropout"),
    ),
}
CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("server", "colocate"),
    "dtype": ("auto", "bfloat16", "float16", "float32"),
    "lr_scheduler_type": tuple(kind.value for kind in SchedulerType),
    "optim": tuple(kind.value for kind in OptimizerNames),
    "save_strategy": tuple(kind.value for kind in SaveStrategy),
    "logging_strategy": tuple(kind.value for kind in IntervalStrategy),
    "eval_strategy": tuple(kind.value for kind in IntervalStrategy),
}


def usable(dataclass_type: type, values: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Replace each value of a wrong type, outside its range or not among its choices by its default, with a message."""
    checked = dict(values)
    hints = typing.get_type_hints(dataclass_type)
    for field in dataclasses.fields(dataclass_type):
        if field.name not in values:
            continue
        value, default = (
            values[field.name],
            None if field.default is dataclasses.MISSING else field.default,
        )
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value is None and default == "":  # argparse's doing
            continue
        wrong = (
            _type_problem(value, hints[field.name])
            if value != default or isinstance(value, bool)
            else None
        )
        wrong = wrong or _value_problem(field.name, value, field.metadata.get("choices"))
        if wrong:
            problems.append(f"{field.name} is {value!r}; {wrong}.")
            checked[field.name] = default
    return checked


def _type_problem(value: Any, hint: Any) -> str | None:
    options = (
        typing.get_args(hint)
        if typing.get_origin(hint) in (typing.Union, types.UnionType)
        else (hint,)
    )
    if any(_fits(value, option) for option in options):
        return None
    names = [
        WORDS.get(typing.get_origin(option) or option)
        for option in options
        if option is not type(None)
    ]
    of = {typing.get_args(option)[0] for option in options if typing.get_origin(option) is list}
    kind = " or ".join(dict.fromkeys(name for name in names if name)) or "another kind of value"
    return f"it must be {kind}" + (
        f" of {WORDS[of.pop()].removeprefix('a ')}" if of & WORDS.keys() else ""
    )


def _fits(value: Any, option: Any) -> bool:
    origin = typing.get_origin(option) or option
    if origin is typing.Any or (
        origin is float and isinstance(value, int) and not isinstance(value, bool)
    ):
        return True
    if origin is typing.Literal:
        return value in typing.get_args(option)
    if not isinstance(origin, type):
        return False
    if isinstance(value, bool) and origin in (int, float):
        return False
    if origin is list:
        return isinstance(value, list) and all(
            _fits(v, (typing.get_args(option) or (typing.Any,))[0]) for v in value
        )
    return isinstance(value, origin) or (issubclass(origin, enum.Enum) and isinstance(value, str))


def _value_problem(name: str, value: Any, choices: Any = None) -> str | None:
    choices = CHOICES.get(name) or tuple(choices or ())
    if choices and value is not None and getattr(value, "value", value) not in choices:
        return f"allowed: {', '.join(choices)}"
    if name.endswith("_kwargs") and isinstance(value, str):
        return "it must be a mapping; on the command line JSON"
    if isinstance(value, int | float) and not isinstance(value, bool):
        wrong = [
            allowed
            for allowed, (test, names) in RANGES.items()
            if name in names and not test(value)
        ]
        return f"it must be {wrong[0]}" if wrong else None
    return None


def check_output_dir(path: str | None) -> list[str]:
    """The run's folder can be made: no file stands in its way, and the folder above it can be written."""
    folder = Path(path or "trainer_output").absolute()
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not above.is_dir():
        return [f"output_dir is {path!r}, but {above} is a file: give another folder."]
    return (
        []
        if os.access(above, os.W_OK | os.X_OK)
        else [f"output_dir is {path!r}, but {above} cannot be written."]
    )


def check_generation(training: dict[str, Any]) -> list[str]:
    """`generation_kwargs` has names and values that transformers' generation takes."""
    given = training["generation_kwargs"] or {}
    if training["use_vllm"]:  # vLLM's own SamplingParams
        return []
    known = (
        GenerationConfig().to_dict().keys()
        | inspect.signature(GenerationConfig.__init__).parameters.keys()
    )
    if unknown := sorted(given.keys() - known):
        return [
            f"generation_kwargs has {', '.join(unknown)}, which transformers' GenerationConfig does not have."
        ]
    if given.keys() & {"max_new_tokens", "max_length"}:
        return ["generation_kwargs sets the length; set max_completion_length in its place."]
    if taken := sorted(given.keys() & {"eos_token_id", "pad_token_id"}):
        return [
            f"generation_kwargs sets {', '.join(taken)}, which training and evaluation take from the tokenizer."
        ]
    if (
        given.get("num_beams", 1) != 1
        or given.get("num_return_sequences", 1) != 1
        or given.get("do_sample") is False
    ):
        return [
            f"generation_kwargs is {given!r}; GRPO samples one completion a row: without beams, do_sample true."
        ]
    wrong = [
        (name, problem) for name, value in given.items() if (problem := _value_problem(name, value))
    ]
    if wrong:
        return [
            f"generation_kwargs: {name} is {given[name]!r}; {problem}." for name, problem in wrong
        ]
    return _message(
        "generation_kwargs",
        lambda: GenerationConfig(**{"do_sample": True, **given}).validate(strict=True),
    )


def check_lora(model: dict[str, Any]) -> list[str]:
    """Build TRL's `ModelConfig`, and PEFT's configuration of the adapter if there is one."""
    return _message("the model and LoRA settings", lambda: get_peft_config(ModelConfig(**model)))


def check_optimizer(training: GRPOConfig) -> list[str]:
    """Build the optimizer on one number, and the schedule, from their settings."""
    from transformers import Trainer

    def build() -> None:
        parameter = torch.nn.Parameter(torch.zeros(1))
        if (
            training.optim_target_modules is None and "lomo" not in training.optim.value
        ):  # else it needs the model
            kind, settings = Trainer.get_optimizer_cls_and_kwargs(training)
            optimizer = kind([parameter], **settings)
        else:
            optimizer = torch.optim.SGD([parameter], lr=training.learning_rate)
        get_scheduler(
            training.lr_scheduler_type,
            optimizer,
            num_warmup_steps=training.get_warmup_steps(max(training.max_steps, 1)),
            num_training_steps=max(training.max_steps, 1),
            scheduler_specific_kwargs=training.lr_scheduler_kwargs,
        )

    names = (
        f"optim {training.optim.value!r}, optim_args {training.optim_args!r}, lr_scheduler_type "
    )
    names += f"{training.lr_scheduler_type.value!r} and lr_scheduler_kwargs {training.lr_scheduler_kwargs!r}"
    return _message(names, build)


def _message(name: str, build: Callable[[], Any]) -> list[str]:
    """Build something of another library's: its refusal, of whatever kind, is a message."""
    try:
        build()
    except Exception as error:
        return [f"{name}: {type(error).__name__}: {' '.join(str(error).split())}"]
    return []
