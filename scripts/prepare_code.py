"""Turn a data set of programming tasks into rows for a run, after running each task in the sandbox.

    python scripts/prepare_code.py mbpp --out data/mbpp                        # from the Hub
    python scripts/prepare_code.py mbpp --path FOLDER --out data/mbpp          # FOLDER/mbpp.jsonl
    python scripts/prepare_code.py mbpp --sanitized --path FOLDER --out DIR    # its sanitized file
    python scripts/prepare_code.py humaneval --path HumanEval.jsonl.gz --out data/humaneval
    python scripts/prepare_code.py one_liners --out data/one-liners            # for small models
    python scripts/prepare_code.py jsonl --path mine.jsonl --held_out 8 --out data/mine

Writes train.jsonl and test.jsonl (HumanEval is for evaluation only), and dropped.jsonl: tasks whose
reference does not pass its own tests in half the time limit, and tasks that a trivial solution
passes, such as `return True`. MBPP keeps its official splits: task ids 601-974 train, 11-510 test;
the others are left out. A row of your own needs `prompt` and `tests`: assert statements, or JSON
texts {"stdin": ..., "stdout": ...}; `solution` is its reference.

The last third of a task's tests becomes its `hidden_tests`, where it has none: the reward does not
see them, and the metric rests on them. MBPP's challenge tests are such.

Exit status: 0 when tasks were kept, 1 when none was or no isolation works here, 2 for input that
cannot be used. Where evaluation tasks are dropped, a score is over fewer tasks than published
scores are.
"""

import argparse
from pathlib import Path

from command import at_least, make_parser


def parse(words: list[str] | None = None) -> dict:
    """The options, checked, as the arguments of `prepare`."""
    parser = make_parser(__doc__)
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--out", type=Path, required=True, help="folder to write to")
    add("--timeout_s", type=float, default=5.0, help="limit for a program; 5, as the reward's")
    isolations = ["landlock", "sealed", "unsafe"]
    add("--isolation", choices=isolations, help="default: the best that works")
    add("--packages", nargs="*", default=[], help="installed packages that programs may import")
    hiding = argparse.ArgumentParser(add_help=False)
    how = "hide each task's last N tests; a third where none is hidden yet"
    hiding.add_argument("--hide", type=at_least(0), help=how)

    names = "mbpp|humaneval|one_liners|jsonl"
    data = parser.add_subparsers(dest="data", required=True, metavar=names)
    add = data.add_parser("mbpp", parents=[common, hiding], help="train and evaluate").add_argument
    add("--path", type=Path, help="folder with mbpp.jsonl, sanitized-mbpp.json; or from the Hub")
    add("--sanitized", action="store_true", help="the 427 tasks that were checked by hand")
    add = data.add_parser("humaneval", parents=[common], help="evaluation only").add_argument
    add("--path", type=Path, help="HumanEval.jsonl or HumanEval.jsonl.gz; or from the Hub")
    what = "generated one-line functions"
    small = data.add_parser("one_liners", parents=[common, hiding], help=what)
    add = small.add_argument
    add("--train", type=at_least(1), default=600, help="tasks for training; 600")
    add("--test", type=at_least(2), default=128, help="for evaluation, half of new ones; 128")
    add("--seed", type=int, default=0)
    small.set_defaults(held_out=8)
    add = data.add_parser("jsonl", parents=[common, hiding], help="your own rows").add_argument
    add("--path", type=Path, required=True, help="JSON Lines, a prompt and tests a line")
    add("--held_out", type=at_least(0), default=0, help="hold out about one task in N; 0: none")

    options = vars(parser.parse_args(words))
    if options.get("held_out") == 1 or not options["timeout_s"] > 0:
        parser.error("--held_out 1 would hold out every task, and --timeout_s must be more than 0")
    return options


def main() -> None:
    options = parse()
    from recipes.code.prepare import prepare
    from recipes.common.data.split import is_held_out

    if one_in := options.pop("held_out", 0):
        options["held_out"] = lambda prompt: is_held_out(prompt, one_in)
    raise SystemExit(prepare(**options))


if __name__ == "__main__":
    main()
