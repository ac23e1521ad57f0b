"""The verdict on a run: did the reward and an independent metric of the test questions rise?"""

from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from recipes.common.evaluation.scores import (
    compare,
    independent_metrics,
    known,
    metric_names,
    outcomes,
    paired,
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
    "accuracy fell": "{metric} fell",
    "accuracy alone": "{metric} rose, and no rise of the reward beyond drift is shown",
    "nothing moved": "No change of {metric} is shown, nor a rise of the reward beyond drift",
}
UNKNOWN = "Whether the model got better is not known:"


class Verdict(NamedTuple):
    """`name`: a key of `OPENINGS` or "not known"; `sentence`: the verdict with its figures."""

    name: str
    sentence: str


def verdict(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    ends: list[dict[str, Any]] | None,
    metric: str,
) -> Verdict:
    """The verdict by the logged rewards and one metric.

    `validation` are the evaluations of the validation rows, the first at step 0. `ends` are the
    test questions before and after; without `ends` the first and the last validation count. Three
    questions, each tested at 5 %:

    - *Did the reward rise?* The t test of the slope of the logged rewards. Correlated steps count
      as fewer steps (`slope_test`), because a late jump of a few steps can be drift. The sentence
      gives the mean rewards of the first and the last quarter.
    - *Did the metric change?* The exact McNemar test of after against before, on the same rows. Of
      40 runs without a true change, one shows a rise and one a fall.
    - *Did the metric fall after a better validation in between?* The same test of the last
      validation against the best one in between. Its 5 % are divided by the number of evaluations
      in between (Bonferroni), because the best one was picked from all of them. Any such fall is
      told, with what the test says of it; it decides only without `ends`.

    A change that is not significant counts as no change; the sentence gives its interval.
    """
    rewards = list(curve(log, "reward").values())  # no value for a step where no row was scored
    if len(rewards) < FEWEST_STEPS:
        few = f"{len(rewards)} steps were logged, {FEWEST_STEPS} are needed"
        return Verdict("not known", f"Whether the reward rose is not known: {few}.")
    validation = [line for line in validation if metric in line["metrics"]]
    before, after = ends or (validation[0], validation[-1])
    slope, p_slope = slope_test(rewards)
    reward_rose = slope > 0 and p_slope < LEVEL
    change, p, figures = _change(before, after, metric)
    rose, fell = p < LEVEL and change > 0, p < LEVEL and change < 0

    words, late_fall, is_chance = in_words(metric), "", True
    between = validation[1:-1]
    best = max(between, key=lambda line: share(line["metrics"][metric]), default=None)
    # If the best is no better than the first, its fall is already the change before to after.
    if best and _change(validation[0], best, metric)[0] > 0:
        drop, p_drop, figures_of_drop = _change(best, validation[-1], metric)
        is_chance = p_drop >= LEVEL / len(between)
        if drop < 0:
            late_fall = (
                f" On the validation rows {words} was highest at step {best['step']} and lower at "
                f"step {validation[-1]['step']}{', where this model is from' if ends else ''}: "
                f"{figures_of_drop}{'; that may be chance' if is_chance else ''}."
            )
    if fell and reward_rose:
        name = "diverged"
    elif fell or (late_fall and not is_chance and not ends):
        name = "accuracy fell"
    elif reward_rose:
        name = "rose together" if rose else "reward alone"
    else:
        name = "accuracy alone" if rose else "nothing moved"

    label = f"{words} on the {'test questions' if ends else 'validation rows'}"
    if metric in before.get("by_reward", []):
        label += " (by the reward's own scorer)"
    opening = OPENINGS[name].format(metric=label)
    quarter = max(FEWEST_STEPS // 2, len(rewards) // 4)
    start, end = mean(rewards[:quarter]), mean(rewards[-quarter:])
    return Verdict(
        name,
        f"{opening[0].upper()}{opening[1:]}: reward {start:.2f} to {end:.2f}; "
        f"{words} {figures}.{late_fall}",
    )


def verdict_of_run(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    before: list[dict],
    after: list[dict],
    chosen: int | None = None,
) -> Verdict:
    """The verdict on a run by its test questions and its validation curve, if it has them.

    Each task with its own metrics has its own sentence. If a metric rose but is not shown to beat
    the commonest correct answer given to every question, the verdict says so: a model can learn to
    always say yes. `chosen` is the step of the best checkpoint, if it replaced the last one; steps
    after it are ignored, because they did not make this model.
    """
    if chosen is not None:
        log = [line for line in log if line["step"] <= chosen]
        validation = [line for line in validation if line["step"] <= chosen]
    ends = [_line(rows) for rows in (before, after)] if before and after else None
    evaluations = ends or validation
    if len(evaluations) < 2:
        return Verdict("not known", f"{UNKNOWN} no rows were evaluated before and after.")
    first, last = (evaluations[i]["metrics"] for i in (0, -1))
    metrics = [name for name in first if name in last and paired(first[name], last[name])[0]]
    if not metrics:
        return Verdict("not known", f"{UNKNOWN} the metric gave no row an outcome both times.")
    verdicts, notes = [], []
    for metric in independent_metrics(metrics):
        verdicts.append(verdict(log, validation, ends, metric))
        if ends and verdicts[-1].name in ("rose together", "accuracy alone"):
            notes.append(_one_answer_sentence(after, metric))
    sentences = [*(of_metric.sentence for of_metric in verdicts), *filter(None, notes)]
    kinds = dict.fromkeys(of_metric.name for of_metric in verdicts)
    return Verdict(", ".join(kinds), " ".join(dict.fromkeys(sentences)))


def figures_of(folder: Path, chosen: int | None) -> dict[str, Any]:
    """The verdict and the evaluations of a run folder; None for what the run has not reached.

    `chosen` is explained at `verdict_of_run`.
    """
    log, validation = read_log(folder), read_validation(folder)
    before, after = read_evaluated(folder, BEFORE), read_evaluated(folder, AFTER)
    figures = compare(before, after) if before else dict.fromkeys(("before", "after", "mcnemar_p"))
    of_run = verdict_of_run(log, validation, before, after, chosen)
    return {"verdict": of_run._asdict(), **figures, "voided": left_out_sentence(log)}


def left_out_sentence(log: list[dict[str, Any]]) -> str | None:
    """A sentence on completions that were left out and taught nothing; None if there are none.

    >>> left_out_sentence([{"completions/voided": 0.25, "errors/right": 0.25}, {"reward": 1.0}])
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
    """Sentences on what was left out, early stopping and the best checkpoint, if there are any."""
    sentences = [run["voided"]] if run["voided"] else []
    if run.get("stopped"):
        sentences.append(f"Stopped early: {run['stopped']}.")
    if best := run.get("best_checkpoint"):
        metric = in_words(best["metric"].removeprefix("validation/"))
        sentences.append(
            f"The model is that of step {best['step']}, the best by {metric}: "
            f"{best['value']:.3g} over {best['rows']} validation rows."
        )
    return sentences


def _one_answer_sentence(rows: list[dict[str, Any]], metric: str) -> str | None:
    """A sentence if the metric is not shown to beat the commonest answer given to every row."""
    rows = [row for row in rows if row["metrics"].get(metric) is not None]
    answers = Counter(
        row["answer"] for row in rows if isinstance(row.get("answer"), str | int | float)
    )
    answer, count = max(answers.items(), key=lambda pair: pair[1], default=(None, 0))
    by_answer = [row.get("answer") == answer for row in rows]
    by_model = known(rows, metric)
    is_better = sum(by_model) > count and mcnemar_p(by_model, by_answer) < LEVEL
    if count < 2 or is_better:
        return None
    return (
        "The model is not shown to beat one answer given to every question: "
        f"{in_words(metric)} {percent(mean(by_model))} against {percent(mean(by_answer))} for "
        f"{answer!r:.60}."
    )


def _line(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Evaluated rows in the form of a line of the validation curve."""
    metrics = {name: outcomes(rows, name) for name in metric_names(rows)}
    return {"metrics": metrics, "by_reward": rows[0].get("by_reward", [])}


def _change(old: dict[str, Any], new: dict[str, Any], metric: str) -> tuple[float, float, str]:
    """A metric's change between two evaluations on the rows that both scored, with McNemar's p."""
    was, now = paired(old["metrics"][metric], new["metrics"][metric])
    change = share(now) - share(was)
    within = points(change, paired_interval(was, now))
    figures = f"{percent(share(was))} to {percent(share(now))}, {within}, on {len(was)} rows"
    return change, mcnemar_p(was, now), figures
