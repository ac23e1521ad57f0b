"""pass@k of a model on a recipe's held-out rows: how likely one of k samples is right.

    python scripts/pass_at_k.py --model runs/quickstart --samples 16 \\
        --config recipes/arithmetic/quickstart.yaml
    python scripts/pass_at_k.py --model BASE --against RUN --samples 16 --k 1 4 16 \\
        --config recipes/code/smollm2-135m.yaml --dataset_path data/humaneval \\
        --num_eval_rows 164 --max_completion_length 512 --output runs/humaneval.jsonl
    python scripts/pass_at_k.py --replay runs/humaneval.jsonl --k 1 2 8 \\
        --config recipes/code/smollm2-135m.yaml

Draws n samples a problem with the recipe's prompt and decoding at `--temperature`, and evaluates
each by one metric of the recipe: its first unless `--metric` names another (maths: `strict`, right
answer and format; programs: `tests`, all tests pass in the sandbox). pass@k is the unbiased
estimate of Chen et al. 2021, the mean over the problems; its 95 % interval resamples the problems.
A sample that could not be evaluated (the sandbox failed on it) makes n of its problem smaller, and
is counted. Any argument of the recipe can be overridden: --num_eval_rows, --top_p, --seed, ...

`--output` keeps each problem with its samples and metrics. `--replay` evaluates such a file again:
no model and no data set is loaded.

*Not covered*: several processes.
"""

import argparse
import math
from pathlib import Path

from command import at_least, make_parser, refusals

DRAWN = {"samples": 16, "temperature": 0.8}  # what --replay does not draw


def parse() -> tuple[argparse.Namespace, list[str]]:
    """The options, checked, and the words that are the recipe's own arguments."""
    parser = make_parser(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="Hub id, checkpoint or run folder")
    source.add_argument(
        "--replay", type=Path, metavar="FILE", help="a file of --output: no model is loaded"
    )
    add = parser.add_argument
    add("--config", required=True, type=Path, help="a YAML of a recipe")
    add("--against", help="a second model, and what it gains over the first, problem by problem")
    add("--samples", type=at_least(1), help="samples a problem; default 16")
    add("--k", type=at_least(1), nargs="+", help="default 1, 4, 16, ... and --samples")
    add("--temperature", type=float, help="default 0.8")
    add("--metric", help="what counts as right; default the recipe's first metric")
    add("--output", type=Path, metavar="FILE", help="keep problems, samples and metrics as JSONL")
    options, rest = parser.parse_known_args()
    given = [name for name in ("against", *DRAWN) if getattr(options, name) is not None]
    if options.replay and given:
        parser.error(f"--{', --'.join(given)}: what to draw; --replay draws nothing")
    for name, default in DRAWN.items():
        if name not in given:
            setattr(options, name, default)
    if not 0.0 < options.temperature < math.inf:
        greedy = "for greedy answers there is evaluate_model.py"
        parser.error(f"--temperature {options.temperature} must be more than 0: {greedy}")
    if options.model and options.model == options.against:
        parser.error(f"--against names the same model as --model: {options.model}")
    most = max(options.k or [1])
    if not options.replay and most > options.samples:
        parser.error(f"--k {most} is more than the {options.samples} samples of a problem")
    return options, [*rest, "--temperature", str(options.temperature)]


def main() -> None:
    options, overrides = parse()
    from recipes.common.data.recipe import load_recipe
    from recipes.common.sampling.idle import held_out_rows
    from recipes.common.sampling.pass_at_k import report_pass_at_k
    from rewards.contract import prepare_reward
    from rewards.sandbox import SandboxError

    try:
        with refusals():
            recipe = load_recipe(options.config, overrides, rows=False)
            for reward in recipe.rewards:  # programs run in the sandbox that they ask for
                prepare_reward(reward, 1, math.inf)
            rows = [] if options.replay else held_out_rows(recipe)
            report_pass_at_k(options, recipe, rows)
    except SandboxError as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
