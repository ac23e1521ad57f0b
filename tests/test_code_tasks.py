"""Tasks for code rewards: what a file may hold, the least flags a reference needs, and the trivial solutions."""

import json
import sys

import pytest

from recipes.code.prepare import drop_trivial, least_flags, trivial_solutions
from recipes.code.tasks import complete_row, read_tasks
from rewards.sandbox import Outcome, Sandbox, SandboxError, Stdio

isolated = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)

DOUBLE = {"prompt": "Write double(x).", "tests": ["assert double(2) == 4", "assert double(3) == 6"]}
DOUBLES = DOUBLE | {"solution": "def double(x): return 2 * x"}
ECHO = {
    "prompt": "Print twice the number.",
    "tests": ['{"stdin": "2", "stdout": "4"}', '{"stdin": "3", "stdout": "6"}'],
}
NAMED = ECHO | {"name": "train/1"}


@pytest.fixture(scope="module")
def run():
    with Sandbox() as sandbox:
        yield sandbox.run_batch


def named(name, tests, **row):
    return complete_row({"name": name, "prompt": "p", "tests": tests} | row)


def written(folder, *rows, name="train"):
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    folder.joinpath(f"{name}.jsonl").write_text("".join(lines))
    return folder


# --------------------------------------------------------------------------- rows


def test_a_row_gets_every_key_in_order():
    texts = [(key, "") for key in ("setup", "preamble", "entry_point")]
    flags = [("inplace", False), ("solution", "")]
    given = [
        ("name", "mine/1"),
        ("prompt", "Write double(x)."),
        ("tests", DOUBLE["tests"]),
        ("hidden_tests", []),
    ]
    assert list(complete_row(DOUBLE, "mine/1").items()) == [*given, *texts, *flags]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["assert f(1)"], "a task is a JSON object"),
        ({"prompt": "p"}, "tests missing"),
        ({}, "prompt and tests missing"),
        (DOUBLE | {"hidden_test": []}, "unknown key hidden_test; allowed: name, prompt"),
        (DOUBLE | {"tests": "assert double(2) == 4"}, "tests must be of type list"),
        (DOUBLE | {"inplace": 1}, "inplace must be of type bool, not 1"),
        (DOUBLE | {"solution": None}, "solution must be of type str"),
        (DOUBLE | {"tests": []}, "tests must not be empty"),
        (DOUBLE | {"prompt": " "}, "prompt must not be empty"),
        (DOUBLE | {"tests": ["assert double(2) == 4", "\n"]}, "none of them blank"),
        (DOUBLE | {"tests": [["2", "4"]]}, "lists of strings"),
        (DOUBLE | {"tests": ["assert double(2) = 4"]}, "tests or setup are not valid Python"),
        (DOUBLE | {"setup": "import"}, "tests or setup are not valid Python"),
        (DOUBLE | {"hidden_tests": ECHO["tests"]}, "two kinds"),
        (ECHO | {"tests": ['{"stdin": "2"}']}, "stdout"),
        (ECHO | {"setup": "import math", "inplace": True}, "setup, inplace must not be set"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_in_words(row, message):
    with pytest.raises(ValueError, match=message):
        complete_row(row)


def test_a_folder_is_read_by_split_and_a_file_as_it_is_where_only_a_line_feed_ends_a_line(tmp_path):
    written(written(tmp_path, DOUBLE), ECHO | {"prompt": "a\u2028b"}, name="test")
    assert [task["name"] for task in read_tasks(tmp_path, "train")] == ["train/1"]
    assert [(task["tests"], task["prompt"]) for task in read_tasks(str(tmp_path), "test")] == [
        (ECHO["tests"], "a\u2028b")
    ]
    assert read_tasks(tmp_path / "train.jsonl", "test") == read_tasks(tmp_path, "train")


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        (
            None,
            ["no file {}. Give a folder that scripts/prepare_code.py wrote, or a JSON Lines file."],
        ),
        ([], ["{} holds no rows; it needs one JSON object a line."]),
        ([DOUBLE, NAMED], ["{}, line 2: a second task has the name 'train/1'; names must differ."]),
        (
            [DOUBLE, {"prompt": "p"}, DOUBLE | {"tests": []}],
            [
                "{}, line 2: tests missing; a task needs prompt and tests.",
                "{}, line 3: tests must not be empty.",
            ],
        ),
    ],
    ids=["no file", "no task", "a name twice", "each bad line by number"],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, rows, messages):
    folder = tmp_path if rows is None else written(tmp_path, *rows)
    with pytest.raises(ValueError) as refused:
        read_tasks(folder, "train")
    assert str(refused.value).splitlines() == [
        message.format(tmp_path / "train.jsonl") for message in messages
    ]


# --------------------------------------------------------------------------- references

BOX = "class Box:\n    def __init__(self, value): self.value = value\n"
STRICT = named("strict", DOUBLE["tests"], solution=DOUBLES["solution"])
INPLACE = named(
    "inplace", ["a = []\nfill(a)\nassert a == [1]"], solution="def fill(a): a.append(1)"
)
OPAQUE = "TypeError: the program returned an object, not a plain value"
OBJECTS = named("objects", ["assert Box(3) == Box(3)"], solution=BOX)
BY_STDIO = complete_row(ECHO | {"name": "stdio", "solution": "print(2 * int(input()))"})
PREAMBLE = {"preamble": "import math", "solution": "def root(x): return math.sqrt(x)"}
FAIL = [
    OBJECTS,
    named("wrong", DOUBLE["tests"], solution="def double(x): return x"),
    STRICT | {"name": "hidden", "hidden_tests": ["assert double(2) == 5"]},
    BY_STDIO | {"solution": "print(input())"},
]


@isolated
@pytest.mark.parametrize(
    ("tasks", "flags", "reasons"),
    [
        (
            [INPLACE, STRICT, BY_STDIO],
            [True, False, False],
            [],
        ),
        ([STRICT | {"inplace": True}], [True], []),
        ([named("root", ["assert root(4) == 2"], **PREAMBLE)], [False], []),
        ([*FAIL, STRICT], [False], [OPAQUE, "AssertionError", "AssertionError", "wrong output"]),
    ],
    ids=[
        "the least it needs",
        "what is set stays set",
        "after the preamble",
        "a reference that fails is dropped",
    ],
)
def test_a_task_gets_the_least_flags_its_reference_needs(run, tasks, flags, reasons):
    kept, dropped = least_flags(tasks, run)
    assert [(task["name"], task["inplace"]) for task in kept] == [
        (task["name"], of) for task, of in zip(tasks[len(reasons) :], flags, strict=True)
    ]
    assert [(entry["task"], entry["reason"]) for entry in dropped] == [
        (task["name"], f"the reference fails: {reason}")
        for task, reason in zip(tasks, reasons, strict=False)
    ]


@isolated
def test_a_reference_has_half_the_time(run):
    slow = STRICT | {"solution": "import time\ntime.sleep(0.8)\n" + STRICT["solution"]}
    (dropped,) = least_flags([slow], run, timeout_s=1.2)[1]
    assert dropped["reason"] == "the reference fails: timeout: more than 0.6 s"
    assert least_flags([slow], run, timeout_s=20.0) == ([slow], [])


STDIO = "stdin and stdout, of which no flag says anything"


def every(status, reason="", batches=None):
    """Stands for the sandbox: every job ends with this status."""

    def run(jobs):
        if batches is not None:
            batches.append([STDIO if isinstance(job, Stdio) else job.inplace for job in jobs])
        return [Outcome(status, reason, 0.0, "", (status == "pass",)) for _ in jobs]

    return run


def test_all_tasks_are_tried_strictly_in_one_batch_then_those_that_failed_and_none_without_a_reference():
    open_task, passing, failing = complete_row(DOUBLE | {"name": "open", "inplace": True}), [], []
    assert (
        least_flags([STRICT, OBJECTS, open_task], every("pass", batches=passing))[0][2] == open_task
    )
    assert least_flags([STRICT, OBJECTS, open_task, BY_STDIO], every("fail", batches=failing))[
        0
    ] == [open_task]
    assert passing == [[False] * 2]
    assert failing == [[False, False, STDIO], [True, True]]


@pytest.mark.parametrize("step", [least_flags, drop_trivial])
def test_a_failure_of_the_sandbox_stops_and_names_the_task(step):
    with pytest.raises(SandboxError, match="on objects, not the task: zygote died"):
        step([OBJECTS], every("infra", "zygote died"))


# --------------------------------------------------------------------------- trivial solutions


@isolated
@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        ("return None", ["assert not f(1)"]),
        ("return True", ["assert f(1)", "assert f(2) == True"]),
        ("return 0", ["assert f(1) == 0", "assert f(2) == False"]),
        ("return ''", ["assert f('a') == ''"]),
        ("return []", ["assert f([1]) == []"]),
        ("return float('inf')", ["assert f(1) > 10"]),
        ("return float('nan')", ["assert not f(1) > 10 and not f(1) <= 10"]),
        ("return the argument", ["assert f([1, 2]) == [1, 2]", "assert f([1]) == [1]"]),
        ("clear the argument and return it", ["assert f({1: 2}) == {}"]),
        ("raise ValueError", ["try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"]),
        ("raise KeyError", ["try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"]),
        ("return what the first test expects", ["assert f(1) == 'no'", "assert f(2) == 'no'"]),
        ("print ''", ['{"stdin": "1", "stdout": "\\n"}']),
        ("print '0'", ['{"stdin": "1", "stdout": "0"}']),
        ("print 'NO'", ['{"stdin": "1", "stdout": "NO"}', '{"stdin": "2", "stdout": "NO\\n"}']),
        (
            "print the input",
            ['{"stdin": "1", "stdout": "1"}', '{"stdin": "a\\nb", "stdout": "a\\nb"}'],
        ),
        (
            "print what the first test expects",
            ['{"stdin": "1", "stdout": "x"}', '{"stdin": "2", "stdout": "x"}'],
        ),
    ],
)
def test_a_task_that_a_trivial_solution_passes_is_dropped_by_its_name(run, kind, tests):
    strong = named("strong", DOUBLE["tests"])
    hidden = [] if tests[0].startswith("{") else ["assert f(2) == 'hidden tests do not save it'"]
    kept, dropped = drop_trivial([named("weak", tests, hidden_tests=hidden), strong], run)
    assert (kept, dropped) == (
        [strong],
        [{"task": "weak", "reason": f"a trivial solution passes: {kind}"}],
    )


@isolated
@pytest.mark.parametrize(
    "solution", ["", DOUBLES["solution"]], ids=["without a reference", "with one"]
)
@pytest.mark.parametrize("test", ["pass", "def test_f():\n    assert double(2) == 4"])
def test_a_task_with_a_test_that_never_calls_the_program_is_dropped(run, test, solution):
    task = named("idle", [*DOUBLE["tests"], test], solution=solution, entry_point="double")
    kept, dropped = least_flags([task], run)
    ((_, reason),) = [entry.values() for entry in dropped + drop_trivial(kept, run)[1]]
    assert reason.endswith("this test never called the program, so it shows nothing")


@isolated
def test_one_test_that_only_a_real_solution_passes_is_enough_under_the_flags_of_the_task(run):
    emptied = ["a = [1]\nf(a)\nassert a == []"]
    tasks = [
        named("mixed", ["assert f(1) == True", "assert f(2) == False"]),
        named("stdio", ['{"stdin": "1", "stdout": "1"}', '{"stdin": "2", "stdout": "4"}']),
        named("strict", emptied),
    ]
    assert drop_trivial([*tasks, named("inplace", emptied, inplace=True)], run)[0] == tasks


def test_a_single_test_is_no_evidence_for_a_constant():
    for tests in (["assert f(1) == 'no'"], ECHO["tests"][:1]):
        assert not [
            kind
            for kind in trivial_solutions(named("one", tests))
            if "the first test expects" in kind
        ]


def test_a_trivial_solution_defines_every_name_that_the_tests_call():
    scope = {}
    exec(trivial_solutions(named("two", ["assert f(1) == g(2)"]))["return True"], scope)
    assert (scope["f"](1), scope["g"]()) == (True, True)
