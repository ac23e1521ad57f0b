"""Curves: what is drawn is what was logged."""

import json

import pytest

from recipes.common.evaluation.curve import add_line
from recipes.common.report.plots import curve, panels, plot_runs, shares, validation_shares
from recipes.common.utils.run_files import read_log
from recipes.common.utils.stats import wilson_interval

LOG = [
    {"step": 1, "reward": 0.5, "rewards/a/mean": 0.5, "completions/mean_length": 10.0, "kl": 0.01},
    {"step": 2, "loss": 0.1},  # a step that reuses a generation logs no reward
    {
        "step": 3,
        "reward": 0.7,
        "rewards/a/mean": None,
        "completions/mean_length": float("nan"),
        "kl": 0.02,
    },
]
OTHER = [{"step": 1, "reward": 0.1, "step_rewards/b/mean": 0.1}]


def make_run(folder, log=LOG):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    return folder


def test_the_log_is_read_from_the_final_state_or_the_newest_checkpoint(tmp_path):
    assert [entry["step"] for entry in read_log(make_run(tmp_path / "run"))] == [1, 3]
    make_run(tmp_path / "other" / "checkpoint-3")
    assert len(read_log(tmp_path / "other")) == 2
    with pytest.raises(FileNotFoundError, match="is it a run folder"):
        read_log(tmp_path)


def test_a_panel_is_drawn_of_each_key_that_any_run_logged():
    keys = [key for _, key in panels([LOG, OTHER])]
    assert keys == [
        "reward",
        "rewards/a/mean",
        "step_rewards/b/mean",
        "completions/mean_length",
        "kl",
    ]
    assert curve(LOG, "reward") == {1: 0.5, 3: 0.7}
    assert curve(LOG, "completions/mean_length") == {1: 10.0}  # NaN is not drawn


def test_a_validation_metric_is_a_share_of_the_rows_that_have_it_with_its_interval():
    lines = [
        {"step": 0, "metrics": {"a": [True, None, False]}},
        {"step": 4, "metrics": {"a": [None, None, None], "b": []}},
    ]
    assert shares(lines, "a") == {0: (0.5, *wilson_interval(1, 2))} and shares(lines, "b") == {}
    both = validation_shares([lines[:1], lines])
    assert both == {"a": [shares(lines, "a")] * 2, "b": [{}, {}]}


@pytest.mark.parametrize("band", [False, True])
@pytest.mark.parametrize(
    "logs", [[LOG, OTHER], [LOG, LOG], [[]]], ids=["other rewards", "the same", "no step"]
)
def test_several_runs_become_one_picture(tmp_path, logs, band):
    runs = [make_run(tmp_path / str(i), log) for i, log in enumerate(logs)]
    for step in (0, 2):  # of one run alone
        add_line(
            runs[0], {"step": step, "metrics": {"strict": [True, False], "format": [None, None]}}
        )
    plot_runs(runs, tmp_path / "runs.png", band)
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")
