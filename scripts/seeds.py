"""Run a recipe with several seeds, one after the other, and take them together.

    python scripts/seeds.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2
    python scripts/seeds.py --config recipes/gsm8k/smollm2-135m.yaml --seeds 0 1 2 --max_steps 20

Each run keeps a folder of its own, the YAML's output_dir with -seed0, -seed1, ... behind it; a finished one is not run
again, an interrupted one goes on. Beside them stand OUTPUT_DIR-seeds.json (each metric: every seed, mean, intervals)
and OUTPUT_DIR-seeds.png (the curves' mean in a band). Other arguments go to the recipe.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--seeds", required=True, nargs="+", type=int)
    parser.add_argument("--launch", type=Path, default=Path("accelerate_configs/single_gpu.yaml"), help="launch file")
    parser.add_argument("--num_processes", type=int, help="in place of the launch file's")
    parser.add_argument("--output_dir", type=Path, help="in place of the YAML's")
    options, rest = parser.parse_known_args()
    if len(set(options.seeds)) < len(options.seeds):
        raise SystemExit(f"error: --seeds {options.seeds} names a seed twice.")
    from recipes.common.many_runs.runs import check_given

    check_given(rest, {"seed", "output_dir"}, "name the seeds in --seeds, and the folder in --output_dir.")
    try:
        run_all(options, rest)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


def run_all(options: argparse.Namespace, rest: list[str]) -> None:
    """Train what is not trained yet, and leave the figures of all seeds."""
    from recipes.common.after.plots import plot_runs
    from recipes.common.many_runs.runs import (
        launch_words,
        over_seeds,
        read_evaluation,
        read_settings,
        seeds_table,
        train,
    )
    from recipes.common.tools.folder import write_json

    launch = launch_words(options.launch, options.num_processes)
    stem = options.output_dir or Path(read_settings(options.config)["output_dir"])
    runs = [
        train(options.config, launch, stem.with_name(f"{stem.name}-seed{seed}"), [*rest, "--seed", str(seed)])
        for seed in options.seeds
    ]
    metrics = over_seeds([read_evaluation(run) for run in runs])
    write_json(stem.with_name(f"{stem.name}-seeds.json"), {"seeds": options.seeds, "metrics": metrics})
    plot_runs(runs, stem.with_name(f"{stem.name}-seeds.png"), band=True)
    print(f"\n{options.config}, {len(runs)} seeds\n{seeds_table(options.seeds, metrics)}")
    print(f"Saved {stem}-seeds.json and {stem}-seeds.png")


if __name__ == "__main__":
    main()
