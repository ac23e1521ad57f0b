"""Audit the rewards of a run: which score does each give to cheap tricks, on the run's own rows? No model is loaded.

    python scripts/audit_rewards.py --config recipes/gsm8k/smollm2-135m.yaml --dataset_path FOLDER
    python scripts/audit_rewards.py --config recipes/arithmetic/quickstart.yaml --reward_funcs my_reward.py:brevity

Prints a table trick x reward with the highest score (for the reference answer: the lowest), then the failures in words,
and which rewards are farmable by design. A step reward scores the sum of its steps. Any argument of the recipe can be
overridden.
Exit status: 0 when no reward gives more than it may, 1 when one does or the reference answer does not earn the full
reward, 2 for arguments or rows that cannot be used, and when nothing could be scored.
"""

import argparse
import faulthandler
import sys
from pathlib import Path

HANGS_S = 300.0  # for all of it; the traceback then shows which reward was at work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--rows", type=int, default=8, help="rows of each task; default 8")
    options, overrides = parser.parse_known_args()
    if options.rows < 1:
        parser.error(f"--rows is {options.rows}; at least 1")
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=sys.__stderr__)
    try:
        raise SystemExit(run(options.config, options.rows, overrides))
    finally:
        faulthandler.cancel_dump_traceback_later()


def run(config: Path, per_task: int, overrides: list[str]) -> int:
    """Load rows and rewards as the recipe does, print the audit, and return the exit status."""
    from recipes.common.before.preflight import first_rows
    from recipes.common.before.recipe import load_recipe
    from rewards.audit.audit import audit
    from rewards.audit.report import report

    try:
        recipe = load_recipe(config, overrides)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    result = audit(first_rows(recipe.train_rows), recipe.rewards, recipe.module.reference_completion, per_task)
    print(f"Audit of {config}: the highest score (for the reference answer: the lowest), {per_task} rows a task")
    print(report(result, recipe.rewards))
    return 2 if not result.scores else 1 if result.failures else 0


if __name__ == "__main__":
    main()
