"""HumanEval through the sandbox: every reference passes under strict rules, and no wrong solution does.

The rows are not part of this repository: HUMANEVAL_PATH names HumanEval.jsonl.gz, else it is looked for beside the
repository.
"""

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from benchmarks.sandbox_speed import humaneval_job

from rewards.sandbox import Sandbox

BESIDE = Path(__file__).parents[2] / "shared" / "data" / "humaneval" / "HumanEval.jsonl.gz"
HUMANEVAL = Path(os.environ.get("HUMANEVAL_PATH", BESIDE))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"),
    pytest.mark.skipif(not HUMANEVAL.is_file(), reason=f"no HumanEval at {HUMANEVAL}: set HUMANEVAL_PATH"),
]
# The helpers that prompts define and checks call.
HELPERS = {"HumanEval/32": "poly", "HumanEval/38": "encode_cyclic", "HumanEval/50": "encode_shift"}


@pytest.fixture(scope="module")
def rows():
    with gzip.open(HUMANEVAL, "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def statuses(sandbox, jobs):
    outcomes = sandbox.run_batch([job._replace(timeout_s=60.0) for job in jobs])
    assert sandbox.infra == 0
    return [outcome.status for outcome in outcomes]


def test_every_reference_passes(rows, sandbox):
    jobs = [humaneval_job(row, row["canonical_solution"]) for row in rows]
    assert statuses(sandbox, jobs) == ["pass"] * 164


@pytest.mark.parametrize("body", ["    pass\n", "    return True\n", "    raise SystemExit\n"])
def test_no_trivial_solution_passes(body, rows, sandbox):
    assert statuses(sandbox, [humaneval_job(row, body) for row in rows]) == ["fail"] * 164


def test_the_helpers_of_a_check_are_the_data_sets(rows, sandbox):
    """A program whose own helper makes its wrong answer look right (0 for any polynomial, nothing encoded) fails."""
    found = [row for row in rows if row["task_id"] in HELPERS]
    lie = "    return next(iter(locals().values()))\ndef {}(x, *others): return 0 if others else x\n"
    jobs = [humaneval_job(row, lie.format(HELPERS[row["task_id"]])) for row in found]
    assert all(f"def {HELPERS[row['task_id']]}(" in job.setup for row, job in zip(found, jobs, strict=True))
    assert statuses(sandbox, jobs) == ["fail"] * 3
    both = [job._replace(setup="", entry_point=(job.entry_point, HELPERS[row["task_id"]]))
            for row, job in zip(found, jobs, strict=True)]  # fmt: skip
    assert statuses(sandbox, both) == ["pass"] * 3
