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

SAMPLES, TEMPERATURE = 16, 0.8


def parse(words: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """The options, checked, and the words that are the recipe's own arguments."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=formatter, allow_abbrev=False
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--model", help="Hub id, checkpoint or run folder")
    source.add_argument(
        "--replay", type=Path, metavar="FILE", help="a file of --output: no model is loaded"
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument(
        "--against", help="a second model, and what it gains over the first, problem by problem"
    )
    parser.add_argument("--samples", type=int, help=f"samples a problem; default {SAMPLES}")
    parser.add_argument("--k", type=int, nargs="+", help="default 1, 4, 16, ... and --samples")
    parser.add_argument("--temperature", type=float, help=f"default {TEMPERATURE}")
    parser.add_argument("--metric", help="what counts as right; default the recipe's first metric")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="keep problems, samples and metrics as JSON Lines",
    )
    options, rest = parser.parse_known_args(words)
    if options.replay and (
        options.against or options.samples is not None or options.temperature is not None
    ):
        parser.error(
            "--against, --samples and --temperature say what to draw; --replay draws nothing"
        )
    for name, default in (("samples", SAMPLES), ("temperature", TEMPERATURE)):
        setattr(
            options, name, default if getattr(options, name) is None else getattr(options, name)
        )
    if options.samples < 1 or (options.k and min(options.k) < 1):
        parser.error(f"--samples {options.samples} and --k {options.k or ''} must be at least 1")
    if not 0.0 < options.temperature < math.inf:
        greedy = "for greedy answers there is evaluate_model.py"
        parser.error(f"--temperature {options.temperature} must be more than 0: {greedy}")
    if options.model and options.model == options.against:
        parser.error(f"--against names the same model as --model: {options.model}")
    if not options.replay and max(options.k or [1]) > options.samples:
        parser.error(
            f"--k {max(options.k)} is more than the {options.samples} samples of a problem"
        )
    return options, [*rest, "--temperature", str(options.temperature)]


def main() -> None:
    options, overrides = parse()
    from recipes.common.data.recipe import load_recipe
    from recipes.common.sampling.idle import held_out_rows
    from recipes.common.sampling.pass_at_k import report_pass_at_k
    from rewards.contract import prepare_reward
    from rewards.sandbox import SandboxError

    try:
        recipe = load_recipe(options.config, overrides, rows=False)
        for reward in recipe.rewards:  # programs run in the sandbox that they ask for
            prepare_reward(reward, 1, math.inf)
        rows = [] if options.replay else held_out_rows(recipe)
        report_pass_at_k(options, recipe, rows)
    except (ValueError, SandboxError) as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
