"""How much of a gain is the reward's doing? The same run with rewards that know nothing.

    python scripts/control_arms.py --config recipes/arithmetic/quickstart.yaml --seeds 0

Beside the run as configured, the same rows, steps and seeds with
    random       a random number for every completion: what updates without any aim do
    constant     the same amount for every completion: no advantage, so what the code does besides learning
    format-only  the run's format rewards alone: what the shape of the answer brings, without its being right
    untrained    no training at all, the untrained model evaluated a second time: what evaluation itself varies by
Each arm keeps its folders, the YAML's output_dir with -random-seed0 and so on behind it (the run as configured shares
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
    from recipes.common.many_runs.control import TAKEN
    from recipes.common.many_runs.runs import check_given

    check_given(rest, TAKEN, "the arms follow from the YAML: put it there (seeds: --seeds; folder: --output_dir).")
    try:
        run_all(options, rest)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem


def run_all(options: argparse.Namespace, rest: list[str]) -> None:
    """Train what is not trained yet, compare, and keep the table."""
    from recipes.common.many_runs.control import compare_arms, control_table, rewards_of_arms, run_arm, untrained_again
    from recipes.common.many_runs.runs import launch_words, read_settings
    from recipes.common.tools.folder import write_json, write_whole

    settings, launch = read_settings(options.config), launch_words(options.launch, options.num_processes)
    stem = options.output_dir or Path(settings["output_dir"])
    arms = {
        name: [run_arm(options.config, launch, stem, name, words, seed, rest) for seed in options.seeds]
        for name, words in rewards_of_arms(settings).items()
    }
    arms["untrained"] = [untrained_again(options.config, stem, seed, rest) for seed in options.seeds]
    compared = compare_arms(arms)
    table = control_table(options.seeds, compared)
    write_json(stem.with_name(f"{stem.name}-control.json"), {"seeds": options.seeds, "arms": compared})
    write_whole(stem.with_name(f"{stem.name}-control.txt"), table + "\n")
    print(f"\n{options.config}\n{table}\nSaved {stem}-control.txt and {stem}-control.json")


if __name__ == "__main__":
    main()
