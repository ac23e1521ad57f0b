"""Data sets to rows: what a row may hold, which tasks are kept, what the script refuses."""

import gzip
import json

import prepare_code
import pytest
from support.sandbox import on_linux

from recipes.code.one_liners import NEW, TRAINED, one_liner_tasks
from recipes.code.prepare import (
    check_references,
    drop_trivial,
    hide_tests,
    humaneval_task,
    in_order,
    load_tasks,
)
from recipes.code.tasks import complete_row, read_tasks
from recipes.common.data.split import is_held_out
from rewards.sandbox import Outcome, Sandbox, SandboxError

DOUBLE = {"prompt": "Write double(x).", "tests": ["assert double(2) == 4", "assert double(3) == 6"]}
SOLVED = DOUBLE | {"solution": "def double(x): return 2 * x"}
ECHO = {"prompt": "Print the line.", "tests": ['{"stdin": "2", "stdout": "2"}']}


@pytest.fixture(scope="module")
def run():
    with Sandbox() as sandbox:
        yield sandbox.run_batch


def task_of(tests, **row):
    return complete_row({"name": "task", "prompt": "p", "tests": tests} | row)


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- Rows


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["assert f(1)"], "it must be a JSON object"),
        (DOUBLE | {"hidden_test": []}, "unknown key hidden_test; allowed: name, prompt"),
        (DOUBLE | {"prompt": [{"role": "user", "content": "?"}]}, "prompt is a chat; give its"),
        (DOUBLE | {"tests": ["assert double(2) == 4", "\n"]}, "none of them blank"),
        (DOUBLE | {"tests": ["return double(2) == 4"]}, "tests or setup are not valid Python"),
        (DOUBLE | {"tests": ["assert (double(2) == 4, 'no')"]}, "a tuple is always true"),
        (DOUBLE | {"hidden_tests": ECHO["tests"]}, "two kinds"),
        (ECHO | {"setup": "import math"}, "setup and entry_point must be empty"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_in_words(row, message):
    with pytest.raises(ValueError, match=message):
        complete_row(row)


MBPP = {
    "task_id": 601,
    "text": "Write a function to double a number.",
    "code": "def double(x):\r\n  return 2 * x",
    "test_list": ["assert double(2) == 4", "assert double(3) == 6"],
    "test_setup_code": "two = 2",
    "challenge_test_list": ["assert double(-1) == -2"],
}
HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": "import math\n\ndef square(x):\n    return x * x\n\n"
    'def root(x):\n    """ Its root. """\n',
    "entry_point": "root",
    "canonical_solution": "    return math.sqrt(x)\n",
    "test": "\n\ndef check(candidate):\n    for n in (3, 5): assert candidate(square(n)) == n\n",
}
PREAMBLE = "import math\n\ndef square(x):\n    return x * x"


def test_a_row_of_mbpp_shows_setup_and_one_test_in_its_official_split(tmp_path):
    ids = [10, 11, 510, 511, 600, 601, 974]
    (tmp_path / "mbpp.jsonl").write_text(lines(*(MBPP | {"task_id": number} for number in ids)))
    splits = load_tasks("mbpp", tmp_path)
    assert [task["name"] for task in splits["train"]] == ["mbpp/601", "mbpp/974"]
    assert [task["name"] for task in splits["test"]] == ["mbpp/11", "mbpp/510"]
    task, shown = splits["train"][0], "two = 2\nassert double(2) == 4"
    assert task["prompt"] == f"{MBPP['text']}\nYour code should pass this test:\n{shown}"
    assert (task["tests"], task["setup"]) == (MBPP["test_list"], "two = 2")
    assert task["hidden_tests"] == ["assert double(-1) == -2"], "its challenges"
    assert task["solution"] == "def double(x):\n  return 2 * x", "a line ends in a line feed"


def test_named_tasks_of_mbpp_are_all_for_evaluation(tmp_path):
    (tmp_path / "mbpp.jsonl").write_text(lines(*(MBPP | {"task_id": n} for n in (2, 11, 601))))
    (tmp_path / "ids.txt").write_text("Mbpp/2\n601\n")
    splits = load_tasks("mbpp", tmp_path, task_ids=tmp_path / "ids.txt")
    assert [task["name"] for task in splits["test"]] == ["mbpp/2", "mbpp/601"]
    assert splits["train"] == []
    (tmp_path / "ids.txt").write_text("Mbpp/2\nMbpp/3\n")
    with pytest.raises(ValueError, match=r"ids\.txt names 3, which the data set does not have"):
        load_tasks("mbpp", tmp_path, task_ids=tmp_path / "ids.txt")


def test_a_row_of_humaneval_is_split_at_its_stub():
    assert humaneval_task(HUMANEVAL) == {
        "name": "humaneval/7",
        "prompt": f"Complete this Python function:\n\n{HUMANEVAL['prompt'].strip()}",
        "tests": [HUMANEVAL["test"].strip() + "\n\ncheck(root)"],
        "setup": PREAMBLE,  # the check calls square
        "preamble": PREAMBLE,
        "entry_point": "root",
        "solution": 'def root(x):\n    """ Its root. """\n    return math.sqrt(x)\n',
    }


def test_generated_tasks_hold_out_expressions_and_templates():
    def held_out(expression):
        return is_held_out(expression, one_in=8)

    tasks = one_liner_tasks(200, 41, 0, held_out)
    expressions = {
        split: {task["name"].split(": ", 1)[1] for task in tasks[split]} for split in tasks
    }
    new = [task for task in tasks["test"] if task["name"].startswith("new/")]
    assert (len(tasks["train"]), len(tasks["test"]), len(new)) == (200, 41, 20)
    assert not expressions["train"] & expressions["test"]
    assert not {words for _, words in TRAINED} & {words for _, words in NEW}
    assert one_liner_tasks(200, 41, 0, held_out) == tasks != one_liner_tasks(200, 41, 1, held_out)


@pytest.mark.parametrize(
    ("tests", "hidden", "hide", "visible"),
    [
        (6, 0, None, 4),  # by default a third
        (1, 0, None, 1),  # none can be hidden
        (2, 1, None, 2),  # what is hidden already is enough
        (2, 1, 1, 1),
        (2, 1, 2, None),  # none would be left: the task is dropped
    ],
)
def test_the_last_tests_are_hidden(tests, hidden, hide, visible):
    texts = [f"assert f({number})" for number in range(tests + hidden)]
    kept, dropped = hide_tests([task_of(texts[:tests], hidden_tests=texts[tests:])], hide)
    if visible is None:
        assert (kept, dropped) == ([], {"task": "too few tests to hide 2"})
    else:
        assert (kept[0]["tests"], kept[0]["hidden_tests"]) == (texts[:visible], texts[visible:])


def test_the_visible_tests_of_mbpp_expect_several_values_where_its_tests_do():
    texts = ["assert f(1) == True", "assert f(2) == True", "assert f(3) == False"]
    assert in_order([*texts, texts[0]]) == [texts[0], texts[2], texts[1]]
    assert in_order(texts[:2]) == texts[:2]


# --- Checks

STRICT = task_of(DOUBLE["tests"], name="strict", solution=SOLVED["solution"])


@on_linux
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"solution": ""}, None),  # nothing to run
        ({"preamble": "two = 2", "solution": "def double(x): return two * x"}, None),
        ({"hidden_tests": ["assert double(2) == 5"]}, "AssertionError"),
        ({"solution": "import time\ntime.sleep(9)"}, "timeout: more than 0.6 s"),
    ],
)
def test_a_task_is_kept_only_if_its_reference_passes_all_tests_in_time(run, changes, reason):
    task = STRICT | changes
    kept, dropped = check_references([task], run, timeout_s=0.6)
    if reason:
        assert (kept, dropped) == ([], {"strict": f"the reference fails: {reason}"})
    else:
        assert (kept, dropped) == ([task], {})


@pytest.mark.parametrize("step", [check_references, drop_trivial])
def test_a_failure_of_the_sandbox_stops_and_names_the_task(step):
    def fails(jobs):
        return [Outcome("infra", "zygote died", 0.0, "", (False,)) for _ in jobs]

    with pytest.raises(SandboxError, match="on strict, not the task: zygote died"):
        step([STRICT], fails)


@on_linux
@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        ("return None", ["assert not f(1)"]),
        ("return the argument", ["assert f([1, 2]) == [1, 2]", "assert f([1]) == [1]"]),
        ("clear the argument and return it", ["assert f({1: 2}) == {}"]),
        ("raise KeyError", ["try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"]),
        ("return what the first test expects", ["assert f(1) == 'no'", "assert f(2) == 'no'"]),
        ("return None", ["assert f(1) == g(2)"]),  # under every name that the tests call
        (
            "print what the first test expects",
            ['{"stdin": "1", "stdout": "x"}', '{"stdin": "2", "stdout": "x"}'],
        ),
    ],
)
def test_a_task_that_a_trivial_solution_passes_is_dropped_by_its_name(run, kind, tests):
    kept, dropped = drop_trivial([task_of(tests), STRICT], run)
    assert (kept, dropped) == ([STRICT], {"task": f"a trivial solution passes: {kind}"})


# --- The script


@pytest.fixture
def prepared(run_script, tmp_path):
    """Run the script: exit status, what was printed, and the error."""
    return lambda *words, out="out": run_script(prepare_code, *words, "--out", tmp_path / out)


@on_linux
def test_own_rows_are_checked_and_written_with_the_reasons_for_what_is_dropped(prepared, tmp_path):
    wrong = DOUBLE | {"solution": "def double(x): return x"}
    weak = {"prompt": "Is it so?", "tests": ["assert f(1) == True"]}
    (tmp_path / "mine.jsonl").write_text(lines(SOLVED, wrong, weak, DOUBLE | {"name": "open"}))
    words = ("jsonl", "--path", tmp_path / "mine.jsonl", "--held_out", 0)
    status, printed, error = prepared(*words)
    assert status == 0, error
    out = tmp_path / "out"
    assert [row["name"] for row in read_tasks(out, "train")] == ["mine/1", "open"]
    assert sorted(file.name for file in out.iterdir()) == ["dropped.jsonl", "train.jsonl"]
    assert (out / "dropped.jsonl").read_text() == lines(
        {"task": "mine/2", "reason": "the reference fails: AssertionError"},
        {"task": "mine/3", "reason": "a trivial solution passes: return True"},
    )
    assert "     2 in train.jsonl\n     0 in test.jsonl\n" in printed


@on_linux
def test_rows_are_held_out_by_their_prompt_and_humaneval_whole(prepared, tmp_path):
    rows = [SOLVED | {"prompt": f"Write double(x), please, {n}."} for n in (16, 17, 18, 19)]
    (tmp_path / "mine.jsonl").write_text(lines(*rows))
    words = ("jsonl", "--path", tmp_path / "mine.jsonl", "--hide", 1)
    assert prepared(*words)[0] == 0
    train, test = (read_tasks(tmp_path / "out", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (2, 2), "by the hash of the prompt, one in eight of many"
    assert [task["hidden_tests"] for task in test] == [["assert double(3) == 6"]] * 2
    file = tmp_path / "HumanEval.jsonl.gz"
    file.write_bytes(gzip.compress(lines(HUMANEVAL).encode()))
    assert prepared("humaneval", "--path", file, out="humaneval")[0] == 0
    assert [file.name for file in (tmp_path / "humaneval").glob("t*")] == ["test.jsonl"]


@pytest.mark.parametrize(
    ("words", "name", "content", "message"),
    [
        ("mbpp", "", "", "there is no file {}/mbpp.jsonl"),
        ("mbpp", "mbpp.jsonl", lines(MBPP, DOUBLE), "line 2: task_id, text, code, test_list"),
        ("jsonl", "out/train.jsonl", lines(DOUBLE), "out already holds train.jsonl. Remove"),
        ("jsonl --held_out 1", "", "", "1 would hold out every task"),
        ("humaneval --held_out 8", "", "", "--held_out N is for jsonl"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_and_nothing_is_written(
    prepared, tmp_path, words, name, content, message
):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    status, _, error = prepared(*words.split(), "--path", tmp_path / name)
    assert status == 2 and message.format(tmp_path) in error
    left = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [content] * bool(name)
