"""Several seeds and control arms: figures by hand, and runs that really follow one another."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import arms as script
import pytest
from support.launching import ROOT, TINY
from support.tiny_model import build_tiny_model

from recipes.common import run as life
from recipes.common.data.recipe import import_recipe
from recipes.common.many_runs import arms
from recipes.common.many_runs.arms import (
    CONFIGURED,
    Series,
    arms_table,
    compare_arms,
    read_settings,
    rewards_of_arms,
    run_series,
    supervise,
    train,
    verdict,
)
from recipes.common.utils.run_files import WARM_START, read_evaluation, write_json, write_rows
from recipes.common.utils.stats import paired_interval, wilson_interval

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
CPU = ROOT / "accelerate_configs/cpu.yaml"


def rows(outcomes, metric="strict"):
    return [{"prompt": f"q{i}", "metrics": {metric: outcome}} for i, outcome in enumerate(outcomes)]


def arm(won, n=100):
    """One seed: all rows wrong before, the first `won` right after."""
    return rows([False] * n), rows([row < won for row in range(n)])


def of_seeds(*evaluations):
    """The figures of the run as configured, by metric."""
    found = compare_arms({CONFIGURED: list(evaluations)})
    return {metric: of_arms[CONFIGURED] for metric, of_arms in found.items()}


def lines_of(seeds, **won):
    """The table of arms of which so many rows of 100 were won with each seed, spaces apart."""
    compared = compare_arms({name: list(map(arm, of)) for name, of in won.items()})
    table = arms_table(seeds, compared, {name: [8.0] * len(seeds) for name in won})
    return [" ".join(line.split()) for line in table.splitlines()]


# --------------------------------------------------------------------------- figures


def test_seeds_are_averaged_and_the_change_has_an_interval_of_its_own():
    first = (rows([False, False]), rows([True, True]))
    second = (rows([False, True]), rows([False, True]))
    strict = of_seeds(first, second)["strict"]
    assert strict["before"]["seeds"] == [0.0, 0.5]
    # 0.75 +- 12.7 * 0.25, cut at what a share can be
    assert strict["after"] == {"seeds": [1.0, 0.5], "mean": 0.75, "interval": (0.0, 1.0)}
    assert strict["change"] == {
        "seeds": [1.0, 0.0],
        "p": [0.5, 1.0],
        "mean": 0.5,
        "interval": (-1.0, 1.0),
    }


def test_a_single_seed_has_intervals_over_its_rows():
    strict = of_seeds((rows([False] * 9), rows([True] * 9)))["strict"]
    assert strict["after"]["interval"] == wilson_interval(9, 9)
    assert strict["change"]["interval"] == paired_interval([False] * 9, [True] * 9)


def test_a_row_that_has_a_metric_only_before_or_only_after_is_left_out():
    old, new = rows([None, False, True, True]), rows([True, None, True, None])
    strict = of_seeds((old, new))["strict"]
    assert (strict["n"], strict["change"]["mean"]) == ([1], 0.0)


def test_a_metric_is_of_the_rows_and_seeds_that_have_it():
    other = [{"prompt": "other task", "metrics": {"format": True}}]
    found = of_seeds((other, other), ([*rows([False]), *other], [*rows([True]), *other]))
    assert list(found) == ["format", "strict"]
    strict = found["strict"]
    assert (strict["n"], strict["change"]["p"]) == ([0, 1], [None, 1.0])
    assert (strict["after"]["seeds"], strict["after"]["mean"]) == ([None, 1.0], 1.0)
    compared = {name: {CONFIGURED: figures} for name, figures in found.items()}
    table = arms_table([0, 1], compared, {CONFIGURED: [1.0, 1.0]})
    assert "seed 0 1.0 - - - - -" in " ".join(table.split())


def test_over_seeds_a_difference_between_arms_is_paired_by_seed():
    """Both arms differ much between seeds, and always by 9 to 11 points from each other."""
    won = {CONFIGURED: (20, 40, 60), "sft": (11, 30, 49)}
    sft = compare_arms({name: list(map(arm, of)) for name, of in won.items()})["strict"]["sft"]
    assert sft["beyond"]["seeds"] == pytest.approx([0.09, 0.1, 0.11])
    half = 4.3027 * 0.01 / 3**0.5
    assert sft["beyond"]["interval"] == pytest.approx((0.1 - half, 0.1 + half), abs=1e-4)
    assert sft["after"]["mean"] == pytest.approx(0.3)


def test_arms_with_other_rows_are_not_compared():
    with pytest.raises(ValueError, match="not evaluated on the same rows"):
        compare_arms({CONFIGURED: [arm(60)], "random": [arm(60, n=99)]})


@pytest.mark.parametrize(
    ("won", "start", "end"),
    [
        (
            {CONFIGURED: [60], "random": [10], "format-only": [30]},
            "gain +60.0 pt (+49 to +69); above the best other arm (format-only) +30.0 pt",
            "What is above it came from what that arm lacks, in the runs at hand.",
        ),
        (
            {CONFIGURED: [60], "random": [59]},
            "gain +60.0 pt",
            "Nothing beyond what random brings is shown.",
        ),
        # McNemar 0.125
        ({CONFIGURED: [4], "random": [0]}, "gain +4.0 pt", "no gain of its own here."),
        ({CONFIGURED: [0], "random": [0]}, "gain +0.0 pt", "no gain of its own here."),
        # however sure each seed is
        (
            {CONFIGURED: [90, 10, 10], "constant": [0, 0, 0]},
            "gain +36.7 pt (-78 to +100)",
            "no gain of its own here.",
        ),
    ],
)
def test_the_verdict_is_of_the_best_other_arm_and_of_what_is_shown(won, start, end):
    found = compare_arms({name: list(map(arm, of)) for name, of in won.items()})
    text = verdict(found["strict"])
    assert text.startswith(start) and text.endswith(end)


def test_the_table_has_a_line_for_each_arm_and_for_each_of_its_seeds():
    won = {CONFIGURED: [60], "constant": [0]}
    lines = lines_of([0], **won)
    assert lines[0] == "strict, 100 held-out rows, seeds 0"
    configured = "as configured 8.0 0.0 % 60.0 % (50-69) +60.0 pt (+49 to +69) 1.7e-18 -"
    constant = "constant 8.0 0.0 % 0.0 % (0-4) +0.0 pt (-3 to +3) 1 +60.0 pt (+49 to +69)"
    assert lines[2:4] == [configured, constant]
    lines = lines_of([0, 7], **{CONFIGURED: [40, 60]})
    assert lines[2:5] == [
        "seed 0 8.0 0.0 % 40.0 % +40.0 pt 1.8e-12 -",
        "seed 7 8.0 0.0 % 60.0 % +60.0 pt 1.7e-18 -",
        "as configured 8.0 0.0 % 50.0 % (0-100) +50.0 pt (-77 to +100) - -",
    ]
    assert lines[-1].startswith("Intervals are over 2 seeds")
    lines = lines_of([0, 7], **{CONFIGURED: [40, 60], "sft": [30, 20]})
    assert lines[5:7] == [
        "seed 0 8.0 0.0 % 30.0 % +30.0 pt 1.9e-09 +10.0 pt",
        "seed 7 8.0 0.0 % 20.0 % +20.0 pt 1.9e-06 +40.0 pt",
    ]


# --------------------------------------------------------------------------- rewards of the arms


def test_the_arms_of_the_quickstart():
    assert rewards_of_arms({"reward_funcs": ["xml_format", "reasoning_gym"]}) == {
        CONFIGURED: [],
        "random": ["--reward_funcs", "random"],
        "constant": ["--reward_funcs", "constant"],
        "majority": ["--reward_funcs", "majority"],
        "format-only": ["--reward_funcs", "xml_format"],
    }


@pytest.mark.parametrize(
    ("names", "tasks"),
    [
        (["gsm8k_correctness"], None),  # no format
        (["xml_format"], None),  # nothing else
        # a task without a format reward
        (["boxed_math", "code_format"], {"boxed_math": ["math"], "code_format": ["code"]}),
    ],
)
def test_format_only_is_left_out_where_it_would_show_nothing(names, tasks):
    found = rewards_of_arms({"reward_funcs": names, "reward_tasks": tasks})
    assert list(found) == [CONFIGURED, "random", "constant", "majority"]


def test_settings_of_rewards_that_are_gone_are_replaced():
    settings = {
        "reward_funcs": ["gsm8k_correctness", "xml_format", "length"],
        "reward_weights": [1.0, 0.5, 0.1],
        "reward_kwargs": {"length": {"target": 50}},
        "reward_gates": {"length": "gsm8k_correctness"},
    }
    found = rewards_of_arms(settings)
    emptied = "--reward_kwargs {} --reward_gates {}"
    of_format = f"--reward_funcs xml_format --reward_weights 0.5 {emptied}"
    assert found["format-only"] == of_format.split()
    assert found["random"] == f"--reward_funcs random --reward_weights 1.0 {emptied}".split()


# --------------------------------------------------------------------------- what is refused


def test_a_preset_that_adds_a_reward_to_each_arm_is_refused():
    with pytest.raises(ValueError, match="adds soft_overlong to every arm"):
        rewards_of_arms({"reward_funcs": ["xml_format", "reasoning_gym"], "preset": "dapo"})


def test_a_warm_start_of_other_settings_is_not_taken_for_the_one_asked_for(tmp_path):
    write_json(tmp_path / WARM_START, {"overrides": ["--seed", "0"], "rows": 256, "steps": 32})
    assert supervise(Path("run.yaml"), ["--seed", "0"], 256, 32, tmp_path) == tmp_path
    with pytest.raises(ValueError, match="a warm start with steps 32, not 64: remove it"):
        supervise(Path("run.yaml"), ["--seed", "0"], 256, 64, tmp_path)


def test_a_yaml_or_a_folder_that_is_not_a_runs_is_refused(tmp_path):
    (tmp_path / "run.yaml").write_text("output_dir: outside a recipe")
    with pytest.raises(ValueError, match=r"run\.yaml.* no train\.py next to it"):
        read_settings(tmp_path / "run.yaml")
    (tmp_path / "train.py").touch()
    for text in ("- a list", "seed: 0", "a: [", ""):
        (tmp_path / "run.yaml").write_text(text)
        with pytest.raises(ValueError, match=r"run\.yaml"):
            read_settings(tmp_path / "run.yaml")
    write_rows(tmp_path / "evaluation" / "before.jsonl", rows([True]))
    with pytest.raises(ValueError, match=r"after\.jsonl missing: is .* a finished run"):
        read_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("seeds", "arms", "words"),
    [
        ([0], [], ["--seed", "5"]),
        ([0], [], ["--output-dir", "x"]),
        ([0, 0], [], []),
        ([0], ["random"], ["--reward-funcs", "constant"]),
        ([0], ["random"], ["--reward_weights=1"]),
        ([0], ["random"], ["--preset", "dapo"]),
    ],
)
def test_what_the_script_sets_itself_cannot_be_given(seeds, arms, words):
    with pytest.raises(ValueError, match=r"cannot be given: |names a seed twice"):
        run_series(Series(QUICKSTART, seeds, arms, words, CPU))


# --------------------------------------------------------------------------- runs


@pytest.mark.slow
def test_a_run_gets_its_folder_and_group_and_its_failure_stops_the_series(
    tmp_path, monkeypatch, capfd
):
    """The recipe here needs no model: it prints what it was given, and fails where asked to."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(sys.argv[1:], os.environ['WANDB_RUN_GROUP'])\n"
        "sys.exit(2 * ('--fail' in sys.argv))\n"
    )
    (tmp_path / "run.yaml").write_text("output_dir: runs/some\n")
    series = Series(tmp_path / "run.yaml", [3], [], [], CPU)
    train(series, tmp_path / "out", ["--seed", "3"])
    words = ["--config", str(series.config), "--seed", "3", "--output_dir", str(tmp_path / "out")]
    assert f"{words} some" in capfd.readouterr().out
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")  # a user's own group wins
    with pytest.raises(SystemExit) as stop:
        train(series, tmp_path / "out", ["--fail"])
    printed = capfd.readouterr()
    assert stop.value.code != 0 and "] mine" in printed.out
    assert "the same command (without --fresh) goes on" in printed.err


@pytest.mark.slow
def test_an_interrupt_is_left_to_the_run(tmp_path):
    """Ctrl-C reaches the whole group: the script waits for the run, which saves and ends itself."""
    (tmp_path / "run.py").write_text(
        "import pathlib, sys, time\ntime.sleep(1)\n"  # until the script waits
        "try:\n    print('up', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(1); pathlib.Path('saved').touch(); sys.exit(130)\n"
    )
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\nfrom recipes.common.many_runs.arms import wait_for\n"
        "with subprocess.Popen([sys.executable, 'run.py']) as process:\n"
        "    sys.exit(wait_for(process))\n"
    )
    words, env = [sys.executable, "script.py"], {**os.environ, "PYTHONPATH": str(ROOT)}
    # A background job starts with it ignored.
    restore = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        signal.signal(signal.SIGINT, restore)
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_seeds_and_control_arms_share_their_runs_and_leave_one_table(tmp_path, monkeypatch, capsys):
    """In this process: a test above launches."""

    def train_here(series, folder, words):
        with monkeypatch.context() as patch, contextlib.suppress(SystemExit):  # a finished run
            config = ["--config", str(series.config), "--output_dir", str(folder)]
            patch.setattr(sys, "argv", ["train.py", *config, *words])
            import_recipe(series.config).main()
        return folder

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["arms.py", *words, *more])
        script.main()
        return capsys.readouterr().out

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(life, "use_all_cores", lambda training: None)
    monkeypatch.setattr(arms, "train", train_here)
    settings = {
        "config": "recipes/arithmetic/quickstart.yaml",
        "launch": "accelerate_configs/cpu.yaml",
        "output_dir": tmp_path / "q",
        "max_steps": 1,
        "bf16": "false",
        "model_name_or_path": build_tiny_model(tmp_path / "model"),
        **TINY,
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    assert "as configured" in run("--seeds", "0", "1")
    assert (tmp_path / "q-arms.png").is_file()
    assert json.loads((tmp_path / "q-arms.json").read_text())["seeds"] == [0, 1]
    names, sft = ["constant", "sft", "sft+grpo"], ["--sft_steps", "1", "--sft_rows", "4"]
    output = run("--seeds", "0", *sft, "--warm_steps", "1", "--arms", *names)
    assert "is finished" in output  # the run as configured is the one above
    found = json.loads((tmp_path / "q-arms.json").read_text())
    strict = found["metrics"]["strict"]
    assert list(strict) == list(found["minutes"]) == [CONFIGURED, *names]
    change = strict["constant"]["change"]  # it cannot have changed a weight
    assert (change["mean"], change["p"]) == (0.0, [1.0])
    stages = read_evaluation(tmp_path / "q-constant-seed0")
    before, after = ([row["completion"] for row in stage] for stage in stages)
    assert before == after
    configs = {
        name: json.loads((tmp_path / f"q-{name}-seed0" / "run_config.json").read_text())
        for name in ("constant", "sft-grpo")
    }
    assert configs["constant"]["reward_funcs"] == ["constant"]
    assert configs["sft-grpo"]["model_name_or_path"] == str(tmp_path / "q-warm-start-seed0")
