"""The record of a finished run: its summary, table, model card and page."""

from html import escape
from pathlib import Path
from typing import Any

from huggingface_hub import upload_folder
from trl import GRPOTrainer

from recipes.common.evaluation.scores import comparison_table, paired
from recipes.common.report.page import write_report
from recipes.common.report.verdict import ending_of, figures_of
from recipes.common.training.callbacks import Clock
from recipes.common.training.engine import engine
from recipes.common.training.tracking import track_result
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import versions
from recipes.common.utils.secrets import hide_secrets
from recipes.common.utils.stats import share
from recipes.common.utils.tables import in_words


def summary_of(trainer: GRPOTrainer, config: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """The content of summary.json, from the log and the evaluations in the run's folder.

    `before`, `after` and `mcnemar_p` are None for a run without test questions.
    """
    args, state, best, stopped = trainer.args, trainer.state, None, None
    if args.load_best_model_at_end and state.best_model_checkpoint is not None:
        name = args.metric_for_best_model.removeprefix("validation/")
        # step -> outcomes; of a metric of TRL's own there are none
        outcomes = {
            line["step"]: line["metrics"][name]
            for line in files.read_validation(Path(args.output_dir))
            if name in line["metrics"]
        }
        best = {  # this checkpoint replaces the last step's
            "step": int(state.best_model_checkpoint.rpartition("-")[2]),  # of "checkpoint-120"
            "metric": args.metric_for_best_model,
            "value": state.best_metric,
            "untrained": share(outcomes[0]) if 0 in outcomes else None,
            "rows": max((len(paired(of)[0]) for of in outcomes.values()), default=None),
        }
    # The code that trained is that of the first start: it may be committed anew meanwhile.
    started = (files.read_json(Path(args.output_dir, files.VERSIONS), []) or [versions()])[0]
    patience = config.get("early_stopping_patience")
    if patience and state.global_step < state.max_steps:
        metric = in_words((args.metric_for_best_model or "").removeprefix("validation/"))
        stopped = f"{metric} was no better for {patience} evaluations"
    return {
        # verdict, before, after, mcnemar_p, voided
        **figures_of(Path(args.output_dir), best["step"] if best else None),
        "best_checkpoint": best,
        "stopped": stopped,
        "minutes": round(clock.minutes(), 2),
        "seconds": {phase: round(seconds, 1) for phase, seconds in clock.seconds.items()},
        "steps": state.global_step,
        "engine": engine(trainer),
        **versions(),
        **{name: started[name] for name in ("commit", "uncommitted_changes", "hardware")},
        "config": config,
    }


def final_table(folder: Path, summary: dict[str, Any]) -> str:
    """The text that a run prints at its end, from its summary.json: verdict, table, files."""
    steps = f"{summary['steps']} step{'s' * (summary['steps'] != 1)}"
    lines = [
        f"{folder}: {steps} in {summary['minutes']:.1f} minutes on {summary['hardware']}",
        *(f"  {line}" for line in (summary["verdict"]["sentence"], *ending_of(summary))),
    ]
    if summary["after"]:
        lines.append(comparison_table(summary["before"], summary["after"], summary["mcnemar_p"]))
        lines.append(f"  Every question: {folder / files.EVALUATION}")
    else:
        lines.append("  No test questions (num_eval_rows is 0): nothing shows a better model.")
    report, figures = folder / files.REPORT, folder / files.SUMMARY
    return "\n".join([*lines, f"  Look at it: {report}   All figures: {figures}"])


def write_record(trainer: GRPOTrainer, folder: Path, summary: dict[str, Any]) -> None:
    """Write table, summary.json and the page, and print the table.

    summary.json marks the run as finished, so the others come first; the page reads summary.json.
    """
    # A model's warm start stays known to what is trained from this run.
    model = summary["config"].get("model_name_or_path")
    if model and (warm := files.read_json(Path(model, files.WARM_START), {})):
        files.write_json(folder / files.WARM_START, warm)
    table = final_table(folder, summary)
    files.write_whole(folder / files.TABLE, table + "\n")
    files.write_json(folder / files.SUMMARY, summary)
    write_report(folder)
    track_result(trainer.args, summary, folder / files.REPORT)
    print("\n" + table, flush=True)


def write_card(trainer: GRPOTrainer, folder: Path, table: str) -> None:
    """Write TRL's model card, followed by the table of results as text."""
    trainer.create_model_card(model_name=folder.name)
    card = (folder / files.CARD).read_text(encoding="utf-8")
    # TRL's words for a model that came from a folder, and for one that is not on the Hub.
    card = card.replace("[None](https://huggingface.co/None)", "a model in a folder")
    card = card.replace('model="None"', f'model="{folder}"')
    # A metric or path in the table may look like markup, which the Hub would render.
    text = escape(table, quote=False).replace("```", "'''")
    card += f"\n## Before and after\n\n```\n{text}\n```\n"
    (folder / files.CARD).write_text(card, encoding="utf-8")


def push(repo_id: str, folder: Path, token: str | None, revision: str | None) -> None:
    """Upload the run folder without its checkpoints.

    If the upload fails, print the command for it and exit with status 1. `Trainer.push_to_hub` is
    not used: it would write a model card without the table.
    """
    ignored = [files.CHECKPOINTS, f"*{files.PARTIAL}", files.LOCK]  # partial: half written
    try:
        upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            token=token,
            revision=revision,
            ignore_patterns=ignored,
        )
    except Exception as error:
        reason = hide_secrets(f"{type(error).__name__}: {error}")
        print(f"error: the run is finished, but uploading it failed: {reason}")
        print(f"Upload it with: {files.push_command(repo_id, folder, revision)}")
        raise SystemExit(1) from error
