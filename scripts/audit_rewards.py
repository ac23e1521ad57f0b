"""Audit the rewards of a run: what does each pay for cheap tricks, on the run's own rows? No model is loaded.

    python scripts/audit_rewards.py --config recipes/gsm8k/smollm2-135m.yaml --dataset_path FOLDER
    python scripts/audit_rewards.py --config recipes/arithmetic/quickstart.yaml --reward_funcs my_reward.py:brevity

Prints a table trick x reward with the most that was paid (of the reference answer: the least), then what is
wrong in words, and which rewards are farmable by design. Of a step reward the amount is the sum of the steps. Any
argument of the recipe can be overridden.
Exit status: 0 when no reward pays more than it may, 1 when one does or the reference answer does not earn
the full reward, 2 for arguments or rows that cannot be used.
"""

import argparse
import faulthandler
import sys
from pathlib import Path

HANGS_S = 300.0  # for all of it; the traceback then shows which reward was at work


def run(config: Path, per_task: int, overrides: list[str]) -> int:
    """Load rows and rewards as the recipe does, print the audit, and return the exit status."""
    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.preflight import first_rows
    from recipes.common.before.recipe import import_recipe
    from rewards import load_rewards, load_step_rewards
    from rewards.audit.audit import audit, report, unusable_rows
    from rewards.steps import SumOfSteps

    recipe = import_recipe(config)
    args = parse_arguments(recipe.RecipeArguments, ["--config", str(config), *overrides])
    train_rows, _ = args.attempt(recipe.load_rows, args.recipe, args.training["seed"]) or (None, None)
    rewards = args.attempt(load_rewards, args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks)
    step_named = args.recipe.step_reward_funcs, args.recipe.step_reward_kwargs, args.recipe.step_reward_tasks
    step_rewards = args.attempt(load_step_rewards, *step_named)
    rewards = [*(rewards or []), *map(SumOfSteps, step_rewards or [])]
    rows = first_rows(train_rows)
    if problems := args.problems or unusable_rows(rows, rewards):
        print("error: " + "\n".join(problems), file=sys.stderr)
        return 2
    result = audit(rows, rewards, recipe.reference_completion, per_task)
    print(f"Audit of {config}: the most that was paid (for the reference answer: the least), {per_task} rows a task")
    print(report(result, rewards))
    return 1 if result.failures else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--rows", type=int, default=8, help="judge so many rows of each task; default 8")
    options, overrides = parser.parse_known_args()
    if options.rows < 1:
        parser.error(f"--rows is {options.rows}; at least 1")
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=sys.__stderr__)
    try:
        raise SystemExit(run(options.config, options.rows, overrides))
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
