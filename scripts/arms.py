"""Run a recipe with several seeds, and beside it control runs: luck, rewards or something else?

    python scripts/arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2
    python scripts/arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2 --arms all

Without --arms only the run as configured. All of them use the same rows and seeds:

    random       a random reward for every completion: the effect of updates without a signal
    constant     the same reward for every completion: no advantage, the effect of the code alone
    majority     agreement with the group's most common final answer: the effect of agreement alone
    format-only  only the run's format rewards: the effect of the format, right answer or not
    sft          no GRPO: --sft_steps of 16 reference completions; choose a number that takes as
                 long as the run
    sft+grpo     a warm start (--warm_steps, on 256 rows), then the run as configured from there

Each run keeps a folder of its own, the YAML's output_dir followed by -seed0, -random-seed0 and so
on; a finished one is not run again, an interrupted one goes on. Next to them stand
OUTPUT_DIR-arms.txt and .json, and with several seeds OUTPUT_DIR-arms.html (the runs as
configured side by side). Other arguments go to the recipe.
"""

from pathlib import Path

from command import at_least, make_parser, refusals

ARMS = ["random", "constant", "majority", "format-only", "sft", "sft+grpo"]


def main() -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--config", required=True, type=Path, help="a YAML of a recipe")
    add("--seeds", nargs="+", type=at_least(0), default=[0], help="default 0")
    add("--arms", nargs="+", choices=[*ARMS, "all"], default=[])
    add("--sft_steps", type=int, default=64, help="of the control run sft; default 64")
    add("--sft_rows", type=int, help="of the control run sft; default 16 a step")
    add("--warm_steps", type=int, default=32, help="of the control run sft+grpo; default 32")
    launch = Path("accelerate_configs/single_gpu.yaml")
    add("--launch", type=Path, default=launch, help=f"default {launch}")
    add("--num_processes", type=int, help="in place of the launch file's")
    add("--output_dir", type=Path, help="in place of the YAML's")
    options, words = parser.parse_known_args()
    options.arms = ARMS if "all" in options.arms else options.arms
    from recipes.common.many_runs.arms import run_arms

    with refusals():
        run_arms(options, words)


if __name__ == "__main__":
    main()
