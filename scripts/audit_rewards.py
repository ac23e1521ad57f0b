"""Cheat test: how much does each reward pay for wrong answers (cheap tricks on the run's rows)?

    python scripts/audit_rewards.py --config recipes/gsm8k/smollm2-135m.yaml --dataset_path FOLDER
    python scripts/audit_rewards.py --config recipes/arithmetic/warm.yaml \\
        --reward_funcs my_reward.py:brevity

Prints for each reward what it pays, with the highest score of each trick and its completion. No
model is loaded. Any argument of the recipe can be given too.

Exit status: 0 when no reward pays a wrong answer more than it declares, 1 when one does, 2 for
arguments or rows that cannot be used, and when nothing could be scored.
"""

from pathlib import Path

from command import at_least, make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--config", type=Path, required=True, help="a YAML of a recipe")
    parser.add_argument("--per_task", type=at_least(1), default=8, help="rows of each; default 8")
    options, overrides = parser.parse_known_args()
    with refusals():
        raise SystemExit(audit(options.config, overrides, options.per_task))


def audit(config: Path, overrides: list[str], per_task: int) -> int:
    """Try the cheap tricks on each reward of a recipe, on `per_task` rows of each task, and print.

    `overrides` are words of a command line that win over the YAML `config`. Returns 0 if no reward
    pays a wrong answer more than it declares, 1 if one does, 2 if nothing could be scored.
    """
    from recipes.common.data.recipe import load_recipe
    from recipes.common.data.split import first_rows
    from rewards.audit import try_tricks

    recipe = load_recipe(config, overrides)
    rows, reference = first_rows(recipe.train_rows), recipe.module.reference_completion
    cheats_of_rewards = [try_tricks(reward, rows, reference, per_task) for reward in recipe.rewards]
    for cheats in cheats_of_rewards:
        print(f"{cheats.reward.name} {cheats.sentence()}")
        best_attempts = {}  # trick -> its attempt with the highest score
        for attempt in sorted(cheats.paid, key=lambda attempt: attempt.score):
            best_attempts[attempt.trick] = attempt
        for attempt in best_attempts.values():
            print(f"  {attempt.score:g} for {attempt.trick!r}: {attempt.completion!r:.160}")
        if cheats.problem:
            print(cheats.problem)
    if not any(cheats.attempts for cheats in cheats_of_rewards):
        return 2
    for cheats in cheats_of_rewards:
        if cheats.problem or (cheats.paid and not cheats.may_pay):
            return 1
    return 0


if __name__ == "__main__":
    main()
