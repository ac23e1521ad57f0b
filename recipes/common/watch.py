"""Watch any `trl.GRPOTrainer`: evaluate before and after training, and plot the curve between.

    watch(trainer, rows, metric, validation_rows)  # before trainer.train()

`output_dir` gets `evaluation/`, `table.txt`, `summary.json` and `report.html`. Every step logs the
metric of the training completions, and its push: the direction in which their advantages move it.
The training is that of the script without `watch`: the same weights, whatever the metric does.
`train_and_save` of the recipes uses the same callback.
"""

import functools
import inspect
import json
import math
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import transformers
from accelerate.utils import gather_object
from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks
from trl import GRPOTrainer

from recipes.common.evaluation.evaluate import evaluate, validate
from recipes.common.evaluation.metrics import Measured, Metric, measure_or_fail, try_metric
from recipes.common.evaluation.scores import comparison_table, independent_metrics, summarize
from recipes.common.report.plots import curve
from recipes.common.report.record import summary_of, write_record
from recipes.common.training.callbacks import Clock
from recipes.common.training.completion import complete
from recipes.common.training.push import FEWEST_STEPS, figures, metric_names
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import versions
from recipes.common.utils.screen import announce
from recipes.common.utils.secrets import hide_secrets
from recipes.common.utils.tables import in_words
from rewards import reward_of
from rewards.text import completion_text


def watch(
    trainer: GRPOTrainer, rows: Any, metric: Metric, validation_rows: Any | None = None
) -> None:
    """Evaluate `rows` before and after `trainer.train()`, and write a report; call on all ranks.

    Args:
        trainer: any `trl.GRPOTrainer` before `train()`; training may resume from a checkpoint.
        rows: held-out rows (a list or a `datasets.Dataset`) with the columns of the training rows.
        metric: `metric(row, completion) -> {name: True or False}`; `completion` is the text.
        validation_rows: rows of the training split, evaluated every `args.eval_steps` steps.

    Raises:
        ValueError: the rows have no prompts, the metric takes other arguments, or
        `validation_rows` is given without `eval_steps`.
    """
    args = trainer.args
    for name, of in (("rows", rows), ("validation_rows", validation_rows)):
        row = next(iter(of or ()), {"prompt": ""})
        if not isinstance(row, dict) or "prompt" not in row:
            raise ValueError(
                f"{name} begins with {row!r:.80}; allowed: mappings with `prompt` and the other "
                "columns of the training rows. Pass them as your script prepares those."
            )
    try:
        inspect.signature(metric).bind({}, "")
    except TypeError as error:
        raise ValueError(
            f"the metric cannot be called as metric(row, completion): {error}. Define it with two "
            "parameters; it returns a mapping of names to True or False."
        ) from error
    if validation_rows is not None and args.eval_strategy == "no" and not args.eval_steps:
        raise ValueError("validation_rows are evaluated every eval_steps steps: set eval_steps.")
    try_metric(metric, rows or ())
    clock = Clock(Path(args.output_dir))
    watched = Watch(trainer, rows, metric, validation_rows, clock)
    if watched.is_our_trainer:  # it passes the advantages
        trainer.observe = watched.observe
    else:
        _observe_rewards(trainer, watched)
    # Behind the trackers, which must begin first; before the script's own callbacks:
    # EarlyStoppingCallback reads what Watch adds to the metrics.
    trackers = get_reporting_integration_callbacks(args.report_to)
    callbacks = trainer.callback_handler.callbacks
    place = 1 + max([0, *(i for i, one in enumerate(callbacks) if type(one) in trackers)])
    callbacks[place:place] = [clock, watched]
    trainer.add_callback(_Report(watched))


class Watch(TrainerCallback):
    """Evaluate held-out rows before and after training, and validation rows during training.

    Validation rows are evaluated before training, and whenever the trainer evaluates; with
    `eval_strategy: no`, every `eval_steps` steps. The caller calls `after` when training is over,
    and `observe` for each generation.
    """

    def __init__(
        self,
        trainer: GRPOTrainer,
        rows: Any,
        metric: Metric,
        validation_rows: Any | None,
        clock: Clock,
        samples: int = 0,  # random completions of each held-out row, besides the greedy one
        metric_steps: int = 1,  # apply the metric to training completions so often; 0: never
    ):
        self.trainer, self.metric, self.clock, self.samples = trainer, metric, clock, samples
        self.rows, self.validation_rows = list(rows or ()), list(validation_rows or ())
        self.folder, self.warned = Path(trainer.args.output_dir), set()
        self.metric_steps, self.next_step = metric_steps, 0
        self.validated = 0  # the step of the last evaluation
        self.is_our_trainer = hasattr(trainer, "observe")
        # With an own `complete`, `evaluate` calls no reward: those of TRL's trainer may raise.
        self.complete = None if self.is_our_trainer else functools.partial(complete, trainer)

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        """Record this start; evaluate at step 0, or check in a resumed run that this was done."""
        step, is_main = state.global_step, state.is_world_process_zero
        # The first step from here on that `metric_steps` divides.
        self.next_step = math.ceil(step / max(1, self.metric_steps)) * self.metric_steps
        if is_main:
            path = self.folder / files.VERSIONS
            starts = files.read_json(path, default=[]) if step else []
            files.write_json(path, [*starts, {"from_step": step, **versions()}])
        if step == 0:
            if is_main:
                left = (files.AFTER, files.VALIDATION, files.SUMMARY, files.STATE)
                earlier_run = [self.folder / file for file in left]
                for path in (*earlier_run, *files.completion_files(self.folder)):
                    path.unlink(missing_ok=True)
            self.evaluate_held_out(files.BEFORE)
            self.evaluate_validation()
        elif is_main and self.rows:
            before = files.read_evaluated(self.folder, files.BEFORE)
            if [row["prompt"] for row in before] != [row["prompt"] for row in self.rows]:
                raise ValueError(
                    f"{self.folder / files.BEFORE} does not hold these rows: training resumes at "
                    f"step {step}, and the model of step 0 was not evaluated on them. Give `watch` "
                    "the rows of the first start, or train from step 0."
                )

    def on_evaluate(self, args, state, control, metrics: dict, **kwargs) -> None:
        """Add the validation metrics to `metrics`, from which the best model is chosen."""
        if state.global_step != self.validated:  # of several data sets with the first alone
            self.validated = state.global_step
            metrics |= self.evaluate_validation()

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """Evaluate the validation rows every `eval_steps` if the trainer itself never evaluates."""
        due = state.global_step % (state.eval_steps or 1) == 0
        if args.eval_strategy == "no" and (due or state.global_step >= state.max_steps):
            should_log = control.should_log
            self.evaluate_validation()
            control.should_log = should_log  # logging the shares has set this to False

    def after(self) -> None:
        """Evaluate the trained model on the held-out rows."""
        # The best checkpoint may have been loaded since TRL gave vLLM the weights of this step.
        self.trainer._last_loaded_step = -1
        self.evaluate_held_out(files.AFTER)

    def evaluate_held_out(self, file: str) -> None:
        """Evaluate the held-out rows, and write them with their completions and metrics."""
        if not self.rows:
            return
        with self.clock("before and after"):
            evaluated = evaluate(
                self.trainer, self.rows, self.metric, self.samples, Path(file).stem, self.complete
            )
        if self.trainer.is_world_process_zero():
            files.write_rows(self.folder / file, evaluated)
            if not any(row["metrics"] for row in evaluated):
                print("warning: the metric gives nothing for any test question.", flush=True)
            if file == files.BEFORE:
                print(comparison_table(summarize(evaluated), None, None), flush=True)

    def evaluate_validation(self) -> dict[str, float]:
        """Log the shares as `validation/<metric>`; return them as `eval_validation/<metric>`."""
        if not self.validation_rows:
            return {}
        with self.clock("validation"):
            shares = validate(self.trainer, self.validation_rows, self.metric, self.complete)
        # TRL's own `log` would write the completions of this step a second time.
        transformers.Trainer.log(self.trainer, dict(shares))
        return {f"eval_{name}": share for name, share in shares.items()}

    def observe(
        self, rows: list[dict], completions: list, advantages: list[float]
    ) -> dict[str, float]:
        """Apply the metric to this rank's training completions; return the values to log.

        All ranks must call this method together.
        """
        measured = self.measure(rows, completions)
        return {} if measured is None else self.figures(measured, advantages)

    def measure(self, rows: list[dict], completions: list) -> list[Measured] | None:
        """Apply the metric to this rank's training completions; None if no step is due.

        A metric that runs programs may be slow, and other ranks wait: what is not measured within
        the time of one call of a reward is left out of shares and pushes (`errors/metric`).
        """
        step = self.trainer.state.global_step
        if not self.metric_steps or step < self.next_step:
            return None
        self.next_step = (step // self.metric_steps + 1) * self.metric_steps
        end = time.monotonic() + getattr(self.trainer.args, "reward_timeout_s", 300.0)
        measured: list[Measured] = []
        for row, completion in zip(rows, completions, strict=True):
            if time.monotonic() < end:
                measured.append(measure_or_fail(self.metric, row, completion_text(completion)))
            else:
                measured.append(({}, "no time left"))
        return measured

    def figures(self, measured: list[Measured], advantages: list[float]) -> dict[str, float]:
        """Compute the values to log, over all ranks, which must call this method together.

        These are the shares of the metrics and their pushes: a push is the mean covariance of
        metric and advantage in a group. The arguments are of this rank's completions.
        """
        args, state = self.trainer.args, self.trainer.state
        if self.trainer.accelerator.num_processes > 1:
            measured = gather_object(measured)
            advantages = gather_object(advantages)
        outcomes = [outcome for outcome, _ in measured]
        # `looks`: the intervals of a run on which a warning rests, which shall hold together.
        logged_steps = math.ceil(state.max_steps / max(self.metric_steps, state.logging_steps))
        looks = logged_steps * len(independent_metrics(metric_names(outcomes)))
        logged = figures(outcomes, advantages, args.num_generations, state.log_history, looks)
        if failed := fmean(failure is not None for _, failure in measured):
            logged["errors/metric"] = failed
        return logged

    def on_log(self, args, state, control, logs: dict | None = None, **kwargs) -> None:
        """Warn once if the reward rises while the advantages push an independent metric down.

        They do if the 95 % interval of the push, `push/<name>_low` to `_high`, is below 0.
        """
        metrics = [key.partition("/")[2] for key in logs or () if key.startswith("metrics/")]
        for name in independent_metrics(metrics):
            high = logs.get(f"push/{name}_high")
            if name in self.warned or high is None or high >= 0.0:
                continue
            rewards = list(curve(state.log_history, "reward").values())
            # The reward needs no interval of its own: the interval of the push is strict enough.
            first, latest = rewards[:FEWEST_STEPS], rewards[-FEWEST_STEPS:]
            if len(latest) == FEWEST_STEPS and fmean(latest) > fmean(first):
                self.warned.add(name)
                announce(
                    f"warning: the reward rises and pulls {in_words(name)} down: push/{name} is "
                    f"between {logs[f'push/{name}_low']:+.3f} and {high:+.3f} over the last steps "
                    "(95 %, all looks of the run allowed for). What it pays for is not what is "
                    "asked for: read the latest completions, and try the cheat test, "
                    "scripts/audit_rewards.py."
                )


def _observe_rewards(trainer: GRPOTrainer, watched: Watch) -> None:
    """Patch a TRL trainer to log a metric of its completions, and how their advantages move it."""
    calculate_rewards = trainer._calculate_rewards
    generate_and_score = trainer._generate_and_score_completions  # calls the other one
    measured = None

    def measure_and_calculate(rows: list, prompts: list, completions: list, ids: list) -> Any:
        nonlocal measured
        # The metric comes first, because a reward may change the completions.
        measured = watched.measure(rows, completions) if trainer.model.training else None
        return calculate_rewards(rows, prompts, completions, ids)

    def score_and_log(rows: list) -> dict:
        output = generate_and_score(rows)
        if measured is not None:
            # A completion that `mask_truncated_completions` masks moves nothing.
            advantages_c = output["advantages"] * output["completion_mask"].any(dim=1)
            for name, value in watched.figures(measured, advantages_c.tolist()).items():
                trainer._metrics["train"][name].append(value)
        return output

    trainer._calculate_rewards = measure_and_calculate
    trainer._generate_and_score_completions = score_and_log


class _Report(TrainerCallback):
    """Write the settings at the start and the record at the end, for a user's own script."""

    def __init__(self, watched: Watch):
        self.watched = watched

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        if state.is_world_process_zero and state.global_step == 0:
            files.write_json(self.watched.folder / files.RECORD, self.config())

    def on_train_end(self, args, state, control, **kwargs) -> None:
        """Evaluate the trained model, then write the trainer's log, the summary and the page."""
        watched = self.watched
        watched.after()
        if state.is_world_process_zero:
            state.save_to_json(watched.folder / files.STATE)
            summary = summary_of(watched.trainer, self.config(), watched.clock)
            write_record(watched.trainer, watched.folder, summary)

    def config(self) -> dict[str, Any]:
        """The settings for run_config.json, without secrets."""
        trainer = self.watched.trainer
        return {
            "recipe": Path(sys.argv[0]).name,
            "model_name_or_path": trainer.model.config._name_or_path,
            "reward_funcs": [reward_of(reward).name for reward in trainer.reward_funcs],
            "world_size": trainer.accelerator.num_processes,
            **hide_secrets(json.loads(json.dumps(trainer.args.to_dict(), default=str))),
        }
