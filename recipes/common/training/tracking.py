"""W&B besides the curves: every step's completions in one table, histograms, before and after, the report.

TensorBoard besides the curves: some completions of each logged step as text, before and after.

transformers' `WandbCallback` starts the run (`report_to: wandb`) and logs the curves; TRL logs the table `completions`,
each step over the last. This module adds to that run, on the main process alone, and goes on with it when a run is
resumed. W&B's own variables are W&B's: `WANDB_RUN_GROUP` puts several seeds into one group, `WANDB_MODE=offline` needs
no account.

A failure here is a warning and does not end the run: everything that W&B shows stands in the run folder as well.
"""

import json
import math
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
import wandb
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback
from trl import GRPOTrainer

from recipes.common.utils.run_files import (
    COMPLETIONS,
    FIRST_COLUMNS,
    WANDB,
    messages,
    read_json,
    write_json,
)

KEY = "completions_all"
MORE = "more"  # the last column of the table, for what a reward logs for the first time in a later generation
MAX_INCREMENTS = (
    90  # W&B's page of a run shows the latest 100 of a table; each restart of a run may add one
)
MAX_ROWS_A_STEP = 64
MAX_TEXTS = 4  # completions of a step that TensorBoard shows


def wandb_run(args: TrainingArguments) -> Any:
    """The W&B run of this process, or None where it is not reported to."""
    return wandb.run if "wandb" in (args.report_to or []) else None


def continue_wandb_run(folder: Path, args: TrainingArguments, checkpoint: str | None) -> None:
    """Have `wandb.init` go on with the W&B run of this folder where training resumes from a checkpoint.

    Called before the training starts. It sets `WANDB_RUN_ID` and `WANDB_RESUME=allow`, unless the user has set one of
    them. A start from step 0 (`--fresh`, too) is a new W&B run. Offline, W&B keeps each start in a folder of its own
    under the same id, and `wandb sync` joins them.
    """
    decided = "WANDB_RUN_ID" in os.environ or "WANDB_RESUME" in os.environ
    record = read_json(folder / WANDB)
    if "wandb" in (args.report_to or []) and checkpoint and record and not decided:
        os.environ.update(WANDB_RUN_ID=record["id"], WANDB_RESUME="allow")


class TrackingCallback(TrainerCallback):
    """Log what each logged step generated: the table `completions_all`, and histograms of rewards and advantages.

    Read from the parquet files of TRL (`log_completions: true`), where the completions of all ranks are gathered.

    - `completions_all` is an incremental `wandb.Table`: step, prompt (its last message), completion, each reward,
      advantage, and what the rewards log besides (`outcome/`, `gold/`, `parsed/`). What a reward logs later than in the
      first generations is JSON text in the last column, `more`. Each generation is logged once, by the first step that
      uses it, whatever the interruptions.
    - At most `MAX_ROWS_A_STEP` rows of a generation are kept, its first; fewer in a run that would pass W&B's 200 000
      rows. A run of more than `MAX_INCREMENTS` steps logs at every second, third, ... step.
    - `rewards/<name>/histogram` and `advantages/histogram` are over all completions of a generation, where scored.

    With `logging_steps` > 1 TRL keeps no completions of the generations between.
    """

    def __init__(self, folder: Path, rewards: list[str], config: dict[str, Any]):
        self.folder, self.rewards, self.config = folder, rewards, config
        self.table: wandb.Table | None = None
        self.columns: list[str] = []
        self.until: int | None = None  # the last step that is logged; None before the first look
        self.last: list[dict] = []  # the last generation that was read
        self.failed = False

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        tracked = wandb_run(args)
        if tracked is not None:
            tracked.config.update({"recipe": self.config}, allow_val_change=True)
        self._log(args, state)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        if state.global_step % math.ceil(state.max_steps / MAX_INCREMENTS) == 0:
            self._log(args, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs
    ) -> None:
        self._log(args, state)

    def _log(self, args: TrainingArguments, state: TrainerState) -> None:
        """Log the steps up to the current one that are not logged yet, and remember that they are."""
        tracked = wandb_run(args)
        if tracked is None or self.failed:
            return
        self.failed = True  # unless the end is reached
        with failures_are_warnings(
            "logging completions to W&B failed, so this start logs no more of them"
        ):
            if self.until is None:
                self._recall(tracked.id)
            self._log_generations(tracked, state, self._new_generations(state.global_step))
            self.until = max(self.until, state.global_step)
            write_json(
                self.folder / WANDB,
                {"id": tracked.id, "until": self.until, "columns": self.columns},
            )
            self.failed = False

    def _recall(self, run_id: str) -> None:
        """Take up the table where an earlier start left it, if it was of the same W&B run."""
        record = read_json(self.folder / WANDB)
        if record is None or record["id"] != run_id:
            record = {"until": 0, "columns": []}
        self.columns, self.until = record["columns"], record["until"]
        earlier = (rows for step in range(self.until, 0, -1) if (rows := self._read(step)))
        self.last = next(earlier, [])

    def _new_generations(self, step: int) -> list[list[dict[str, Any]]]:
        """The generations of the steps after `until`, without those that an earlier step used already."""
        found = []
        for rows in map(self._read, range(self.until + 1, step + 1)):
            if rows and _content(rows) != _content(self.last):
                found.append(rows)
                self.last = rows
        return found

    def _read(self, step: int) -> list[dict[str, Any]]:
        path = self.folder / COMPLETIONS / f"completions_{step:05d}.parquet"
        return pyarrow.parquet.read_table(path).to_pylist() if path.is_file() else []

    def _log_generations(
        self, tracked: Any, state: TrainerState, generations: list[list[dict]]
    ) -> None:
        if not generations:
            return
        for rows in generations:
            tracked.log({**histograms(rows, self.rewards), "train/global_step": rows[0]["step"]})
        self.columns = self.columns or table_columns(generations, self.rewards)
        if self.table is None:
            self.table = wandb.Table(
                columns=self.columns, log_mode="INCREMENTAL", allow_mixed_types=True
            )
        kept = max(1, min(MAX_ROWS_A_STEP, wandb.Table.MAX_ARTIFACT_ROWS // state.max_steps))
        for row in (row for rows in generations for row in rows[:kept]):
            self.table.add_data(*table_row(row, self.columns))
        tracked.log({KEY: self.table, "train/global_step": generations[-1][0]["step"]})
        # W&B looks at the rows since the last increment alone: the texts of a long run need not stay in memory.
        self.table.data = [[None] * len(self.columns)] * len(self.table.data)


class TensorBoardTextCallback(TrainerCallback):
    """Write some completions of each logged step to TensorBoard's page *Text*, with `log_completions: true`."""

    def __init__(self, trainer: GRPOTrainer):
        self.trainer = trainer

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict | None = None,
        **kwargs,
    ) -> None:
        if not args.log_completions or "reward" not in (logs or {}):
            return
        with failures_are_warnings("writing completions to TensorBoard failed"):
            for callback in _tensorboards(self.trainer):
                if callback.tb_writer is not None:
                    callback.tb_writer.add_text(
                        "completions", sample_text(self.trainer._logs), state.global_step
                    )


def sample_text(logs: dict[str, Any]) -> str:
    """The first completions of a generation in Markdown, each with its prompt's last message, rewards and advantage.

    `logs` is what TRL keeps of the latest generation.
    """
    parts = []
    for number, (prompt, completion) in enumerate(
        zip(logs["prompt"], logs["completion"], strict=True)
    ):
        scores = {name: values[number] for name, values in logs["rewards"].items()}
        scores["advantage"] = logs["advantages"][number]
        parts.append(
            "**" + ", ".join(f"{name} {score:.3g}" for name, score in scores.items()) + "**"
        )
        texts = [messages(prompt)[-1][1], "\n".join(text for _, text in messages(completion))]
        parts += [textwrap.indent(text, "    ", lambda line: True) for text in texts]
        if number + 1 == MAX_TEXTS:
            break
    return "\n\n".join(parts)


def _tensorboards(trainer: GRPOTrainer) -> list[TensorBoardCallback]:
    return [
        callback
        for callback in trainer.callback_handler.callbacks
        if isinstance(callback, TensorBoardCallback)
    ]


def table_columns(generations: list[list[dict[str, Any]]], rewards: list[str]) -> list[str]:
    """The columns of `completions_all`, from the rows of the first generations."""
    fixed = [*FIRST_COLUMNS, *rewards, "advantage"]
    found = dict.fromkeys(name for rows in generations for name in rows[0])
    return [*fixed, *(name for name in found if name not in (*fixed, MORE)), MORE]


def table_row(row: dict[str, Any], columns: list[str]) -> list[Any]:
    """One completion as a row of the table: numbers and text as they are, what else a reward logs as JSON text."""
    more = {
        name: value for name, value in row.items() if name not in columns[:-1] and value is not None
    }
    texts = {
        "prompt": messages(row["prompt"])[-1][1],
        "completion": "\n".join(text for _, text in messages(row["completion"])),
        MORE: more or None,
    }
    return [_cell({**row, **texts}.get(name)) for name in columns]


def _cell(value: Any) -> str | float | None:
    if value is None or isinstance(value, (str, int, float)):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def histograms(rows: list[dict[str, Any]], rewards: list[str]) -> dict[str, wandb.Histogram]:
    """Histograms of the rewards and advantages of one generation; None and NaN are left out."""
    keys = {
        **{name: f"rewards/{name}/histogram" for name in rewards},
        "advantage": "advantages/histogram",
    }
    values = {
        key: [row[name] for row in rows if _is_number(row.get(name))] for name, key in keys.items()
    }
    return {key: wandb.Histogram(found) for key, found in values.items() if found}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _content(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content that distinguishes a generation; a column that nothing was logged to may be there or not."""
    return [
        {name: value for name, value in row.items() if name != "step" and value is not None}
        for row in rows
    ]


def flat_summary(summary: dict[str, Any]) -> dict[str, float]:
    """Before and after as single figures, which W&B shows as columns and compares between runs.

    Of each metric `before/strict` and `after/strict` (0.0 to 1.0), the ends of their intervals (`before/strict_low`,
    `before/strict_high`), `change/strict` and `p/strict`; what else summary.json holds of the two by its path.
    """
    sides = {side: dict(_figures(summary[side] or {})) for side in ("before", "after")}
    flat = {
        f"{side}/{name}": value
        for side, figures in sides.items()
        for name, value in figures.items()
    }
    names = summary["mcnemar_p"] or {}
    both = [name for name in names if name in sides["before"] and name in sides["after"]]
    flat |= {f"change/{name}": sides["after"][name] - sides["before"][name] for name in both}
    flat |= {f"p/{name}": p for name, p in names.items()}
    return flat | {name: summary[name] for name in ("minutes", "steps")}


def _figures(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    for name, inner in value.items():
        if isinstance(inner, dict) and "share" in inner:
            yield path + name, inner["share"]
            yield from zip(
                (f"{path}{name}_low", f"{path}{name}_high"), inner["interval"], strict=True
            )
        elif isinstance(inner, dict):
            yield from _figures(inner, f"{path}{name}/")
        elif _is_number(inner):
            yield path + name, inner


def track_summary(trainer: GRPOTrainer, summary: dict[str, Any]) -> None:
    """Write before and after to the summary of the W&B run, and as scalars of the last step in TensorBoard."""
    flat, tracked = flat_summary(summary), wandb_run(trainer.args)
    with failures_are_warnings(
        "writing the summary to the trackers failed; it stands in summary.json"
    ):
        if tracked is not None:
            tracked.summary.update(flat)
        for callback in _tensorboards(trainer):
            callback.on_log(trainer.args, trainer.state, trainer.control, logs=flat)
            callback.on_train_end(trainer.args, trainer.state, trainer.control)  # closes the file


def track_report(args: TrainingArguments, page: Path) -> None:
    """The report page as an artifact of type `report` of the W&B run."""
    tracked = wandb_run(args)
    if tracked is None:
        return
    with failures_are_warnings(f"logging the report to W&B failed; it stands in {page}"):
        artifact = wandb.Artifact(f"report-{tracked.id}", type="report")
        artifact.add_file(str(page))
        tracked.log_artifact(artifact)


@contextmanager
def failures_are_warnings(what: str) -> Iterator[None]:
    """Print the failure of a tracker and go on: hours of training do not end for a page that shows them."""
    try:
        yield
    except Exception as error:
        print(f"warning: {what}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
