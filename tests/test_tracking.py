"""W&B and TensorBoard show of a run each completion once, histograms, before and after; a resumed run is one run."""

import importlib.util
import json
import os
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import wandb
from support.launching import DENSE_REWARD, ROOT, command, run
from support.wandb_log import read_runs, table_rows
from transformers.integrations import TensorBoardCallback

from recipes.common.training import tracking
from recipes.common.training.tracking import TrackingCallback, continue_wandb_run, flat_summary
from recipes.common.utils.run_files import TABLE, WANDB
from rewards import load_reward


def rates(share: float, low: float, high: float) -> dict:
    return {"share": share, "interval": [low, high]}


BEFORE = {
    "n": 8,
    "strict": rates(0.25, 0.125, 0.5),
    "truncated": 0.5,
    "rewards": {"right": None, "tidy": 0.75},
}
AFTER = {"n": 8, "strict": rates(0.75, 0.5, 0.875), "truncated": 0.0, "rewards": {"tidy": 1.0}}
SUMMARY = {
    "before": BEFORE,
    "after": AFTER,
    "mcnemar_p": {"strict": 0.125},
    "minutes": 2.5,
    "steps": 6,
}
FLAT = {"change/strict": 0.5, "p/strict": 0.125, "minutes": 2.5, "steps": 6}
FLAT |= {
    "before/n": 8,
    "before/strict": 0.25,
    "before/strict_low": 0.125,
    "before/strict_high": 0.5,
}
FLAT |= {"before/truncated": 0.5, "before/rewards/tidy": 0.75}
FLAT |= {"after/n": 8, "after/strict": 0.75, "after/strict_low": 0.5, "after/strict_high": 0.875}
FLAT |= {"after/truncated": 0.0, "after/rewards/tidy": 1.0}


class Tracked:
    """Takes what is logged to a W&B run; of the table, the rows that W&B would upload: those since the last time."""

    def __init__(self, run_id: str = "first"):
        self.id, self.logged, self.increments, self.seen = run_id, [], [], {}
        self.config = SimpleNamespace(update=lambda values, allow_val_change: None)

    def log(self, row: dict) -> None:
        self.logged.append(row)
        table = row.get(tracking.KEY)
        if table is not None:
            assert table.log_mode == "INCREMENTAL"
            new = table.data[self.seen.get(id(table), 0) :]
            self.increments.append(
                [dict(zip(table.columns, values, strict=True)) for values in new]
            )
            self.seen[id(table)] = len(table.data)

    def rows(self) -> list[dict]:
        return [row for increment in self.increments for row in increment]


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> Tracked:
    monkeypatch.setattr(wandb, "run", Tracked())
    return wandb.run


def generate(folder: Path, step: int, texts: list[str], **columns: list) -> None:
    """The file of a step as TRL writes it."""
    file = folder / "completions" / f"completions_{step:05d}.parquet"
    file.parent.mkdir(exist_ok=True)
    example = [{"role": "user", "content": "old"}, {"role": "assistant", "content": "9"}]
    count = len(texts)
    rows = {
        "step": [step] * count,
        "prompt": [[*example, {"role": "user", "content": f"q{i}"}] for i in range(count)],
        "completion": [[{"role": "assistant", "content": text}] for text in texts],
        "right": [float(len(text)) for text in texts],
        **columns,
        "advantage": [0.5] * count,
    }
    pd.DataFrame(rows).to_parquet(file)


def callback_at(
    folder: Path,
    step: int,
    max_steps: int = 4,
    callback=None,
    trackers=("wandb",),
    rewards=("right",),
):
    """A callback that has seen the training begin at `step`, or `callback` at the begin of the step after it."""
    args, state = (
        SimpleNamespace(report_to=trackers),
        SimpleNamespace(global_step=step, max_steps=max_steps),
    )
    if callback is None:
        callback = TrackingCallback(folder, list(rewards), {})
        callback.on_train_begin(args, state, None)
    else:
        callback.on_step_begin(args, state, None)
    return callback


def test_a_row_has_the_last_message_the_rewards_the_advantage_and_what_is_logged_besides(
    tracked, tmp_path
):
    generate(tmp_path, 1, ["abc"], **{"gold/right": ["4"], "parsed/right": [None], "ids": [[5, 6]]})
    callback_at(tmp_path, 1)
    expected = {"step": 1, "prompt": "q0", "completion": "abc", "right": 3.0, "advantage": 0.5}
    expected |= {"gold/right": "4", "parsed/right": None, "ids": "[5, 6]", "more": None}
    assert tracked.rows() == [expected] and list(tracked.rows()[0]) == list(expected)


def test_a_generation_that_several_steps_use_is_logged_once(tracked, tmp_path):
    callback = callback_at(tmp_path, 0)
    for step, text in enumerate(["a", "a", "b", "a"], start=1):
        generate(tmp_path, step, [text])
        callback_at(tmp_path, step, callback=callback)
    assert [(row["step"], row["completion"]) for row in tracked.rows()] == [
        (1, "a"),
        (3, "b"),
        (4, "a"),
    ]
    assert len(tracked.increments) == 3


def test_what_a_reward_logs_later_is_text_in_the_last_column(tracked, tmp_path):
    callback = callback_at(tmp_path, 0)
    generate(tmp_path, 1, ["a"], early=["x"])
    callback_at(tmp_path, 1, callback=callback)
    generate(tmp_path, 2, ["b"], late=["ü"], more=[2])
    callback_at(tmp_path, 2, callback=callback)
    assert [(row["early"], row["more"]) for row in tracked.rows()] == [
        ("x", None),
        (None, '{"late": "ü", "more": 2}'),
    ]


def test_a_resumed_run_logs_what_was_missed_and_nothing_twice(tracked, tmp_path):
    callback = callback_at(tmp_path, 0)
    for step, text in enumerate(["a", "b", "c", "c"], start=1):
        generate(tmp_path, step, [text], early=["x"])
    callback_at(tmp_path, 3, callback=callback)  # killed in step 4, saved after step 1
    again = callback_at(tmp_path, 1)
    for step, text in enumerate(["b", "c", "c", "d"], start=2):
        generate(tmp_path, step, [text], early=["x"], **({"late": ["y"]} if step == 5 else {}))
        callback_at(tmp_path, step, callback=again)
    for step in (6, 7):  # generated and saved, but killed before they were logged
        generate(tmp_path, step, [f"{step}"])
    callback_at(tmp_path, 7)
    expected = [(1, "a"), (2, "b"), (3, "c"), (5, "d"), (6, "6"), (7, "7")]
    assert [(row["step"], row["completion"]) for row in tracked.rows()] == expected
    assert len({tuple(row) for row in tracked.rows()}) == 1, (
        "the columns of an incremental table stay"
    )
    assert json.loads((tmp_path / WANDB).read_text())["until"] == 7


def test_another_wandb_run_of_the_same_folder_gets_all_that_was_generated(
    tracked, tmp_path, monkeypatch
):
    generate(tmp_path, 1, ["a"])
    callback_at(tmp_path, 1)
    monkeypatch.setattr(wandb, "run", Tracked("second"))
    callback_at(tmp_path, 1)
    assert [row["completion"] for row in wandb.run.rows()] == ["a"]
    assert json.loads((tmp_path / WANDB).read_text())["id"] == "second"


def test_rows_and_increments_of_a_long_run_stay_within_what_wandb_shows(tracked, tmp_path):
    callback = callback_at(tmp_path, 0, max_steps=5000)
    for step in (1, 2, 55, 56, 57, 111, 112, 113):
        generate(tmp_path, step, [f"{step}"] * 41)
        callback_at(tmp_path, step, 5000, callback)
    assert [len(increment) for increment in tracked.increments] == [
        4 * 40,
        3 * 40,
    ]  # of 5000 steps, at each 56th
    assert wandb.Table.MAX_ARTIFACT_ROWS == 5000 * 40


def test_a_generation_of_a_short_run_keeps_its_first_64_rows_and_all_in_the_histogram(
    tracked, tmp_path
):
    generate(tmp_path, 1, ["x"] * 70)
    callback_at(tmp_path, 1)
    assert [row["prompt"] for row in tracked.rows()] == [f"q{i}" for i in range(64)]
    assert sum(tracked.logged[0]["rewards/right/histogram"].histogram) == 70


def test_histograms_leave_out_what_a_reward_did_not_score(tracked, tmp_path):
    generate(
        tmp_path, 3, ["a", "bb", "bb"], tidy=[None, 1.0, float("nan")], silent=[None, None, None]
    )
    callback_at(tmp_path, 3, rewards=["right", "tidy", "silent"])
    logged = tracked.logged[0]
    right, tidy = (logged[f"rewards/{name}/histogram"] for name in ("right", "tidy"))
    assert (right.histogram[0], right.histogram[-1], right.bins[0], right.bins[-1]) == (
        1,
        2,
        1.0,
        2.0,
    )
    assert sum(tidy.histogram) == 1 and sum(logged["advantages/histogram"].histogram) == 3
    assert "rewards/silent/histogram" not in logged and logged["train/global_step"] == 3
    rows = [{"right": float("nan"), "advantage": 0.5}, {"right": 1.0, "advantage": 0.5}]
    assert sum(tracking.histograms(rows, ["right"])["rewards/right/histogram"].histogram) == 1


def test_a_failure_of_wandb_is_reported_once_and_the_run_goes_on(
    tracked, tmp_path, monkeypatch, capsys
):
    def broken(row: dict) -> None:
        raise wandb.Error("no room")

    monkeypatch.setattr(tracked, "log", broken)
    generate(tmp_path, 1, ["a"])
    generate(tmp_path, 2, ["b"])
    callback_at(tmp_path, 2, callback=callback_at(tmp_path, 1))
    printed = capsys.readouterr().err
    assert (
        printed.count("warning: logging completions to W&B failed") == 1
        and "Error: no room" in printed
    )
    assert not (tmp_path / WANDB).exists(), "the next start logs them"


def test_nothing_is_logged_or_written_without_wandb(tmp_path):
    generate(tmp_path, 1, ["a"])
    callback_at(tmp_path, 1, trackers=())
    assert not (tmp_path / WANDB).exists()


@pytest.mark.parametrize(
    ("checkpoint", "mine", "tracker", "expected"),
    [
        ("checkpoint-2", {}, "wandb", ("first", "allow")),
        (None, {}, "wandb", (None, None)),
        ("checkpoint-2", {}, "tensorboard", (None, None)),
        ("checkpoint-2", {"WANDB_RUN_ID": "mine"}, "wandb", ("mine", None)),
        ("checkpoint-2", {"WANDB_RESUME": "never"}, "wandb", (None, "never")),
    ],
)
def test_only_a_resumed_run_goes_on_with_its_wandb_run_unless_the_user_decides(
    checkpoint, mine, tracker, expected, tmp_path
):
    names, args = ("WANDB_RUN_ID", "WANDB_RESUME"), SimpleNamespace(report_to=[tracker])
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(mine)
    continue_wandb_run(tmp_path, args, checkpoint)  # a folder without a record
    assert [os.environ.get(name) for name in names] == [mine.get(name) for name in names]
    (tmp_path / WANDB).write_text('{"id": "first", "until": 2, "columns": []}')
    continue_wandb_run(tmp_path, args, checkpoint)
    assert tuple(os.environ.get(name) for name in names) == expected


def test_before_and_after_are_single_figures_and_absent_without_evaluation_rows():
    assert flat_summary(SUMMARY) == FLAT
    nothing = {"before": None, "after": None, "mcnemar_p": None}
    assert flat_summary({**SUMMARY, **nothing}) == {"minutes": 2.5, "steps": 6}


def test_tensorboard_gets_before_and_after_as_scalars_of_the_last_step(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path))
    trainer = SimpleNamespace(
        args=SimpleNamespace(report_to=["tensorboard"]),
        state=SimpleNamespace(global_step=6, is_world_process_zero=True),
        control=None,
        callback_handler=SimpleNamespace(callbacks=[TensorBoardCallback()]),
    )
    tracking.track_summary(trainer, SUMMARY)
    assert _scalars(tmp_path) == {f"train/{name}": [(6, value)] for name, value in FLAT.items()}


def _scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: tag -> (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def _texts(folder: Path) -> list[tuple[int, str]]:
    """The completions that TensorBoard shows: (step, text)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = (
        EventAccumulator(str(folder), size_guidance={"tensors": 0})
        .Reload()
        .Tensors("completions/text_summary")
    )
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events]


def test_a_tracker_that_fails_at_the_end_is_reported_and_does_not_fail_the_run(
    tracked, tmp_path, capsys
):
    trainer = SimpleNamespace(args=SimpleNamespace(report_to=["wandb"]))
    tracking.track_summary(trainer, SUMMARY)
    tracking.track_report(trainer.args, tmp_path / "report.html")
    printed = capsys.readouterr().err
    assert "it stands in summary.json: AttributeError" in printed
    assert f"it stands in {tmp_path / 'report.html'}: ValueError" in printed


ENTRY = json.dumps(
    {"dataset": "chain_sum", "parameters": {}, "question": "2 + 2 =", "answer": "4", "metadata": {}}
)


@pytest.mark.parametrize(
    ("name", "parameters", "column", "text", "parsed"),
    [
        ("gsm8k_correctness", {}, {"answer": ["4"]}, "<answer>$5</answer>", "$5"),
        ("gsm8k_correctness", {"lenient": True}, {"answer": ["4"]}, "So it is 4.0 in all.", "4"),
        ("gsm8k_harness", {}, {"answer": ["4"]}, "<answer>#### 4</answer>", "#### 4"),
        ("boxed_math", {}, {"answer": ["4"]}, r"\boxed{2^2}", "2^2"),
        ("reasoning_gym", {}, {"entry": [ENTRY]}, "<answer>4</answer>", "4"),
    ],
)
def test_verifiers_log_the_gold_and_the_answer_they_read(name, parameters, column, text, parsed):
    logged = {}
    columns = {"prompts": ["p"], **column}
    columns = {key: values * 2 for key, values in columns.items()} | {
        "completions": [text, "no answer"]
    }
    load_reward(name, **parameters)(**columns, log_extra=logged.__setitem__)
    assert (logged[f"gold/{name}"], logged[f"parsed/{name}"]) == (["4", "4"], [parsed, None])


def test_an_entry_that_cannot_be_read_costs_its_row_alone():
    logged = {}
    texts = ["<answer>4</answer>"] * 3
    columns = {"prompts": texts, "completions": texts, "entry": ["no JSON", ENTRY, "[]"]}
    scores = load_reward("reasoning_gym")(**columns, log_extra=logged.__setitem__)
    assert scores == [None, 2.0, None] and logged["gold/reasoning_gym"] == [None, "4", None]


# --------------------------------------------------------------------------- a run, interrupted and resumed

STOPS_ONCE = """
import os, signal
from pathlib import Path

def stops_once(prompts, completions, trainer_state, log_extra, **kwargs):
    if getattr(trainer_state, "global_step", 0) == 2:
        log_extra("late", ["x"] * len(completions))
        if not Path({mark!r}).exists():
            Path({mark!r}).touch()
            os.kill(os.getpid(), signal.SIGINT)
    return [float(len(completion[0]["content"])) for completion in completions]
"""


@pytest.fixture(scope="module")
def resumed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps, 2 a generation, interrupted after step 4 and resumed; logged to W&B offline and TensorBoard."""
    base = tmp_path_factory.mktemp("tracking")
    (base / "my_reward.py").write_text(STOPS_ONCE.format(mark=str(base / "stopped")))
    trackers = "[wandb, tensorboard]" if importlib.util.find_spec("tensorboard") else "wandb"
    shipped = (ROOT / "recipes/arithmetic/quickstart.yaml").read_text()
    assert "report_to: none" in shipped
    (base / "both.yaml").write_text(shipped.replace("report_to: none", f"report_to: {trackers}"))
    settings = {"num_train_rows": 8, "num_iterations": 2, "max_steps": 6, "run_name": "the-run"}
    settings["reward_funcs"] = [DENSE_REWARD, "reasoning_gym", f"{base}/my_reward.py:stops_once"]
    words = command("arithmetic", "quickstart", model, base / "run", **settings)
    words[words.index("--config") + 1] = str(base / "both.yaml")  # only a YAML can list trackers
    env = {"WANDB_MODE": "offline", "WANDB_DIR": str(base), "WANDB_RUN_GROUP": "seeds"}
    assert "Stopped after step 4 of 6" in run(words, env=env, expect=1)
    assert f"Resuming from {base / 'run' / 'checkpoint-4'}" in run(words, env=env)
    return base


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_its_wandb_run_in_its_group(resumed: Path) -> None:
    known = json.loads((resumed / "run" / WANDB).read_text())["id"]
    starts = [(one["id"], one["group"], one["name"]) for one in read_runs(resumed)]
    assert starts == [(known, "seeds", "the-run")] * 2


@pytest.mark.slow
def test_the_table_holds_each_completion_of_the_run_once(resumed: Path) -> None:
    rows = [row for one in read_runs(resumed) for row in table_rows(one, "completions_all")]
    files = [
        resumed / "run" / "completions" / f"completions_{step:05d}.parquet" for step in (1, 3, 5)
    ]
    expected = [row for file in files for row in pd.read_parquet(file).to_dict("records")]
    assert len(rows) == 24 and [row["step"] for row in rows] == [1] * 8 + [3] * 8 + [5] * 8
    for name in ("letter_share", "reasoning_gym", "stops_once", "advantage", "gold/reasoning_gym"):
        assert [row[name] for row in rows] == [row[name] for row in expected], name
    assert [row["prompt"] for row in rows] == [row["prompt"][-1]["content"] for row in expected]
    assert [row["completion"] for row in rows] == [
        row["completion"][0]["content"] for row in expected
    ]
    assert [row["more"] for row in rows if row["step"] != 1] == ['{"late": "x"}'] * 8 + [None] * 8


@pytest.mark.slow
def test_each_generation_has_its_histograms(resumed: Path) -> None:
    logged = [
        row for one in read_runs(resumed) for row in one["rows"] if "advantages/histogram" in row
    ]
    assert [row["train/global_step"] for row in logged] == [1, 3, 5]
    for name in (
        "rewards/letter_share",
        "rewards/reasoning_gym",
        "rewards/stops_once",
        "advantages",
    ):
        assert [sum(row[f"{name}/histogram"]["values"]) for row in logged] == [8, 8, 8], name


@pytest.mark.slow
def test_tensorboard_holds_the_rewards_of_both_starts_and_before_and_after(resumed: Path) -> None:
    pytest.importorskip("tensorboard")
    starts = [_scalars(folder) for folder in (resumed / "run" / "runs").iterdir()]  # in any order
    steps = sorted(step for scalars in starts for step, _ in scalars["train/reward"])
    assert len(starts) == 2 and steps[-1] == 5 and steps == sorted(set(steps))
    assert [scalars["train/after/n"] for scalars in starts if "train/after/n" in scalars] == [
        [(6, 6.0)]
    ]


@pytest.mark.slow
def test_tensorboard_shows_completions_of_each_step_as_text(resumed: Path) -> None:
    pytest.importorskip("tensorboard")
    texts = {
        step: text
        for folder in (resumed / "run" / "runs").iterdir()
        for step, text in _texts(folder)
    }
    assert sorted(texts) == [1, 3, 5]
    for step in texts:
        rows = pd.read_parquet(
            resumed / "run" / "completions" / f"completions_{step:05d}.parquet"
        ).to_dict("records")
        assert texts[step].count("**letter_share ") == 4
        for row in rows[:4]:
            assert f"advantage {row['advantage']:.3g}**" in texts[step]
            assert (
                textwrap.indent(row["completion"][0]["content"], "    ", lambda line: True)
                in texts[step]
            )


@pytest.mark.slow
def test_the_rows_of_the_summary_are_those_that_completions_were_generated_for(
    resumed: Path,
) -> None:
    files = (resumed / "run" / "completions").glob("*.parquet")
    prompts = {
        str(row["prompt"]) for file in files for row in pd.read_parquet(file).to_dict("records")
    }
    assert json.loads((resumed / "run" / "summary.json").read_text())["rows_trained_on"] == len(
        prompts
    )
    assert f"Trained on {len(prompts)} distinct rows." in (resumed / "run" / TABLE).read_text()


@pytest.mark.slow
def test_the_wandb_summary_is_that_of_the_run_and_the_report_its_artifact(resumed: Path) -> None:
    interrupted, finished = read_runs(resumed)
    flat = flat_summary(json.loads((resumed / "run" / "summary.json").read_text()))
    assert flat["after/n"] == 6 and {"before/strict", "change/strict", "p/strict"} < flat.keys()
    assert {name: finished["summary"][name] for name in flat} == flat
    assert finished["artifacts"][f"report-{finished['id']}"] == [
        {"type": "report", "files": ["report.html"]}
    ]
    assert not interrupted["summary"].keys() & flat.keys() and "report" not in str(
        interrupted["artifacts"]
    )
