"""`watch` in a script of one's own: the very script of the documentation, and what it leaves."""

import importlib
import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import trl
from datasets import Dataset
from support.launching import ROOT, run_on_two
from transformers import TrainerState
from transformers.integrations import WandbCallback

from recipes.common import trainer as our_trainer
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.report.verdict import figures_of
from recipes.common.training.advantages import advantages_of
from recipes.common.training.callbacks import Clock
from recipes.common.training.push import figures, push, pushes, running_interval
from recipes.common.utils import run_files as files
from recipes.common.watch import Watch, watch
from rewards.text import completion_text

ROWS = [{"prompt": "?"}]
SCRIPT = re.search(
    r"## In a script of your own.*?```python\n(.*?)```",
    (ROOT / "docs/running.md").read_text(encoding="utf-8"),
    re.DOTALL,
)[1]


def tiny(model: Path, folder: Path, **changes: str) -> str:
    """The script of the documentation with a tiny model and few steps; all else as it stands."""
    few = {
        "models/SmolLM2-135M-Instruct": str(model),
        "runs/stock": str(folder),
        "max_steps=32": "max_steps=4, save_steps=2, use_cpu=True, log_completions=True",
        "eval_steps=8": "eval_steps=2",
        "max_completion_length=28": "max_completion_length=6",
        "rows[:160]": "rows[:6]",
        "rows[160:200]": "rows[160:164]",
    }
    script = SCRIPT
    for old, new in (*few.items(), *changes.items()):
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    return script


def pushed(run: Path, metric: Callable, name: str, group: int = 4) -> list[float]:
    """The push of each step by the advantages in TRL's own tables of completions.

    `metric` is called with the text alone; `name` is one of its outcomes.
    """
    found = []
    for path in files.completion_files(run):
        table = files.read_completions(path).to_pylist()
        outcomes = [metric(completion_text(row["completion"])) for row in table]
        found.append(pushes(outcomes, [row["advantage"] for row in table], group)[name])
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_script_leaves_the_record_of_a_run_also_where_it_resumes(model, tmp_path):
    folder = tmp_path / "run"
    two_steps = {"max_steps=4": "max_steps=2, lr_scheduler_type='constant'"}
    exec(compile(tiny(model, folder, **two_steps), "script", "exec"), {"__name__": "script"})
    first = (folder / "evaluation/before.jsonl").read_bytes()
    resumed = {"trainer.train()": "trainer.train(resume_from_checkpoint=True)"}
    exec(compile(tiny(model, folder, **resumed), "script", "exec"), {"__name__": "script"})
    assert (folder / "evaluation/before.jsonl").read_bytes() == first
    starts = [start["from_step"] for start in files.read_json(folder / "versions.json")]
    assert starts == [0, 2]
    before, after = files.read_evaluation(folder)
    assert len(before) == len(after) == 6 and before[0]["metrics"].keys() >= {"strict", "lenient"}
    assert [line["step"] for line in files.read_validation(folder)] == [0, 2, 4]
    names = ("report.html", "table.txt", "summary.json", "versions.json")
    assert [name for name in names if not (folder / name).is_file()] == []
    summary = files.read_json(folder / "summary.json")
    assert summary["steps"] == 4 and summary["verdict"]["sentence"]
    log = files.read_log(folder)
    assert [entry["step"] for entry in log] == [1, 2, 3, 4], "each step is logged once"
    assert all({"metrics/lenient", "push/lenient", "push/format"} <= entry.keys() for entry in log)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [trl.GRPOTrainer, our_trainer.GRPOTrainer], ids=["TRL's", "ours"])
def test_the_push_of_a_script_is_that_of_trls_own_advantages(model, tmp_path, kind):
    """The table of completions holds the advantages that TRL trained on."""

    def one(completions, **kwargs):
        return [float(len(set(text))) for text in completions]

    async def other(completions, **kwargs):
        return [None if text.startswith("a") else 1.0 * text.count("e") for text in completions]

    def letters(text):
        return {"letters": len(set(text)) % 2 == 1}

    args = trl.GRPOConfig(
        str(tmp_path), num_generations=4, per_device_train_batch_size=8, max_steps=2, bf16=False,
        use_cpu=True, max_completion_length=8, reward_weights=[1.0, 0.5], log_completions=True,
        logging_steps=1, save_strategy="no", report_to="none", scale_rewards="batch",
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": f"Row {i}:", "gold": "8"} for i in range(8)])
    trainer = kind(str(model), [one, other], args=args, train_dataset=rows)
    # A metric sees the columns of the row.
    watch(trainer, rows.take(2), lambda row, text: letters(text) if row["gold"] == "8" else {})
    trainer.train()
    logged = [entry["push/letters"] for entry in trainer.state.log_history if "reward" in entry]
    assert pushed(tmp_path, letters, "letters") == pytest.approx(logged, abs=1e-5) and all(logged)


def test_a_masked_completion_has_no_advantage_in_the_push_of_a_script(tmp_path):
    def generate_and_score(rows):
        trainer._calculate_rewards(rows, ["?"] * 2, ["a", "b"], None)
        mask = torch.tensor([[1, 1], [0, 0]])  # the second is truncated
        return {"advantages": torch.tensor([0.5, -0.5]), "completion_mask": mask}

    tracker = WandbCallback()  # it must begin before `Watch` logs
    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=str(tmp_path), num_generations=2, report_to=["wandb"]),
        state=TrainerState(max_steps=4, logging_steps=1),
        model=SimpleNamespace(training=True), accelerator=SimpleNamespace(num_processes=1),
        _calculate_rewards=lambda *arguments: None, _metrics={"train": defaultdict(list)},
        _generate_and_score_completions=generate_and_score, add_callback=lambda callback: None,
        callback_handler=SimpleNamespace(callbacks=["flow", tracker, "early stopping"]),
    )  # fmt: skip
    watch(trainer, [], lambda row, text: {"first": text == "a"})
    *first, _, watched, own = trainer.callback_handler.callbacks  # early stopping reads its metrics
    assert isinstance(watched, Watch) and (first, own) == (["flow", tracker], "early stopping")
    trainer._generate_and_score_completions(ROWS * 2)
    assert trainer._metrics["train"]["push/first"] == [0.25]  # unmasked it is 0.5


@pytest.mark.slow
def test_two_processes_leave_one_record_with_the_push_of_both(model, tmp_path):
    folder = tmp_path / "run"
    metric = 'def answer_metric(row, text):\n    return {"odd": len(text) % 2 == 1}\n'
    changes = {
        "from recipes.common.evaluation.metrics import answer_metric\n": metric,
        "float(tag in text)": "float(len(text))",
        "per_device_train_batch_size=8": "per_device_train_batch_size=4",  # half a group each
    }
    (tmp_path / "stock.py").write_text(tiny(model, folder, **changes))
    run_on_two(tmp_path / "stock.py", env={"PYTHONPATH": str(ROOT)})
    before, after = files.read_evaluation(folder)
    assert len(before) == len(after) == 6 and files.read_json(folder / "summary.json")["steps"] == 4
    assert [line["step"] for line in files.read_validation(folder)] == [0, 2, 4]
    logged = [entry["push/odd"] for entry in files.read_log(folder)]
    in_tables = pushed(folder, lambda text: {"odd": len(text) % 2 == 1}, "odd", group=8)
    assert in_tables == pytest.approx(logged, abs=1e-5) and any(logged)


@pytest.mark.parametrize(
    ("rows", "metric", "validation_rows", "message"),
    [
        (ROWS, answer_metric, ROWS, "every eval_steps steps: set eval_steps"),
        ([{"question": "?"}], answer_metric, None, "rows begins with {'question'.*; allowed"),
        ({"test": ROWS}, answer_metric, None, "rows begins with 'test'; allowed: mappings with `p"),
        (ROWS, lambda completion: {}, None, r"as metric\(row, completion\): too many positional"),
        (ROWS, lambda row, text, gold: {}, None, "missing a required argument: 'gold'"),
        (ROWS, lambda row, text: {"f1": 0.7}, None, "empty completion of a row.*f1"),
    ],
)
def test_what_watch_cannot_evaluate_is_refused_in_words(
    tmp_path, rows, metric, validation_rows, message
):
    args = trl.GRPOConfig(str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    with pytest.raises(ValueError, match=message):
        watch(SimpleNamespace(args=args), rows, metric, validation_rows)


def test_with_another_trl_our_trainer_says_which_it_needs(monkeypatch):
    monkeypatch.setattr(trl, "__version__", "1.9.0")
    with pytest.raises(ImportError, match=r"needs TRL 1\.16.*recipes\.common\.watch with TRL 1\.9"):
        importlib.reload(our_trainer)


# Push


def test_the_push_of_the_reward_itself_is_its_deviation_and_of_what_goes_against_it_the_negative():
    rewards = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    outcomes = [{"right": r == 1.0, "wrong": r == 0.0, "always": True} for r in rewards]
    found = pushes(outcomes, advantages_of(rewards, 4), 4)
    # The first group has the deviation 0.5774, the second none.
    rounded = {name: round(value, 3) for name, value in found.items()}
    assert rounded == {"right": 0.289, "wrong": -0.289, "always": 0.0}


def test_a_push_is_the_change_of_the_metric_under_a_small_step_along_the_advantages():
    """Of a policy over five answers, exactly: probabilities times exp(step x advantage)."""
    policy, advantages = [0.4, 0.3, 0.1, 0.1, 0.1], [1.0, -1.0, 0.5, 2.0, -3.0]
    metric, step = [0.0, 1.0, 1.0, 0.0, 1.0], 1e-6
    moved = [p * math.exp(step * a) for p, a in zip(policy, advantages, strict=True)]
    share = sum(p * m for p, m in zip(moved, metric, strict=True)) / sum(moved)
    change = (share - sum(p * m for p, m in zip(policy, metric, strict=True))) / step
    drawn = [i for i, p in enumerate(policy) for _ in range(round(1000 * p))]
    group = [(advantages[i], metric[i]) for i in drawn]
    assert push([group]) == pytest.approx(change, rel=2e-3)


def test_a_metric_slower_than_a_reward_may_be_leaves_out_the_rest(monkeypatch, tmp_path):
    seconds = iter([0.0, 1.0, 301.0])
    monkeypatch.setattr(
        "recipes.common.watch.time", SimpleNamespace(monotonic=lambda: next(seconds))
    )
    args = SimpleNamespace(output_dir=str(tmp_path))
    watched = Watch.__new__(Watch)
    watched.trainer = SimpleNamespace(args=args, state=TrainerState())
    watched.metric, watched.metric_steps, watched.next_step = lambda row, text: {"a": True}, 1, 0
    assert watched.measure([{}, {}], ["x", "y"]) == [({"a": True}, None), ({}, "no time left")]


def test_the_running_interval_is_wider_the_more_often_one_looks():
    history = [0.1, 0.3] * 10
    few, many = running_interval(history, 1), running_interval(history, 100)
    assert many[0] < few[0] < 0.2 < few[1] < many[1]
    assert running_interval(history[:5], 1) is None
    low, high = running_interval([-9.0, *history], 1)
    assert low + high == pytest.approx(sum(few)), "the mean is of the last twenty steps"
    assert low < few[0], "the spread is of all steps, where that is more"


def test_a_metric_that_some_completions_lack_is_of_the_others_and_history_goes_on():
    outcomes = [{"a": True}, {"a": False, "b": True}, {}, {"b": True}]
    log = [{"push/a": value} for value in (0.4, 0.6, None, 0.5, float("nan"), 0.5, 0.4)] + [{}]
    logged = figures(outcomes, [1.0, -1.0, 0.0, 0.0], 2, log, looks=1)
    assert (logged["metrics/a"], logged["metrics/b"]) == (0.5, 1.0)
    assert logged["push/a"] == 1.0 and "push/b" not in logged
    assert logged["push/a_low"] < (0.4 + 0.6 + 0.5 + 0.5 + 0.4 + 1.0) / 6 < logged["push/a_high"]


@pytest.mark.parametrize(("every", "seen"), [(3, "1001"), (0, "0000")])
def test_the_metric_is_applied_every_so_many_steps(tmp_path, every, seen):
    def right(row, text):
        return {"right": text == row["answer"]}

    state, logged = TrainerState(max_steps=4, logging_steps=1), []
    args = SimpleNamespace(output_dir=str(tmp_path), num_generations=2)
    alone = SimpleNamespace(num_processes=1)
    trainer = SimpleNamespace(args=args, state=state, accelerator=alone)
    watched = Watch(trainer, [], right, None, clock=None, metric_steps=every)
    for state.global_step in range(4):
        logged.append(watched.observe([{"answer": "a"}] * 2, ["a", "b"], [1.0, -1.0]))
    assert "".join(str(int(bool(figures))) for figures in logged) == seen
    assert not any(logged) or logged[0] == {"metrics/right": 0.5, "push/right": 1.0}


def test_a_run_whose_metric_gives_nothing_has_its_rows_and_a_verdict_and_resumes(
    tmp_path, monkeypatch
):
    row = {"prompt": "a", "tokens": 1, "truncated": False, "rewards": {}, "metrics": {}}
    monkeypatch.setattr("recipes.common.watch.evaluate", lambda *parts, **settings: [row])
    trainer = SimpleNamespace(args=SimpleNamespace(output_dir=str(tmp_path)))
    trainer.is_world_process_zero = lambda: True
    watched = Watch(trainer, [{"prompt": "a"}], lambda row, text: {}, None, Clock(tmp_path))
    state = TrainerState(global_step=2, is_world_process_zero=True)
    with pytest.raises(ValueError, match="the model of step 0 was not evaluated"):
        watched.on_train_begin(None, state, None)
    for file in (files.BEFORE, files.AFTER):
        watched.evaluate_held_out(file)
    watched.on_train_begin(None, state, None)
    assert files.read_evaluation(tmp_path) == ([row], [row])
    assert "not known" in figures_of(tmp_path, None)["verdict"]["sentence"]
    watched.rows = [{"prompt": "another"}]  # else the end of the run could not compare them
    with pytest.raises(ValueError, match="does not hold these rows: training resumes at step 2"):
        watched.on_train_begin(None, state, None)


def test_a_new_run_in_the_folder_of_another_removes_what_its_page_would_show_of_that(tmp_path):
    for name in ("trainer_state.json", "summary.json", "completions/completions_00200.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    trainer = SimpleNamespace(args=SimpleNamespace(output_dir=str(tmp_path)))
    state = TrainerState(is_world_process_zero=True)
    Watch(trainer, [], answer_metric, None, None).on_train_begin(None, state, None)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["versions.json"]


RISING = [0.1 * step for step in range(12)]
# A run of recipes/number_count/hack.yaml.
FARMED = [-0.18, -0.17, -0.2, -0.19, -0.16, -0.1, -0.11, -0.09, -0.18, -0.19, -0.14, -0.08]
FARMED += [0.03, 0.03, 0.07, 0.06, 0.19, 0.29, 0.31, 0.47, 0.51, 0.55, 0.66, 0.62]


@pytest.mark.parametrize(
    ("rewards", "high", "times"),
    [
        (RISING, -0.1, 1),  # once
        (FARMED, -0.1, 1),  # no line, so that the verdict's test of the slope finds no rise
        (RISING, 0.01, 0),  # the interval holds 0; strict, which the reward may see, has no say
        (RISING[::-1], -0.1, 0),  # the reward falls
        (RISING[:5], -0.1, 0),  # too few to tell
    ],
)
def test_a_reward_that_rises_and_pushes_the_independent_metric_down_is_named_once(
    tmp_path, capsys, rewards, high, times
):
    args = SimpleNamespace(output_dir=str(tmp_path))
    watched = Watch(SimpleNamespace(args=args), [], answer_metric, None, None)
    state = TrainerState(is_world_process_zero=True)
    for step, reward in enumerate(rewards, 1):
        logs = {
            "reward": reward, "metrics/strict": 0.5, "metrics/lenient": 0.5,
            "push/lenient_low": -0.3, "push/lenient_high": high,
            "push/strict_low": -0.3, "push/strict_high": -0.1,
        }  # fmt: skip
        state.log_history.append({**logs, "step": step})
        watched.on_log(args, state, None, logs)
    named = "warning: the reward rises and pulls correct answer down: push/lenient is between -0.3"
    assert capsys.readouterr().out.count(named) == times
