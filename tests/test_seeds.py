"""Several seeds and arms: figures by hand, and runs that really follow one another."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys

import control_arms
import pytest
import seeds
from support.launching import ROOT, TINY
from support.tiny_model import build_tiny_model

from recipes.common import run as life
from recipes.common.data.recipe import import_recipe
from recipes.common.many_runs import best_prompt, control, runs
from recipes.common.many_runs.control import run_arms
from recipes.common.many_runs.runs import (
    launch_words,
    over_seeds,
    read_settings,
    run_seeds,
    seeds_table,
    train,
)
from recipes.common.utils.run_files import read_evaluation, write_rows
from recipes.common.utils.stats import paired_interval, wilson_interval

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
arms = functools.partial(run_arms, chosen=[], sft=(1, 1), warm_steps=1)


def rows(outcomes, metric="strict"):
    return [{"prompt": f"q{i}", "metrics": {metric: outcome}} for i, outcome in enumerate(outcomes)]


def test_seeds_are_averaged_and_the_change_has_an_interval_of_its_own():
    first = (rows([False, False]), rows([True, True]))
    second = (rows([False, True]), rows([False, True]))
    strict = over_seeds([first, second])["strict"]
    assert strict["before"]["seeds"] == [0.0, 0.5]
    # 0.75 +- 12.7 * 0.25, cut at what a share can be
    assert strict["after"] == {"seeds": [1.0, 0.5], "mean": 0.75, "interval": (0.0, 1.0)}
    each = {
        "seeds": [1.0, 0.0],
        "p": [0.5, 1.0],
        "changed": [1.0, 0.0],
    }  # two rows won; none changed
    assert strict["change"] == {**each, "mean": 0.5, "interval": (-1.0, 1.0)}


def test_a_single_seed_has_intervals_over_its_rows():
    strict = over_seeds([(rows([False] * 9), rows([True] * 9))])["strict"]
    assert strict["after"]["interval"] == wilson_interval(9, 9)
    assert strict["change"]["interval"] == paired_interval([False] * 9, [True] * 9)
    assert seeds_table([0], {"strict": strict}).endswith("95 % over rows, of one seed")


def test_a_row_that_has_a_metric_only_before_or_only_after_is_left_out():
    def stage(*outcomes):
        return [
            {"prompt": f"q{i}", "metrics": {} if o is None else {"strict": o}}
            for i, o in enumerate(outcomes)
        ]

    strict = over_seeds([(stage(None, False, True, True), stage(True, None, True, None))])["strict"]
    assert (strict["n"], strict["change"]["mean"]) == ([1], 0.0)


def test_a_metric_is_of_the_rows_and_seeds_that_have_it():
    other = [{"prompt": "other task", "metrics": {"format": True}}]
    found = over_seeds([(other, other), ([*rows([False]), *other], [*rows([True]), *other])])
    assert list(found) == ["format", "strict"]
    strict = found["strict"]
    assert (strict["n"], strict["change"]["p"]) == ([0, 1], [None, 1.0])
    assert (strict["after"]["seeds"], strict["after"]["mean"]) == ([None, 1.0], 1.0)
    assert "seed 0             - ->       -\n" in seeds_table([0, 1], found)


def test_the_table_names_each_seed_and_takes_no_rows_of_different_seeds_together():
    evaluations = [(rows([False] * 10), rows([True] * n + [False] * (10 - n))) for n in (4, 6)]
    lines = seeds_table([0, 7], over_seeds(evaluations)).splitlines()
    assert [" ".join(line.split()) for line in lines[2:]] == [
        "seed 7 0.0 % -> 60.0 % +60.0 pt McNemar p 0.031",
        "mean 0.0 % -> 50.0 % (0-100) +50.0 pt (-77 to +100) 95 % over seeds (Student)",
    ]


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


@pytest.mark.slow
def test_a_run_gets_its_folder_and_group_and_its_failure_stops_the_series(
    tmp_path, monkeypatch, capfd
):
    """The recipe here needs no model: it prints what it was given, and fails where it is asked to."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(sys.argv[1:], os.environ['WANDB_RUN_GROUP'])\nsys.exit(2 * ('--fail' in sys.argv))\n"
    )
    config, launch = tmp_path / "run.yaml", launch_words(ROOT / "accelerate_configs/cpu.yaml", None)
    config.write_text("output_dir: runs/some\n")
    train(config, launch, tmp_path / "out", ["--seed", "3"])
    words = ["--config", str(config), "--seed", "3", "--output_dir", str(tmp_path / "out")]
    assert f"{words} some" in capfd.readouterr().out
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")  # a user's own group wins
    with pytest.raises(SystemExit) as stop:
        train(config, launch, tmp_path / "out", ["--fail"])
    printed = capfd.readouterr()
    assert stop.value.code != 0 and "] mine" in printed.out
    assert "the same command (without --fresh) goes on" in printed.err


@pytest.mark.parametrize(
    ("function", "seeds", "words"),
    [
        (run_seeds, [0], ["--seed", "5"]),
        (run_seeds, [0], ["--output-dir", "x"]),
        (run_seeds, [0, 0], []),
        (arms, [0], ["--reward-funcs", "constant"]),
        (arms, [0], ["--reward_weights=1"]),
        (arms, [0], ["--preset", "dapo"]),
    ],
)
def test_what_a_script_sets_itself_cannot_be_given(function, seeds, words):
    with pytest.raises(ValueError, match=r"cannot be given: |names a seed twice"):
        function(QUICKSTART, seeds, [], None, words)


def test_an_interrupt_is_left_to_the_run(tmp_path):
    """Ctrl-C reaches the whole group: the script waits for the run, which saves and ends by itself."""
    (tmp_path / "run.py").write_text(
        "import pathlib, sys, time\ntime.sleep(1)\n"  # until the script waits
        "try:\n    print('up', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1); pathlib.Path('saved').touch(); sys.exit(130)\n"
    )
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\nfrom recipes.common.many_runs.runs import _wait\n"
        "with subprocess.Popen([sys.executable, 'run.py']) as process:\n    sys.exit(_wait(process))\n"
    )
    words, env = [sys.executable, "script.py"], {**os.environ, "PYTHONPATH": str(ROOT)}
    restore = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a background job starts with it ignored
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        signal.signal(signal.SIGINT, restore)
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    assert (tmp_path / "saved").exists()


@pytest.mark.slow
def test_seeds_and_control_arms_share_their_runs_and_leave_their_tables(
    tmp_path, monkeypatch, capsys
):
    """In this process: the test above launches."""

    def train_here(config, launch, folder, arguments):
        with (
            monkeypatch.context() as patch,
            contextlib.suppress(SystemExit),
        ):  # a finished run ends so
            patch.setattr(
                sys,
                "argv",
                ["train.py", "--config", str(config), "--output_dir", str(folder), *arguments],
            )
            import_recipe(config).main()
        return folder

    def run(script, *more):
        monkeypatch.setattr(sys, "argv", [script.__name__, *words, *more])
        script.main()
        return capsys.readouterr().out

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(life, "use_all_cores", lambda training: None)
    monkeypatch.setattr(best_prompt, "VALIDATION_ROWS", 2)
    for module in (runs, control):
        monkeypatch.setattr(module, "train", train_here)
    words = [
        "--config",
        "recipes/arithmetic/quickstart.yaml",
        "--launch",
        "accelerate_configs/cpu.yaml",
    ]
    words += ["--output_dir", str(tmp_path / "q"), "--max_steps", "1", "--bf16", "false"]
    words += ["--model_name_or_path", str(build_tiny_model(tmp_path / "model"))]
    words += [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
    assert "mean" in run(seeds, "--seeds", "0", "1")
    names = ["constant", "sft", "sft+grpo", "best-prompt"]
    output = run(
        control_arms,
        "--seeds",
        "0",
        "--sft_steps",
        "1",
        "--sft_rows",
        "4",
        "--warm_steps",
        "1",
        "--arms",
        *names,
    )
    assert "is finished" in output  # the run as configured is the one of scripts/seeds.py
    found = json.loads((tmp_path / "q-control.json").read_text())
    arms = found["arms"]
    assert (
        list(arms) == ["as configured", *names, "untrained"]
        and list(found["minutes"]) == list(arms)[:-1]
    )
    for arm in ("constant", "untrained"):  # neither can have changed a weight
        assert (arms[arm]["strict"]["change"]["mean"], arms[arm]["strict"]["change"]["p"]) == (
            0.0,
            [1.0],
        )
    config = json.loads((tmp_path / "q-sft-grpo-seed0" / "run_config.json").read_text())
    assert config["model_name_or_path"] == str(tmp_path / "q-warm-start-seed0")
    assert (
        len(json.loads((tmp_path / "q-best-prompt-seed0" / "prompts.json").read_text())["tried"])
        == 10
    )
    texts = [
        [row["completion"] for row in rows]
        for rows in read_evaluation(tmp_path / "q-constant-seed0")
    ]
    assert texts[0] == texts[1]
    found = json.loads((tmp_path / "q-seeds.json").read_text())
    assert found["seeds"] == [0, 1] and len(found["metrics"]["strict"]["after"]["seeds"]) == 2
    assert (tmp_path / "q-seeds.png").is_file()
    config = json.loads((tmp_path / "q-constant-seed0" / "run_config.json").read_text())
    assert config["reward_funcs"] == ["constant"]
