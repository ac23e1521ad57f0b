"""Data sets to rows: what becomes of a row, where it goes, and what the script says and refuses."""

import gzip
import json
import os
import sys
from pathlib import Path

import prepare_code
import pytest

from recipes.code import prepare as code_prepare
from recipes.code.tasks import KEYS, complete_row, read_tasks
from rewards.code_tests import program_of
from rewards.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[1]
MBPP = Path(os.environ.get("MBPP_PATH", ROOT.parent / "shared" / "data" / "mbpp" / "mbpp.jsonl"))
isolated = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)

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


@pytest.fixture
def prepared(monkeypatch, capsys, tmp_path):
    """Run the script: exit status, what was printed, and the error."""

    def run(*words, out="out"):
        monkeypatch.setattr(
            sys, "argv", ["prepare_code.py", *map(str, words), "--out", str(tmp_path / out)]
        )
        with pytest.raises(SystemExit) as ended:
            prepare_code.main()
        return ended.value.code, *capsys.readouterr()

    return run


# --------------------------------------------------------------------------- rows


def test_a_row_of_mbpp_shows_one_test_and_keeps_its_challenges_hidden():
    assert code_prepare.mbpp_task(FULL, show_tests=1, hide=0) == {
        "name": "mbpp/601",
        "prompt": "Write a function to double a number.\nYour code should pass this test:\nassert double(2) == 4",
        "tests": FULL["test_list"],
        "hidden_tests": ["assert double(-1) == -2"],
        "setup": "",
        "solution": "def double(x):\n  return 2 * x",
    }


def test_sanitized_mbpp_shows_its_imports_and_mbpp_keeps_its_official_splits(tmp_path):
    task = code_prepare.mbpp_task(SANITIZED, show_tests=1, hide=0)
    assert (task["name"], task["setup"], task["hidden_tests"]) == ("mbpp/11", "import math", [])
    assert task["prompt"].endswith("this test:\nimport math\nassert area(2) == math.pi * 4")
    ids = [1, 10, 11, 510, 511, 600, 601, 974]
    (tmp_path / "mbpp.jsonl").write_text(lines(*(FULL | {"task_id": number} for number in ids)))
    names = {
        split: [task["name"] for task in of]
        for split, of in code_prepare.load_tasks("mbpp", tmp_path).items()
    }
    assert names == {"train": ["mbpp/601", "mbpp/974"], "test": ["mbpp/11", "mbpp/510"]}


@pytest.mark.parametrize(("show", "hide", "shown"), [(2, 0, 2), (3, 1, 2), (3, 2, 1)])
def test_the_prompt_of_mbpp_shows_as_many_tests_as_asked_and_none_that_will_be_hidden(
    show, hide, shown
):
    words = f"Your code should pass {'these tests' if shown == 2 else 'this test'}:"
    text = code_prepare.mbpp_task(FULL, show, hide)["prompt"].splitlines()
    assert text[1:] == [words, *FULL["test_list"][:shown]]


def test_a_row_of_humaneval_is_split_at_its_stub():
    assert code_prepare.humaneval_task(HUMANEVAL) == {
        "name": "humaneval/7",
        "prompt": f"Complete this Python function:\n\n{HUMANEVAL['prompt'].strip()}",
        "tests": [HUMANEVAL["test"].strip() + "\n\ncheck(root)"],
        "setup": "import math\n\ndef square(x):\n    return x * x\n\n# the task",
        "preamble": "import math\n\ndef square(x):\n    return x * x\n\n# the task",
        "entry_point": "root",
        "solution": 'def root(x):\n    """ Its root. """\n    return math.sqrt(x)\n',
    }
    without_helper = HUMANEVAL | {"test": "def check(candidate):\n    assert candidate(9) == 3\n"}
    assert code_prepare.humaneval_task(without_helper)["setup"] == ""


@isolated
def test_a_program_cannot_change_the_helper_that_a_humaneval_test_uses():
    task = complete_row(code_prepare.humaneval_task(HUMANEVAL))
    cheat = "def root(x): return x\ndef square(x): return x\n"
    options = {"setup": task["setup"], "entry_point": task["entry_point"]}
    with Sandbox(workers=1) as sandbox:
        programs = [program_of(code, task["preamble"]) for code in (task["solution"], cheat)]
        statuses = [
            sandbox.run_asserts(program, task["tests"], **options).status for program in programs
        ]
    assert statuses == ["pass", "fail"]


def test_hiding_moves_the_last_tests_before_those_that_are_hidden_already():
    task = complete_row(
        OWN
        | {"name": "a", "tests": ["assert f(1)", "assert f(2)"], "hidden_tests": ["assert f(3)"]}
    )
    hidden = task | {"tests": ["assert f(1)"], "hidden_tests": ["assert f(2)", "assert f(3)"]}
    assert code_prepare.hide_tests([task], 1) == ([hidden], [])
    assert code_prepare.hide_tests([task], 2) == (
        [],
        [{"task": "a", "reason": "too few tests to hide 2"}],
    )


@pytest.mark.skipif(not MBPP.is_file(), reason=f"no MBPP at {MBPP}: set MBPP_PATH")
@pytest.mark.parametrize(("sanitized", "counts"), [(False, (374, 500)), (True, (120, 257))])
def test_the_real_mbpp_makes_rows_that_can_be_used(sanitized, counts):
    splits = code_prepare.load_tasks("mbpp", MBPP.parent, sanitized=sanitized)
    assert (len(splits["train"]), len(splits["test"])) == counts


# --------------------------------------------------------------------------- the script


@isolated
def test_own_rows_are_checked_split_and_written(prepared, tmp_path):
    wrong = OWN | {"solution": "def double(x): return x"}
    weak = {
        "prompt": "Is it so?",
        "tests": ["assert f(1) == True"],
        "solution": "def f(x): return x == 1",
    }
    (tmp_path / "mine.jsonl").write_text(lines(OWN_RIGHT, wrong, weak, OWN | {"name": "open"}))
    status, printed, error = prepared("jsonl", "--path", tmp_path / "mine.jsonl")
    assert status == 0, error
    assert [row["name"] for row in read_tasks(tmp_path / "out", "train")] == ["mine/1", "open"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "dropped.jsonl",
        "train.jsonl",
    ]
    assert (tmp_path / "out" / "dropped.jsonl").read_text() == lines(
        {"task": "mine/2", "reason": "the reference fails: AssertionError"},
        {"task": "mine/3", "reason": "a trivial solution passes: return True"},
    )
    for message in (
        "4 tasks read\n",
        "isolation in force: ",
        "kept: 2 for training, 0 for evaluation\n",
        "rules the tests run under: 2 strict, 0 inplace\n",
        "without a reference, checked with the trivial solutions only: 1\n",
        "dropped: 2\n     1  the reference fails\n     1  a trivial solution passes: return True\n",
        f"wrote {tmp_path}/out/train.jsonl, {tmp_path}/out/dropped.jsonl in ",
    ):
        assert message in printed
    (tmp_path / "mine.jsonl").write_text(lines(wrong))
    assert (
        prepared("jsonl", "--path", tmp_path / "mine.jsonl", out="none")[0] == 1
    )  # no task is kept
    assert [file.name for file in (tmp_path / "none").iterdir()] == ["dropped.jsonl"]


@isolated
def test_held_out_rows_go_to_test_by_their_prompt(prepared, tmp_path):
    rows = [OWN_RIGHT | {"prompt": f"Write double(x), please, {number}."} for number in range(12)]
    (tmp_path / "mine.jsonl").write_text(lines(*rows))
    assert (
        prepared("jsonl", "--path", tmp_path / "mine.jsonl", "--held_out", 3, "--hide", 1)[0] == 0
    )
    train, test = (read_tasks(tmp_path / "out", split) for split in ("train", "test"))
    assert len(train) + len(test) == 12 and len(test) == 5
    assert {task["prompt"] for task in train} & {task["prompt"] for task in test} == set()
    assert [task["hidden_tests"] for task in test] == [["assert double(3) == 6"]] * 5


@isolated
def test_humaneval_is_for_evaluation_only(prepared, tmp_path):
    (tmp_path / "HumanEval.jsonl.gz").write_bytes(gzip.compress(lines(HUMANEVAL).encode()))
    status, printed, _ = prepared("humaneval", "--path", tmp_path / "HumanEval.jsonl.gz")
    assert status == 0 and "kept: 0 for training, 1 for evaluation\n" in printed
    assert not (tmp_path / "out" / "train.jsonl").exists()
    assert list(read_tasks(tmp_path / "out", "test")[0]) == list(KEYS)


@pytest.mark.parametrize(
    ("words", "name", "content", "message"),
    [
        (["mbpp"], "", b"", "/mbpp.jsonl cannot be read"),
        (["mbpp", "--sanitized"], "", b"", "/sanitized-mbpp.json cannot be read"),
        (
            ["mbpp"],
            "mbpp.jsonl",
            lines(FULL, OWN).encode(),
            "mbpp.jsonl, row 2 has no task_id, code, test_list",
        ),
        (["mbpp"], "mbpp.jsonl", lines(FULL, FULL).encode(), "once; more than once: mbpp/601"),
        (
            ["humaneval"],
            "cut.jsonl.gz",
            gzip.compress(lines(HUMANEVAL).encode())[:-20],
            "cut.jsonl.gz cannot be read",
        ),
        (
            ["jsonl"],
            "mine.jsonl",
            lines(OWN, OWN | {"tests": ['{"stdin": "1"}']}).encode(),
            "line 2: a JSON test has",
        ),
        (
            ["jsonl"],
            "out/train.jsonl",
            lines(OWN).encode(),
            "out already holds train.jsonl. Remove them or give another --",
        ),
        (["mbpp", "--show_tests", "0"], "", b"", "--show_tests is 0; at least 1"),
        (["mbpp", "--hide", "-1"], "", b"", "--hide is -1; at least 0"),
        (["jsonl", "--held_out", "1"], "", b"", "--held_out 1 would hold out every task"),
        (["humaneval", "--timeout_s", "0"], "", b"", "--timeout_s must be more than 0"),
        (["humaneval", "--hide", "1"], "", b"", "unrecognized arguments"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_and_nothing_is_written(
    prepared, tmp_path, words, name, content, message
):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    status, _, error = prepared(*words, "--path", tmp_path / name)
    assert status == 2 and message in error
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [
        content
    ] * bool(name)
