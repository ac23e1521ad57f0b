"""Keep the rows that are worth training on: solved sometimes, in a probe of the untrained model.

    python scripts/probe.py --config recipes/arithmetic/quickstart.yaml --prompts 400 \\
        --output runs/probe
    python scripts/filter_by_pass_rate.py --probe runs/probe --low 0.1 --high 0.9 --out data/kept
    accelerate launch ... recipes/arithmetic/train.py --config ... \\
        --only_rows data/kept/rows.jsonl

A row is kept where the share of its completions that are solved, which is where every verifier gave
the full reward, is between --low and --high; rows never or always solved are dropped in any case,
rows of a task without a verifier are kept. Only what was probed can be kept: give the probe
--prompts for all rows.

The output folder holds rows.jsonl (what any recipe trains on by --only_rows, in their order),
pass_rates.jsonl (every row that was probed) and filter.json. Exit status 2 where nothing is left or
something cannot be read.

*Not covered*: the pass rate changes while the model learns; few completions leave it uncertain (of
8, one solved is 2 to 47 % with 95 % confidence); the shares of several tasks are not kept. The rows
keep the prompts of the probe, with its system prompt and worked example: train with the same
settings, or the held-out rows have other prompts.
"""

from pathlib import Path

from command import make_parser, new_folder, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument(
        "--probe", required=True, type=Path, help="output folder of scripts/probe.py"
    )
    parser.add_argument(
        "--low", type=float, default=0.1, help="least pass rate that is kept; default 0.1"
    )
    parser.add_argument(
        "--high", type=float, default=0.9, help="greatest pass rate that is kept; default 0.9"
    )
    parser.add_argument(
        "--out", required=True, type=new_folder, help="folder to write; it must be new or empty"
    )
    options = parser.parse_args()
    if not 0.0 < options.low <= options.high < 1.0:
        parser.error(
            f"--low {options.low:g} --high {options.high:g}: they must be 0 < low <= high < 1"
        )
    from recipes.common.sampling.pass_rate import filter_rows

    with refusals():
        print(filter_rows(**vars(options)))


if __name__ == "__main__":
    main()
