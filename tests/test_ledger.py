"""The ledger: the pages follow from results/, and a run is compared with the change that an entry
expects.
"""

import json
import re
import subprocess
import sys
from statistics import mean

import compare
import pytest
import yaml
from support.launching import ROOT

from recipes.common.many_runs.ledger import (
    BEGIN,
    END,
    compare_run,
    expected_change,
    read_entries,
    read_entry,
    readmes,
    record_entry,
    render_readme,
    render_results,
    sort_of,
)
from recipes.common.utils.run_files import write_rows
from recipes.common.utils.stats import t_interval, wilson_interval

ENTRIES = read_entries(ROOT / "results")
RUNS = [name for name, entry in ENTRIES.items() if sort_of(entry) == "runs"]
CONFIG = ROOT / "recipes/arithmetic/quickstart.yaml"
RENDER = "run scripts/ledger.py render"


def test_the_pages_are_what_the_ledger_renders():
    template = (ROOT / "results/RESULTS.md.in").read_text()
    assert (ROOT / "RESULTS.md").read_text() == render_results(template, ENTRIES), RENDER
    for page in readmes():
        assert page.read_text() == render_readme(page.read_text(), ENTRIES), f"{page}: {RENDER}"
    readme = (ROOT / "README.md").read_text()
    before, table = readme.split(BEGIN)
    by_hand = before + BEGIN + re.sub(r"\d+\.\d %", "99.9 %", table, count=1)
    assert readme != by_hand and render_readme(by_hand, ENTRIES) == readme


def test_a_readme_shows_the_entry_that_its_comment_names(entry):
    page = f"before\n{BEGIN.replace('results/', 'results/some.json')}\nold\n{END}\nafter\n"
    lines = render_readme(page, {"some": entry}).splitlines()
    assert lines[:2] == page.splitlines()[:2] and lines[-2:] == [END, "after"]
    assert "old" not in lines
    assert "| strict | 0.0 % | 50.0 % (25-75) | +50.0 pt (+25 to +75) |" in lines
    assert "3 seeds of 10 held-out rows, 36 steps and 1.0-3.0 minutes; intervals" in "".join(lines)
    assert "SmolLM2-135M: weights from 4-bit quantisation, close to the published ones." in lines
    with pytest.raises(ValueError, match=r"results/some\.json, which does not exist"):
        render_readme(page, {})


def test_the_readme_shows_a_metric_of_each_task_where_a_run_has_several(entry):
    change = entry["metrics"]["strict"]
    names = ("code tests", "code hidden", "code format", "math strict", "math lenient")
    both = {**entry, "order": 1, "metrics": dict.fromkeys(names, change)}
    lines = render_readme(f"{BEGIN}\n{END}", {"both": both}).splitlines()
    (row,) = [line for line in lines if "[recipe]" in line]
    assert "| math lenient 0.0 → 50.0 %" in row and "| code hidden 0.0 → 50.0 %" in row


def shipped_runs(root):
    """The YAMLs of recipes that git knows: a user's own next to them publishes nothing."""
    words = ["git", "ls-files", "recipes/*/*.yaml"]
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip(f"git does not tell which runs are ours: {listed.stderr.strip()}")
    lines = listed.stdout.splitlines()
    return {line for line in lines if (root / line).with_name("train.py").is_file()}


def test_every_shipped_run_has_an_entry():
    entered = set()
    for entry in ENTRIES.values():
        entered |= {*entry.get("configs", [entry.get("config")])}
    assert shipped_runs(ROOT) - entered == set()


@pytest.mark.parametrize("name", RUNS)
def test_an_entry_of_runs_has_three_seeds_or_a_reason_and_figures_that_follow_from_its_seeds(name):
    entry = ENTRIES[name]
    assert len(set(entry["seeds"])) >= 3 or entry.get("fewer_seeds"), "give the reason there"
    assert len(entry["minutes"]) == len(entry["n"]) == len(entry["seeds"])
    for metric in entry["metrics"].values():
        before, after = metric["before"], metric["after"]
        n = metric.get("n", sum(entry["n"]))  # some metrics are of some rows only
        assert metric["expected_change"] == expected_change(before["seeds"], after["seeds"], n)
        for stage in (before, after):
            shares = stage["seeds"]
            assert stage["value"] == pytest.approx(mean(shares), abs=1e-4)
            over = t_interval(shares, 0.0, 1.0) or wilson_interval(round(shares[0] * n), n)
            assert stage["interval"] == pytest.approx(over, abs=3e-4)  # shares have four digits
        changes = [new - old for old, new in zip(before["seeds"], after["seeds"], strict=True)]
        assert metric["change"]["seeds"] == pytest.approx(changes, abs=2e-4)
        if len(changes) > 1:  # of one seed it needs the rows
            over = t_interval(changes, -1.0, 1.0)
            assert metric["change"]["interval"] == pytest.approx(over, abs=2e-4)


def run_folder(folder, seed, right, before=0, of=10, **settings):
    for stage, count in (("before", before), ("after", right)):
        rows = [{"prompt": f"q{i}", "metrics": {"strict": i < count}} for i in range(of)]
        write_rows(folder / "evaluation" / f"{stage}.jsonl", rows)
    summary = {
        "before": {"strict": {"share": before / of}},
        "after": {"strict": {"share": right / of}},
        "minutes": 1.0 + seed,
        "steps": 36,
        "commit": "0123456789",
        "uncommitted_changes": False,
        "hardware": "2 CPU cores",
        "versions": {"trl": "1.16.0"},
        "command": ["python", "train.py", "--seed", str(seed)],
        "config": {**yaml.safe_load(CONFIG.read_text()), "world_size": 1, "seed": seed, **settings},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def entry(tmp_path):
    runs = [run_folder(tmp_path / f"seed{seed}", seed, 4 + seed) for seed in range(3)]
    record_entry(runs, CONFIG, "some runs", None, tmp_path / "entry.json")
    return read_entry(tmp_path / "entry.json")


def test_an_entry_holds_what_its_runs_left(entry):
    assert (entry["seeds"], entry["n"]) == ([0, 1, 2], [10, 10, 10])
    assert entry["minutes"] == [1.0, 2.0, 3.0]
    assert (entry["commit"], entry["config"]) == ("0123456", "recipes/arithmetic/quickstart.yaml")
    after = entry["metrics"]["strict"]["after"]
    assert after["seeds"] == [0.4, 0.5, 0.6] and after["value"] == 0.5
    assert after["interval"] == [0.2516, 0.7484]  # 0.5 +- 4.3027 * 0.1 / sqrt(3)
    change = entry["metrics"]["strict"]["change"]
    assert change == {"value": 0.5, "interval": [0.2516, 0.7484], "seeds": [0.4, 0.5, 0.6]}
    shipped = yaml.safe_load(CONFIG.read_text())
    assert "seed" not in entry["settings"]
    assert entry["settings"]["max_steps"] == shipped["max_steps"]
    assert "eval_steps" not in entry["settings"]  # a curve changes nothing of what is published


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"seed": 1, "max_steps": 7}, "other settings than"),
        ({"seed": 0}, "each once, or one run counts twice"),
    ],
)
def test_an_entry_is_of_one_configuration_and_each_seed_once(tmp_path, second, message):
    runs = [run_folder(tmp_path / "a", 0, 4), run_folder(tmp_path / "b", right=4, **second)]
    with pytest.raises(ValueError, match=message):
        record_entry(runs, CONFIG, "some runs", "command", tmp_path / "e.json")


def test_a_command_must_name_what_the_yaml_does_not_and_words_by_hand_stay(tmp_path):
    runs, output = [run_folder(tmp_path / "seed0", 0, 4, max_steps=7)], tmp_path / "e.json"
    with pytest.raises(ValueError, match="the runs set max_steps 7 over the YAML: give --command"):
        record_entry(runs, CONFIG, "t", None, output)
    output.write_text('{"order": 3, "not_run": "no GPU"}')
    record_entry(runs, CONFIG, "t", "with --max_steps 7", output)
    entry = read_entry(output)
    assert (entry["command"], entry["order"], sort_of(entry)) == ("with --max_steps 7", 3, "runs")


@pytest.mark.parametrize(
    ("before", "after", "n", "low", "high"),
    [
        # no spread between seeds: rows alone: 1.96 * sqrt((0.0098 * 0.9902 + 0.25) / 100) * sqrt(3
        # / 2)
        ([0.0, 0.0], [0.5, 0.5], 200, 0.3777, 0.6223),
        # spread 0.05: 4.3027 * 0.05 * sqrt(4 / 3); that the untrained model varies as much alone
        # does not widen it
        ([0.0, 0.0, 0.0], [0.45, 0.5, 0.55], 300, 0.2516, 0.7484),
        ([0.1, 0.15, 0.2], [0.45, 0.5, 0.55], 300, 0.2104, 0.4896),
        ([0.1, None], [0.4, 0.9], 100, 0.1377, 0.4623),  # a seed without the metric is left out
        ([0.0], [1.0], 4, 0.1513, 1.0),
    ],
)
def test_the_change_expected_of_another_run_by_hand(before, after, n, low, high):
    assert expected_change(before, after, n) == pytest.approx([low, high], abs=1e-4)


def test_a_run_is_compared_by_its_change(entry, tmp_path):
    (same,) = compare_run(run_folder(tmp_path / "good", 8, 9, before=4), entry)
    assert same == ("strict", 0.5, 0.0032, 0.9968) and same.agrees  # 4.3027 * 0.1 * sqrt(4 / 3)
    (other,) = compare_run(run_folder(tmp_path / "bad", 9, 4, before=4), entry)
    assert not other.agrees  # its share after training is that of a run of the entry


@pytest.mark.parametrize(("name", "value"), [("max_steps", 7), ("world_size", 4)])
def test_a_run_of_another_configuration_is_not_compared(entry, tmp_path, name, value):
    run, entered = run_folder(tmp_path / "other", 0, 5, **{name: value}), entry["settings"][name]
    with pytest.raises(ValueError, match=f"{name}: the entry has {entered}, the run {value}"):
        compare_run(run, entry)


def test_compare_answers_by_its_status_and_names_the_entry(entry, tmp_path, monkeypatch, capsys):
    good, bad = run_folder(tmp_path / "good", 5, 5), run_folder(tmp_path / "bad", 5, 4, before=4)
    for run, status in ((good, 0), (bad, 1), (tmp_path / "none", 2)):
        words = ["compare.py", "--expect", str(tmp_path / "entry.json"), str(run)]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            compare.main()
        assert ended.value.code == status
        assert "0123456, seeds [0, 1, 2]" in capsys.readouterr().out or status == 2


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"title": "t", "command": "c"}, "must have one of"),
        ({"title": "t", "command": "c", "columns": [], "rows": []}, "lacks commit, hardware"),
        ({"title": "t", "command": "c", "not_run": "no GPU", "metrics": {}}, "and has a value"),
    ],
)
def test_an_entry_of_no_sort_or_that_no_page_names_is_refused(entry, tmp_path, broken, message):
    (tmp_path / "x.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match=message):
        read_entry(tmp_path / "x.json")
    with pytest.raises(ValueError, match=r"differ: b"):
        render_results("{{a}}\n{{not_run}}\n", {"a": entry, "b": entry})
