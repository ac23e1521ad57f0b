"""Audit rewards: which score does each give to cheap tricks? Those of a recipe, or any function.

    python scripts/audit_rewards.py --config recipes/gsm8k/smollm2-135m.yaml --dataset_path FOLDER
    python scripts/audit_rewards.py --config recipes/arithmetic/warm.yaml \\
        --reward_funcs my_reward.py:brevity
    python scripts/audit_rewards.py --reward my_pkg.rewards:correct --rows rows.jsonl \\
        --reference "#### {answer}"

Prints a table trick x reward with the highest score (for the reference answer: the lowest), then
the failures in words, and which rewards are farmable by design. No model is loaded. With --config
any argument of the recipe can be given too. With --reward the function is called as TRL, verl
(compute_score) or verifiers (a rubric function) does, by the names of its parameters, in another
process with a limit on its time.

Exit status: 0 when no reward gives more than it may, 1 when one does, fails, or does not reward the
reference answer, 2 for arguments or rows that cannot be used, and when nothing could be scored.
"""

import argparse
from pathlib import Path

from command import at_least, make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--config", type=Path, help="a YAML of a recipe")
    source.add_argument(
        "--reward", metavar="SPEC", help="package.module:function or path/to/file.py:function"
    )
    add("--per_task", type=at_least(1), default=8, help="rows of each task; default 8")
    add("--json", type=Path, metavar="FILE", help="write scores, failures and notes")
    add = parser.add_argument_group("with --reward").add_argument
    add("--rows", type=Path, metavar="FILE", help="JSONL: a prompt and what the reward needs")
    add("--reference", default="{answer}", help="a right completion, columns of a row in braces")
    add("--style", choices=["trl", "verl", "verifiers"], help="where the parameters leave it open")
    kinds = ["verifier", "format", "shaping"]
    add("--kind", choices=kinds, default="verifier", help="if not declared")
    add("--seconds", type=float, default=5.0, help="limit for one completion; default 5")
    options, overrides = parser.parse_known_args()
    if options.reward and overrides:
        parser.error(f"unknown arguments {overrides}")
    if bool(options.reward) is not bool(options.rows):
        parser.error("--reward goes with --rows FILE")
    with refusals():
        raise SystemExit(run(options, overrides))


def run(options: argparse.Namespace, overrides: list[str]) -> int:
    """Audit what is named, print and write the report, and return the exit status."""
    from rewards.audit.apart import audit_by_name
    from rewards.audit.audit import audit
    from rewards.audit.report import publish

    if options.reward:
        how = (options.style, options.kind, options.seconds, options.per_task)
        found = audit_by_name(options.reward, options.rows, options.reference, *how)
        return publish(*found, options.json)
    from recipes.common.data.recipe import load_recipe
    from recipes.common.data.split import first_rows

    recipe = load_recipe(options.config, overrides)
    reference = recipe.module.reference_completion
    found = audit(first_rows(recipe.train_rows), recipe.rewards, reference, options.per_task)
    return publish(found, recipe.rewards, options.json)


if __name__ == "__main__":
    main()
