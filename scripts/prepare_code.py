"""Turn a data set of programming tasks into rows for a run, each judged in the sandbox first.

    python scripts/prepare_code.py mbpp --out data/mbpp                        # from the Hub
    python scripts/prepare_code.py mbpp --path FOLDER --out data/mbpp          # FOLDER/mbpp.jsonl
    python scripts/prepare_code.py mbpp --sanitized --path FOLDER --out DIR    # FOLDER/sanitized-mbpp.json
    python scripts/prepare_code.py humaneval --path HumanEval.jsonl.gz --out data/humaneval
    python scripts/prepare_code.py jsonl --path mine.jsonl --held_out 8 --out data/mine

Writes train.jsonl and test.jsonl (HumanEval is for evaluation only), and dropped.jsonl: tasks whose reference does not
pass its own tests in half the time limit, and tasks that a trivial solution passes, such as `return True`. MBPP keeps
its official splits: task ids 601-974 train, 11-510 test; the others are left out. A row of your own needs `prompt` and
`tests`: assert statements, or JSON texts {"stdin": ..., "stdout": ...}; `solution` is its reference.

Exit status: 0 when tasks were kept, 1 when none was or no isolation holds here, 2 for input that cannot be used.

What is not covered: whether a prompt says what its tests want, and whether tests are strong. Where evaluation tasks are
dropped, a score is over fewer of them than published ones are.
"""

import argparse
import gzip
import json
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MBPP_SPLITS = {"train": range(601, 975), "test": range(11, 511)}
FILES = ("train.jsonl", "test.jsonl", "dropped.jsonl")

# --------------------------------------------------------------------------- data sets


def read_mbpp(path: Path | None, sanitized: bool) -> list[dict]:
    """The rows of MBPP as published: from a folder or file, else from the Hub."""
    if path is None:
        return _from_hub("google-research-datasets/mbpp", "sanitized" if sanitized else "full")
    file = path / ("sanitized-mbpp.json" if sanitized else "mbpp.jsonl") if path.is_dir() else path
    return _rows_of(file, ["task_id", "code", "test_list", "prompt" if sanitized else "text"])


def mbpp_task(row: dict, show_tests: int, hide: int) -> dict:
    """A row of MBPP, full or sanitized, as a task; of the tests that stay visible, the prompt shows so many.

    Example: the prompt of task 603 ends in "Your code should pass this test:\\nassert get_ludic(10) == [1, 2, 3, 5, 7]"
    """
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports", []))
    shown = row["test_list"][: max(1, min(show_tests, len(row["test_list"]) - hide))]
    these = "this test" if len(shown) == 1 else "these tests"
    example = "\n".join([setup.strip(), *shown]).strip()  # some tests stand on objects that the setup makes
    question = row["prompt"] if "prompt" in row else row["text"]
    task = {
        "name": f"mbpp/{row['task_id']}",
        "prompt": f"{question.strip()}\nYour code should pass {these}:\n{example}",
        "tests": row["test_list"],
        "hidden_tests": row.get("challenge_test_list", []),
        "setup": setup,
        "solution": row["code"],
    }
    return {key: value.replace("\r\n", "\n") if isinstance(value, str) else value for key, value in task.items()}


def read_humaneval(path: Path | None) -> list[dict]:
    """The rows of HumanEval as published: from a file, else from the Hub."""
    if path is None:
        return _from_hub("openai/openai_humaneval", None)
    return _rows_of(path, ["task_id", "prompt", "entry_point", "canonical_solution", "test"])


def humaneval_task(row: dict) -> dict:
    """A row of HumanEval as a task: what its prompt defines before the stub is the preamble, its check one test.

    A test that uses a helper function of the prompt gets it as setup, so on its own side.
    """
    import ast

    parsed = ast.parse(row["prompt"]).body
    stub = next(node for node in parsed if getattr(node, "name", "") == row["entry_point"])
    lines = row["prompt"].splitlines(keepends=True)
    preamble = "".join(lines[: stub.lineno - 1])
    helpers = {node.name for node in parsed if isinstance(node, ast.FunctionDef) and node is not stub}
    used = {node.id for node in ast.walk(ast.parse(row["test"])) if isinstance(node, ast.Name)}
    return {
        "name": row["task_id"].replace("HumanEval", "humaneval"),
        "prompt": f"Complete this Python function:\n\n{row['prompt'].strip()}",
        "tests": [f"{row['test'].strip()}\n\ncheck({row['entry_point']})"],
        "setup": preamble.strip() if helpers & used else "",
        "preamble": preamble.strip(),
        "entry_point": row["entry_point"],
        "solution": "".join(lines[stub.lineno - 1 :]) + row["canonical_solution"],
    }


def _from_hub(name: str, config: str | None) -> list[dict]:
    from datasets import load_dataset

    try:
        return [row for split in load_dataset(name, config).values() for row in split]
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot load {name} from the Hub: {error}. Give what you have on disk as --path.") from error


def _rows_of(file: Path, keys: list[str]) -> list[dict]:
    """The objects of a JSON list, or of JSON Lines, gzipped or not; each has these keys."""
    if not file.is_file():
        raise ValueError(f"no file {file}. --path names the data on disk; --help says what it must be.")
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8")
        rows = json.loads(text) if file.suffix == ".json" else [json.loads(x) for x in text.split("\n") if x.strip()]
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{file} is neither a JSON list (.json) nor JSON Lines (any other name): {error}.") from error
    for number, row in enumerate(rows, 1):
        if missing := [key for key in keys if not isinstance(row, dict) or key not in row]:
            raise ValueError(f"{file}, row {number} has no {', '.join(missing)}; --help says what the file must be.")
    return rows


# --------------------------------------------------------------------------- from tasks to files


def load(options: argparse.Namespace) -> dict[str, list[dict]]:
    """The tasks of each split, complete, before any is judged."""
    from recipes.common.before.rows import is_held_out
    from rewards.code_tasks import complete_row, read_tasks

    if options.data == "jsonl":
        tasks = read_tasks(options.path, "train")
        held_out = [bool(options.held_out) and is_held_out(task["prompt"], options.held_out) for task in tasks]
        pairs = list(zip(tasks, held_out, strict=True))
        return {"train": [task for task, out in pairs if not out], "test": [task for task, out in pairs if out]}
    if options.data == "humaneval":
        return {"test": [complete_row(humaneval_task(row)) for row in read_humaneval(options.path)]}
    rows = read_mbpp(options.path, options.sanitized)
    return {
        split: [complete_row(mbpp_task(row, options.show_tests, options.hide)) for row in rows if row["task_id"] in ids]
        for split, ids in MBPP_SPLITS.items()
    }


def hide_tests(tasks: list[dict], count: int) -> tuple[list[dict], list[dict]]:
    """Tasks whose last `count` visible tests are hidden ones now, and those that would have no visible one left."""
    kept, dropped = [], []
    for task in tasks:
        tests, visible = task["tests"], len(task["tests"]) - count
        if visible < 1:
            dropped.append({"task": task["name"], "reason": f"too few tests to hide {count}"})
        else:
            kept.append(task | {"tests": tests[:visible], "hidden_tests": tests[visible:] + task["hidden_tests"]})
    return kept, dropped


def prepare(options: argparse.Namespace) -> int:
    """Load, judge, write, and say what was done; the exit status."""
    from rewards.code_tasks import drop_trivial, least_flags
    from rewards.sandbox import Sandbox, SandboxError

    started = time.monotonic()
    try:
        _refuse_to_overwrite(options.out)
        splits = load(options)
        tasks, dropped = hide_tests(_named_apart(splits), options.hide)
        options.out.mkdir(parents=True, exist_ok=True)  # fails now, not after minutes
        print(f"{len(tasks) + len(dropped)} tasks read", flush=True)
        with Sandbox(isolation=options.isolation, packages=options.packages) as sandbox:
            print(f"isolation in force: {sandbox.describe()}", flush=True)
            print("[1/2] running each reference against its own tests", flush=True)
            tasks, failed = least_flags(tasks, sandbox.run_batch, options.timeout_s)
            print("[2/2] running the trivial solutions against each task", flush=True)
            tasks, trivial = drop_trivial(tasks, sandbox.run_batch, options.timeout_s)
    except (SandboxError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1 if isinstance(error, SandboxError) else 2
    kept = {task["name"]: task for task in tasks}
    splits = {split: [kept[task["name"]] for task in of if task["name"] in kept] for split, of in splits.items()}
    dropped += failed + trivial
    print(summary(splits, dropped))
    print(f"wrote {', '.join(write(options.out, splits, dropped))} in {time.monotonic() - started:.0f} s")
    return 0 if kept else 1


def _refuse_to_overwrite(out: Path) -> None:
    if taken := [name for name in FILES if (out / name).exists()]:
        raise ValueError(f"{out} already holds {', '.join(taken)}. Remove them or give another --out.")


def _named_apart(splits: dict[str, list[dict]]) -> list[dict]:
    """The tasks of all splits."""
    tasks = [task for of in splits.values() for task in of]
    counts = Counter(task["name"] for task in tasks)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ValueError(f"{', '.join(twice[:10])} are there more than once; each task must be there once.")
    return tasks


def summary(splits: dict[str, list[dict]], dropped: list[dict]) -> str:
    """What was kept under which rules, and what was dropped and why."""
    tasks = [task for of in splits.values() for task in of]
    names = {(False, False): "strict", (True, False): "inplace", (False, True): "objects", (True, True): "both"}
    flags = Counter(names[task["inplace"], task["objects"]] for task in tasks)
    reasons = Counter(_reason_in_short(entry["reason"]) for entry in dropped)
    return "\n".join(
        [
            f"kept: {len(splits.get('train', []))} for training, {len(splits.get('test', []))} for evaluation",
            "rules the tests run under: " + ", ".join(f"{flags[name]} {name}" for name in names.values()),
            f"without a reference, so judged by the trivial solutions only: {sum(not t['solution'] for t in tasks)}",
            f"dropped: {len(dropped)}",
            *(f"  {count:4}  {reason}" for reason, count in reasons.most_common()),
        ]
    )


def _reason_in_short(reason: str) -> str:
    """Failures of references are too many kinds to list: dropped.jsonl has each."""
    return "the reference fails" if reason.startswith("the reference fails") else reason


def write(out: Path, splits: dict[str, list[dict]], dropped: list[dict]) -> list[str]:
    """Write a file a split that has tasks, and dropped.jsonl; the paths."""
    from recipes.common.tools.folder import write_whole

    files = {out / f"{split}.jsonl": tasks for split, tasks in splits.items() if tasks} | {out / FILES[2]: dropped}
    for file, rows in files.items():
        write_whole(file, "".join(json.dumps(row) + "\n" for row in rows))
    return [str(file) for file in files]


# --------------------------------------------------------------------------- command line


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--out", type=Path, required=True, help="folder to write to")
    common.add_argument("--timeout_s", type=float, default=5.0, help="limit for a program; default 5, the reward's own")
    common.add_argument("--isolation", choices=["landlock", "sealed", "unsafe"], help="default: the best that holds")
    common.add_argument("--packages", nargs="*", default=[], help="installed packages that programs may import")
    hiding = argparse.ArgumentParser(add_help=False)
    hiding.add_argument("--hide", type=int, default=0, help="hide so many of the last tests of each task; default 0")
    data = parser.add_subparsers(dest="data", required=True, metavar="mbpp|humaneval|jsonl")
    mbpp = data.add_parser("mbpp", parents=[common, hiding], help="training and evaluation")
    mbpp.add_argument("--path", type=Path, help="folder with mbpp.jsonl, sanitized-mbpp.json; default: from the Hub")
    mbpp.add_argument("--sanitized", action="store_true", help="the 427 tasks that were checked by hand")
    mbpp.add_argument("--show_tests", type=int, default=1, help="tests the prompt shows, for the name; default 1")
    humaneval = data.add_parser("humaneval", parents=[common], help="evaluation only")
    humaneval.add_argument("--path", type=Path, help="HumanEval.jsonl or HumanEval.jsonl.gz; default: from the Hub")
    own = data.add_parser("jsonl", parents=[common, hiding], help="your own rows")
    own.add_argument("--path", type=Path, required=True, help="a JSON Lines file with prompt and tests a line")
    own.add_argument("--held_out", type=int, default=0, help="hold out about one task in so many; default 0: none")
    options = parser.parse_args(words, argparse.Namespace(hide=0))
    least = {"hide": 0, "show_tests": 1, "held_out": 0}
    for name in (name for name in least if getattr(options, name, least[name]) < least[name]):
        parser.error(f"--{name} is {getattr(options, name)}; at least {least[name]}")
    if getattr(options, "held_out", 0) == 1 or not options.timeout_s > 0:
        parser.error("--held_out 1 would hold out every task, and --timeout_s must be more than 0")
    return options


def main() -> None:
    raise SystemExit(prepare(parse()))


if __name__ == "__main__":
    main()
