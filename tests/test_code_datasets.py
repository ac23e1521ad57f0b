"""MBPP and HumanEval through the sandbox: references pass, under strict rules where they can, and wrong programs fail.

The rows are not part of this repository: MBPP_PATH names mbpp.jsonl and HUMANEVAL_PATH HumanEval.jsonl.gz, else they
are looked for next to the repository.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from recipes.code.prepare import drop_trivial, least_flags, load_tasks, mbpp_task, run_codes
from recipes.code.tasks import complete_row
from rewards.sandbox import Sandbox

DATA = Path(__file__).parents[2] / "shared" / "data"
MBPP = Path(os.environ.get("MBPP_PATH", DATA / "mbpp" / "mbpp.jsonl"))
HUMANEVAL = Path(os.environ.get("HUMANEVAL_PATH", DATA / "humaneval" / "HumanEval.jsonl.gz"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
    ),
]
LIMIT_S = 120.0  # of MBPP's references 123 takes seconds
NEED_OBJECTS = ["mbpp/367", "mbpp/927"]  # trees of the program's own Node class
WEAK = {
    899: "return True",
    **dict.fromkeys((404, 698, 847), "return the argument"),
    **dict.fromkeys((37, 203, 339, 667, 674, 816), "return what the first test expects"),
}
# The helpers that prompts of HumanEval define and checks call.
HELPERS = {"humaneval/32": "poly", "humaneval/38": "encode_cyclic", "humaneval/50": "encode_shift"}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


@pytest.fixture(scope="module")
def mbpp():
    if not MBPP.is_file():
        pytest.skip(f"no MBPP at {MBPP}: set MBPP_PATH")
    return [
        complete_row(mbpp_task(row, 1, 0)) for row in map(json.loads, MBPP.read_text().splitlines())
    ]


@pytest.fixture(scope="module")
def humaneval():
    if not HUMANEVAL.is_file():
        pytest.skip(f"no HumanEval at {HUMANEVAL}: set HUMANEVAL_PATH")
    return load_tasks("humaneval", HUMANEVAL)["test"]


def statuses(sandbox, tasks, codes, tests=None):
    tests = tests or [task["tests"] for task in tasks]
    return [
        outcome.status for outcome in run_codes(tasks, codes, tests, sandbox.run_batch, LIMIT_S)
    ]


def test_mbpp_needs_objects_for_two_tasks_and_its_references_pass(mbpp, sandbox):
    kept, dropped = least_flags(mbpp, sandbox.run_batch, LIMIT_S)
    assert (len(kept), dropped, [task["name"] for task in kept if task["inplace"]]) == (
        len(mbpp),
        [],
        [],
    )
    assert [task["name"] for task in kept if task["objects"]] == NEED_OBJECTS


def test_mbpp_has_ten_tasks_that_a_trivial_solution_passes(mbpp, sandbox):
    some = [task for number, task in enumerate(mbpp, 1) if number in WEAK or number % 10 == 0]
    kept, dropped = drop_trivial(some, sandbox.run_batch)
    assert {entry["task"]: entry["reason"] for entry in dropped} == {
        f"mbpp/{number}": f"a trivial solution passes: {kind}" for number, kind in WEAK.items()
    }
    assert len(kept) == len(some) - 10


def test_a_changed_expected_value_fails(mbpp, sandbox):
    """The last visible test expects what no program returns."""
    left_out = [*NEED_OBJECTS, "mbpp/123"]
    tasks = [
        t for t in mbpp if all("==" in test for test in t["tests"]) and t["name"] not in left_out
    ]
    wrong = [
        re.sub(r"==(?!.*==).*", "== ('no', 'such', 'value')", t["tests"][-1], flags=re.DOTALL)
        for t in tasks
    ]
    tests = [[*task["tests"][:-1], test] for task, test in zip(tasks, wrong, strict=True)]
    assert len(tasks) > 900
    assert set(statuses(sandbox, tasks, [task["solution"] for task in tasks], tests)) == {"fail"}


def test_every_reference_of_humaneval_passes_under_strict_rules_and_no_trivial_solution(
    humaneval, sandbox
):
    assert statuses(sandbox, humaneval, [task["solution"] for task in humaneval]) == ["pass"] * 164
    for body in ("pass", "return True", "raise SystemExit"):
        codes = [f"def {task['entry_point']}(*given): {body}" for task in humaneval]
        assert statuses(sandbox, humaneval, codes) == ["fail"] * 164


def test_the_helpers_of_a_humaneval_check_are_the_data_sets(humaneval, sandbox):
    """A program whose own helper makes its wrong answer look right (0 for any polynomial, nothing encoded) fails."""
    found = [task for task in humaneval if task["name"] in HELPERS]
    lie = "def {}(*given): return given[0]\ndef {}(x, *others): return 0 if others else x\n"
    codes = [lie.format(task["entry_point"], HELPERS[task["name"]]) for task in found]
    assert all(f"def {HELPERS[task['name']]}(" in task["setup"] for task in found)
    assert statuses(sandbox, found, codes) == ["fail"] * 3
    own = [t | {"setup": "", "entry_point": (t["entry_point"], HELPERS[t["name"]])} for t in found]
    assert (
        statuses(sandbox, own, codes) == ["pass"] * 3
    )  # what would happen if the check called the program's helper
