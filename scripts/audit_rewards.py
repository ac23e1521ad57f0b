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
    from recipes.common.data.recipe import load_recipe
    from recipes.common.data.split import first_rows
    from rewards.audit import try_tricks

    was_scored = is_paid = False
    with refusals():
        recipe = load_recipe(options.config, overrides)
        rows, reference = first_rows(recipe.train_rows), recipe.module.reference_completion
        for reward in recipe.rewards:
            cheats = try_tricks(reward, rows, reference, options.per_task)
            print(f"{reward.name} {cheats.sentence()}")
            best_attempts = {}  # trick -> its attempt with the highest score
            for attempt in sorted(cheats.paid, key=lambda attempt: attempt.score):
                best_attempts[attempt.trick] = attempt
            for attempt in best_attempts.values():
                print(f"  {attempt.score:g} for {attempt.trick!r}: {attempt.completion!r:.160}")
            if cheats.problem:
                print(cheats.problem)
            was_scored |= bool(cheats.attempts)
            is_paid |= bool(cheats.problem or (cheats.paid and not cheats.may_pay))
    raise SystemExit(int(is_paid) if was_scored else 2)


if __name__ == "__main__":
    main()
