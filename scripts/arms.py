"""Run a recipe with several seeds, and beside it control arms: luck, rewards or something else?

    python scripts/arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2
    python scripts/arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0 1 2 --arms all
    python scripts/arms.py --config recipes/gsm8k/smollm2-135m.yaml --arms constant --max_steps 20

Without --arms the run as configured alone. The arms, with the same rows and seeds:

    random       a random number for every completion: what updates without any aim do
    constant     the same amount for every completion: no advantage, so what the code does alone
    majority     agreement with the group's most common final answer: what no gold is needed for
    format-only  the run's format rewards alone: what the form of the answer brings, right or not
    sft          no GRPO: --sft_steps of 16 reference completions; choose them to take the minutes
                 of the run
    sft+grpo     a warm start (--warm_steps, on 256 rows), then the run as configured from there

Each run keeps a folder of its own, the YAML's output_dir followed by -seed0, -random-seed0 and so
on; a finished one is not run again, an interrupted one goes on. Next to them stand
OUTPUT_DIR-arms.txt and .json (means over seeds with Student's interval, differences paired by seed;
of one seed intervals over rows), and with several seeds OUTPUT_DIR-arms.png (the curves' mean in a
band). Other arguments go to the recipe.
"""

from pathlib import Path

from command import make_parser, refusals

ARMS = ["random", "constant", "majority", "format-only", "sft", "sft+grpo"]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, "all"], default=[])
    parser.add_argument("--sft_steps", type=int, default=64, help="of the arm sft")
    parser.add_argument("--sft_rows", type=int, help="of the arm sft; default 16 a step")
    parser.add_argument("--warm_steps", type=int, default=32, help="of the arm sft+grpo")
    launch_file = Path("accelerate_configs/single_gpu.yaml")
    parser.add_argument("--launch", type=Path, default=launch_file, help="launch file")
    parser.add_argument("--num_processes", type=int, help="in place of the launch file's")
    parser.add_argument("--output_dir", type=Path, help="in place of the YAML's")
    options, words = parser.parse_known_args()
    options.arms = ARMS if "all" in options.arms else options.arms
    from recipes.common.many_runs.arms import Series, run_series

    with refusals():
        run_series(Series(**vars(options), words=words))


if __name__ == "__main__":
    main()
