"""Data sets to rows: what a row may hold, which tasks are kept, what the script refuses."""

import gzip
import json
import sys

import prepare_code
import pytest

from recipes.code.one_liners import NEW, TRAINED, one_liner_tasks
from recipes.code.prepare import (
    check_references,
    drop_trivial,
    hide_tests,
    humaneval_task,
    load_tasks,
    mbpp_task,
    trivial_solutions,
)
from recipes.code.tasks import KEYS, complete_row, read_tasks
from recipes.common.data.split import is_held_out
from rewards.sandbox import Outcome, Sandbox, SandboxError

on_linux = sys.platform.startswith("linux")
isolated = pytest.mark.skipif(not on_linux, reason="the sandbox is built for Linux")

OWN = {"prompt": "Write double(x).", "tests": ["assert double(2) == 4", "assert double(3) == 6"]}
OWN_RIGHT = OWN | {"solution": "def double(x): return 2 * x"}
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


def lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# --------------------------------------------------------------------------- rows


def test_a_row_gets_every_key_in_order():
    assert list(complete_row(OWN, "mine/1").items()) == [
        *(("name", "mine/1"), ("prompt", "Write double(x)."), ("tests", OWN["tests"])),
        *(("hidden_tests", []), ("setup", ""), ("preamble", ""), ("entry_point", "")),
        *(("inplace", False), ("solution", "")),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["assert f(1)"], "it must be a JSON object"),
        ({}, "prompt, tests missing"),
        (OWN | {"hidden_test": []}, "unknown key hidden_test; allowed: name, prompt"),
        (OWN | {"tests": "assert double(2) == 4"}, "it must be a list"),
        (OWN | {"inplace": 1}, "inplace must be of type bool, not 1"),
        (OWN | {"tests": []}, "a list that is not empty"),
        (OWN | {"prompt": " "}, "none of them blank"),
        (OWN | {"tests": ["assert double(2) == 4", "\n"]}, "none of them blank"),
        (OWN | {"tests": [["2", "4"]]}, "hold strings"),
        (OWN | {"tests": ["assert double(2) = 4"]}, "tests or setup are not valid Python"),
        (OWN | {"setup": "import"}, "tests or setup are not valid Python"),
        (OWN | {"hidden_tests": ECHO["tests"]}, "two kinds"),
        (ECHO | {"tests": ['{"stdin": "2"}']}, "stdout"),
        (ECHO | {"setup": "import math", "inplace": True}, "setup, inplace must not be set"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused_in_words(row, message):
    with pytest.raises(ValueError, match=message):
        complete_row(row)


def test_a_folder_is_read_by_split_and_a_file_as_it_is_where_only_a_line_feed_ends_a_line(tmp_path):
    (tmp_path / "train.jsonl").write_text(lines(OWN))
    (tmp_path / "test.jsonl").write_text(lines(ECHO | {"prompt": "a\u2028b"}))
    assert [task["name"] for task in read_tasks(tmp_path, "train")] == ["train/1"]
    assert [task["prompt"] for task in read_tasks(str(tmp_path), "test")] == ["a\u2028b"]
    assert read_tasks(tmp_path / "train.jsonl", "test") == read_tasks(tmp_path, "train")


def test_a_file_that_cannot_be_used_is_refused_with_each_bad_line(tmp_path):
    with pytest.raises(ValueError, match=r"no file .*Give a folder that scripts/prepare_code.py"):
        read_tasks(tmp_path, "train")
    twice, nameless, empty = ECHO | {"name": "train/1"}, {"prompt": "p"}, OWN | {"tests": []}
    (tmp_path / "train.jsonl").write_text(lines(OWN, twice, nameless, empty))
    with pytest.raises(ValueError) as refused:
        read_tasks(tmp_path, "train")
    told = [line.partition("train.jsonl, ")[2] for line in str(refused.value).splitlines()]
    assert told == [
        "line 2: a second task has the name 'train/1'; names must differ.",
        "line 3: tests missing (its keys: prompt; wanted: prompt, tests)",
        "line 4: tests is []; it must be a list that is not empty",
    ]


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
HUMANEVAL_ROW = {
    "task_id": "HumanEval/7",
    "prompt": "import math\n\ndef square(x):\n    return x * x\n\n# the task\n"
    'def root(x):\n    """ Its root. """\n',
    "entry_point": "root",
    "canonical_solution": "    return math.sqrt(x)\n",
    "test": "\n\ndef check(candidate):\n    for n in (3, 5): assert candidate(square(n)) == n\n",
}
PREAMBLE = "import math\n\ndef square(x):\n    return x * x\n\n# the task"


def test_a_row_of_mbpp_shows_one_test_and_keeps_its_challenges_hidden():
    assert mbpp_task(FULL) == {
        "name": "mbpp/601",
        "prompt": "Write a function to double a number.\n"
        "Your code should pass this test:\nassert double(2) == 4",
        "tests": FULL["test_list"],
        "hidden_tests": ["assert double(-1) == -2"],
        "setup": "",
        "solution": "def double(x):\n  return 2 * x",
    }
    task = mbpp_task(SANITIZED)
    assert (task["name"], task["setup"], task["hidden_tests"]) == ("mbpp/11", "import math", [])
    assert task["prompt"].endswith("this test:\nimport math\nassert area(2) == math.pi * 4")


def test_mbpp_keeps_its_official_splits(tmp_path):
    ids = [1, 10, 11, 510, 511, 600, 601, 974]
    (tmp_path / "mbpp.jsonl").write_text(lines(*(FULL | {"task_id": number} for number in ids)))
    splits = load_tasks("mbpp", tmp_path)
    assert [task["name"] for task in splits["train"]] == ["mbpp/601", "mbpp/974"]
    assert [task["name"] for task in splits["test"]] == ["mbpp/11", "mbpp/510"]


def test_a_row_of_humaneval_is_split_at_its_stub():
    assert humaneval_task(HUMANEVAL_ROW) == {
        "name": "humaneval/7",
        "prompt": f"Complete this Python function:\n\n{HUMANEVAL_ROW['prompt'].strip()}",
        "tests": [HUMANEVAL_ROW["test"].strip() + "\n\ncheck(root)"],
        "setup": PREAMBLE,
        "preamble": PREAMBLE,
        "entry_point": "root",
        "solution": 'def root(x):\n    """ Its root. """\n    return math.sqrt(x)\n',
    }
    without_helper = {"test": "def check(candidate):\n    assert candidate(9) == 3\n"}
    assert humaneval_task(HUMANEVAL_ROW | without_helper)["setup"] == ""


def test_hiding_moves_the_last_tests_before_those_that_are_hidden_already():
    task = named("a", ["assert f(1)", "assert f(2)"], hidden_tests=["assert f(3)"])
    hidden = task | {"tests": ["assert f(1)"], "hidden_tests": ["assert f(2)", "assert f(3)"]}
    assert hide_tests([task], 1) == ([hidden], {})
    assert hide_tests([task], 2) == ([], {"a": "too few tests to hide 2"})
    assert hide_tests([task], None) == ([task], {}), "what is hidden already is enough"


@pytest.mark.parametrize(("tests", "visible"), [(6, 4), (2, 1), (1, 1)])
def test_by_default_a_third_of_the_tests_is_hidden_at_least_one_each(tests, visible):
    task = named("a", [f"assert f({n})" for n in range(tests)])
    ((split,), _) = hide_tests([task], None)
    assert (len(split["tests"]), len(split["hidden_tests"])) == (visible, tests - visible)


# --------------------------------------------------------------------------- references

STRICT = named("strict", OWN["tests"], solution=OWN_RIGHT["solution"])
FILL = ["a = []\nfill(a)\nassert a == [1]"]
INPLACE = named("inplace", FILL, solution="def fill(a): a.append(1)")
OBJECTS = named("objects", ["assert Box() == Box()"], solution="class Box: pass")
BY_STDIO = complete_row(ECHO | {"name": "stdio", "solution": "print(2 * int(input()))"})
ROOT = {"preamble": "import math", "solution": "def root(x): return math.sqrt(x)"}


@isolated
@pytest.mark.parametrize(
    ("task", "inplace", "why"),
    [
        (STRICT, False, ""),
        (INPLACE, True, ""),
        (STRICT | {"inplace": True}, True, ""),  # what is set stays set
        (BY_STDIO, False, ""),
        (named("root", ["assert root(4) == 2"], **ROOT), False, ""),  # after the preamble
        (STRICT | {"solution": "def double(x): return x"}, None, "AssertionError"),
        (STRICT | {"hidden_tests": ["assert double(2) == 5"]}, None, "AssertionError"),
        (BY_STDIO | {"solution": "print(input())"}, None, "wrong output"),
        (OBJECTS, None, "TypeError: the program returned an object, not a plain value"),
    ],
)
def test_a_task_is_kept_under_the_strictest_rule_that_its_reference_passes(run, task, inplace, why):
    kept, dropped = check_references([task], run)
    if why:
        assert (kept, dropped) == ([], {task["name"]: f"the reference fails: {why}"})
    else:
        assert (kept, dropped) == ([task | {"inplace": inplace}], {})


@isolated
def test_a_reference_has_half_the_time(run):
    slow = STRICT | {"solution": "import time\ntime.sleep(0.8)\n" + STRICT["solution"]}
    dropped = check_references([slow], run, timeout_s=1.2)[1]
    assert dropped == {"strict": "the reference fails: timeout: more than 0.6 s"}
    assert check_references([slow], run, timeout_s=20.0) == ([slow], {})


@pytest.mark.parametrize("step", [check_references, drop_trivial])
def test_a_failure_of_the_sandbox_stops_and_names_the_task(step):
    def fails(jobs):
        return [Outcome("infra", "zygote died", 0.0, "", (False,)) for _ in jobs]

    with pytest.raises(SandboxError, match="on objects, not the task: zygote died"):
        step([OBJECTS], fails)


# --------------------------------------------------------------------------- trivial solutions


@isolated
@pytest.mark.parametrize(
    ("kind", "tests"),
    [
        ("return None", ["assert not f(1)"]),
        ("return True", ["assert f(1)", "assert f(2) == True"]),
        ("return float('nan')", ["assert not f(1) > 10 and not f(1) <= 10"]),
        ("return the argument", ["assert f([1, 2]) == [1, 2]", "assert f([1]) == [1]"]),
        ("clear the argument and return it", ["assert f({1: 2}) == {}"]),
        ("raise KeyError", ["try:\n    f(1)\n    assert False\nexcept KeyError:\n    pass"]),
        ("return what the first test expects", ["assert f(1) == 'no'", "assert f(2) == 'no'"]),
        ("print 'NO'", ['{"stdin": "1", "stdout": "NO"}', '{"stdin": "2", "stdout": "NO\\n"}']),
        ("print the input", ['{"stdin": "1", "stdout": "1"}', '{"stdin": "a", "stdout": "a"}']),
        (
            "print what the first test expects",
            ['{"stdin": "1", "stdout": "x"}', '{"stdin": "2", "stdout": "x"}'],
        ),
    ],
)
def test_a_task_that_a_trivial_solution_passes_is_dropped_by_its_name(run, kind, tests):
    hidden = [] if tests[0].startswith("{") else ["assert f(2) == 'hidden tests do not save it'"]
    kept, dropped = drop_trivial([named("weak", tests, hidden_tests=hidden), STRICT], run)
    assert (kept, dropped) == ([STRICT], {"weak": f"a trivial solution passes: {kind}"})


@isolated
def test_a_task_for_evaluation_is_dropped_only_if_a_trivial_solution_passes_its_hidden_tests(run):
    visible, hidden = ["assert f(1) == True"], ["assert f(2) == False"]
    weak = named("weak", visible, hidden_tests=hidden)
    assert drop_trivial([weak], run)[0] == []
    assert drop_trivial([weak], run, evaluated=["weak"])[0] == [weak]


@isolated
@pytest.mark.parametrize("solution", ["", OWN_RIGHT["solution"]], ids=["no reference", "one"])
def test_a_task_with_a_test_that_never_calls_the_program_is_dropped(run, solution):
    test = "def test_f():\n    assert double(2) == 4"
    task = named("idle", [*OWN["tests"], test], solution=solution, entry_point="double")
    kept, dropped = check_references([task], run)
    (reason,) = (dropped | drop_trivial(kept, run)[1]).values()
    assert reason.endswith("this test never called the program, so it shows nothing")


def test_a_trivial_solution_defines_every_name_that_the_tests_call():
    scope = {}
    exec(trivial_solutions(named("two", ["assert f(1) == g(2)"]))["return True"], scope)
    assert (scope["f"](1), scope["g"]()) == (True, True)


# --------------------------------------------------------------------------- generated tasks


def held_out(expression: str) -> bool:
    return is_held_out(expression, one_in=8)


def expressions(tasks: list[dict]) -> set[str]:
    return {task["name"].split(": ", 1)[1] for task in tasks}


def test_half_of_the_test_tasks_are_new_templates_half_expressions_that_are_not_trained_on():
    tasks = one_liner_tasks(200, 41, 0, held_out)
    new = [task for task in tasks["test"] if task["name"].startswith("new/")]
    assert (len(tasks["train"]), len(tasks["test"]), len(new)) == (200, 41, 20)
    assert not expressions(tasks["train"]) & expressions(tasks["test"])
    assert not {words for _, words in TRAINED} & {words for _, words in NEW}
    assert len({task["name"] for split in tasks.values() for task in split}) == 241
    assert one_liner_tasks(200, 41, 0, held_out) == tasks != one_liner_tasks(200, 41, 1, held_out)


def test_a_generated_task_shows_its_first_test_and_its_reference():
    tasks = load_tasks("one_liners", None, train=1, test=2, seed=0, held_out=held_out)
    (task,) = tasks["train"]
    function, expression = task["name"].removeprefix("trained/").split(": ")
    assert task["solution"].startswith(f"def {function}(")
    assert task["solution"].endswith(f"    return {expression}")
    assert task["prompt"].endswith("\nYour code should pass this test:\n" + task["tests"][0])
    assert len(task["tests"]) == 6


# --------------------------------------------------------------------------- the script


@pytest.fixture
def prepared(monkeypatch, capsys, tmp_path):
    """Run the script: exit status, what was printed, and the error."""

    def run(*words, out="out"):
        words = [*map(str, words), "--out", str(tmp_path / out)]
        monkeypatch.setattr(sys, "argv", ["prepare_code.py", *words])
        with pytest.raises(SystemExit) as ended:
            prepare_code.main()
        return ended.value.code, *capsys.readouterr()

    return run


@isolated
def test_own_rows_are_checked_split_and_written(prepared, tmp_path):
    wrong = OWN | {"solution": "def double(x): return x"}
    weak = {"prompt": "Is it so?", "tests": ["assert f(1) == True"]}
    weak["solution"] = "def f(x): return x == 1"
    (tmp_path / "mine.jsonl").write_text(lines(OWN_RIGHT, wrong, weak, OWN | {"name": "open"}))
    status, printed, error = prepared("jsonl", "--path", tmp_path / "mine.jsonl")
    assert status == 0, error
    out = tmp_path / "out"
    assert [row["name"] for row in read_tasks(out, "train")] == ["mine/1", "open"]
    assert sorted(file.name for file in out.iterdir()) == ["dropped.jsonl", "train.jsonl"]
    assert (out / "dropped.jsonl").read_text() == lines(
        {"task": "mine/2", "reason": "the reference fails: AssertionError"},
        {"task": "mine/3", "reason": "a trivial solution passes: return True"},
    )
    for message in (
        "4 tasks read\n",
        "isolation in force: ",
        "kept: 2 in train.jsonl, 0 in test.jsonl\n",
        "with tests that the reward does not see: 2\n",
        "dropped: 2\n     1  the reference fails\n     1  a trivial solution passes: return True\n",
        f"wrote {out}/train.jsonl, {out}/dropped.jsonl in ",
    ):
        assert message in printed
    (tmp_path / "mine.jsonl").write_text(lines(wrong))
    assert prepared("jsonl", "--path", tmp_path / "mine.jsonl", out="none")[0] == 1  # none is kept
    assert [file.name for file in (tmp_path / "none").iterdir()] == ["dropped.jsonl"]


@isolated
def test_held_out_rows_go_to_test_by_their_prompt(prepared, tmp_path):
    rows = [OWN_RIGHT | {"prompt": f"Write double(x), please, {number}."} for number in range(12)]
    (tmp_path / "mine.jsonl").write_text(lines(*rows))
    words = ("jsonl", "--path", tmp_path / "mine.jsonl", "--held_out", 3, "--hide", 1)
    assert prepared(*words)[0] == 0
    train, test = (read_tasks(tmp_path / "out", split) for split in ("train", "test"))
    assert (len(train), len(test)) == (7, 5)
    assert not {task["prompt"] for task in train} & {task["prompt"] for task in test}
    assert [task["hidden_tests"] for task in test] == [["assert double(3) == 6"]] * 5


@isolated
def test_humaneval_is_for_evaluation_only(prepared, tmp_path):
    file = tmp_path / "HumanEval.jsonl.gz"
    file.write_bytes(gzip.compress(lines(HUMANEVAL_ROW).encode()))
    status, printed, _ = prepared("humaneval", "--path", file)
    assert status == 0 and "kept: 1 in test.jsonl\n" in printed
    assert not (tmp_path / "out" / "train.jsonl").exists()
    assert list(read_tasks(tmp_path / "out", "test")[0]) == list(KEYS)


CHAT = OWN | {"prompt": [{"role": "user", "content": OWN["prompt"]}]}
ACCENT = OWN | {"prompt": "Écris double(x)."}
CUT = gzip.compress(lines(HUMANEVAL_ROW).encode())[:-20]
BAD_CASE = lines(OWN, OWN | {"tests": ['{"stdin": "1"}']}).encode()


@pytest.mark.parametrize(
    ("words", "name", "content", "message"),
    [
        ("mbpp", "", b"", "there is no file {}/mbpp.jsonl"),
        ("mbpp --sanitized", "", b"", "there is no file {}/sanitized-mbpp.json"),
        (
            "mbpp",
            "mbpp.jsonl",
            lines(FULL, OWN).encode(),
            "line 2: task_id, code, test_list",
        ),
        ("mbpp", "mbpp.jsonl", lines(FULL, FULL).encode(), "once; more than once: mbpp/601"),
        ("humaneval", "cut.jsonl.gz", CUT, "cut.jsonl.gz cannot be unpacked"),
        ("jsonl", "mine.jsonl", BAD_CASE, "line 2: a JSON test has"),
        ("jsonl", "out/train.jsonl", lines(OWN).encode(), "out already holds train.jsonl. Remove"),
        ("jsonl", "", b"", "there is no file {}: --path is a JSON Lines file of your rows"),
        (
            "jsonl",
            "chat.jsonl",
            lines(CHAT).encode(),
            "line 1: prompt is a chat; give its question",
        ),
        (
            "jsonl",
            "a.tsv",
            b"prompt\ttests\nf\tassert f()",
            "(and 1 more): it is a line of a table with tabs",
        ),
        ("jsonl", "nested.jsonl", lines({"data": OWN}).encode(), "missing (its keys: data; wanted"),
        ("jsonl", "deep.jsonl", b"[" * 100_000, "line 1: it is nested too deeply"),
        ("jsonl", "old.jsonl", lines(ACCENT).encode("latin-1"), "line 1: it is not UTF-8"),
        ("mbpp --hide -1", "", b"", "-1 is too small; at least 0"),
        ("jsonl --held_out 1", "", b"", "--held_out 1 would hold out every task"),
        ("humaneval --timeout_s 0", "", b"", "--timeout_s must be more than 0"),
        ("humaneval --hide 1", "", b"", "unrecognized arguments"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words_and_nothing_is_written(
    prepared, tmp_path, words, name, content, message
):
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    status, _, error = prepared(*words.split(), "--path", tmp_path / name)
    assert status == 2 and message.format(tmp_path) in error
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [content] * bool(name)
