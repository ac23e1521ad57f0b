"""Several seeds taken together: figures by hand, and runs that really follow one another."""

import json
import os
import signal
import subprocess
import sys

import pytest
from support.launching import ROOT, TINY
from support.tiny_model import build_tiny_model

from recipes.common.after.plots import plot_runs
from recipes.common.many_runs.runs import launch_words, over_seeds, read_evaluation, read_settings, seeds_table, train
from recipes.common.tools.folder import write_rows


def rows(outcomes, metric="strict"):
    return [{"prompt": f"q{i}", "metrics": {metric: outcome}} for i, outcome in enumerate(outcomes)]


def test_seeds_are_averaged_and_pooled():
    first = (rows([False, False]), rows([True, True]))
    second = (rows([False, True]), rows([False, True]))
    strict = over_seeds([first, second])["strict"]
    assert strict["before"]["seeds"] == [0.0, 0.5]
    assert strict["after"]["seeds"] == [1.0, 0.5]
    assert strict["after"]["mean"] == 0.75
    assert strict["after"]["n"] == 4
    assert strict["after"]["interval"] == (0.0, 1.0)  # 0.75 +- 12.7 * 0.25, cut at what a share can be
    assert [round(end, 4) for end in strict["after"]["pooled"]] == [0.3006, 0.9544]  # Wilson, 3 of 4
    assert strict["p"] == [0.5, 1.0]  # of each seed: two rows won; none changed
    assert strict["after"]["prompts"] == 2  # q0 and q1 stand in both seeds


def test_a_single_seed_has_no_interval_over_seeds():
    strict = over_seeds([(rows([False]), rows([True]))])["strict"]
    assert strict["after"]["interval"] is None
    assert "Student" not in seeds_table([0], {"strict": strict})


def test_rows_without_a_metric_are_left_out_of_it():
    mixed = [*rows([True]), {"prompt": "other task", "metrics": {"format": True}}]
    assert over_seeds([(mixed, mixed)])["strict"]["after"]["n"] == 1


def test_a_metric_that_one_seed_lacks_is_of_the_others():
    other = [{"prompt": "other task", "metrics": {"format": True}}]
    found = over_seeds([(other, other), (rows([False]), rows([True]))])
    assert list(found) == ["format", "strict"]
    assert (found["strict"]["after"]["seeds"], found["strict"]["after"]["mean"]) == ([None, 1.0], 1.0)
    assert found["strict"]["p"] == [None, 1.0]
    assert "seed 0             - ->       -\n" in seeds_table([0, 1], found)


def test_the_table_names_each_seed_and_both_intervals():
    evaluations = [(rows([False] * 10), rows([True] * n + [False] * (10 - n))) for n in (4, 6)]
    table = seeds_table([0, 7], over_seeds(evaluations))
    assert "seed 7         0.0 % ->  60.0 %   +60.0 pt   McNemar p 0.031" in table
    assert "mean           0.0 % ->  50.0 %" in table
    assert "over seeds (Student)      0 to 100 %" in table
    assert "over 20 rows (Wilson)   30 to 70 %, 10 of them different" in table


def test_a_folder_without_both_evaluations_is_refused(tmp_path):
    write_rows(tmp_path / "evaluation" / "before.jsonl", rows([True]))
    with pytest.raises(ValueError, match=r"after\.jsonl missing: is .* a finished run"):
        read_evaluation(tmp_path)


@pytest.mark.parametrize("text", ["- a list", "seed: 0", "a: [", ""])
def test_a_yaml_that_is_no_run_is_refused(tmp_path, text):
    (tmp_path / "train.py").touch()
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"run\.yaml"):
        read_settings(tmp_path / "run.yaml")


def test_a_yaml_outside_a_recipe_is_refused(tmp_path):
    (tmp_path / "run.yaml").write_text("output_dir: x")
    with pytest.raises(ValueError, match=r"no train\.py beside it"):
        read_settings(tmp_path / "run.yaml")


def stub_recipe(folder, body):
    """A recipe that needs no model: it leaves what it was given and ends as `body` says."""
    (folder / "train.py").write_text(f"import os, sys\n{body}\n")
    config = folder / "run.yaml"
    config.write_text("output_dir: runs/some\n")
    return config


@pytest.mark.slow
def test_a_run_gets_its_folder_and_group_and_a_users_group_wins(tmp_path, monkeypatch, capfd):
    config = stub_recipe(tmp_path, "print(sys.argv[1:], os.environ['WANDB_RUN_GROUP'])")
    launch = launch_words(ROOT / "accelerate_configs/cpu.yaml", None)
    train(config, launch, tmp_path / "out", ["--seed", "3"])
    told = ["--config", str(config), "--seed", "3", "--output_dir", str(tmp_path / "out")]
    assert f"{told} some" in capfd.readouterr().out
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")
    train(config, launch, tmp_path / "out", [])
    assert "mine" in capfd.readouterr().out


@pytest.mark.slow
def test_a_run_that_fails_stops_the_series_with_its_status(tmp_path, capfd):
    config = stub_recipe(tmp_path, "sys.exit(2)")
    with pytest.raises(SystemExit) as stop:
        train(config, launch_words(ROOT / "accelerate_configs/cpu.yaml", None), tmp_path / "out", [])
    assert stop.value.code != 0
    assert "the same command (without --fresh) goes on" in capfd.readouterr().err


def test_a_band_is_drawn_over_the_steps_that_all_runs_have(tmp_path):
    for name, steps in (("a", 3), ("b", 2)):
        log = [{"step": step, "reward": step * 0.5, "rewards/x/mean": 0.1} for step in range(1, steps + 1)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    plot_runs([tmp_path / "a", tmp_path / "b"], tmp_path / "band.png", band=True)
    assert (tmp_path / "band.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("seeds", ["--seeds", "0", "--seed", "5"]),
        ("seeds", ["--seeds", "0", "--output-dir", "x"]),
        ("seeds", ["--seeds", "0", "0"]),
        ("control_arms", ["--reward-funcs", "constant"]),
        pytest.param("control_arms", ["--reward_weights=1"], marks=pytest.mark.slow),
        pytest.param("control_arms", ["--step_reward_funcs", "equation_steps"], marks=pytest.mark.slow),
        pytest.param("control_arms", ["--preset", "dapo"], marks=pytest.mark.slow),
    ],
)
def test_what_a_script_sets_itself_cannot_be_given(script, words):
    command = [sys.executable, f"scripts/{script}.py", "--config", "recipes/arithmetic/quickstart.yaml", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be given" in done.stderr or "names a seed twice" in done.stderr


def test_an_interrupt_is_left_to_the_run(tmp_path):
    """Ctrl-C reaches the whole group: the script waits for the run, which saves and ends by itself."""
    (tmp_path / "run.py").write_text(
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(1)\n"
        f"    pathlib.Path({str(tmp_path / 'saved')!r}).touch()\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, save)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    (tmp_path / "script.py").write_text(
        "import subprocess, sys\n"
        "from recipes.common.many_runs.runs import _wait\n"
        f"with subprocess.Popen([sys.executable, {str(tmp_path / 'run.py')!r}]) as process:\n"
        "    sys.exit(_wait(process))\n"
    )
    words = [sys.executable, str(tmp_path / "script.py")]
    restore = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with it ignored
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as process:
        signal.signal(signal.SIGINT, restore)
        assert process.stdout.readline() == b"up\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("script", ["seeds", "control_arms", "compare", "ledger"])
def test_help_does_not_wait_for_torch(script):
    words = [sys.executable, "-X", "importtime", f"scripts/{script}.py", "--help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "usage:" in done.stdout
    assert " torch\n" not in done.stderr


@pytest.mark.slow
def test_seeds_and_control_arms_share_their_runs_and_leave_their_tables(tmp_path):
    tiny = build_tiny_model(tmp_path / "model")
    words = ["--config", "recipes/arithmetic/quickstart.yaml", "--launch", "accelerate_configs/cpu.yaml"]
    words += ["--output_dir", str(tmp_path / "q"), "--max_steps", "1", "--model_name_or_path", str(tiny)]
    words += [word for name, value in TINY.items() for word in (f"--{name}", str(value))]

    def run(script, *more):
        command = [sys.executable, f"scripts/{script}.py", *words, *more]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    assert "mean" in run("seeds", "--seeds", "0", "1")
    said = run("control_arms", "--seeds", "0")
    assert "is finished" in said  # the run as configured is the one of scripts/seeds.py
    control = json.loads((tmp_path / "q-control.json").read_text())["arms"]
    assert list(control) == ["as configured", "random", "constant", "format-only", "untrained"]
    for arm in ("constant", "untrained"):  # neither can have changed a weight
        assert (control[arm]["strict"]["change"]["share"], control[arm]["strict"]["change"]["p"]) == (0.0, 1.0)
    texts = [[row["completion"] for row in rows] for rows in read_evaluation(tmp_path / "q-constant-seed0")]
    assert texts[0] == texts[1]
    seeds = json.loads((tmp_path / "q-seeds.json").read_text())
    assert seeds["seeds"] == [0, 1] and len(seeds["metrics"]["strict"]["after"]["seeds"]) == 2
    assert (tmp_path / "q-seeds.png").is_file()
    config = json.loads((tmp_path / "q-random-seed0" / "run_config.json").read_text())
    assert config["reward_funcs"] == ["random"]
