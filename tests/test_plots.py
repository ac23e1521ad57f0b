"""Curves: what is drawn is what was logged."""

import json

import pytest

from recipes.common.after.plots import plot_runs, smooth
from recipes.common.tools.folder import read_log

LOG = [
    {"step": 1, "reward": 0.5, "rewards/a/mean": 0.5, "completions/mean_length": 10.0, "kl": 0.01},
    {"step": 2, "loss": 0.1},  # a step that reuses a generation logs no reward
    {"step": 3, "reward": 0.7, "rewards/a/mean": None, "completions/mean_length": 12.0, "kl": 0.02},
]


def make_run(folder, log=LOG):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    return folder


def test_smooth_is_a_weighted_mean_of_the_values_so_far():
    assert smooth([1.0, 3.0], weight=0.5) == [1.0, pytest.approx(7 / 3)]
    assert smooth([2.0, 2.0, 2.0]) == pytest.approx([2.0, 2.0, 2.0])


def test_read_log_keeps_the_steps_that_have_rewards(tmp_path):
    assert [entry["step"] for entry in read_log(make_run(tmp_path / "run"))] == [1, 3]


def test_a_run_that_is_not_finished_is_read_from_its_checkpoint(tmp_path):
    make_run(tmp_path / "run" / "checkpoint-3")
    assert len(read_log(tmp_path / "run")) == 2


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="is it a run folder"):
        read_log(tmp_path)


def test_several_runs_with_other_rewards_become_one_picture(tmp_path):
    other = [{"step": 1, "reward": 0.1, "rewards/b/mean": 0.1}]
    plot_runs([make_run(tmp_path / "x"), make_run(tmp_path / "y", other)], tmp_path / "both.png")
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_logged_steps_still_draws(tmp_path):
    plot_runs([make_run(tmp_path / "x", [])], tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 0
