"""Curves: what is drawn is what was logged."""

from recipes.common.evaluation.evaluate import add_line
from recipes.common.report.plots import COLORS, curve, panels, plot_runs, shares, svg
from recipes.common.utils.run_files import read_log, write_json
from recipes.common.utils.stats import wilson_interval

LOG = [
    {"step": 1, "reward": 0.5, "rewards/a/mean": 0.5, "completions/mean_length": 10.0, "kl": 0.01},
    {"step": 2, "loss": 0.1},  # a step that reuses a generation logs no reward
    {"step": 3, "reward": 0.7, "rewards/a/mean": None, "completions/mean_length": float("nan")},
]
OTHER = [{"step": 1, "reward": 0.1, "step_rewards/b/mean": 0.1}]
CURVE = [
    {"step": 0, "metrics": {"strict": [True, None, False], "lenient": [True]}},
    {"step": 4, "metrics": {"strict": [None, None, None], "lenient": []}},
]


def make_run(folder, log=LOG):
    write_json(folder / "run_config.json", {"seed": 0})
    write_json(folder / "trainer_state.json", {"log_history": log})
    return folder


def test_the_log_is_read_from_the_final_state_or_the_newest_checkpoint(tmp_path):
    assert [entry["step"] for entry in read_log(make_run(tmp_path / "run"))] == [1, 3]
    for step in (3, 10):
        make_run(tmp_path / "other" / f"checkpoint-{step}", LOG if step == 10 else [])
    assert len(read_log(tmp_path / "other")) == 2
    assert read_log(tmp_path) == []  # before the first checkpoint


def test_a_panel_is_drawn_of_each_key_that_any_run_logged_and_of_each_validation_metric():
    titles = [panel.title.partition(" (")[0] for panel in panels([LOG, OTHER], [CURVE, []])]
    validated = [
        "validation: correct answer",
        "validation: correct in format",
    ]  # the verdict's first
    logged = ["reward a", "reward b", "completion length", "KL to the reference model"]
    assert titles == ["reward", *validated, *logged]
    assert curve(LOG, "reward") == {1: 0.5, 3: 0.7}
    assert curve(LOG, "completions/mean_length") == {1: 10.0}  # NaN is not drawn


def test_a_validation_metric_is_a_share_of_the_rows_that_have_it_with_its_interval():
    assert shares(CURVE, "strict") == ({0: 0.5}, {0: wilson_interval(1, 2)})
    assert shares(CURVE, "none") == ({}, {})


def test_several_runs_become_one_picture(tmp_path):
    runs = [make_run(tmp_path / str(i), log) for i, log in enumerate([LOG, OTHER, []])]
    metrics = {"strict": [True, False], "format": [None, None]}
    add_line(runs[0], {"step": 0, "metrics": metrics})  # of one run alone
    plot_runs(runs, tmp_path / "runs.png")
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_a_panel_on_the_page_takes_its_colours_and_its_words_from_the_page():
    reward, lenient, *_ = panels([LOG], [CURVE])
    drawn = svg(reward, [""])
    assert drawn.startswith("<svg") and 'aria-label="0.5 at step 1, 0.7 at step 3"' in drawn
    assert "var(--run0)" in drawn and "currentColor" in drawn and COLORS[0] not in drawn
    assert "http" not in drawn and drawn == svg(reward, [""])
    flat = svg(lenient, [""])  # a band of a single step
    assert "0%" in flat and 'aria-label="1 at step 0, 1 at step 0"' in flat


def test_each_run_of_a_panel_has_its_colour_and_its_words():
    reward, *_ = panels([LOG, OTHER, []], [CURVE, [], []])
    drawn = svg(reward, ["a", "b", "c"])
    assert (
        'aria-label="a: 0.5 at step 1, 0.7 at step 3; b: 0.1 at step 1, 0.1 at step 1; c: "'
        in drawn
    )
    assert "var(--run0)" in drawn and "var(--run1)" in drawn
