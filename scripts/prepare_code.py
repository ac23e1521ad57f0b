"""Turn a data set of programming tasks into rows for a run, after running each task in the sandbox.

    python scripts/prepare_code.py mbpp --out data/mbpp                        # from the Hub
    python scripts/prepare_code.py mbpp --path FOLDER --out data/mbpp          # FOLDER/mbpp.jsonl
    python scripts/prepare_code.py humaneval --path HumanEval.jsonl.gz --out data/humaneval
    python scripts/prepare_code.py one_liners --out data/one-liners            # for small models
    python scripts/prepare_code.py jsonl --path mine.jsonl --out data/mine     # --held_out 8

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

import sys
from pathlib import Path

from command import at_least, make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("data", choices=["mbpp", "humaneval", "one_liners", "jsonl"])
    add("--path", type=Path, help="the file of the data set, or MBPP's folder; default: the Hub")
    add("--out", type=Path, required=True, help="folder to write to")
    add("--hide", type=at_least(0), help="hide each task's last N tests; default: see above")
    add("--held_out", type=at_least(0), help="jsonl: one task in N is held out (8); 0: none")
    add("--task_ids", type=Path, help="mbpp, humaneval: evaluate on these; a file, one id a line")
    add("--packages", nargs="*", default=[], help="installed packages that programs may import")
    options = parser.parse_args()
    if options.data == "jsonl" and not options.path:
        parser.error("jsonl needs --path")
    if options.data == "one_liners" and options.path:
        parser.error("one_liners takes no --path")
    if options.held_out == 1 or (options.held_out is not None and options.data != "jsonl"):
        parser.error("--held_out N is for jsonl, and 1 would hold out every task")
    if options.task_ids and options.data not in ("mbpp", "humaneval"):
        parser.error("--task_ids is for mbpp and humaneval")
    if options.held_out is None:
        options.held_out = 8 if options.data == "jsonl" else 0
    from recipes.code.prepare import prepare
    from rewards.sandbox import SandboxError

    try:
        with refusals():
            raise SystemExit(0 if prepare(**vars(options)) else 1)
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
