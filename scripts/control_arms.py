"""Train the same run with rewards that know nothing, and without GRPO: how much of a gain comes from its rewards?

    python scripts/control_arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2 --sft_steps 80
    python scripts/control_arms.py --config recipes/arithmetic/quickstart.yaml --arms constant best-prompt

Next to the run as configured, with the same rows and seeds:
    random       a random number for every completion: what updates without any aim do
    constant     the same amount for every completion: no advantage, so what the code does apart from learning
    format-only  the run's format rewards alone: what the form of the answer brings, right or not
    sft          no GRPO: --sft_steps of 16 reference completions; choose them to take about the minutes of the run
    sft+grpo     a warm start (--warm_steps, on 256 rows), then the run as configured from that checkpoint
    best-prompt  no training: the best of ten prompts, chosen on training rows (only where --arms names it)
    untrained    no training at all, the untrained model evaluated a second time: what evaluation itself varies by
Each arm keeps its folders, the YAML's output_dir followed by -random-seed0 and so on (the run as configured shares
those of scripts/seeds.py); a finished run is not run again. The table stands in OUTPUT_DIR-control.txt and .json:
means over seeds with Student's interval, differences paired by seed; of one seed, intervals over rows.
Other arguments go to the recipe.
"""

import argparse
from pathlib import Path

ARMS = ["random", "constant", "format-only", "sft", "sft+grpo", "best-prompt"]


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=formatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument(
        "--arms", nargs="+", choices=ARMS, default=ARMS[:-1], help="default: all but best-prompt"
    )
    parser.add_argument("--sft_steps", type=int, default=64, help="of the arm sft")
    parser.add_argument(
        "--sft_rows", type=int, help="of the arm sft; default 16 a step, so that none is seen twice"
    )
    parser.add_argument(
        "--warm_steps", type=int, default=32, help="of the warm start of the arm sft+grpo"
    )
    parser.add_argument(
        "--launch",
        type=Path,
        default=Path("accelerate_configs/single_gpu.yaml"),
        help="launch file",
    )
    parser.add_argument("--num_processes", type=int, help="in place of the launch file's")
    parser.add_argument("--output_dir", type=Path, help="in place of the YAML's")
    options, rest = parser.parse_known_args()
    from recipes.common.many_runs.control import run_arms
    from recipes.common.many_runs.runs import launch_words

    launch = launch_words(options.launch, options.num_processes)
    sft = (options.sft_rows or 16 * options.sft_steps, options.sft_steps)
    try:
        run_arms(
            options.config,
            options.seeds,
            launch,
            options.output_dir,
            rest,
            options.arms,
            sft,
            options.warm_steps,
        )
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


if __name__ == "__main__":
    main()
