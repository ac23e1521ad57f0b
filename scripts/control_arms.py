"""Train the same run with rewards that know nothing, to see how much of a gain comes from its own rewards.

    python scripts/control_arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0

Next to the run as configured, the same rows, steps and seeds with
    random       a random number for every completion: what updates without any aim do
    constant     the same amount for every completion: no advantage, so what the code does apart from learning
    format-only  the run's format rewards alone: what the form of the answer brings, right or not
    untrained    no training at all, the untrained model evaluated a second time: what evaluation itself varies by
Each arm keeps its folders, the YAML's output_dir followed by -random-seed0 and so on (the run as configured shares
those of scripts/seeds.py); a finished run is not run again. The table stands in OUTPUT_DIR-control.txt and .json.
Other arguments go to the recipe.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--launch", type=Path, default=Path("accelerate_configs/single_gpu.yaml"), help="launch file")
    parser.add_argument("--num_processes", type=int, help="in place of the launch file's")
    parser.add_argument("--output_dir", type=Path, help="in place of the YAML's")
    options, rest = parser.parse_known_args()
    from recipes.common.many_runs.control import run_arms
    from recipes.common.many_runs.runs import launch_words

    launch = launch_words(options.launch, options.num_processes)
    try:
        run_arms(options.config, options.seeds, launch, options.output_dir, rest)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
