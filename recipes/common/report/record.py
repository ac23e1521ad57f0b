"""The record of a run: the summary that marks it as finished, table, curves, model card, page."""

from html import escape
from pathlib import Path
from typing import Any

from huggingface_hub import upload_folder
from trl import GRPOTrainer

from recipes.common.evaluation.scores import comparison_table, independent_metric
from recipes.common.report.page import write_report
from recipes.common.report.plots import plot_runs
from recipes.common.report.report import ending_of, figures_of
from recipes.common.training.callbacks import Clock
from recipes.common.training.engine import engine
from recipes.common.training.tracking import track_report, track_summary
from recipes.common.utils.machine import versions
from recipes.common.utils.power import power_line
from recipes.common.utils.run_files import (
    CARD,
    CHECKPOINTS,
    CURVES,
    EVALUATION,
    LOCK,
    PARTIAL,
    REPORT,
    SUMMARY,
    TABLE,
    write_json,
)
from recipes.common.utils.secrets import blank
from recipes.common.utils.tables import percent


def summary_of(trainer: GRPOTrainer, config: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Build summary.json from the run's folder, in which log and evaluations stand.

    `before`, `after`, `mcnemar_p` and `changed` are None for a run without evaluation rows.
    """
    best, state = best_checkpoint(trainer), trainer.state
    metric, patience = trainer.args.metric_for_best_model, config.get("early_stopping_patience")
    early = patience and state.global_step < state.max_steps
    return {
        **figures_of(Path(trainer.args.output_dir), best["step"] if best else None),
        "best_checkpoint": best,
        "stopped": f"{metric} was no better for {patience} evaluations" if early else None,
        "minutes": round(clock.minutes(), 2),
        "seconds": {phase: round(seconds, 1) for phase, seconds in clock.seconds.items()},
        "steps": state.global_step,
        "engine": engine(trainer),
        **versions(),
        "config": config,
    }


def best_checkpoint(trainer: GRPOTrainer) -> dict[str, Any] | None:
    """The checkpoint that `load_best_model_at_end` put in place of the last step, and why."""
    chosen = trainer.state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    if chosen is None:
        return None
    step, rows = int(chosen.rpartition("-")[2]), len(trainer.eval_dataset or ())
    found = {"metric": trainer.args.metric_for_best_model, "value": trainer.state.best_metric}
    return {"step": step, **found, "rows": rows}


def write_card(trainer: GRPOTrainer, folder: Path, config: dict[str, Any], table: str) -> None:
    """Write TRL's model card with the table."""
    trainer.create_model_card(model_name=folder.name)
    card = (folder / CARD).read_text(encoding="utf-8")
    (folder / CARD).write_text(complete_card(card, config, table), encoding="utf-8")


def write_record(trainer: GRPOTrainer, folder: Path, summary: dict[str, Any]) -> None:
    """Write curves and table, then summary.json, which marks the run as finished.

    Then the page, which reads it.
    """
    plot_runs([folder], folder / CURVES)
    table = final_table(folder, summary)
    (folder / TABLE).write_text(table + "\n", encoding="utf-8")
    track_summary(trainer.args, summary)
    write_json(folder / SUMMARY, summary)
    write_report([folder], folder / REPORT)
    track_report(trainer.args, folder / REPORT)
    print("\n" + table, flush=True)


def complete_card(card: str, config: dict[str, Any], table: str) -> str:
    """Add base model, data and the table to TRL's model card, which calls a local base model None.

    A README.md in the base model's folder describes it; `scripts/prepare_model.py` writes one.
    """
    base = Path(config["model_name_or_path"])
    card = card.replace("licence: license\n", "")  # a placeholder of TRL
    card = card.replace("[None](https://huggingface.co/None)", f"{base.name} (see *Base model*)")
    card = card.replace('model="None"', f'model="{config["output_dir"]}"')
    origin, about = base / CARD, f"`{base}`"
    if origin.is_file():
        about = origin.read_text(encoding="utf-8").strip()
    # A page of the Hub shows markup in names and in what a model wrote as markup.
    table = escape(table, quote=False).replace("```", "'''")
    names = ("dataset_name", "dataset_path", "sources")
    data = {name: config[name] for name in names if config.get(name)}
    named = f": {escape(str(data), quote=False)}" if data else ""
    rows = f"Rows of the recipe `{config['recipe']}`{named}."
    sections = {
        "Base model": about,
        "Data": f"{rows} Licences: README of the repository.",
        "Before and after": f"```\n{table}\n```",
    }
    return card + "".join(f"\n## {title}\n\n{text}\n" for title, text in sections.items())


def push(repo_id: str, folder: Path, token: str | None, revision: str | None) -> None:
    """Upload the run folder without its checkpoints; status 1, with the command, when that fails.

    `Trainer.push_to_hub` would write a model card without the table.
    """
    try:
        upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            token=token,
            revision=revision,
            ignore_patterns=[CHECKPOINTS, f"*{PARTIAL}", LOCK],
        )
    except Exception as error:
        reason = blank(f"{type(error).__name__}: {error}")
        print(f"error: the run is finished, but uploading it failed: {reason}")
        print(f"Upload it with: hf upload {repo_id} {folder} --exclude '{CHECKPOINTS}'")
        raise SystemExit(1) from error


def final_table(folder: Path, summary: dict[str, Any]) -> str:
    """The screen a run ends with."""
    steps = f"{summary['steps']} step{'s' * (summary['steps'] != 1)}"
    lines = [
        f"{folder}: {steps} in {summary['minutes']:.1f} minutes on {summary['hardware']}",
        f"  {summary['verdict']['sentence']}",
        *(f"  {sentence}" for sentence in ending_of(summary)),
    ]
    if summary["after"]:
        lines.append(comparison_table(summary["before"], summary["after"], summary["mcnemar_p"]))
        name = independent_metric(summary["changed"])
        n, changed = summary["changed"][name].values()
        condition = f"as {percent(changed, 0)} of them changed in {name}"
        lines.append(f"  {power_line(n, changed, condition)}")
        lines.append(f"  Every row: {folder / EVALUATION}")
    else:
        nothing = "so nothing says whether the model got better"
        lines.append(f"  no evaluation rows (num_eval_rows is 0), {nothing}")
    lines.append(f"  Look at it: {folder / REPORT}   All figures: {folder / SUMMARY}")
    return "\n".join(lines)
