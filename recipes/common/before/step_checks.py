"""Step rewards before a run: whether they can be used in it, and what they see in a reference completion."""

from collections.abc import Callable

from recipes.common.before.arguments import Arguments
from recipes.common.during.steps import check_loss
from rewards import reward_name
from rewards.audit.call import score
from rewards.contract import check_names, scores_task
from rewards.steps import Steps


def check_step_rewards(args: Arguments, rewards: list[Callable], step_rewards: list[Callable] | None) -> None:
    """Note in `args.problems` what keeps the step rewards from being used; nothing for a run without any.

    `step_rewards` is None where loading them failed, which `args` says by now, or where the recipe ignores them.
    """
    named, weights = args.recipe.step_reward_funcs or [], args.recipe.step_reward_weights
    if named and step_rewards is None and not args.problems:
        args.problems.append(
            "this recipe makes nothing of step_reward_funcs: load them with load_step_rewards, and hand them to "
            "preflight and to the trainer as recipes/gsm8k/train.py does."
        )
    if weights is not None and len(weights) != len(named):
        args.problems.append(f"step_reward_weights has {len(weights)} values for {len(named)} step rewards.")
    if step_rewards:
        names = ("loss_type", "importance_sampling_level", "off_policy_mask_threshold")
        args.attempt(check_loss, *(args.training[name] for name in names))
        args.attempt(check_names, [*rewards, *step_rewards])


def step_notes(
    rows: list[dict], step_rewards: list[Callable], reference_completion: Callable[[dict], str | None]
) -> list[str]:
    """What each step reward sees in the reference completion of the first row that it scores and that has one.

    Example: `["equation_steps sees 1 step in the reference completion of row 0: '25 + 7 = 32' +1"]`
    """
    notes = []
    for reward in step_rewards:
        mine = [i for i, row in enumerate(rows) if scores_task(reward, row["task"]) and reference_completion(row)]
        for number in mine[:1]:
            text = reference_completion(rows[number])
            (steps,) = score(reward, [rows[number]], [text])
            count = f"{len(steps or []) or 'no'} step{'s' * (len(steps or []) != 1)}"
            said = f"{reward_name(reward)} sees {count} in the reference completion of row {number}"
            notes.append(said + ": ".join(["", shown_steps(text, steps)] if steps else [""]))
    return notes


def shown_steps(text: str, steps: Steps) -> str:
    """Each step with its reward: the text since the step before it, of that the last 40 characters.

    Example: `shown_steps("3 + 4 = 7, 7 - 2 = 6", [(9, 1.0), (20, -1.0)]) == "'3 + 4 = 7' +1, ', 7 - 2 = 6' -1"`
    """
    ends = sorted(steps)
    starts = [0, *(end for end, _ in ends)]
    pieces = zip(starts, ends, strict=False)
    return ", ".join(f"{text[max(start, end - 40) : end]!r} {reward:+g}" for start, (end, reward) in pieces)
