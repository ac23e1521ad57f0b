"""Run a recipe with several seeds, one after the other, and take them together.

    python scripts/seeds.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2
    python scripts/seeds.py --config recipes/gsm8k/smollm2-135m.yaml --seeds 0 1 2 --max_steps 20

Each run keeps a folder of its own, the YAML's output_dir followed by -seed0, -seed1, ...; a finished one is not run
again, an interrupted one goes on. Next to them stand OUTPUT_DIR-seeds.json (each metric: every seed, mean, intervals)
and OUTPUT_DIR-seeds.png (the curves' mean in a band). Other arguments go to the recipe.
"""

import argparse
from pathlib import Path


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=formatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--seeds", required=True, nargs="+", type=int)
    parser.add_argument(
        "--launch",
        type=Path,
        default=Path("accelerate_configs/single_gpu.yaml"),
        help="launch file",
    )
    parser.add_argument("--num_processes", type=int, help="in place of the launch file's")
    parser.add_argument("--output_dir", type=Path, help="in place of the YAML's")
    options, rest = parser.parse_known_args()
    from recipes.common.many_runs.runs import launch_words, run_seeds
    from recipes.common.report.plots import plot_runs

    launch = launch_words(options.launch, options.num_processes)
    try:
        runs = run_seeds(options.config, options.seeds, launch, options.output_dir, rest)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem
    picture = runs[0].with_name(
        runs[0].name.removesuffix(f"-seed{options.seeds[0]}") + "-seeds.png"
    )
    plot_runs(runs, picture, band=True)
    print(f"Saved {picture}")


if __name__ == "__main__":
    main()
