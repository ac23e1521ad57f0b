"""Data sets to rows: what becomes of a row, where it goes, and what the script says and refuses."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import prepare_code
import pytest

from rewards.code_tasks import complete_row, read_tasks
from rewards.code_tests import program_of
from rewards.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[1]
MBPP = Path(os.environ.get("MBPP_PATH", ROOT.parent / "shared" / "data" / "mbpp" / "mbpp.jsonl"))
isolated = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")

FULL = {  # a row as MBPP has them
    "task_id": 601,
    "text": "Write a function to double a number.",
    "code": "def double(x):\r\n  return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(3) == 6", "assert double(0) == 0"],
    "test_setup_code": "",
    "challenge_test_list": ["assert double(-1) == -2"],
}
SANITIZED = {
    "task_id": 11,
    "prompt": "Write a function to find the area of a circle.",
    "code": "import math\ndef area(r): return math.pi * r * r",
    "test_list": ["assert area(2) == math.pi * 4", "assert area(1) == math.pi"],
    "test_imports": ["import math"],
}
HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": 'import math\n\ndef square(x):\n    return x * x\n\n# the task\ndef root(x):\n    """ Its root. """\n',
    "entry_point": "root",
    "canonical_solution": "    return math.sqrt(x)\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    for n in (3, 5): assert candidate(square(n)) == n\n",
}
OWN = {"prompt": "Write double(x).", "tests": ["assert double(2) == 4", "assert double(3) == 6"]}
OWN_RIGHT = OWN | {"solution": "def double(x): return 2 * x"}


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def prepared(*words):
    words = [sys.executable, str(ROOT / "scripts" / "prepare_code.py"), *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


# --------------------------------------------------------------------------- rows


def test_a_row_of_mbpp_shows_one_test_and_keeps_its_challenges_hidden():
    assert prepare_code.mbpp_task(FULL, show_tests=1, hide=0) == {
        "name": "mbpp/601",
        "prompt": "Write a function to double a number.\nYour code should pass this test:\nassert double(2) == 4",
        "tests": FULL["test_list"],
        "hidden_tests": ["assert double(-1) == -2"],
        "setup": "",
        "solution": "def double(x):\n  return 2 * x",
    }


def test_the_prompt_of_mbpp_shows_as_many_tests_as_asked_and_none_that_will_be_hidden():
    shown = [prepare_code.mbpp_task(FULL, show, hide)["prompt"] for show, hide in [(2, 0), (3, 1), (3, 2)]]
    two = "Your code should pass these tests:\nassert double(2) == 4\nassert double(3) == 6"
    assert [text.partition("\n")[2] for text in shown] == [
        two,
        two,
        "Your code should pass this test:\nassert double(2) == 4",
    ]


def test_a_row_of_sanitized_mbpp_has_its_imports_as_setup_and_shows_them():
    task = prepare_code.mbpp_task(SANITIZED, show_tests=1, hide=0)
    assert (task["name"], task["setup"], task["hidden_tests"]) == ("mbpp/11", "import math", [])
    assert task["prompt"].endswith("this test:\nimport math\nassert area(2) == math.pi * 4")


def test_a_row_of_humaneval_is_split_at_its_stub():
    assert prepare_code.humaneval_task(HUMANEVAL) == {
        "name": "humaneval/7",
        "prompt": f"Complete this Python function:\n\n{HUMANEVAL['prompt'].strip()}",
        "tests": [HUMANEVAL["test"].strip() + "\n\ncheck(root)"],
        "setup": "import math\n\ndef square(x):\n    return x * x\n\n# the task",
        "preamble": "import math\n\ndef square(x):\n    return x * x\n\n# the task",
        "entry_point": "root",
        "solution": 'def root(x):\n    """ Its root. """\n    return math.sqrt(x)\n',
    }


def test_a_helper_of_a_humaneval_prompt_that_its_test_does_not_use_is_no_setup():
    row = HUMANEVAL | {"test": "def check(candidate):\n    assert candidate(9) == 3\n"}
    assert prepare_code.humaneval_task(row)["setup"] == ""


@isolated
def test_a_program_cannot_change_the_helper_that_a_humaneval_test_uses():
    task = complete_row(prepare_code.humaneval_task(HUMANEVAL))
    cheat = "def root(x): return x\ndef square(x): return x\n"
    options = {"setup": task["setup"], "entry_point": task["entry_point"]}
    with Sandbox(workers=1) as sandbox:
        programs = [program_of(code, task["preamble"]) for code in (task["solution"], cheat)]
        statuses = [sandbox.run_asserts(program, task["tests"], **options).status for program in programs]
    assert statuses == ["pass", "fail"]


def test_hiding_moves_the_last_tests_before_those_that_are_hidden_already():
    task = complete_row(OWN | {"name": "a", "tests": ["assert f(1)", "assert f(2)"], "hidden_tests": ["assert f(3)"]})
    kept, dropped = prepare_code.hide_tests([task], 1)
    assert [(t["tests"], t["hidden_tests"]) for t in kept] == [(["assert f(1)"], ["assert f(2)", "assert f(3)"])]
    assert dropped == []
    assert prepare_code.hide_tests([task], 2) == ([], [{"task": "a", "reason": "too few tests to hide 2"}])
    assert prepare_code.hide_tests([task], 0) == ([task], [])


def test_mbpp_keeps_its_official_splits(tmp_path):
    ids = [1, 10, 11, 510, 511, 600, 601, 974]
    (tmp_path / "mbpp.jsonl").write_text(lines(*(FULL | {"task_id": number} for number in ids)))
    splits = prepare_code.load(prepare_code.parse(["mbpp", "--path", str(tmp_path), "--out", "unused"]))
    assert {split: [task["name"] for task in tasks] for split, tasks in splits.items()} == {
        "train": ["mbpp/601", "mbpp/974"],
        "test": ["mbpp/11", "mbpp/510"],
    }


@pytest.mark.skipif(not MBPP.is_file(), reason=f"no MBPP at {MBPP}: set MBPP_PATH")
@pytest.mark.parametrize(("words", "counts"), [([], (374, 500)), (["--sanitized"], (120, 257))])
def test_the_real_mbpp_makes_rows_that_can_be_used(words, counts):
    options = prepare_code.parse(["mbpp", "--path", str(MBPP.parent), "--out", "unused", *words])
    splits = prepare_code.load(options)
    assert (len(splits["train"]), len(splits["test"])) == counts


# --------------------------------------------------------------------------- the script


@isolated
def test_own_rows_are_judged_split_and_written(tmp_path):
    wrong = OWN | {"solution": "def double(x): return x"}
    weak = {"prompt": "Is it so?", "tests": ["assert f(1) == True"], "solution": "def f(x): return x == 1"}
    (tmp_path / "mine.jsonl").write_text(lines(OWN_RIGHT, wrong, weak, OWN | {"name": "open"}))
    done = prepared("jsonl", "--path", tmp_path / "mine.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in read_tasks(tmp_path / "out", "train")] == ["mine/1", "open"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["dropped.jsonl", "train.jsonl"]
    assert [json.loads(line) for line in (tmp_path / "out" / "dropped.jsonl").read_text().splitlines()] == [
        {"task": "mine/2", "reason": "the reference fails: AssertionError"},
        {"task": "mine/3", "reason": "a trivial solution passes: return True"},
    ]
    for said in (
        "4 tasks read\n",
        "isolation in force: ",
        "kept: 2 for training, 0 for evaluation\n",
        "rules the tests run under: 2 strict, 0 inplace, 0 objects, 0 both\n",
        "without a reference, so judged by the trivial solutions only: 1\n",
        "dropped: 2\n     1  the reference fails\n     1  a trivial solution passes: return True\n",
        f"wrote {tmp_path}/out/train.jsonl, {tmp_path}/out/dropped.jsonl in ",
    ):
        assert said in done.stdout


@isolated
def test_held_out_rows_go_to_test_by_their_prompt(tmp_path):
    rows = [OWN_RIGHT | {"prompt": f"Write double(x), please, {number}."} for number in range(12)]
    (tmp_path / "mine.jsonl").write_text(lines(*rows))
    done = prepared("jsonl", "--path", tmp_path / "mine.jsonl", "--held_out", 3, "--hide", 1, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    train, test = (read_tasks(tmp_path / "out", split) for split in ("train", "test"))
    assert len(train) + len(test) == 12 and len(test) == 5
    assert {task["prompt"] for task in train} & {task["prompt"] for task in test} == set()
    assert [task["hidden_tests"] for task in test] == [["assert double(3) == 6"]] * 5


@isolated
def test_humaneval_is_for_evaluation_only(tmp_path):
    with gzip.open(tmp_path / "HumanEval.jsonl.gz", "wt") as file:
        file.write(lines(HUMANEVAL))
    done = prepared("humaneval", "--path", tmp_path / "HumanEval.jsonl.gz", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "kept: 0 for training, 1 for evaluation\n" in done.stdout
    assert not (tmp_path / "out" / "train.jsonl").exists()
    assert list(read_tasks(tmp_path / "out", "test")[0]) == [
        *("name", "prompt", "tests", "hidden_tests", "setup", "preamble", "entry_point"),
        *("inplace", "objects", "solution"),
    ]


@isolated
def test_where_no_task_is_kept_the_exit_status_is_1(tmp_path):
    (tmp_path / "mine.jsonl").write_text(lines(OWN | {"solution": "def double(x): return x"}))
    done = prepared("jsonl", "--path", tmp_path / "mine.jsonl", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["dropped.jsonl"]


def refused(tmp_path, *words):
    """The error of input that cannot be used, when nothing may be written."""
    done = prepared(*words, "--out", tmp_path / "out")
    assert done.returncode == 2 and not (tmp_path / "out").exists(), done.stdout
    return done.stderr


def test_an_existing_result_is_not_written_over(tmp_path):
    (tmp_path / "train.jsonl").write_text(lines(OWN))
    done = prepared("jsonl", "--path", tmp_path / "train.jsonl", "--out", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} already holds train.jsonl. Remove them or give another --out." in done.stderr
    assert (tmp_path / "train.jsonl").read_text() == lines(OWN)


def test_a_folder_without_the_data_is_refused_by_name(tmp_path):
    assert f"no file {tmp_path}/mbpp.jsonl" in refused(tmp_path, "mbpp", "--path", tmp_path)
    assert f"no file {tmp_path}/sanitized-mbpp.json" in refused(tmp_path, "mbpp", "--sanitized", "--path", tmp_path)


def test_data_of_another_shape_is_refused_by_row_and_key(tmp_path):
    (tmp_path / "mbpp.jsonl").write_text(lines(FULL, OWN))
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(lines(HUMANEVAL).encode())[:-20])
    assert "mbpp.jsonl, row 2 has no task_id, code, test_list" in refused(tmp_path, "mbpp", "--path", tmp_path)
    assert "cut.jsonl.gz is neither" in refused(tmp_path, "humaneval", "--path", tmp_path / "cut.jsonl.gz")


def test_an_own_row_that_cannot_be_used_is_refused_by_line(tmp_path):
    (tmp_path / "mine.jsonl").write_text(lines(OWN, {"prompt": "p", "tests": ['{"stdin": "1"}']}))
    assert "mine.jsonl, line 2: a JSON test has" in refused(tmp_path, "jsonl", "--path", tmp_path / "mine.jsonl")


def test_a_task_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "mbpp.jsonl").write_text(lines(FULL, FULL))
    assert "mbpp/601 are there more than once" in refused(tmp_path, "mbpp", "--path", tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mbpp", "--show_tests", "0"], "--show_tests is 0; at least 1"),
        (["mbpp", "--hide", "-1"], "--hide is -1; at least 0"),
        (["jsonl", "--path", "x", "--held_out", "1"], "--held_out 1 would hold out every task"),
        (["humaneval", "--timeout_s", "0"], "--timeout_s must be more than 0"),
        (["humaneval", "--hide", "1"], "unrecognized arguments"),
    ],
)
def test_options_out_of_range_are_refused(words, said, capsys):
    with pytest.raises(SystemExit) as stop:
        prepare_code.parse([*words, "--out", "unused"])
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_help_is_there_within_two_seconds():
    started = time.monotonic()
    assert "dropped.jsonl" in prepared("--help").stdout
    assert time.monotonic() - started < 2.0
