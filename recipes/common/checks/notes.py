"""What preflight tells of a run that it does not refuse: what is not checked, costs, or is idle."""

from collections.abc import Callable
from pathlib import Path

from transformers import AutoConfig

from recipes.common.checks.batch import completions_of_run
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import world_size
from recipes.common.training.shared_prompt import why_prompts_are_not_shared
from recipes.common.utils.problems import told
from rewards import reward_kind, reward_name
from rewards.contract import UNDECLARED, declared


def notes_on_settings(training: GRPOConfig) -> list[str]:
    """Name settings that are allowed and have no effect, or not the expected one."""
    t = training
    cap = t.epsilon if t.epsilon_high is None else t.epsilon_high
    caps = t.loss_type == "cispo" and cap < 1.0
    # TRL multiplies the KL by the ratio, which is 1, but whose gradient the level spreads.
    level_acts = t.beta != 0.0 and t.use_bias_correction_kl
    level_is_idle = t.importance_sampling_level != "token" and not level_acts
    clips = t.epsilon != 0.2 or t.epsilon_high is not None or level_is_idle
    idle = ["epsilon", "epsilon_high", *([] if level_acts else ["importance_sampling_level"])]
    # By TRL's own rule a generation feeds one optimizer step.
    one_step = t.gradient_accumulation_steps % (t.steps_per_generation * t.num_iterations) == 0
    every = t.ref_model_sync_steps
    table = {
        "loss_type cispo takes epsilon_high as the cap itself: on policy each token counts "
        f"{cap:g}; set it to 5.0, for example": caps,
        f"one update a generation: the ratio is 1, and {', '.join(idle[:-1])} and {idle[-1]} "
        "change nothing. For more updates set num_iterations to 2, or steps_per_generation above "
        "gradient_accumulation_steps": clips and one_step and not caps,
        # What moves after the last update is compared with nothing.
        f"the reference never moves before the end: ref_model_sync_steps is {every}, and the run "
        f"ends after {t.max_steps}": t.sync_ref_model and 0 < t.max_steps <= every,
        "TRL keeps a moving reference in no checkpoint: this run cannot be resumed": (
            t.sync_ref_model
        ),
        "skip_zero_advantages changes nothing: with a KL, an entropy bonus or quantile, "
        "normalize_then_sum, or this loss_type every completion counts": (
            t.skip_zero_advantages and not t.skips
        ),
    }
    return told(table)


def shared_prompt_notes(training: GRPOConfig, folder: Path | None) -> list[str]:
    """Say why prompts are not shared where it is asked for; `folder` is the model's, if known."""
    if not training.share_prompts:
        return []
    known = folder is not None and (folder / "config.json").is_file()
    remote = bool(training.trust_remote_code)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=remote) if known else None
    reason = why_prompts_are_not_shared(training, config)
    if reason is None and training.order_matters:
        return [
            "share_prompts: completions keep TRL's shuffled order, on which this update depends; "
            "less is shared"
        ]
    return [f"share_prompts has no effect: {reason}"] if reason else []


def validation_notes(args: Arguments, validation: list[dict]) -> list[str]:
    """Say in one line which rows are evaluated while the run trains, and how often."""
    steps = args.training["eval_steps"] or args.training["logging_steps"]
    by_steps = args.training["eval_strategy"] == "steps"
    often = f"every {steps:g} steps" if by_steps else "after each epoch"
    rows = f"{len(validation)} rows of the training side"
    return [f"validation: {rows}, evaluated {often} and never trained on"] if validation else []


def only_rows_notes(rows: list[dict], held_out: list[dict]) -> list[str]:
    """Say where the first rows of a task, trained on and held out, are not prompted alike."""
    same_task = [row for row in held_out if rows and row.get("task") == rows[0].get("task")]
    if not same_task or _before_question(rows[0]) == _before_question(same_task[0]):
        return []
    return [
        "only_rows: the messages before the question are not those of the held-out rows: the file "
        "keeps the system prompt and the worked example of its probe. Probe again with those of "
        "this run"
    ]


def _before_question(row: dict) -> list[dict]:
    """The messages before the last, without the empty keys that a Dataset adds to them."""
    prompt = row.get("prompt")
    messages = prompt[:-1] if isinstance(prompt, list) else []
    return [{key: value for key, value in m.items() if value is not None} for m in messages]


def notes_on_rewards(args: Arguments, rewards: list[Callable]) -> list[str]:
    """Name the rewards of which little is checked: those that declare no kind, and models."""
    kinds = {reward_name(reward): reward_kind(reward) for reward in rewards}
    undeclared = ", ".join(name for name, kind in kinds.items() if kind == UNDECLARED)
    models = ", ".join(name for name, kind in kinds.items() if kind == "model")
    named = " ".join(args.recipe.reward_funcs)
    table = {
        f"undeclared, so that no score of theirs is checked: {undeclared}; below a definition add "
        "NAME.kind, NAME.full (docs/rewards.md). Which tricks do they reward? python "
        f"scripts/audit_rewards.py --config {args.config_path or 'FILE'} --reward_funcs {named}": (
            undeclared
        ),
        f"of the kind model, which neither preflight nor the audit call: {models}": models,
    }
    return told(table)


def cost_notes(
    args: Arguments, rows: list[dict], held_out: int, validation: int, rewards: list[Callable]
) -> list[str]:
    """Say of each reward that asks a server what a run costs, and each evaluation of its rows."""
    completions = completions_of_run(args.training, world_size(), len(rows))
    calls, tokens = completions + 2 * held_out, args.training["max_completion_length"] or 0
    more = f"; {validation} more at each validation" if validation else ""
    asking = {reward_name(reward): declared(reward, "cost", None) for reward in rewards}
    return [
        f"{name}: a run makes {cost(rows, calls, tokens)}{more}"
        for name, cost in asking.items()
        if rows and cost
    ]
