"""Several seeds and control arms: figures by hand, and runs that really follow one another."""

import contextlib
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import arms as script
import pytest
from support.launching import ROOT, TINY, warmed
from support.tiny_model import build_tiny_model

from recipes.common.data.recipe import import_recipe
from recipes.common.many_runs import arms
from recipes.common.many_runs.arms import CONFIGURED, mean_and_interval, rewards_of_arm
from recipes.common.utils import machine
from recipes.common.utils.run_files import read_json, write_json, write_rows

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"


def rows(*outcomes):
    return [{"prompt": f"q{i}", "metrics": {"strict": o}} for i, o in enumerate(outcomes)]


@pytest.fixture
def runs(tmp_path):
    """Compare arms whose runs are written down: name -> (before, after) of each seed."""

    def compared(of_arms):
        folders = {}
        for name, evaluations in of_arms.items():
            for seed, (before, after) in enumerate(evaluations):
                folder = tmp_path / f"{name}-{seed}"
                write_rows(folder / "evaluation/before.jsonl", before)
                write_rows(folder / "evaluation/after.jsonl", after)
                write_json(folder / "summary.json", {"minutes": 8.0})
                folders.setdefault(name, {})[seed] = [folder]
        return arms.compare_arms(folders)

    return compared


@pytest.fixture
def won(runs):
    """The same, of 100 rows that are all wrong before, and of which so many are right after."""

    def stages(right):
        return rows(*[False] * 100), rows(*[row < right for row in range(100)])

    return lambda by_arm: runs({arm: list(map(stages, of)) for arm, of in by_arm.items()})


# Figures


def test_seeds_are_averaged_and_the_change_has_an_interval_of_its_own(runs):
    first = (rows(False, False), rows(True, True))
    second = (rows(False, True), rows(False, True))
    table = runs({CONFIGURED: [first, second]})
    assert table["before"].tolist() == [0.0, 0.5] and table["p"].tolist() == [0.5, 1.0]
    # 0.75 +- 12.7 * 0.25, cut at what a share can be
    assert mean_and_interval(table, "after") == (0.75, (0.0, 1.0))
    assert mean_and_interval(table, "change") == (0.5, (-1.0, 1.0))


def test_over_seeds_a_difference_between_arms_is_paired_by_seed(won):
    """Both arms differ much between seeds, and always by 9 to 11 points from each other."""
    table = won({CONFIGURED: (20, 40, 60), "sft": (11, 30, 49)})
    mean, (low, high) = mean_and_interval(table[table["arm"] == "sft"], "beyond")
    half = 4.3027 * 0.01 / 3**0.5
    assert (mean, low, high) == pytest.approx((0.1, 0.1 - half, 0.1 + half), abs=1e-4)


def test_seeds_that_end_alike_are_no_surer_than_the_questions_of_one_of_them(won):
    table = won({CONFIGURED: (1, 1), "random": (0, 0)})
    one = won({CONFIGURED: (1,), "random": (0,)})
    for column in ("after", "change", "beyond"):
        of_two, of_one = (runs[runs["arm"] == "random"] for runs in (table, one))
        assert mean_and_interval(of_two, column) == mean_and_interval(of_one, column)
    assert arms.verdict_of(table).endswith("Its own gain may be chance.")


def test_arms_with_other_rows_are_not_compared(runs):
    whole, part = ((rows(*[False] * n), rows(*[True] * n)) for n in (9, 8))
    with pytest.raises(ValueError, match="not evaluated on the same rows"):
        runs({CONFIGURED: [whole], "random": [part]})


GAINED = "The run as configured gained"


@pytest.mark.parametrize(
    ("of_seeds", "start", "end"),
    [
        (
            {CONFIGURED: [60], "random": [10], "format-only": [30]},
            f"{GAINED} +60.0 pt (+49 to +69); it ends +30.0 pt (+20 to +39) above the best",
            " control run, format-only. That part of the gain came from what format-only lacks, "
            "in these runs.",
        ),
        ({CONFIGURED: [60], "random": [59]}, f"{GAINED} +60", "random may bring all of the gain."),
        # p 0.03: the best of four is no better at 0.05 / 4
        (
            {CONFIGURED: [9], "sft": [15], "random": [0], "constant": [0], "majority": [0]},
            f"{GAINED} +9.0 pt",
            "chance: sft may bring all of the gain.",
        ),
        ({CONFIGURED: [4]}, f"{GAINED} +4.0 pt (", "). That may be chance."),
        ({CONFIGURED: [9]}, f"{GAINED} +9.0 pt (", ")."),
        ({CONFIGURED: [9], "sft": [60]}, f"{GAINED} +9", "sft does better, in these runs."),
        ({CONFIGURED: [2], "sft": [60]}, f"{GAINED} +2", "runs. Its own gain may be chance."),
        # McNemar 0.125
        ({CONFIGURED: [4], "random": [0]}, f"{GAINED} +4.0 pt", "Its own gain may be chance."),
        # however sure each seed is
        ({CONFIGURED: [90, 10, 10], "constant": [0] * 3}, f"{GAINED} +36.7", "may be chance."),
    ],
)
def test_the_verdict_is_of_the_best_other_arm_and_of_what_is_shown(won, of_seeds, start, end):
    text = arms.verdict_of(won(of_seeds))
    assert text.startswith(start) and text.endswith(end)


@pytest.mark.parametrize(
    ("lost", "words"),
    [([1], "That may be chance."), ([9], "It got worse."), ([9, 10], "It got worse.")],
)
def test_a_run_that_fell_is_said_to_have_got_worse_or_to_have_met_chance(runs, lost, words):
    stages = [(rows(*[True] * 20), rows(*[row >= n for row in range(20)])) for n in lost]
    assert arms.verdict_of(runs({CONFIGURED: stages})).endswith(f"). {words}")


def test_the_table_has_a_line_for_each_arm_and_for_each_of_its_seeds(won):
    def lines(of_seeds):
        return [" ".join(line.split()) for line in arms.arms_table(won(of_seeds)).splitlines()]

    one = lines({CONFIGURED: [60]})
    assert one[0] == "correct in format, 100 test questions"
    assert one[2] == "as configured 8.0 0.0 % 60.0 % (50-69) +60.0 pt (+49 to +69) 1.7e-18 -"
    two = lines({CONFIGURED: [40, 60], "sft": [30, 20]})
    assert two[4] == "as configured 8.0 0.0 % 50.0 % (0-100) +50.0 pt (-77 to +100) - -"
    seed = "seed 1 8.0 0.0 % 20.0 % (13-29) +20.0 pt (+11 to +28) 1.9e-06 +40.0 pt (+29 to +49)"
    assert two[6] == seed


# What an arm runs with


@pytest.mark.parametrize(
    ("arm", "words"),
    [
        ("format-only", "--reward_funcs xml_format prose"),
        ("random", "--reward_funcs random"),
        ("sft", ""),
    ],
)
def test_an_arm_has_its_rewards_alone(arm, words):
    settings = {"reward_funcs": ["gsm8k_correctness", "xml_format", "prose", "number_count"]}
    assert rewards_of_arm(settings, arm) == words.split()


def test_an_arm_that_would_show_nothing_or_another_run_is_left_out_or_refused():
    for names in (["gsm8k_correctness"], ["xml_format"]):  # no format, nothing else
        assert rewards_of_arm({"reward_funcs": names}, "format-only") is None
    with pytest.raises(ValueError, match="a preset may add a reward to a control run"):
        rewards_of_arm({"reward_funcs": ["xml_format"], "preset": "dapo"}, "random")


def test_supervised_steps_do_not_take_the_learning_rate_of_grpo_for_their_own():
    options = Namespace(config=QUICKSTART, arms=["sft"])
    with pytest.raises(ValueError, match="--learning_rate cannot be given: control runs follow"):
        arms.run_arms(options, ["--learning_rate", "1e-6"])


def test_supervised_steps_of_another_number_are_not_taken_for_those_that_are_asked_for(tmp_path):
    write_json(tmp_path / "warm_start.json", {"rows": 1024, "steps": 64})
    assert arms.supervise(None, [], 1024, 64, tmp_path) == tmp_path
    with pytest.raises(ValueError, match="has 64 steps, 1024 rows: remove it"):
        arms.supervise(None, [], 2048, 128, tmp_path)


# Runs


def test_runs_are_looked_for_where_the_recipe_writes_them(tmp_path, monkeypatch):
    def stop(options, stem, *rest):
        raise ValueError(f"in {stem}")

    (tmp_path / "run.yaml").write_text("output_dir: $MINE/some\n")
    monkeypatch.setenv("MINE", "/mine")
    monkeypatch.setattr(arms, "run_arm", stop)
    options = Namespace(config=tmp_path / "run.yaml", arms=[], seeds=[0], output_dir=None)
    with pytest.raises(ValueError, match=r"run\.yaml has no train\.py next to it"):
        arms.run_arms(options, [])
    (tmp_path / "train.py").touch()
    with pytest.raises(ValueError, match=r"^in /mine/some$"):
        arms.run_arms(options, [])
    monkeypatch.delenv("MINE")
    with pytest.raises(ValueError, match="the variable MINE is not set: export it"):
        arms.run_arms(options, [])


@pytest.fixture
def warm(monkeypatch):
    """What the series starts does not wait for its imports."""
    begin = subprocess.Popen
    warm = SimpleNamespace(Popen=lambda words, **options: begin(warmed(words), **options))
    monkeypatch.setattr(arms, "subprocess", warm)


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_a_run_gets_its_folder_and_group_and_its_failure_stops_the_series(
    tmp_path, monkeypatch, capfd
):
    """The recipe here needs no model: it prints what it was given, and fails where asked to."""
    (tmp_path / "train.py").write_text(
        "import os, sys\nprint(sys.argv[1:], os.environ['WANDB_RUN_GROUP'])\n"
        "sys.exit(2 * ('--fail' in sys.argv))\n"
    )
    (tmp_path / "run.yaml").write_text("output_dir: runs/some\n")
    launch = ROOT / "accelerate_configs/cpu.yaml"
    options = Namespace(config=tmp_path / "run.yaml", launch=launch, num_processes=None)
    arms.train(options, tmp_path / "out", ["--seed", "3"])
    words = ["--config", str(options.config), "--seed", "3"]
    words += ["--run_name", "out", "--output_dir", str(tmp_path / "out")]
    assert f"{words} some" in capfd.readouterr().out
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")  # a user's own group wins
    with pytest.raises(SystemExit) as stop:
        arms.train(options, tmp_path / "out", ["--fail"])
    printed = capfd.readouterr()
    assert stop.value.code != 0 and "] mine" in printed.out
    assert "the same command (without --fresh) goes on" in printed.err


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
def test_seeds_and_control_arms_share_their_runs_and_leave_one_table(tmp_path, monkeypatch, capsys):
    """In this process but for the supervised steps: a test above launches."""

    def train_here(options, folder, words):
        with monkeypatch.context() as patch, contextlib.suppress(SystemExit):  # a finished run
            config = ["--config", str(options.config), "--output_dir", str(folder)]
            patch.setattr(sys, "argv", ["train.py", *config, *words])
            import_recipe(options.config).main()
        return folder

    def run(*more):
        monkeypatch.setattr(sys, "argv", ["arms.py", *words, *more])
        script.main()
        return capsys.readouterr().out

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(machine, "use_all_cores", lambda training: None)
    monkeypatch.setattr(arms, "train", train_here)
    files = {"config": QUICKSTART, "launch": ROOT / "accelerate_configs/cpu.yaml"}
    settings = {**files, "output_dir": tmp_path / "q.5", "max_steps": 1, "bf16": "false", **TINY}
    settings["model_name_or_path"] = build_tiny_model(tmp_path / "model")
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    assert "as configured" in run("--seeds", "0", "1")
    assert (tmp_path / "q.5-arms.html").is_file()
    names, sft = ["constant", "sft", "sft+grpo"], ["--sft_steps", "1", "--sft_rows", "4"]
    output = run("--seeds", "0", *sft, "--warm_steps", "1", "--arms", *names)
    assert "is finished" in output  # the run as configured is the one above
    figures = read_json(tmp_path / "q.5-arms.json")["runs"]
    strict = {line["arm"]: line for line in figures if line["metric"] == "strict"}
    assert list(strict) == [CONFIGURED, *names]
    constant = strict["constant"]  # it cannot have changed a weight
    assert (constant["change"], constant["p"]) == (0.0, 1.0)
    trained = read_json(tmp_path / "q.5-constant-seed0/run_config.json")
    assert trained["reward_funcs"] == ["constant"]
    after_sft = read_json(tmp_path / "q.5-sft-grpo-seed0/run_config.json")
    assert after_sft["model_name_or_path"] == str(tmp_path / "q.5-warm-start-seed0")
