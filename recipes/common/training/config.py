"""TRL's `GRPOConfig` with the settings of our trainer."""

from dataclasses import dataclass, field
from typing import Any

import trl

from recipes.common.utils.secrets import hide_secrets

# Losses that can skip a completion, and what TRL divides the loss by: the tokens of the whole
# batch, or the completions it is given (then skipping needs a correction).
SKIPPABLE = {"grpo": "completions", "dr_grpo": "completions", "dapo": "tokens", "cispo": "tokens"}


def _setting(default: Any, text: str) -> Any:
    """A field of the configuration with its help."""
    return field(default=default, metadata={"help": text})


@dataclass
class GRPOConfig(trl.GRPOConfig):
    """TRL's `GRPOConfig` with the settings of our trainer."""

    reward_gates: dict | str | None = _setting(
        None, "Keep a reward only where another scores above 0: {length: gsm8k_correctness}."
    )
    max_reward_error_rate: float = _setting(
        0.05, "Stop above this share of rows that a reward failed on, of its last 1 000."
    )
    reward_timeout_s: float = _setting(300.0, "Limit for one call of one reward in seconds.")
    skip_zero_advantages: bool = _setting(
        False, "Leave completions of advantage 0 out of the update: the same, in less time."
    )
    ddp_find_unused_parameters: bool | None = _setting(
        None, "DDP: look for weights that got no gradient, as some experts do; null: with images."
    )
    share_prompts: bool = _setting(
        False, "Compute the prompt of a group once for its completions, in less time."
    )
    drop_finished: bool = _setting(
        False, "With share_prompts: completions that have ended leave the batch, in less time."
    )
    tools: list[str] | None = _setting(
        None, "Functions that the model may call: path/to/file.py:function."
    )
    environment_factory: str | None = _setting(
        None, "path/to/file.py:Class of an environment, one for each completion."
    )
    chat_template_path: str | None = _setting(
        None, "A Jinja file that takes the place of the tokenizer's chat template."
    )

    def __getstate__(self) -> dict:
        """The state for training_args.bin, without secrets: the file goes to the Hub."""
        return hide_secrets(vars(self))

    @classmethod
    def of(cls, args: trl.GRPOConfig) -> "GRPOConfig":
        """Copy a configuration of TRL, ours or a subclass of ours; add our defaults to TRL's."""
        kind = type(args) if isinstance(args, cls) else cls
        copied = object.__new__(kind)  # __init__ would derive values a second time
        vars(copied).update(vars(args))
        return copied

    def __copy__(self) -> "GRPOConfig":
        return self.of(self)  # `copy.copy` would take `__getstate__`, without secrets

    def to_dict(self) -> dict:
        """The settings that W&B and TensorBoard get, without secrets."""
        return hide_secrets(super().to_dict())

    @property
    def uses_entropy(self) -> bool:
        """Whether the loss adds an entropy bonus, or drops tokens by their entropy."""
        bonus = self.entropy_coef or self.use_adaptive_entropy
        return bool(bonus or self.top_entropy_quantile < 1.0)

    @property
    def skips(self) -> bool:
        """Whether to skip completions of advantage 0: if set, and if the loss stays the same.

        It does not with a term that each completion adds to (KL), or with advantages by batch.
        """
        counts_all = self.beta or self.uses_entropy or self.loss_type not in SKIPPABLE
        by_group = self.multi_objective_aggregation == "sum_then_normalize"
        return bool(self.skip_zero_advantages and by_group and not counts_all)

    @property
    def order_matters(self) -> bool:
        """Whether an update depends on which completions share a micro batch, as TRL shuffles them.

        The order matters if a generation serves several updates, or if the loss takes a mean over a
        micro batch.
        """
        several_updates = self.gradient_accumulation_steps % self.steps_per_generation != 0
        return several_updates or self.uses_entropy or self.loss_type == "bnpo"


def add_model_arguments(training: GRPOConfig, model: trl.ModelConfig) -> None:
    """Copy the model's arguments to `model_init_kwargs`, as `trl/scripts/grpo.py` does."""
    from recipes.common.utils.machine import fastest_dtype

    arguments = {
        "revision": model.model_revision,
        "attn_implementation": model.attn_implementation,
        "dtype": fastest_dtype(training.use_cpu)[0] if model.dtype == "fastest" else model.dtype,
    }
    known = {name: value for name, value in arguments.items() if value is not None}
    training.model_init_kwargs = {**known, **(training.model_init_kwargs or {})}
