"""`watch` in a script of one's own: the script of the documentation, resumed, on two ranks, and what it
leaves.
"""

import re
from pathlib import Path

import pytest
from support.launching import ROOT

from recipes.common.utils.run_files import read_evaluation, read_json, read_log, read_validation

SCRIPT = re.search(
    r"## In a script of your own.*?```python\n(.*?)```",
    (ROOT / "docs/running.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[1]


def tiny(model: Path, folder: Path) -> str:
    """The script of the documentation with a tiny model and few steps; all else as it stands."""
    changes = {
        "models/SmolLM2-135M-Instruct": str(model),
        "runs/stock": str(folder),
        "max_steps=32": "max_steps=4, save_steps=2, use_cpu=True, log_completions=True",
        "eval_steps=8": "eval_steps=2",
        "max_completion_length=28": "max_completion_length=6",
        "take(160)": "take(6)",
        "take(40)": "take(4)",
    }
    script = SCRIPT
    for old, new in changes.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return script


def test_the_script_has_at_most_30_lines():
    assert (
        len(SCRIPT.splitlines()) <= 30 or len([x for x in SCRIPT.splitlines() if x.strip()]) <= 30
    )


@pytest.fixture(scope="module")
def stock(model, tmp_path_factory, one_thread) -> Path:
    folder = tmp_path_factory.mktemp("stock") / "run"
    exec(compile(tiny(model, folder), "script", "exec"), {"__name__": "script"})
    return folder


@pytest.mark.slow
def test_the_script_leaves_the_record_of_a_run(stock):
    before, after = read_evaluation(stock)
    assert len(before) == len(after) == 6 and before[0]["metrics"].keys() >= {"strict", "lenient"}
    assert [line["step"] for line in read_validation(stock)] == [0, 2, 4]
    names = ("report.html", "table.txt", "curves.png", "summary.json", "versions.json")
    assert [name for name in names if not (stock / name).is_file()] == []
    summary = read_json(stock / "summary.json")
    assert summary["steps"] == 4 and summary["verdict"]["sentence"]
    log = read_log(stock)
    assert [entry["step"] for entry in log] == [1, 2, 3, 4]
    assert all({"metrics/lenient", "push/lenient", "push/format"} <= entry.keys() for entry in log)
