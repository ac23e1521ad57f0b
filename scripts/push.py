"""Which way did the rewards of a run push a metric? Of any run of TRL that logged its completions.

    python scripts/push.py --completions runs/mine/completions --metric my_metric.py:right
    python scripts/push.py --completions FOLDER --metric FILE.py:NAME --rows rows.jsonl

`--completions` is the folder that TRL writes with `log_completions: true`. `NAME(row, completion)`
gives names with True or False for the text of a completion; `row` has the columns of TRL's table
(`prompt` and what rewards logged) and, with `--rows`, those of the row with the same prompt. Shown
are the mean over steps and its 95 % interval, of the advantages that were trained on and of each
reward alone, at first, in the middle and in the end. docs/grpo.md says what a push is.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--completions", required=True, type=Path, help="TRL's folder of tables")
    parser.add_argument("--metric", required=True, help="file.py:name")
    parser.add_argument("--rows", type=Path, help="JSON Lines with the column prompt, and the gold")
    options = parser.parse_args()
    from recipes.common.report.pushes import read_steps, table_of_pushes
    from recipes.common.utils.run_files import read_rows
    from rewards.loading import find_object

    with refusals():
        rows = read_rows(options.rows) if options.rows else []
        steps = read_steps(options.completions, find_object(options.metric), rows)
    print(table_of_pushes(steps))


if __name__ == "__main__":
    main()
