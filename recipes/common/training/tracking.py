"""Send W&B the settings, the results before and after training, and the report page.

transformers' callbacks start the run (`report_to: wandb`) and log the curves; TRL logs the table
`completions` of the latest step. W&B's own variables work as usual: `WANDB_RUN_GROUP` puts several
seeds into one group, `WANDB_MODE=offline` needs no account.

A failure of a tracker that has begun prints a warning and does not end the run: the run folder has
the same results.
"""

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import wandb
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from trl.trainer import grpo_trainer
from wandb.sdk.lib import exit_hooks

from recipes.common.training.completion import replaced
from recipes.common.utils.run_files import WANDB, read_json, write_json
from recipes.common.utils.secrets import hide_secrets

WARNED: set[str] = set()  # kinds of failures that this process has printed
SUMMARIZED = ("before", "after", "mcnemar_p", "minutes", "steps")


def continue_wandb_run(folder: Path, args: TrainingArguments, checkpoint: str | None) -> None:
    """Make `wandb.init` continue the W&B run of this folder if training resumes.

    Called before the training starts. It sets `WANDB_RUN_ID` and `WANDB_RESUME=allow`, unless the
    user has set one of them. A start from step 0 (also `--fresh`) is a new W&B run. Offline, W&B
    keeps each start in a separate folder with the same id, and `wandb sync` joins the folders.
    """
    decided = "WANDB_RUN_ID" in os.environ or "WANDB_RESUME" in os.environ
    record = read_json(folder / WANDB)
    if "wandb" in (args.report_to or []) and checkpoint and record and not decided:
        os.environ.update(WANDB_RUN_ID=record["id"], WANDB_RESUME="allow")


def outlive_trackers(trainer: Trainer) -> None:
    """Before training: trackers that fail later cost warnings, and W&B prints no secret.

    transformers logs before it saves: without this a lost network costs the checkpoint.
    """
    trackers = tuple(get_reporting_integration_callbacks(trainer.args.report_to))
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, trackers):
            for event in ("on_log", "on_save", "on_train_end"):
                setattr(callback, event, _outlived(getattr(callback, event)))
    # W&B prints a traceback as it is, then calls our `sys.excepthook`, which hides secrets.
    exit_hooks.traceback = SimpleNamespace(print_exception=lambda *error: None)


def outlive_table() -> AbstractContextManager[None]:
    """Inside the `with` block, TRL's table of completions may fail in W&B."""
    names = {**vars(wandb), "log": _outlived(wandb.log)}
    return replaced(grpo_trainer, wandb=SimpleNamespace(**names))


class TrackingCallback(TrainerCallback):
    """Give W&B the run's settings, and keep the W&B run's id in the folder for the next start."""

    def __init__(self, folder: Path, config: dict[str, Any]):
        self.folder, self.config = folder, config

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        with _tracked(args, "giving the settings to W&B failed") as run:
            if run:
                run.config.update({"recipe": self.config}, allow_val_change=True)
                write_json(self.folder / WANDB, {"id": run.id})


def track_result(args: TrainingArguments, summary: dict[str, Any], page: Path) -> None:
    """Write `SUMMARIZED` of summary.json to the summary of the W&B run, and upload the page.

    The report page becomes an artifact of type `report`.
    """
    with _tracked(args, f"W&B has no result; it stands in {page.parent}") as run:
        if run:
            run.summary.update({name: summary[name] for name in SUMMARIZED})
            artifact = wandb.Artifact(f"report-{run.id}", type="report")
            artifact.add_file(str(page))
            run.log_artifact(artifact)


@contextmanager
def _tracked(args: TrainingArguments, failure: str) -> Iterator[Any]:
    """Yield the W&B run of this process, or None if the run does not report to W&B.

    An exception inside is printed after `failure`: an upload must not end hours of training.
    """
    try:
        yield wandb.run if "wandb" in (args.report_to or []) else None
    except Exception as error:
        _warn(failure, error)


def _outlived(function: Callable) -> Callable:
    """`function` of a tracker, whose exceptions become warnings."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            _warn("a tracker fails, and training goes on", error)

    return call


def _warn(failure: str, error: Exception) -> None:
    """Print a warning of the first failure of its kind."""
    if failure not in WARNED:
        WARNED.add(failure)
        reason = hide_secrets(f"{type(error).__name__}: {error}")
        print(f"warning: {failure}: {reason}", file=sys.stderr, flush=True)
