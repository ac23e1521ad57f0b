"""The curve of a run: its validation rows, evaluated now and then while it trains, one line each in
the run folder.
"""

from pathlib import Path
from typing import Any

from trl import GRPOTrainer

from recipes.common.evaluation.evaluate import Complete, evaluate
from recipes.common.evaluation.metrics import Metric
from recipes.common.evaluation.scores import metric_names, outcomes, summarize
from recipes.common.utils.run_files import VALIDATION, read_validation, write_rows


def validate(
    trainer: GRPOTrainer, rows: list[dict], metric: Metric, complete: Complete
) -> dict[str, float]:
    """Evaluate the validation rows and add a line to the curve; return what is to be logged."""
    step = trainer.state.global_step
    title = f"validation, step {step}"
    evaluated = evaluate(trainer, rows, metric, title=title, complete=complete)
    if trainer.is_world_process_zero():
        add_line(Path(trainer.args.output_dir), validation_line(step, evaluated))
    summary = summarize(evaluated)
    shares = {name: summary[name]["share"] for name in metric_names(evaluated)}
    shares |= {name: summary[name] for name in ("truncated", "mean_length")}
    return {f"validation/{name}": share for name, share in shares.items()}


def validation_line(step: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up the evaluated rows of a step as `read_validation` returns them."""
    summary = summarize(rows)
    figures = {key: summary[key] for key in ("truncated", "mean_length", "rewards")}
    shared = rows[0].get("by_reward", [])
    return {"step": step, "metrics": outcomes(rows), "by_reward": shared, **figures}


def add_line(run: Path, line: dict[str, Any]) -> None:
    """Add the evaluation of a step; those of it or later are of a start cut short, and go."""
    earlier = [each for each in read_validation(run) if each["step"] < line["step"]]
    write_rows(run / VALIDATION, [*earlier, line])
