"""Which values of settings are allowed: types, ranges, choices and combinations.

pydantic checks the type that a field declares. This module does not repeat what TRL, transformers
and PEFT refuse themselves: it holds what they would train with in silence.
"""

import dataclasses
import os
import typing
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import torch
from huggingface_hub.utils import HFValidationError, validate_repo_id
from pydantic import Field, TypeAdapter, ValidationError

from recipes.common.training.engine import asked_engine, world_size
from recipes.common.utils.secrets import hide_secrets

# A range does not apply to None, if the type of the setting allows None.
RANGES: list[tuple[Any, str]] = [
    (Field(ge=2), "num_generations"),
    (Field(ge=1), "max_completion_length num_train_rows save_total_limit early_stopping_patience"),
    (Field(ge=1, le=10**6), "per_device_train_batch_size per_device_eval_batch_size"),
    (Field(ge=1, le=10**6), "gradient_accumulation_steps steps_per_generation num_iterations"),
    (Field(ge=1, le=10**9), "generation_batch_size"),
    (Field(ge=1), "lora_r lora_alpha ddp_timeout ref_model_sync_steps"),
    (Field(ge=0), "num_eval_rows num_validation_rows num_eval_samples metric_steps max_bad_rows"),
    (Field(ge=0), "num_completions_to_print top_k off_policy_mask_threshold"),
    (Field(ge=0, le=1000), "dataloader_num_workers"),
    (Field(ge=0, lt=2**32), "seed data_seed"),
    (Field(ge=-1, le=10**9), "max_steps"),
    (Field(gt=0, le=10), "learning_rate"),
    (Field(gt=0, le=1000), "temperature repetition_penalty"),
    (Field(gt=0, le=10**6), "num_train_epochs reward_timeout_s logging_steps"),
    (Field(gt=0), "sapo_temperature_neg sapo_temperature_pos adam_epsilon eval_steps"),
    (Field(gt=1), "delta"),  # the highest ratio; below 1 it would take the gradient of good tokens
    (Field(ge=0), "beta weight_decay max_grad_norm warmup_steps epsilon_high entropy_coef"),
    (Field(gt=0, le=1), "top_p vllm_gpu_memory_utilization ref_model_mixup_alpha"),
    (Field(ge=0, le=1), "min_p top_entropy_quantile max_reward_error_rate label_smoothing_factor"),
    (Field(ge=0, lt=1), "epsilon adam_beta1 adam_beta2 lora_dropout"),
]
RANGE_OF = {name: limit for limit, names in RANGES for name in names.split()}
CHOICES: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_mode": ("server", "colocate"),
    "eval_strategy": ("no", "steps", "epoch"),
    "save_strategy": ("no", "steps", "epoch", "best"),
    "logging_strategy": ("no", "steps", "epoch"),
    "accept_changed": ("reward_code",),
    "dtype": ("auto", "fastest", "bfloat16", "float16", "float32"),
}
# Their fields declare `dict | str`, to take JSON; a text that is not a JSON mapping is refused.
MAPPINGS = ("reward_tasks", "reward_gates", "reward_columns")
# Keys of generation_kwargs that other settings decide, each with its one allowed value; `...` is
# equal to none.
FIXED = {
    "do_sample": True,
    "num_beams": 1,
    "num_return_sequences": 1,
    "stop_strings": None,
    "max_length": None,
    "max_time": None,
    **dict.fromkeys(("max_new_tokens", "eos_token_id", "pad_token_id", "disable_compile"), ...),
}
SET_BY_TRL = {  # of a chat template
    "add_generation_prompt", "tools", "chat_template", "conversation", "tokenize", "return_dict",
}  # fmt: skip
# transformers leaves these out in silence where they are above 1.
SHARES = ("top_p", "typical_p", "epsilon_cutoff", "eta_cutoff")
TINY = {"hidden_size": 2, "intermediate_size": 2, "num_hidden_layers": 1, "vocab_size": 2**18}
# What leaves this machine, or what others see on it, and so must hold no secret.
PUBLIC_NAMES = ("run_name", "project", "hub_model_id", "hub_revision", "output_dir", "logging_dir")
PUBLIC_VARIABLES = ("WANDB_NAME", "WANDB_PROJECT", "WANDB_RUN_GROUP", "WANDB_NOTES", "WANDB_TAGS")


def chooses_a_checkpoint(s: SimpleNamespace) -> bool:
    """Whether a metric decides which checkpoint is kept, or when the run stops.

    transformers looks up the metric wherever it is named, and some schedules name it themselves.
    """
    is_read = s.metric_for_best_model and s.eval_strategy != "no"
    by_schedule = s.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
    return bool(s.load_best_model_at_end or s.early_stopping_patience or is_read or by_schedule)


def shares_a_turn(s: SimpleNamespace) -> bool:
    """Whether each turn of a rollout needs all processes at once."""
    of_vllm = s.use_vllm and (s.vllm_mode == "server" or s.vllm_tensor_parallel_size > 1)
    return world_size() > 1 and (of_vllm or asked_engine().startswith(("ZeRO-3", "FSDP")))


# Settings that do not go together: a condition on all settings of a run, and a message for it.
# `{name}` in a message is the value of that setting.
# fmt: off
COMBINATIONS: list[tuple[Callable[[SimpleNamespace], Any], str]] = [
    (lambda s: s.max_steps == 0,
     "max_steps is 0; it must be at least 1, or -1 for num_train_epochs."),
    (lambda s: len(s.example) % 2,
     "example is {example}; give a question and its completion, further pairs, or none."),
    (lambda s: s.reward_weights and not any(s.reward_weights),
     "reward_weights is {reward_weights}; one must not be 0."),
    (lambda s: s.max_completion_length is None,
     "max_completion_length is null: transformers would write 20 tokens. Give a number."),
    (lambda s: ((s.tools or s.environment_factory) and s.max_tool_calling_iterations is not None
                and s.max_tool_calling_iterations < 1),
     "max_tool_calling_iterations is {max_tool_calling_iterations}: no tool would answer. Give at "
     "least 1, null for no limit, or no tools."),
    # TRL 1.16 would hang: the rollouts of two processes have different numbers of turns.
    (lambda s: (s.tools or s.environment_factory) and shares_a_turn(s),
     "tools do not go with ZeRO-3, FSDP or a vLLM that several processes share: each turn needs "
     "all of them. Use DDP, ZeRO-1 or ZeRO-2, or one process."),
    # A gated reward, normalised over the right answers only, would give a wrong answer their mean.
    (lambda s: s.reward_gates and s.multi_objective_aggregation == "normalize_then_sum",
     "reward_gates do not go with multi_objective_aggregation: normalize_then_sum."),
    (lambda s: s.drop_finished and (s.use_vllm or s.generation_kwargs or not s.share_prompts),
     "drop_finished needs share_prompts: true, and goes neither with vLLM, which does it by "
     "itself, nor with generation_kwargs: leave it out."),
    (lambda s: s.sync_ref_model and (s.use_peft or not s.beta),
     "sync_ref_model moves a reference model: it needs use_peft: false and beta above 0."),
    (lambda s: s.sync_ref_model and 0 < s.max_steps <= s.ref_model_sync_steps,
     "ref_model_sync_steps is {ref_model_sync_steps}, max_steps {max_steps}: the reference model "
     "would never move."),
    (lambda s: s.multi_objective_aggregation == "normalize_then_sum" and s.scale_rewards in (
        "none", "batch"),
     "scale_rewards has no effect with multi_objective_aggregation: normalize_then_sum: leave out "
     "one of them."),
    # TRL 1.16 sends the packed numbers: the first sync fails, on a GPU (TRL #4973).
    (lambda s: s.use_vllm and (s.load_in_4bit or s.load_in_8bit),
     "use_vllm takes no weights in 4 or 8 bits from TRL: leave out one of them."),
    (lambda s: s.dataloader_persistent_workers and not s.dataloader_num_workers,
     "dataloader_persistent_workers is true and dataloader_num_workers is 0: give at least 1."),
    (lambda s: SET_BY_TRL & {*(s.chat_template_kwargs or {})},
     "chat_template_kwargs is {chat_template_kwargs}: TRL sets add_generation_prompt, tools, "
     "chat_template, conversation, tokenize and return_dict itself. Leave them out."),
    (lambda s: s.remove_unused_columns,
     "remove_unused_columns is true and would take away columns of rewards: leave it out."),
    (lambda s: {"dtype", "torch_dtype", "device_map"} & {*(s.model_init_kwargs or {})},
     "model_init_kwargs is {model_init_kwargs}: dtype is a setting of its own, and the trainer "
     "places the model. Leave them out there."),
    # By default TRL turns bf16 on; on a CPU slow in bfloat16 a step then takes ten times as long.
    (lambda s: s.dtype == "fastest" and s.use_cpu and s.bf16 is not False and not s.fp16,
     "dtype is fastest, but with bf16 every product is in bfloat16: set bf16: false."),
    # Checkpoints that a run could not resume, or not with the same tokens
    (lambda s: s.resume_from_checkpoint,
     "resume_from_checkpoint is {resume_from_checkpoint!r}; a run goes on from the newest whole "
     "checkpoint of its output_dir. To go back, copy its folder without the later checkpoints and "
     "wandb_run.json."),
    (lambda s: s.ignore_data_skip or s.save_only_model,
     "ignore_data_skip and save_only_model must be false: a resumed run would train on rows that "
     "it has had, or lack its optimizer and its random state."),
    # Only a new best would be saved: Ctrl-C or a kill would lose every step after the last best.
    (lambda s: s.save_strategy == "best",
     "save_strategy is best; give steps, save_steps as eval_steps, load_best_model_at_end: true."),
    (lambda s: s.metric_for_best_model and s.save_total_limit == 1,
     "save_total_limit is 1: transformers would keep the best checkpoint alone, and the run could "
     "not go on from its last. Set it to 2."),
    # The checkpoint that validation rows choose
    (lambda s: s.eval_strategy != "no" and not s.num_validation_rows,
     "num_validation_rows is 0: there would be nothing to evaluate by eval_strategy. Give rows."),
    (lambda s: s.eval_on_start,
     "eval_on_start is true, and a run evaluates before its first step by itself: leave it out."),
    # A save at the end of an epoch comes before its evaluation, which a resume would not repeat.
    (lambda s: (s.early_stopping_patience and s.eval_strategy == "epoch"
                and s.save_strategy == "steps"),
     "early_stopping_patience with eval_strategy epoch and save_strategy steps: a run killed after "
     "a save at an epoch's end would lose that evaluation. Give save_strategy: epoch."),
    (lambda s: s.early_stopping_patience and s.eval_strategy == "no",
     "early_stopping_patience needs evaluations: set eval_strategy: steps and eval_steps."),
    (lambda s: (chooses_a_checkpoint(s)
                and not str(s.metric_for_best_model).startswith("validation/")),
     "metric_for_best_model is {metric_for_best_model!r}; a checkpoint is chosen, and a run "
     "stopped early, by a metric of the recipe on the validation rows: validation/strict, say."),
    (lambda s: chooses_a_checkpoint(s) and s.greater_is_better is False,
     "greater_is_better is false, but the metrics are shares of right answers: leave it out."),
    (lambda s: (s.load_best_model_at_end and s.save_strategy == s.eval_strategy == "steps"
                and s.save_steps != (s.eval_steps or s.logging_steps)),
     "load_best_model_at_end: with save_steps {save_steps:g} and eval_steps {eval_steps} (None: as "
     "logging_steps, {logging_steps:g}) the best step may have no checkpoint. Give both one number."
     ),
]
# fmt: on


def check_combinations(values: dict[str, Any]) -> list[str]:
    """Return the problems of settings that do not go together, and of public names that hold a
    secret or that the Hub would not take.

    `values` holds all settings of a run by name.
    """
    settings = SimpleNamespace(**values)
    problems = [text.format_map(values) for is_wrong, text in COMBINATIONS if is_wrong(settings)]
    names = {name: values.get(name) for name in PUBLIC_NAMES}
    names |= {name: os.environ.get(name) for name in PUBLIC_VARIABLES}
    for name, text in names.items():
        if isinstance(text, str) and hide_secrets(text) != text:
            problems.append(
                f"{name} holds a token, a key or a password ({hide_secrets(text)}), and others see "
                "this name: take the secret out, and make a new one where the name was used before."
            )
    if values["push_to_hub"]:
        try:
            validate_repo_id(values["hub_model_id"] or Path(values["output_dir"]).absolute().name)
        except HFValidationError as error:
            problems.append(f"hub_model_id, or the name of output_dir: {error}")
    return problems


def check_generation(kwargs: dict[str, Any]) -> None:
    """Raise ValueError, or what transformers raises, for `generation_kwargs` that cannot be used.

    A tiny random model writes two tokens with them, as transformers checks most of them only while
    it generates. Not for vLLM, whose settings have other names.
    """
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    if unknown := [str(name) for name in kwargs if name not in vars(GenerationConfig())]:
        raise ValueError(f"transformers' GenerationConfig has no {', '.join(unknown)}.")
    if changed := [name for name in kwargs if name in FIXED and kwargs[name] != FIXED[name]]:
        raise ValueError(
            f"{', '.join(changed)} cannot be set here: a row is sampled, once, up to "
            "max_completion_length tokens or the tokenizer's end."
        )
    for name, value in kwargs.items():
        highest = 1 if name in SHARES else float("inf")
        if isinstance(value, int | float) and not 0 <= value <= highest:
            raise ValueError(f"{name} is {value}; it must be from 0 to {highest}.")
    fixed = {"max_new_tokens": 2, "pad_token_id": 0, "disable_compile": True}
    config = GenerationConfig(**{"do_sample": True, **kwargs, **fixed})
    config.validate(strict=True)
    with torch.random.fork_rng(devices=[]):
        model = LlamaForCausalLM(LlamaConfig(**TINY, num_attention_heads=1))
        tokens = model.generate(torch.ones(2, 1, dtype=torch.long), config, synced_gpus=False)
    if not isinstance(tokens, torch.Tensor):
        raise ValueError(f"{kwargs} make transformers return a {type(tokens).__name__}: no tokens.")


def read_fields(
    dataclass_type: type, values: dict[str, Any], problems: list[str]
) -> dict[str, Any]:
    """All fields of a dataclass by name, each with its value converted to the field's type.

    A field that is not in `values` gets its default, or None if it has none. So does one whose
    value is not allowed: its message joins `problems`.
    """
    hints = typing.get_type_hints(dataclass_type)
    result = {}
    for field in dataclasses.fields(dataclass_type):
        if not field.init:
            continue
        name, default = field.name, field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        elif default is dataclasses.MISSING:
            default = None
        result[name] = default
        value = values.get(name, default)
        if value == default and not isinstance(value, bool):  # True equals 1.0
            continue
        try:
            result[name] = read_value(allowed_type(field, hints[name]), value)
        except ValidationError as error:
            shown = hide_secrets({name: value})[name]
            reasons = "; or ".join(dict.fromkeys(reason["msg"] for reason in error.errors()))
            problems.append(f"{name} is {shown!r:.300}: {reasons}.")
    return result


def allowed_type(field: dataclasses.Field, hint: Any) -> Any:
    """The type that a field declares, narrowed to its choices or its range."""
    name = field.name
    choices = CHOICES.get(name) or tuple(field.metadata.get("choices") or ())
    if choices and typing.get_origin(hint) is list:
        return list[Literal[choices]]
    if choices:
        return Literal[choices] | None if type(None) in typing.get_args(hint) else Literal[choices]
    if name in MAPPINGS or name.endswith("_kwargs"):
        return dict | None
    return Annotated[hint, RANGE_OF[name]] if name in RANGE_OF else hint


def read_value(hint: Any, value: Any) -> Any:
    """The value converted to its type; raises pydantic's ValidationError if that is impossible.

    Only a text (of a YAML file or the command line) is converted; other values must have the type.
    Example: `read_value(int, "5") == 5`; `read_value(int, 1.5)` raises
    """
    items = value if isinstance(value, list) and value else [value]
    is_text = all(isinstance(item, str) for item in items)
    config = {"arbitrary_types_allowed": True, "allow_inf_nan": False, "strict": not is_text}
    converted = TypeAdapter(hint, config=config).validate_python(value)
    return getattr(converted, "value", converted)  # an enum's value
