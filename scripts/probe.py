"""Will a run learn? Sample the untrained model as training would, score it, and report.

    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml
    python scripts/probe.py --config recipes/gsm8k/smollm2-135m.yaml --prompts 16 \\
        --max_completion_length 64
    python scripts/probe.py --config recipes/gsm8k/smollm2-135m.yaml \\
        --replay runs/probe-smollm2-135m --reward_funcs my_reward.py:graded

Minutes, not hours: N training prompts, drawn by `seed`, x G completions by the recipe's trainer,
which takes no step; any argument of the recipe can be overridden. Prints mean, hit rate (full
reward, or more than 0 where none is declared) and spread of each reward by task, what was cut off,
and how many groups of an optimizer step will teach something; the rule of the verdict is in
recipes/common/sampling/learning.py. --replay scores an earlier probe with the rewards now asked
for.

The output folder holds rows.jsonl, completions.jsonl, sampling.json and figures.json. Exit status:
0 when it will learn (the task, where there is a verifier), 1 when it will learn the format only or
nothing, or may learn only to guess, 2 for an error. A reward that hangs ends the process as it ends
a run.

*Not covered*: several processes, and rows beyond the first 1 000 of a stream.
"""

import argparse
import traceback
from pathlib import Path

from command import at_least, make_parser, new_folder, refusals

PROMPTS = 32


def read_options() -> tuple[argparse.Namespace, list[str]]:
    """The options, checked before anything slow is imported, and the recipe's overrides."""
    parser = make_parser(__doc__)
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument(
        "--prompts", type=at_least(1), help=f"training prompts to sample; default {PROMPTS}"
    )
    parser.add_argument(
        "--completions",
        type=at_least(2),
        help="completions of each prompt; default num_generations",
    )
    parser.add_argument(
        "--num_processes", type=at_least(1), default=1, help="all processes of the run; default 1"
    )
    parser.add_argument(
        "--output", type=new_folder, help="default runs/probe-NAME_OF_THE_YAML; with --replay none"
    )
    parser.add_argument(
        "--replay", type=Path, metavar="FOLDER", help="score what an earlier probe kept there"
    )
    options, overrides = parser.parse_known_args()
    if options.replay and (options.prompts or options.completions):
        parser.error(
            "--prompts and --completions are those of the folder that --replay names: leave them "
            "out"
        )
    options.prompts = options.prompts or PROMPTS
    if not (options.replay or options.output):
        try:
            options.output = new_folder(f"runs/probe-{options.config.stem}")
        except argparse.ArgumentTypeError as problem:
            parser.error(f"--output: {problem}")
    return options, overrides


def main() -> None:
    options, overrides = read_options()
    try:
        from recipes.common.sampling.probe import probe

        with refusals():
            learns = probe(options, overrides)
    except Exception:
        traceback.print_exc()  # Python's own status would be 1, which says that it will not learn
        raise SystemExit(2) from None
    raise SystemExit(0 if learns else 1)


if __name__ == "__main__":
    main()
