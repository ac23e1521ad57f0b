"""The verdict on a run: did the reward and an independent held-out metric rise together?"""

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from recipes.common.evaluation.scores import (
    commonest_gold,
    compare,
    independent_metric,
    independent_metrics,
    outcomes,
    paired,
    summarize,
)
from recipes.common.report.plots import curve
from recipes.common.utils.run_files import AFTER, BEFORE, read_evaluated, read_log, read_validation
from recipes.common.utils.stats import mcnemar_p, paired_interval, share, slope_test
from recipes.common.utils.tables import in_words, percent, points

LEVEL = 0.05  # of every test: the rate of false alarms
FEWEST_STEPS = 6  # logged steps; with fewer the verdict is "not known"

OPENINGS = {
    "rose together": "Reward and {metric} rose together",
    "diverged": "The reward rose and {metric} fell",
    "reward alone": "The reward rose, and no rise of {metric} is shown",
    "accuracy fell": "{metric} fell after step {step}",
    "accuracy alone": "{metric} rose, and no rise of the reward beyond drift is shown",
    "nothing moved": "No change of {metric} is shown, nor a rise of the reward beyond drift",
}


@dataclass(frozen=True)
class Verdict:
    """`name`: a key of `OPENINGS` or "not known"; `sentence`: the verdict with its figures."""

    name: str
    sentence: str


@dataclass(frozen=True)
class Change:
    """A metric's change between two evaluations: shares, McNemar's p, and the figures as text."""

    amount: float  # the share afterwards minus the share before
    p: float
    figures: str

    @property
    def is_shown(self) -> bool:
        return self.p < LEVEL


def verdict(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    ends: list[dict[str, Any]] | None = None,
    metric: str | None = None,
) -> Verdict:
    """The verdict by the logged rewards and one held-out metric.

    `validation` are the evaluations of the validation rows, the first at step 0. `ends` are the
    held-out rows before and after; without `ends` the first and the last validation count. Without
    `metric` the metric is that of `independent_metric`. Three questions, each tested at 5 %:

    - *Did the reward rise?* The t test of the slope of the logged rewards. Correlated steps count
      as fewer steps (`slope_test`), because a late jump of a few steps can be drift. The sentence
      gives the mean rewards of the first and the last quarter.
    - *Did the metric change?* The exact McNemar test of after against before, on the same rows. Of
      40 runs without a true change, one shows a rise and one a fall.
    - *Did the metric fall after a better evaluation in between?* The same test of the last
      validation against the best one in between. Its 5 % are divided by the number of evaluations
      in between (Bonferroni), because the best one was picked from all of them. With `ends` such a
      fall is only mentioned; without `ends` it decides.

    A change that is not significant counts as no change; the sentence gives its interval.
    """
    rewards = list(curve(log, "reward").values())  # no value for a step where no row was scored
    if len(validation) < 2:
        nothing = "no rows were evaluated before and after"
        return Verdict("not known", f"Whether the model got better is not known: {nothing}.")
    if len(rewards) < FEWEST_STEPS:
        few = f"{len(rewards)} steps were logged, {FEWEST_STEPS} are needed"
        return Verdict("not known", f"Whether the reward rose is not known: {few}.")
    first, *between, last = validation
    before, after = ends or (first, last)
    if metric is None:
        metric = independent_metric(name for name in first["metrics"] if name in before["metrics"])

    slope, p_slope = slope_test(rewards)
    reward_rose = slope > 0 and p_slope < LEVEL
    change = _change(before, after, metric)
    rose, fell = change.is_shown and change.amount > 0, change.is_shown and change.amount < 0
    best = max(between, key=lambda evaluation: share(evaluation["metrics"][metric]), default=first)
    drop = _change(best, last, metric)
    # If the best is no better than the first, this fall is already the change before to after.
    was_better = share(best["metrics"][metric]) > share(first["metrics"][metric])
    dropped = was_better and drop.amount < 0 and drop.p < LEVEL / len(between)
    decides = dropped and ends is None
    if fell and reward_rose:
        name = "diverged"
    elif fell or decides:
        name = "accuracy fell"
    elif reward_rose:
        name = "rose together" if rose else "reward alone"
    else:
        name = "accuracy alone" if rose else "nothing moved"

    words = in_words(metric)
    label = f"{words} on the test questions"
    if metric in before.get("by_reward", []):
        label += " (by the reward's own scorer)"
    opening = OPENINGS[name].format(metric=label, step=best["step"] if decides else first["step"])
    quarter = max(FEWEST_STEPS // 2, len(rewards) // 4)
    start, end = mean(rewards[:quarter]), mean(rewards[-quarter:])
    sentence = f"{opening[0].upper()}{opening[1:]}: reward {start:.2f} to {end:.2f}; "
    sentence += f"{words} {change.figures}"
    if dropped:
        sentence += f"; the validation rows fell after step {best['step']}: {drop.figures}"
    return Verdict(name, f"{sentence}.")


def verdict_of_run(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    before: list[dict],
    after: list[dict],
    chosen: int | None = None,
) -> Verdict:
    """The verdict on a run by its held-out rows and its validation curve, if it has them.

    Each task with its own metrics has its own sentence. If a metric rose but is not shown to beat
    the commonest gold as every row's answer, the verdict says so: a model can learn to always say
    yes.

    `chosen` is the step of the best checkpoint, if it replaced the last one; steps after it are
    ignored, because they did not make this model.
    """
    if chosen is not None:
        log = [line for line in log if line["step"] <= chosen]
        validation = [line for line in validation if line["step"] <= chosen]
    if not (before and after):
        return verdict(log, validation)
    last = max((entry["step"] for entry in log), default=0)
    ends = [
        {"step": step, "metrics": outcomes(rows), "by_reward": rows[0].get("by_reward", [])}
        for step, rows in ((0, before), (last, after))
    ]
    held_out = ends[0]["metrics"]
    has_curve = len(validation) > 1 and held_out.keys() & validation[0]["metrics"].keys()
    evaluations = validation if has_curve else ends
    names, sentences, notes = [], [], []
    for metric in independent_metrics(m for m in evaluations[0]["metrics"] if m in held_out):
        of_metric = verdict(log, evaluations, ends, metric)
        names.append(of_metric.name)
        sentences.append(of_metric.sentence)
        if of_metric.name in ("rose together", "accuracy alone"):
            notes.append(_one_answer_sentence(after, metric))
    unique = dict.fromkeys(sentence for sentence in [*sentences, *notes] if sentence)
    return Verdict(", ".join(dict.fromkeys(names)), " ".join(unique))


def figures_of(folder: Path, chosen: int | None) -> dict[str, Any]:
    """The verdict and the evaluations of a run folder; None for what the run has not reached.

    `chosen` is explained at `verdict_of_run`.
    """
    log, validation = read_log(folder), read_validation(folder)
    before, after = read_evaluated(folder, BEFORE), read_evaluated(folder, AFTER)
    return {
        "verdict": asdict(verdict_of_run(log, validation, before, after, chosen)),
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if after else None,
        "voided": voided_sentence(log),
    }


def voided_sentence(log: list[dict[str, Any]]) -> str | None:
    """A sentence on voided completions, which taught nothing; None if the run has none.

    >>> voided_sentence([{"completions/voided": 0.25, "errors/right": 0.25}, {"reward": 1.0}])
    '25.0 % of the completions were left out and taught nothing: right could not score them.'
    """
    shares = [entry["completions/voided"] for entry in log if "completions/voided" in entry]
    if not any(shares):
        return None
    failures = {key for entry in log for key in entry if entry[key]}
    names = {key.partition("/")[2] for key in failures if key.startswith(("errors/", "unparsed/"))}
    return (
        f"{percent(mean(shares))} of the completions were left out and taught nothing: "
        f"{', '.join(sorted(names))} could not score them."
    )


def ending_of(run: dict[str, Any]) -> list[str]:
    """Sentences on voided completions, early stopping and the best checkpoint, if there are any."""
    sentences = [run["voided"]] if run["voided"] else []
    if run.get("stopped"):
        sentences.append(f"Stopped early: {run['stopped']}.")
    if best := run.get("best_checkpoint"):
        sentences.append(
            f"The model is that of step {best['step']}, the best by {best['metric']}: "
            f"{best['value']:.3g} over {best['rows']} validation rows."
        )
    return sentences


def _one_answer_sentence(rows: list[dict[str, Any]], metric: str) -> str | None:
    """A sentence if the metric is not shown to beat the commonest gold as every row's answer."""
    rows = [row for row in rows if metric in row["metrics"]]
    gold = commonest_gold(rows)
    by_gold = [row.get("answer") == gold for row in rows]
    by_model = [row["metrics"][metric] for row in rows]
    is_better = sum(by_model) > sum(by_gold) and mcnemar_p(by_model, by_gold) < LEVEL
    if gold is None or is_better:
        return None
    return (
        "The model is not shown to beat one answer given to every question: "
        f"{in_words(metric)} {percent(mean(by_model))} against {percent(mean(by_gold))} for "
        f"{gold!r:.60}."
    )


def _change(old: dict[str, Any], new: dict[str, Any], metric: str) -> Change:
    """The change of a metric between two evaluations, on the rows that both scored."""
    was, now = paired(old["metrics"][metric], new["metrics"][metric])
    amount = share(now) - share(was)
    within = points(amount, paired_interval(was, now))
    figures = f"{percent(share(was))} to {percent(share(now))}, {within}, on {len(was)} rows"
    return Change(amount, mcnemar_p(was, now), figures)
