"""What would a run learn from? Sample the untrained model as training would, score it, and report.

    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml
    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml --prompts 400 --keep 0.1 0.9

Minutes, not hours: N training prompts x num_generations completions by the recipe's trainer, which
takes no step; any argument of the recipe can be overridden. Prints what each reward gives, how many
groups of an optimizer step will teach something, and which way each reward pulls each metric. Other
rewards score the same completions, which follow from the seed. --keep LOW HIGH writes the rows that
were solved in such a share of their completions to kept.jsonl: train on them by --only_rows.

Exit status: 0 when there is enough to learn from, 1 when not, 2 for an error.

*Not covered*: several processes, and rows beyond the first 1 000 of a stream.
"""

import traceback
from pathlib import Path

from command import at_least, is_taken, make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--config", required=True, type=Path, help="a YAML of a recipe")
    add("--prompts", type=at_least(1), default=32, help="training prompts; default 32")
    add("--num_processes", type=at_least(1), default=1, help="of the run; default 1")
    add("--output", type=Path, help="default runs/probe-NAME_OF_THE_YAML")
    kept = "write the rows solved in LOW to HIGH of their completions; 0 < LOW <= HIGH < 1"
    add("--keep", nargs=2, type=float, metavar=("LOW", "HIGH"), help=kept)
    options, overrides = parser.parse_known_args()
    if options.keep and not 0.0 < options.keep[0] <= options.keep[1] < 1.0:
        parser.error("--keep: they must be 0 < low <= high < 1")
    try:
        with refusals():
            options.output = options.output or Path(f"runs/probe-{options.config.stem}")
            if is_taken(options.output):
                raise ValueError(f"{options.output} exists: give another --output, or remove it")
            from recipes.common.sampling.probe import probe

            can_learn = probe(**vars(options), overrides=overrides)
    except Exception:
        traceback.print_exc()  # and not Python's status 1, which stands for too little to learn
        raise SystemExit(2) from None
    raise SystemExit(0 if can_learn else 1)


if __name__ == "__main__":
    main()
