"""Settings of the loss that cannot be, or cannot act: a reference that could not move, a clip with nothing to clip."""

from typing import Any

from recipes.common.trainer import GRPOConfig


def check_moving_reference(training: dict[str, Any], use_peft: bool) -> list[str]:
    """Find what `sync_ref_model` does not go with, before TRL refuses it with the weights loaded."""
    if not training["sync_ref_model"]:
        return []
    problems = []
    if use_peft:
        problems.append(
            "sync_ref_model is set with LoRA, where the reference is the model without its adapter and cannot move. "
            "Train all weights (use_peft: false), or stop after each N steps and start again from the merged model."
        )
    if not training["beta"]:
        problems.append(
            "sync_ref_model is set with beta 0, where no reference is loaded: set beta (0.04, for example), or leave "
            "sync_ref_model out."
        )
    alpha, steps = training["ref_model_mixup_alpha"], training["ref_model_sync_steps"]
    if not 0.0 < alpha <= 1.0:
        problems.append(f"ref_model_mixup_alpha is {alpha}; it must be more than 0 and at most 1.")
    if steps < 1:
        problems.append(
            f"ref_model_sync_steps is {steps}; it must be a whole number of at least 1."
        )
    return problems


def loss_notes(training: GRPOConfig) -> list[str]:
    """Settings that are allowed and have no effect, or not the expected one."""
    counts = "with a KL, an entropy bonus or quantile, normalize_then_sum, or this loss_type every completion counts"
    skips = f"skip_zero_advantages changes nothing: {counts}"
    idle = [skips] * (training.skip_zero_advantages and not training.skips)
    return [*_clip_notes(training), *_reference_notes(training), *idle]


def _clip_notes(training: GRPOConfig) -> list[str]:
    high = training.epsilon_high
    cap = training.epsilon if high is None else high
    if training.loss_type == "cispo" and cap < 1.0:
        counts = f"on policy each token counts {cap:g}; set it to 5.0, for example"
        return [f"loss_type cispo takes epsilon_high as the cap itself: {counts}"]
    # TRL multiplies the KL by the ratio, which is 1, but whose gradient the level spreads over the completion.
    level_acts = training.beta != 0.0 and training.use_bias_correction_kl
    idle = (
        "epsilon and epsilon_high"
        if level_acts
        else "epsilon, epsilon_high and importance_sampling_level"
    )
    level_is_idle = training.importance_sampling_level != "token" and not level_acts
    # By TRL's own rule a generation feeds one optimizer step.
    one_step = (
        training.gradient_accumulation_steps
        % (training.steps_per_generation * training.num_iterations)
        == 0
    )
    if (training.epsilon != 0.2 or high is not None or level_is_idle) and one_step:
        return [
            f"one update a generation: the ratio is 1, and {idle} change nothing. For more updates set num_iterations "
            "to 2, or steps_per_generation above gradient_accumulation_steps"
        ]
    return []


def _reference_notes(training: GRPOConfig) -> list[str]:
    if not training.sync_ref_model:
        return []
    steps, last, notes = training.ref_model_sync_steps, training.max_steps, []
    if 0 < last <= steps:  # what moves after the last update is compared with nothing
        moves = f"ref_model_sync_steps is {steps}, and the run ends after {last}"
        notes.append(f"the reference never moves before the end: {moves}")
    return [*notes, "TRL keeps a moving reference in no checkpoint: this run cannot be resumed"]
