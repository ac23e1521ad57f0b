"""MBPP through the sandbox: every reference passes, under strict rules but for the two tasks that hand objects about.

The rows are not part of this repository: MBPP_PATH names mbpp.jsonl, else it is looked for beside the repository.
"""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from rewards.sandbox import Asserts, Sandbox

MBPP = Path(os.environ.get("MBPP_PATH", Path(__file__).parents[2] / "shared" / "data" / "mbpp" / "mbpp.jsonl"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"),
    pytest.mark.skipif(not MBPP.is_file(), reason=f"no MBPP at {MBPP}: set MBPP_PATH"),
]
NEED_OBJECTS = [367, 927]  # trees of the program's own Node class


@pytest.fixture(scope="module")
def rows():
    return [json.loads(line) for line in MBPP.read_text().splitlines()]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def job(row, **options):
    tests = row["test_list"] + row["challenge_test_list"]
    return Asserts(row["code"], tests, setup=row["test_setup_code"], timeout_s=60.0, **options)


def failed(sandbox, rows, jobs):
    outcomes = sandbox.run_batch(jobs)
    assert sandbox.infra == 0
    return [row["task_id"] for row, outcome in zip(rows, outcomes, strict=True) if outcome.status != "pass"]


def test_every_reference_passes(rows, sandbox):
    assert failed(sandbox, rows, [job(row) for row in rows]) == NEED_OBJECTS
    trees = [row for row in rows if row["task_id"] in NEED_OBJECTS]
    assert failed(sandbox, trees, [job(row, objects=True) for row in trees]) == []


def mutated(test):
    """The test with another expected value: one that no program gives."""
    return re.sub(r"==(?!.*==).*", "== ('no', 'such', 'value')", test, flags=re.DOTALL)


def test_a_changed_expected_value_fails(rows, sandbox):
    changed = [row for row in rows if all("==" in test for test in row["test_list"])]
    changed = [row for row in changed if row["task_id"] not in [*NEED_OBJECTS, 123]]  # 123 takes seconds
    jobs = [job(row)._replace(tests=[*row["test_list"][:-1], mutated(row["test_list"][-1])]) for row in changed]
    assert len(changed) > 900
    assert failed(sandbox, changed, jobs) == [row["task_id"] for row in changed]
