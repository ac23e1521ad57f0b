"""The record of a run: versions, hardware, engine, and the summary that marks it as finished."""

import contextlib
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import upload_folder
from trl import GRPOTrainer

from recipes.common.after.plots import plot_runs
from recipes.common.after.report_page import write_report
from recipes.common.during.engine import engine
from recipes.common.during.tracking import track_report, track_summary
from recipes.common.evaluation.scores import compare, comparison_table, summarize
from recipes.common.tools.folder import write_json
from recipes.common.tools.machine import usable_cores

PACKAGES = ("torch", "trl", "transformers", "accelerate", "peft", "deepspeed", "datasets", "reasoning-gym", "wandb")


def versions() -> dict[str, Any]:
    """Python, packages, commit, hardware and command of this process; tokens on the command line are left out."""
    changes = _git("status", "--porcelain")
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": None if changes is None else bool(changes),
        "hardware": _hardware(),
        "command": without_tokens([sys.executable, *sys.argv]),
    }


def without_tokens(words: list[str]) -> list[str]:
    """The words of a command with the values of `--..._token` options blanked.

    Example: `without_tokens(["--hub_token", "s", "--seed=1"]) == ["--hub_token", "...", "--seed=1"]`
    """
    public = []
    for i, word in enumerate(words):
        option, equals, _ = word.partition("=")
        is_token = option.replace("-", "_").endswith("_token")
        after_token = i > 0 and words[i - 1].replace("-", "_").endswith("_token")
        public.append("..." if after_token else option + equals + "..." if is_token and equals else word)
    return public


def summary_of(
    trainer: GRPOTrainer, config: dict[str, Any], before: list | None, after: list | None, minutes: float
) -> dict[str, Any]:
    """What summary.json holds; `before`, `after` and `mcnemar_p` are None for a run without evaluation rows."""
    return {
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if after else None,
        "minutes": round(minutes, 2),
        "steps": trainer.state.global_step,
        "engine": engine(trainer),
        **versions(),
        "config": config,
    }


def finish(trainer: GRPOTrainer, folder: Path, summary: dict[str, Any]) -> None:
    """Curves, table, model card, trackers; of the files summary.json marks the run as finished, the page shows it."""
    plot_runs([folder], folder / "curves.png")
    table = final_table(folder, summary)
    (folder / "table.txt").write_text(table + "\n", encoding="utf-8")
    trainer.create_model_card(model_name=folder.name)
    with (folder / "README.md").open("a", encoding="utf-8") as card:
        card.write(f"\n## Before and after\n\n```\n{table}\n```\n")
    track_summary(trainer, summary)
    write_json(folder / "summary.json", summary)
    write_report([folder], folder / "report.html")
    track_report(trainer.args, folder / "report.html")
    print("\n" + table, flush=True)
    if trainer.args.push_to_hub:
        push(trainer.hub_model_id, folder, trainer.args.hub_token, trainer.args.hub_revision)


def push(repo_id: str, folder: Path, token: str | None, revision: str | None) -> None:
    """Upload the run folder without its checkpoints. `Trainer.push_to_hub` would write a model card without the table.

    Raises:
        SystemExit: status 1 when it fails; the run is whole on disk, and the message says how to upload it.
    """
    ignored = ["checkpoint-*", "merged/*", "*.partial", "run.lock"]
    try:
        upload_folder(repo_id=repo_id, folder_path=folder, token=token, revision=revision, ignore_patterns=ignored)
    except Exception as error:
        print(f"error: the run is finished, but uploading it failed: {type(error).__name__}: {error}")
        print(f"Upload it with: hf upload {repo_id} {folder} --exclude 'checkpoint-*'")
        raise SystemExit(1) from error


def final_table(folder: Path, summary: dict[str, Any]) -> str:
    """The screen a run ends with."""
    lines = [f"{folder}: {summary['steps']} steps in {summary['minutes']:.1f} minutes on {summary['hardware']}"]
    if summary["after"]:
        lines.append(comparison_table(summary["before"], summary["after"], summary["mcnemar_p"]))
        lines.append(f"  Every row: {folder / 'evaluation'}")
    else:
        lines.append("  no evaluation rows (num_eval_rows is 0), so nothing says whether the model got better")
    lines.append(f"  Look at it: {folder / 'report.html'}   All figures: {folder / 'summary.json'}")
    return "\n".join(lines)


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _git(*words: str) -> str | None:
    root = Path(__file__).resolve().parents[3]
    try:
        result = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _hardware() -> str:
    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return f"{usable_cores()} CPU core{'s' * (usable_cores() != 1)}"
