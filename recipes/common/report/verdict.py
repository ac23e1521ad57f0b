"""The verdict on a run: did the reward and a measure that it does not see rise together?"""

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
    rows_changed,
    summarize,
)
from recipes.common.report.plots import curve
from recipes.common.utils.run_files import AFTER, BEFORE, read_evaluated, read_log, read_validation
from recipes.common.utils.stats import mcnemar_p, paired_interval, share, slope_test
from recipes.common.utils.tables import percent, points

LEVEL = 0.05
FEWEST_STEPS = 6

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
    """A name of `OPENINGS` or "not known", and the sentence with the figures that it rests on."""

    name: str
    sentence: str


def verdict(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    ends: list[dict[str, Any]] | None = None,
    metric: str | None = None,
) -> Verdict:
    """Decide by the logged training steps and the validation rows, first evaluated at step 0.

    `ends` are two evaluations of the held-out rows, before and after; without them, the
    validation's own first and last count. The metric is that of `independent_metric`, unless one is
    named. Three questions, each with its own rate of false alarms:

    - *Did the reward rise?* The slope of the logged steps' rewards, by the t test of a linear
      regression at 5 %, with as many steps as their correlation leaves independent (`slope_test`):
      a late jump of a few steps can be drift. The sentence gives the means of the first and of the
      last quarter.
    - *Did the metric change?* After against before, on the same rows, by the exact McNemar test at
      5 %: of 40 runs that changed nothing one has a rise, one a fall.
    - *Did it fall from a better one in between?* The last validation against the best between, by
      the same test at 5 % divided by the number of evaluations between (Bonferroni): the best was
      chosen by looking at all. It decides without `ends` alone, and is told beside them.

    A change that the rows are too few to show counts as none, and the sentence gives its interval.
    """
    rewards = list(curve(log, "reward").values())  # without steps of which no row could be scored
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
    change, p, figures = _compared(before, after, metric)
    rose, fell = p < LEVEL and change > 0, p < LEVEL and change < 0
    best = max(between, key=lambda evaluation: share(evaluation["metrics"][metric]), default=first)
    drop, p_drop, figures_of_drop = _compared(best, last, metric)
    # Where the best was no better than the first, the change from before to after says it all.
    was_better = share(best["metrics"][metric]) > share(first["metrics"][metric])
    dropped = was_better and drop < 0 and p_drop < LEVEL / len(between)
    decides = dropped and ends is None
    if fell and reward_rose:
        name = "diverged"
    elif fell or decides:
        name = "accuracy fell"
    elif reward_rose:
        name = "rose together" if rose else "reward alone"
    else:
        name = "accuracy alone" if rose else "nothing moved"

    label = f"held-out {metric}"
    if metric in before.get("by_reward", []):
        label += " (by the reward's own scorer)"
    opening = OPENINGS[name].format(metric=label, step=best["step"] if decides else first["step"])
    quarter = max(FEWEST_STEPS // 2, len(rewards) // 4)
    start, end = mean(rewards[:quarter]), mean(rewards[-quarter:])
    sentence = f"{opening[0].upper()}{opening[1:]}: reward {start:.2f} to {end:.2f}; "
    sentence += f"{metric} {figures}"
    if dropped:
        sentence += f"; the validation rows fell after step {best['step']}: {figures_of_drop}"
    return Verdict(name, f"{sentence}.")


def verdict_of_run(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    before: list[dict],
    after: list[dict],
    chosen: int | None = None,
) -> Verdict:
    """The verdict on a run by its held-out rows and its curve, as far as it has them.

    Of several tasks with metrics of their own each has its sentence. Where a metric rose, and is
    not shown to be above what the commonest gold given to every row reaches, it says so: yes or no
    can be answered by heart. `chosen` is the step of the checkpoint that took the place of the
    last; what came after it is not of this model.
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
    names, sentences, by_heart = [], [], []
    for metric in independent_metrics(m for m in evaluations[0]["metrics"] if m in held_out):
        of_metric = verdict(log, evaluations, ends, metric)
        names.append(of_metric.name)
        sentences.append(of_metric.sentence)
        if of_metric.name in ("rose together", "accuracy alone"):
            by_heart += _by_heart(after, metric)
    unique = dict.fromkeys([*sentences, *by_heart])
    return Verdict(", ".join(dict.fromkeys(names)), " ".join(unique))


def figures_of(folder: Path, chosen: int | None) -> dict[str, Any]:
    """Verdict, before and after of a run folder, as far as the run has come.

    `chosen` as of `verdict_of_run`.
    """
    log, validation = read_log(folder), read_validation(folder)
    before, after = read_evaluated(folder, BEFORE), read_evaluated(folder, AFTER)
    return {
        "verdict": asdict(verdict_of_run(log, validation, before, after, chosen)),
        "before": summarize(before) if before else None,
        "after": summarize(after) if after else None,
        "mcnemar_p": compare(before, after) if after else None,
        "changed": rows_changed(before, after) if after else None,
        "voided": voided_sentence(log),
    }


def voided_sentence(log: list[dict[str, Any]]) -> str | None:
    """The share of completions that taught nothing because a reward could not score them, if any.

    >>> voided_sentence([{"completions/voided": 0.25, "errors/right": 0.25}, {"reward": 1.0}])
    '25.0 % of the completions were voided and taught nothing: right could not score them.'
    """
    shares = [entry["completions/voided"] for entry in log if "completions/voided" in entry]
    if not any(shares):
        return None
    failures = {key for entry in log for key in entry if entry[key]}
    names = {key.partition("/")[2] for key in failures if key.startswith(("errors/", "unparsed/"))}
    return (
        f"{percent(mean(shares))} of the completions were voided and taught nothing: "
        f"{', '.join(sorted(names))} could not score them."
    )


def ending_of(run: dict[str, Any]) -> list[str]:
    """Sentences on a finished run, from its summary: what it lost, which model it ends with."""
    sentences = [run["voided"]] if run["voided"] else []
    if run.get("stopped"):
        sentences.append(f"Stopped early: {run['stopped']}.")
    if best := run.get("best_checkpoint"):
        sentences.append(
            f"The model is that of step {best['step']}, the best by {best['metric']}: "
            f"{best['value']:.3g} over {best['rows']} validation rows."
        )
    return sentences


def _by_heart(rows: list[dict[str, Any]], metric: str) -> list[str]:
    """A sentence where one answer, given to every row, does as well as the model."""
    rows = [row for row in rows if metric in row["metrics"]]
    gold = commonest_gold(rows)
    by_heart = [row.get("answer") == gold for row in rows]
    right = [row["metrics"][metric] for row in rows]
    if gold is None or (sum(right) > sum(by_heart) and mcnemar_p(right, by_heart) < LEVEL):
        return []
    return [
        f"Held-out {metric} is not shown to beat one answer for every row: "
        f"{percent(mean(right))} against {percent(mean(by_heart))} for {gold!r:.60}."
    ]


def _compared(old: dict[str, Any], new: dict[str, Any], metric: str) -> tuple[float, float, str]:
    """The change of a share on the rows that both evaluations know, its p, and the figures."""
    was, now = paired(old["metrics"][metric], new["metrics"][metric])
    change = share(now) - share(was)
    shares = f"{percent(share(was))} to {percent(share(now))}"
    within = points(change, paired_interval(was, now))
    return change, mcnemar_p(was, now), f"{shares}, {within}, on {len(was)} rows"
