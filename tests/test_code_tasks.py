"""Tasks for code rewards: what a file may hold, the least flags a reference needs, and the trivial solutions."""

import json
import sys

import pytest

from rewards.code_prepare import drop_trivial, least_flags, trivial_solutions
from rewards.code_tasks import complete_row, read_tasks
from rewards.sandbox import Outcome, Sandbox, SandboxError, Stdio

isolated = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")

DOUBLE = {"prompt": "Write double(x).", "tests": ["assert double(2) == 4", "assert double(3) == 6"]}
DOUBLES = DOUBLE | {"solution": "def double(x): return 2 * x"}
ECHO = {
    "prompt": "Print twice the number.",
    "tests": ['{"stdin": "2", "stdout": "4"}', '{"stdin": "3", "stdout": "6"}'],
}


@pytest.fixture(scope="module")
def run():
    with Sandbox() as sandbox:
        yield sandbox.run_batch


def named(name, tests, **row):
    return complete_row({"name": name, "prompt": "p", "tests": tests} | row)


def written(folder, *rows, name="train"):
    folder.joinpath(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


# --------------------------------------------------------------------------- rows


def test_a_row_gets_every_key_in_order():
    texts = [(key, "") for key in ("setup", "preamble", "entry_point")]
    flags = [("inplace", False), ("objects", False), ("solution", "")]
    given = [("name", "mine/1"), ("prompt", "Write double(x)."), ("tests", DOUBLE["tests"]), ("hidden_tests", [])]
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
        (ECHO | {"setup": "import math", "objects": True}, "setup, objects must not be set"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_in_words(row, message):
    with pytest.raises(ValueError, match=message):
        complete_row(row)


def test_a_folder_is_read_by_split_and_a_file_as_it_is(tmp_path):
    written(written(tmp_path, DOUBLE), ECHO, name="test")
    assert [task["name"] for task in read_tasks(tmp_path, "train")] == ["train/1"]
    assert [task["tests"] for task in read_tasks(str(tmp_path), "test")] == [ECHO["tests"]]
    assert read_tasks(tmp_path / "train.jsonl", "test") == read_tasks(tmp_path, "train")


def test_every_bad_line_is_reported_by_number(tmp_path):
    written(tmp_path, DOUBLE, {"prompt": "p"}, DOUBLE | {"tests": []})
    with pytest.raises(ValueError) as refused:
        read_tasks(tmp_path, "train")
    file = tmp_path / "train.jsonl"
    assert str(refused.value).splitlines() == [
        f"{file}, line 2: tests missing; a task needs prompt and tests.",
        f"{file}, line 3: tests must not be empty.",
    ]


def test_two_tasks_of_one_name_are_refused(tmp_path):
    written(tmp_path, DOUBLE | {"name": "twice"}, ECHO | {"name": "twice"})
    with pytest.raises(ValueError, match="line 2: a second task has the name 'twice'"):
        read_tasks(tmp_path, "train")


def test_a_file_that_is_not_there_or_holds_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*test\.jsonl"):
        read_tasks(tmp_path, "test")
    with pytest.raises(ValueError, match="holds no task"):
        read_tasks(written(tmp_path), "train")


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    tmp_path.joinpath("train.jsonl").write_text(json.dumps(DOUBLE | {"prompt": "a\u2028b"}, ensure_ascii=False))
    assert read_tasks(tmp_path, "train")[0]["prompt"] == "a\u2028b"


# --------------------------------------------------------------------------- references

BOX = "class Box:\n    def __init__(self, value): self.value = value\n"
STRICT = named("strict", DOUBLE["tests"], solution=DOUBLES["solution"])
INPLACE = named("inplace", ["a = []\nfill(a)\nassert a == [1]"], solution="def fill(a): a.append(1)")
OBJECTS = named("objects", ["assert Box(3).value == 3"], solution=BOX)
BOTH = named(
    "both",
    ["a = []\nfill(a, Box(3))\nassert a == [Box(3).value]"],
    solution=BOX + "def fill(a, box): a.append(box.value)",
)
WRONG = named("wrong", DOUBLE["tests"], solution="def double(x): return x")
BY_STDIO = complete_row(ECHO | {"name": "stdio", "solution": "print(2 * int(input()))"})


def flags(tasks):
    return {task["name"]: (task["inplace"], task["objects"]) for task in tasks}


@isolated
def test_a_task_gets_the_least_flags_its_reference_needs(run):
    kept, dropped = least_flags([BOTH, OBJECTS, INPLACE, STRICT, BY_STDIO], run)
    wanted = {"both": (True, True), "objects": (False, True), "inplace": (True, False), "strict": (False, False)}
    assert list(flags(kept).items()) == list((wanted | {"stdio": (False, False)}).items())
    assert dropped == []


@isolated
def test_a_task_whose_reference_passes_under_no_flags_is_dropped_with_the_reason(run):
    stdio = BY_STDIO | {"solution": "print(input())"}
    hidden = STRICT | {"name": "hidden", "hidden_tests": ["assert double(2) == 5"]}
    kept, dropped = least_flags([WRONG, STRICT, hidden, stdio], run)
    assert kept == [STRICT]
    assert dropped == [
        {"task": "wrong", "reason": "the reference fails: AssertionError"},
        {"task": "hidden", "reason": "the reference fails: AssertionError"},
        {"task": "stdio", "reason": "the reference fails: wrong output"},
    ]


@isolated
def test_a_reference_has_half_the_time(run):
    slow = STRICT | {"solution": "import time\ntime.sleep(0.8)\n" + STRICT["solution"]}
    assert least_flags([slow], run, timeout_s=1.2)[1] == [
        {"task": "strict", "reason": "the reference fails: timeout: more than 0.6 s"}
    ]
    assert least_flags([slow], run, timeout_s=20.0) == ([slow], [])


@isolated
def test_the_reference_runs_after_the_preamble(run):
    task = named("root", ["assert root(4) == 2"], preamble="import math", solution="def root(x): return math.sqrt(x)")
    assert least_flags([task], run) == ([task], [])


@isolated
def test_a_flag_that_a_task_has_set_stays_set(run):
    assert flags(least_flags([STRICT | {"inplace": True}], run)[0]) == {"strict": (True, False)}


class Recorder:
    """Stands for the sandbox: every job ends with this status."""

    def __init__(self, status, reason=""):
        self.status, self.reason, self.batches = status, reason, []

    def __call__(self, jobs):
        self.batches.append(list(jobs))
        return [Outcome(self.status, self.reason, 0.0, "", (self.status == "pass",)) for _ in jobs]


def test_a_task_without_reference_is_kept_and_not_run():
    task = complete_row(DOUBLE | {"name": "open", "objects": True})
    ran = Recorder("fail")
    assert least_flags([task], ran) == ([task], [])
    assert ran.batches == []


def test_all_tasks_are_tried_strictly_in_one_batch_and_then_those_that_failed():
    passing, failing = Recorder("pass"), Recorder("fail", "no")
    least_flags([STRICT, OBJECTS, BY_STDIO], passing)
    least_flags([STRICT, OBJECTS, BY_STDIO], failing)
    assert [len(batch) for batch in passing.batches] == [3]
    assert [len(batch) for batch in failing.batches] == [3, 2, 2, 2]  # flags say nothing about stdin and stdout
    assert [(job.inplace, job.objects) for batch in failing.batches for job in batch if not isinstance(job, Stdio)] == [
        *[(False, False)] * 2,
        *[(True, False)] * 2,
        *[(False, True)] * 2,
        *[(True, True)] * 2,
    ]


@pytest.mark.parametrize("step", [least_flags, drop_trivial])
def test_a_failure_of_the_sandbox_stops_and_names_the_task(step):
    with pytest.raises(SandboxError, match="on objects, not the task: zygote died"):
        step([OBJECTS], Recorder("infra", "zygote died"))


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
        ("return the argument", ["assert f([1, 2]) == [1, 2]", "assert f([1]) == [1]"]),
        ("clear the argument and return it", ["assert f({1: 2}) == {}"]),
        ("raise ValueError", ["try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass"]),
        ("raise KeyError", ["try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"]),
        ("return what the first test expects", ["assert f(1) == 'no'", "assert f(2) == 'no'"]),
        ("print ''", ['{"stdin": "1", "stdout": "\\n"}']),
        ("print '0'", ['{"stdin": "1", "stdout": "0"}']),
        ("print 'NO'", ['{"stdin": "1", "stdout": "NO"}', '{"stdin": "2", "stdout": "NO\\n"}']),
        ("print the input", ['{"stdin": "1", "stdout": "1"}', '{"stdin": "a\\nb", "stdout": "a\\nb"}']),
        ("print what the first test expects", ['{"stdin": "1", "stdout": "x"}', '{"stdin": "2", "stdout": "x"}']),
    ],
)
def test_a_task_that_a_trivial_solution_passes_is_dropped_by_its_name(run, kind, tests):
    strong = named("strong", DOUBLE["tests"])
    hidden = [] if tests[0].startswith("{") else ["assert f(2) == 'hidden tests do not save it'"]
    kept, dropped = drop_trivial([named("weak", tests, hidden_tests=hidden), strong], run)
    assert (kept, dropped) == ([strong], [{"task": "weak", "reason": f"a trivial solution passes: {kind}"}])


@isolated
def test_one_test_that_only_a_real_solution_passes_is_enough(run):
    task = named("mixed", ["assert f(1) == True", "assert f(2) == False"])
    stdio = named("stdio", ['{"stdin": "1", "stdout": "1"}', '{"stdin": "2", "stdout": "4"}'])
    assert drop_trivial([task, stdio], run) == ([task, stdio], [])


@isolated
@pytest.mark.parametrize("solution", ["", DOUBLES["solution"]], ids=["without a reference", "with one"])
@pytest.mark.parametrize("test", ["pass", "def test_f():\n    assert double(2) == 4"])
def test_a_task_with_a_test_that_never_calls_the_program_is_dropped(run, test, solution):
    task = named("idle", [*DOUBLE["tests"], test], solution=solution, entry_point="double")
    kept, dropped = least_flags([task], run)
    dropped += drop_trivial(kept, run)[1]
    assert len(dropped) == 1 and dropped[0]["reason"].endswith(
        "this test never called the program, so it shows nothing"
    )


@isolated
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_task_that_infinity_or_nan_passes_is_dropped(run, value):
    test = {"inf": "assert f(1) > 10", "nan": "assert not f(1) > 10 and not f(1) <= 10"}[value]
    dropped = drop_trivial([named("limits", [test])], run)[1]
    assert dropped == [{"task": "limits", "reason": f"a trivial solution passes: return float('{value}')"}]


@isolated
def test_trivial_solutions_run_under_the_flags_of_the_task(run):
    tests = ["a = [1]\nf(a)\nassert a == []"]
    assert drop_trivial([named("emptied", tests, inplace=True)], run)[0] == []
    assert len(drop_trivial([named("emptied", tests)], run)[0]) == 1


def test_a_single_test_is_no_evidence_for_a_constant():
    assert "return what the first test expects" not in trivial_solutions(named("one", ["assert f(1) == 'no'"]))
    assert "print what the first test expects" not in trivial_solutions(named("one", ECHO["tests"][:1]))


def test_a_trivial_solution_defines_every_name_that_the_tests_call():
    program = trivial_solutions(named("two", ["assert f(1) == g(2)"]))["return True"]
    scope = {}
    exec(program, scope)
    assert (scope["f"](1), scope["g"]()) == (True, True)
