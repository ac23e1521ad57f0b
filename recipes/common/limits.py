"""What each setting may be by itself: the type its field declares, a limit, or one of some choices.
pydantic checks it.

TRL, torch, PEFT and the trackers refuse most of these as well, but late, one at a time, or in other
words.
"""

import dataclasses
import typing
from enum import EnumMeta
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from recipes.common.utils.secrets import blank

# A value that may be left out (None) is not held to its limit where it is.
LIMITS: list[tuple[Any, str]] = [
    (Field(ge=2), "num_generations"),
    (Field(ge=1), "max_completion_length num_train_rows save_total_limit early_stopping_patience"),
    (Field(ge=1), "per_device_train_batch_size per_device_eval_batch_size num_iterations"),
    (Field(ge=1), "gradient_accumulation_steps steps_per_generation generation_batch_size"),
    (Field(ge=1), "lora_r lora_alpha ddp_timeout torch_empty_cache_steps ref_model_sync_steps"),
    (Field(ge=0), "num_eval_rows num_validation_rows num_eval_samples top_k"),
    (Field(ge=0), "max_bad_rows metric_steps"),
    (Field(ge=0), "num_completions_to_print dataloader_num_workers"),
    (Field(ge=0, lt=2**32), "seed data_seed"),
    (Field(ge=-1), "max_steps"),  # 0 is refused with the other settings
    (Field(gt=0), "temperature repetition_penalty learning_rate num_train_epochs adam_epsilon"),
    (
        Field(gt=0),
        "delta reward_timeout_s logging_steps eval_steps sapo_temperature_neg sapo_temperature_pos",
    ),
    (Field(ge=0), "beta weight_decay max_grad_norm warmup_steps epsilon_high entropy_coef"),
    (Field(ge=0), "off_policy_mask_threshold"),
    (Field(gt=0, le=1), "top_p top_entropy_quantile vllm_gpu_memory_utilization"),
    (Field(gt=0, le=1), "ref_model_mixup_alpha"),
    (Field(ge=0, le=1), "min_p max_reward_error_rate label_smoothing_factor"),
    (Field(ge=0, lt=1), "epsilon adam_beta1 adam_beta2 lora_dropout"),
]
LIMIT_OF = {name: limit for limit, names in LIMITS for name in names.split()}
CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("server", "colocate"),
    "accept_changed": ("reward_code",),
    "dtype": ("auto", "fastest", "bfloat16", "float16", "float32"),
}
# Mappings, whatever their field declares: text that is no JSON mapping is no value of them.
MAPPINGS = ("reward_tasks", "reward_gates", "reward_columns")
# pydantic's kinds of errors in plain words.
WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping by name; on the command line JSON",
    "literal_error": "one of {expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
CONFIG = {"arbitrary_types_allowed": True, "protected_namespaces": (), "allow_inf_nan": False}


def usable(kind: type, values: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Every field of a dataclass: those of `values` as their types, else the default.

    A value that is not allowed is a problem.
    """
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    hints = typing.get_type_hints(kind)
    defaults = {name: default_of(field) for name, field in fields.items()}
    given = {
        name: value
        for name, value in values.items()
        if name in fields and (value != defaults[name] or isinstance(value, bool))
    }
    types = {name: _type(name, hints[name], fields[name].metadata.get("choices")) for name in given}
    read, wrong = read_values(types, given)
    shown = blank(given)
    problems += [f"{name} is {shown[name]!r}; it must be {words}." for name, words in wrong.items()]
    return defaults | read


def read_values(
    types: dict[str, Any], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Values as their types, and of each one that is not of its type what it must be.

    A text is read as what its type says; any other value is held to its type.
    Example: `read_values({"a": int, "b": int}, {"a": "5", "b": 1.5}) == ({"a": 5}, {"b": "a whole
    number"})`
    """
    read, wrong = {}, {}
    for name, value in given.items():
        of_list = isinstance(value, list) and bool(value)
        is_text = all(isinstance(each, str) for each in (value if of_list else [value]))
        adapter = TypeAdapter(types[name], config={**CONFIG, "strict": not is_text})
        try:
            value = adapter.validate_python(value)
            read[name] = getattr(value, "value", value)  # of an enum
        except ValidationError as error:
            words = {}
            for each in error.errors():
                one = WORDS.get(each["type"], each["msg"]).format(**each.get("ctx", {}))
                in_list = any(isinstance(part, int) for part in each["loc"])
                words[f"a list of {one.removeprefix('a ')}" if in_list else one] = None
            wrong[name] = " or ".join(words)
    return read, wrong


def _type(name: str, hint: Any, choices: Any) -> Any:
    kinds = [each for each in typing.get_args(hint) if isinstance(each, EnumMeta)]
    of_enum = [each.value for kind in kinds for each in kind]
    choices = CHOICES.get(name) or tuple(choices or of_enum)
    if choices and typing.get_origin(hint) is list:
        hint = list[Literal[choices]]
    elif choices:
        hint = Literal[choices] | None if type(None) in typing.get_args(hint) else Literal[choices]
    elif name in MAPPINGS or name.endswith("_kwargs"):
        hint = dict | None
    return Annotated[hint, LIMIT_OF[name]] if name in LIMIT_OF else hint


def default_of(field: dataclasses.Field) -> Any:
    """The value of a field that nobody gives; None where its dataclass makes one."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
