"""The ledger: the pages are what results/ says, and a re-run is held to what it expects."""

import json
import re
import subprocess
import sys

import pytest
import yaml
from support.launching import ROOT

from recipes.common.many_runs.ledger import agreement, check_entry, digest, entry_of, expected, read_entries, sort_of
from recipes.common.many_runs.ledger_pages import BEGIN, render_readme, render_results
from recipes.common.tools.folder import write_rows
from recipes.common.tools.stats import wilson_interval

ENTRIES = read_entries(ROOT / "results")
CONFIGS = sorted(file for file in (ROOT / "recipes").glob("*/*.yaml") if file.with_name("train.py").is_file())
QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"


def test_results_md_is_what_the_ledger_says():
    template = (ROOT / "results/RESULTS.md.in").read_text()
    assert (ROOT / "RESULTS.md").read_text() == render_results(template, ENTRIES), "run scripts/ledger.py render"


def test_the_table_of_the_readme_is_what_the_ledger_says():
    readme = (ROOT / "README.md").read_text()
    assert readme == render_readme(readme, ENTRIES), "run scripts/ledger.py render"


def test_a_figure_of_the_readme_changed_by_hand_is_made_anew():
    readme = (ROOT / "README.md").read_text()
    start = readme.index(BEGIN)
    figure = re.search(r"\d+\.\d %", readme[start:])[0]
    changed = readme[:start] + readme[start:].replace(figure, "99.9 %", 1)
    assert readme != changed
    assert render_readme(changed, ENTRIES) == readme


def test_every_shipped_run_has_an_entry():
    entered = {config for entry in ENTRIES.values() for config in entry.get("configs", [entry.get("config")])}
    assert [str(file.relative_to(ROOT)) for file in CONFIGS if str(file.relative_to(ROOT)) not in entered] == []


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if sort_of(entry) == "runs"])
def test_an_entry_of_runs_has_three_seeds_or_says_why_not(name):
    entry = ENTRIES[name]
    assert len(set(entry["seeds"])) >= 3 or entry.get("fewer_seeds"), "say why in fewer_seeds"
    assert entry["config_sha256"] == digest(entry["settings"])
    for key in ("minutes", "n"):
        assert len(entry[key]) == len(entry["seeds"])


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if sort_of(entry) == "runs"])
def test_means_intervals_and_expectations_follow_from_the_seeds(name):
    n = ENTRIES[name]["n"]
    for metric in ENTRIES[name]["metrics"].values():
        assert metric["expected"] == expected(metric["after"]["seeds"], sum(n))
        for stage in (metric["before"], metric["after"]):
            right = sum(round(share * rows) for share, rows in zip(stage["seeds"], n, strict=True))
            assert stage["value"] == pytest.approx(sum(stage["seeds"]) / len(stage["seeds"]), abs=1e-4)
            assert stage["interval"] == pytest.approx(wilson_interval(right, sum(n)), abs=1e-4)


def summary(seed, strict, **settings):
    config = {**yaml.safe_load(QUICKSTART.read_text()), "world_size": 1, "seed": seed, **settings}
    return {
        "after": {"strict": {"share": strict}},
        "minutes": 1.0 + seed,
        "steps": 36,
        "commit": "0123456789",
        "uncommitted_changes": False,
        "hardware": "2 CPU cores",
        "versions": {"trl": "1.16.0"},
        "command": ["python", "train.py", "--seed", str(seed)],
        "config": config,
    }


def run_folder(folder, seed, right, of=10, **settings):
    for stage, count in (("before", 0), ("after", right)):
        judged = [{"prompt": f"q{i}", "metrics": {"strict": i < count}} for i in range(of)]
        write_rows(folder / "evaluation" / f"{stage}.jsonl", judged)
    (folder / "summary.json").write_text(json.dumps(summary(seed, right / of, **settings)))
    return folder


@pytest.fixture
def entry(tmp_path):
    runs = [run_folder(tmp_path / f"seed{seed}", seed, right) for seed, right in enumerate((4, 5, 6))]
    return entry_of(runs, QUICKSTART, "some runs", "python scripts/seeds.py")


def test_an_entry_holds_what_its_runs_left(entry):
    assert (entry["seeds"], entry["n"], entry["minutes"]) == ([0, 1, 2], [10, 10, 10], [1.0, 2.0, 3.0])
    assert (entry["commit"], entry["config"]) == ("0123456", "recipes/arithmetic/quickstart.yaml")
    after = entry["metrics"]["strict"]["after"]
    assert after["seeds"] == [0.4, 0.5, 0.6] and after["value"] == 0.5
    assert after["interval"] == [0.3315, 0.6685]  # Wilson, 15 of 30
    assert after["interval_over_seeds"] == [0.2516, 0.7484]  # 0.5 +- 4.3027 * 0.1 / sqrt(3)
    assert "seed" not in entry["settings"] and entry["settings"]["max_steps"] == 36


def test_an_entry_is_of_one_configuration(tmp_path):
    runs = [run_folder(tmp_path / "a", 0, 4), run_folder(tmp_path / "b", 1, 4, max_steps=7)]
    with pytest.raises(ValueError, match="other settings than"):
        entry_of(runs, QUICKSTART, "some runs", "command")


def test_a_seed_counts_once(tmp_path):
    runs = [run_folder(tmp_path / name, 0, 4) for name in ("a", "b")]
    with pytest.raises(ValueError, match="each once, or one run counts twice"):
        entry_of(runs, QUICKSTART, "some runs", "command")


def test_a_command_must_say_what_the_yaml_does_not(tmp_path):
    runs = [str(run_folder(tmp_path / f"seed{seed}", seed, 4, max_steps=7)) for seed in (0, 1)]
    words = [
        sys.executable,
        "scripts/ledger.py",
        "record",
        "--config",
        str(QUICKSTART),
        "--title",
        "t",
        "--runs",
        *runs,
    ]
    done = subprocess.run([*words, "--output", str(tmp_path / "e.json")], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "the runs set max_steps 7 beside the YAML: give --command" in done.stderr
    whole = [*words, "--command", "with --max_steps 7", "--output", str(tmp_path / "e.json")]
    subprocess.run(whole, cwd=ROOT, capture_output=True, check=True)
    assert json.loads((tmp_path / "e.json").read_text())["command"] == "with --max_steps 7"


def test_another_number_of_processes_is_another_configuration(entry, tmp_path):
    with pytest.raises(ValueError, match="world_size: the entry has 1, the run 4"):
        agreement(run_folder(tmp_path / "four", 0, 5, world_size=4), entry)


def test_what_another_run_is_expected_to_come_to_by_hand():
    # no spread between seeds: the drawing of 100 rows a seed alone, s = 0.05, 1.96 * 0.05 * sqrt(1.5)
    assert expected([0.5, 0.5], 200) == [0.38, 0.62]
    # spread 0.05: 4.3027 * 0.05 * sqrt(4 / 3), where rows alone would give 1.96 * 0.05 * sqrt(4 / 3)
    assert expected([0.45, 0.5, 0.55], 300) == [0.2516, 0.7484]
    assert expected([0.0, 0.0, 0.0], 300) == [0.0, 0.0183]  # s = sqrt(0.00658 * 0.99342 * 3 / 300)


@pytest.mark.parametrize(("right", "agrees"), [(5, True), (10, False), (0, False)])
def test_a_rerun_agrees_where_it_falls_into_the_range(entry, tmp_path, right, agrees):
    (compared,) = agreement(run_folder(tmp_path / "again", 9, right), entry)
    assert compared["agrees"] is agrees


def test_a_run_of_another_configuration_is_not_compared(entry, tmp_path):
    run = run_folder(tmp_path / "other", 0, 5, max_steps=7)
    with pytest.raises(ValueError, match="max_steps: the entry has 36, the run 7"):
        agreement(run, entry)


def test_the_place_of_a_model_is_no_setting(entry, tmp_path):
    moved = run_folder(tmp_path / "moved", 0, 5, model_name_or_path="/elsewhere/SmolLM2-135M-Instruct")
    assert agreement(moved, entry)[0]["agrees"]


def test_compare_says_it_by_its_status(entry, tmp_path):
    (tmp_path / "entry.json").write_text(json.dumps(entry))

    def status(run):
        words = [sys.executable, "scripts/compare.py", str(run), "--expect", str(tmp_path / "entry.json")]
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).returncode

    assert status(run_folder(tmp_path / "good", 5, 5)) == 0
    assert status(run_folder(tmp_path / "bad", 5, 10)) == 1
    assert status(tmp_path / "none") == 2


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"title": "t", "command": "c"}, "must have one of"),
        ({"title": "t", "command": "c", "columns": [], "rows": []}, "lacks commit, hardware"),
        ({"title": "t", "command": "c", "not_run": "no GPU", "metrics": {}}, "and has a value"),
    ],
)
def test_an_entry_that_is_none_is_refused(broken, said):
    with pytest.raises(ValueError, match=said):
        check_entry("x", broken)


def test_an_entry_that_no_page_names_is_refused(entry):
    with pytest.raises(ValueError, match=r"differ: b"):
        render_results("{{a}}\n", {"a": entry, "b": entry})
