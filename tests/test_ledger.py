"""The ledger: the pages follow from results/, and a run is compared with what an entry expects."""

import re
from statistics import mean

import pytest
import yaml
from support.launching import ROOT

import results as script
from recipes.common.many_runs import ledger
from recipes.common.many_runs.ledger import expected_change, record_entry, render_page
from recipes.common.utils.run_files import read_json, write_json, write_rows
from recipes.common.utils.stats import interval_of_mean, wilson_interval

ENTRIES = ledger.read_entries(ROOT / "results")
CONFIG = ROOT / "recipes/arithmetic/quickstart.yaml"
BEGIN = "<!-- generated from results/ by scripts/results.py: begin -->"


def test_the_pages_are_what_the_ledger_renders():
    for page in ledger.pages():
        text = page.read_text()
        assert text == render_page(text, ENTRIES), f"{page}: run scripts/results.py render"
    before, table = (ROOT / "README.md").read_text().split(BEGIN)
    by_hand = before + BEGIN + re.sub(r"\d+\.\d %", "99.9 %", table, count=1)
    assert by_hand != before + BEGIN + table == render_page(by_hand, ENTRIES)


@pytest.mark.parametrize("name", ENTRIES)
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
            rows = round(n / len(shares))  # of the first seed, n is of all
            of_one = wilson_interval(round(shares[0] * rows), rows)
            over = interval_of_mean(shares, 0.0, 1.0, of_equal=of_one)
            # Shares have four digits, and Student's factor for two seeds is 12.7.
            off = 3e-3 if over == of_one else 7e-4 if len(shares) == 2 else 3e-4
            assert stage["interval"] == pytest.approx(over, abs=off)
        changes = [new - old for old, new in zip(before["seeds"], after["seeds"], strict=True)]
        assert metric["change"]["seeds"] == pytest.approx(changes, abs=2e-4)
        if len(set(metric["change"]["seeds"])) > 1:  # of one seed it needs the rows
            over = interval_of_mean(changes, -1.0, 1.0, of_equal=None)
            off = 1.4e-3 if len(changes) == 2 else 2e-4
            assert metric["change"]["interval"] == pytest.approx(over, abs=off)


def run_folder(folder, seed, right, before=0, of=10, **settings):
    for stage, count in (("before", before), ("after", right)):
        rows = [{"prompt": f"q{i}", "metrics": {"strict": i < count}} for i in range(of)]
        write_rows(folder / "evaluation" / f"{stage}.jsonl", rows)
    summary = {
        "before": {"strict": {"share": before / of}},
        "after": {"strict": {"share": right / of}, "n": of},
        "minutes": 1.0 + seed, "steps": 36, "commit": "0123456789", "uncommitted_changes": False,
        "hardware": "2 CPU cores", "versions": {"trl": "1.16.0"},
        "command": ["python", "train.py", "--seed", str(seed)],
        "config": {**yaml.safe_load(CONFIG.read_text()), "world_size": 1, "seed": seed, **settings},
    }  # fmt: skip
    write_json(folder / "summary.json", summary)
    return folder


@pytest.fixture
def entry(tmp_path):
    runs = [run_folder(tmp_path / f"seed{seed}", seed, 4 + seed) for seed in range(3)]
    record_entry(runs, CONFIG, "some runs", "command", tmp_path / "entry.json")
    return read_json(tmp_path / "entry.json")


def test_an_entry_holds_what_its_runs_left(entry):
    assert (entry["seeds"], entry["n"]) == ([0, 1, 2], [10, 10, 10])
    assert entry["minutes"] == [1.0, 2.0, 3.0]
    assert (entry["commit"], entry["config"]) == ("0123456", "recipes/arithmetic/quickstart.yaml")
    half = [0.2516, 0.7484]  # 0.5 +- 4.3027 * 0.1 / sqrt(3)
    same = {"value": 0.5, "interval": half, "seeds": [0.4, 0.5, 0.6]}
    strict = entry["metrics"]["strict"]
    assert strict["after"] == strict["change"] == same
    shipped = yaml.safe_load(CONFIG.read_text())
    assert entry["settings"]["max_steps"] == shipped["max_steps"]
    # a curve changes nothing of what is published
    assert not entry["settings"].keys() & {"seed", "eval_steps"}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"seed": 1, "max_steps": 7}, "the runs differ in settings"),
        ({"seed": 0}, "each once, or one run counts twice"),
    ],
)
def test_an_entry_is_of_one_configuration_and_each_seed_once(tmp_path, second, message):
    runs = [run_folder(tmp_path / "a", 0, 4), run_folder(tmp_path / "b", right=4, **second)]
    with pytest.raises(ValueError, match=message):
        record_entry(runs, CONFIG, "some runs", "command", tmp_path / "e.json")
    starts = [{"commit": name, "hardware": "2 CPU cores", "command": []} for name in ("a", "b")]
    write_json(runs[0] / "versions.json", starts)
    with pytest.raises(ValueError, match="trained by several commits, machines or rewards"):
        record_entry(runs[:1], CONFIG, "some runs", "command", tmp_path / "e.json")


def test_words_by_hand_stay_when_an_entry_is_recorded_again(tmp_path):
    runs, output = [run_folder(tmp_path / "seed0", 0, 4)], tmp_path / "e.json"
    write_json(output, {"order": 3})
    record_entry(runs, CONFIG, "t", "with --max_steps 7", output)
    entry = read_json(output)
    assert (entry["command"], entry["order"]) == ("with --max_steps 7", 3)


@pytest.mark.parametrize(
    ("before", "after", "n", "expected"),
    [
        # the seeds do not differ, so rows alone:
        # 1.96 * sqrt((0.0098 * 0.9902 + 0.25) / 100) * sqrt(3 / 2)
        ([0.0, 0.0], [0.5, 0.5], 200, [0.3777, 0.6223]),
        # 4.3027 * 0.05 * sqrt(4 / 3)
        ([0.0, 0.0, 0.0], [0.45, 0.5, 0.55], 300, [0.2516, 0.7484]),
        # that the untrained model varies as much does not widen it
        ([0.1, 0.15, 0.2], [0.45, 0.5, 0.55], 300, [0.2104, 0.4896]),
    ],
)
def test_the_change_expected_of_another_run_by_hand(before, after, n, expected):
    assert expected_change(before, after, n) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("name", "value"), [("max_steps", 7), ("world_size", 4)])
def test_a_run_of_another_configuration_is_not_compared(entry, tmp_path, name, value):
    run, entered = run_folder(tmp_path / "other", 0, 5, **{name: value}), entry["settings"][name]
    with pytest.raises(ValueError, match=f"{name}: the entry has {entered}, the run {value}"):
        ledger.compare_run(run, entry)


def test_a_run_is_compared_by_its_change(entry, tmp_path, run_script):
    good, bad = run_folder(tmp_path / "good", 8, 9, before=4), run_folder(tmp_path / "bad", 9, 4, 4)
    assert ledger.compare_run(good, entry) == {"strict": (0.5, 0.0032, 0.9968)}  # 0.43 * sqrt(4/3)
    for run, status in ((good, 0), (bad, 1), (tmp_path / "none", 2)):
        ended, out, _ = run_script(script, "compare", "--expect", tmp_path / "entry.json", run)
        assert (ended, "NOT as expected" in out) == (status, status == 1)


def test_a_file_that_is_no_entry_is_refused(tmp_path, run_script):
    (tmp_path / "run.json").write_text('{"seed": 0}')
    for file in (tmp_path / "run.json", tmp_path / "none.json"):
        _, _, error = run_script(script, "compare", "--expect", file, "run")
        assert f"{file} is not there, or no entry of results/." in error
