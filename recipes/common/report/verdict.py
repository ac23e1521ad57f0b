"""The verdict on a run: did the reward and an independent metric of the test questions rise?"""

from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from recipes.common.evaluation.scores import (
    compare,
    known,
    metric_names,
    outcomes,
    paired,
    verdict_metrics,
)
from recipes.common.report.plots import curve
from recipes.common.utils.run_files import AFTER, BEFORE, read_evaluated, read_log, read_validation
from recipes.common.utils.stats import mcnemar_p, paired_interval, share, slope_test, t_interval
from recipes.common.utils.tables import in_words, p_value, percent, points

LEVEL = 0.05  # of every test: the rate of false alarms
FEWEST_ROWS = 6  # of a t test of rewards, which few values make narrow by chance
FEWEST_STEPS = 6  # logged steps; with fewer the verdict is "not known"

OPENINGS = {
    "rose together": "Reward and {metric} rose together",
    "diverged": "The reward rose and {metric} fell",
    "reward alone": "The reward rose; {metric} did not rise by more than chance",
    "accuracy fell": "{metric} fell",
    "accuracy alone": "{metric} rose; the training reward did not rise by more than chance",
    "nothing moved": "Neither did the training reward rise nor {metric} change by more than chance",
}
NAMES = {  # what the metric did, without the reward and with a rise of the reward
    "rose": ("accuracy alone", "rose together"),
    "fell": ("accuracy fell", "diverged"),
    "did not change": ("nothing moved", "reward alone"),
}
UNKNOWN = "Whether the model got better is not known:"


class Verdict(NamedTuple):
    """`name`: a key of `OPENINGS` or "not known"; `sentence`: the verdict with its figures."""

    name: str
    sentence: str


def verdict_of_run(
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    before: list[dict],
    after: list[dict],
    chosen: int | None = None,
) -> Verdict:
    """The verdict on a run by its test questions, evaluated before and after training.

    `log` has a line for each logged step, `validation` for each evaluation of the validation rows.
    Each task with its own metrics has its own sentence. If a metric rose but is not shown to beat
    the commonest correct answer given to every question, the verdict says so: a model can learn to
    always say yes. `chosen` is the step of the best checkpoint, if it replaced the last one; steps
    after it are ignored, because they did not make this model.
    """
    if chosen is not None:
        log = [line for line in log if line["step"] <= chosen]
        validation = [line for line in validation if line["step"] <= chosen]
    if not (before and after):
        return Verdict("not known", f"{UNKNOWN} no rows were evaluated before and after.")
    counts = {  # metric -> the rows that have an outcome before and after
        name: len(paired(outcomes(before, name), outcomes(after, name))[0])
        for name in metric_names(before)
    }
    metrics = verdict_metrics(counts)  # of each task the one that rewards see least
    if not metrics:
        return Verdict("not known", f"{UNKNOWN} the metric gave no row an outcome both times.")
    names, sentences, notes = [], [], []
    for metric in metrics:
        name, sentence = verdict(metric, log, validation, before, after)
        names.append(name)
        sentences.append(sentence)
        if name in ("rose together", "accuracy alone"):
            notes += one_answer_note(metric, after)
        if name in ("nothing moved", "accuracy fell", "accuracy alone"):
            notes += rewards_note(before, after)
        notes += cut_off_note(metric, before, after)
    return Verdict(", ".join(dict.fromkeys(names)), " ".join(dict.fromkeys(sentences + notes)))


def verdict(
    metric: str,
    log: list[dict[str, Any]],
    validation: list[dict[str, Any]],
    before: list[dict],
    after: list[dict],
) -> Verdict:
    """The verdict by the logged rewards and one metric. Two questions, each tested at 5 %:

    - *Did the reward rise?* The t test of the slope of the logged rewards. Correlated steps count
      as fewer steps (`slope_test`), because a late jump of a few steps can be drift. The sentence
      gives the mean rewards of the first and the last quarter, or of three steps if that is more.
    - *Did the metric change?* The exact McNemar test of after against before, on the same rows. Of
      40 runs without a true change, one shows a rise and one a fall.

    A change that is not significant counts as no change; the sentence gives its interval.
    """
    rewards = list(curve(log, "reward").values())  # no value for a step where no row was scored
    change, words = change_of(outcomes(before, metric), outcomes(after, metric)), in_words(metric)
    if len(rewards) < FEWEST_STEPS:
        few = f"{len(rewards)} steps were logged up to this model, {FEWEST_STEPS} are needed"
        sentence = f"Whether the reward rose is not known: {few}; {words} {change.figures}."
        return Verdict("not known", sentence)
    slope, p_slope = slope_test(rewards)
    moved = "did not change"
    if change.p < LEVEL:
        moved = "rose" if change.size > 0 else "fell"
    reward_rose = slope > 0 and p_slope < LEVEL
    without_rise, with_rise = NAMES[moved]
    name = with_rise if reward_rose else without_rise
    label = f"{words} on the test questions"
    if metric in before[0].get("by_reward", []):  # not an independent check of the reward
        label += " (by the reward's own scorer)"
    opening = OPENINGS[name].format(metric=label)
    quarter = max(FEWEST_STEPS // 2, len(rewards) // 4)
    start, end = mean(rewards[:quarter]), mean(rewards[-quarter:])
    has_steps = any(key.startswith("step_rewards/") for line in log for key in line)
    of_what = "reward (without those of steps)" if has_steps else "reward"  # TRL's has none of them
    sentence = (
        f"{opening[0].upper()}{opening[1:]}: {of_what} {start:.2f} to {end:.2f} in training; "
        f"{words} {change.figures}.{late_fall(metric, validation)}"
    )
    return Verdict(name, sentence)


class Change(NamedTuple):
    """A change of a metric's share, with McNemar's p and the words that give its figures."""

    size: float
    p: float
    figures: str


def change_of(before: list[bool | None], after: list[bool | None]) -> Change:
    """The change between the outcomes of the same rows by a metric in two evaluations."""
    old, new = paired(before, after)  # without rows that have None in either
    size = share(new) - share(old)
    within = points(size, paired_interval(old, new))
    # Such as "20.0 % to 40.0 %, +20.0 pt (+3 to +36), on 40 rows, p 0.039"
    p, shares = mcnemar_p(old, new), f"{percent(share(old))} to {percent(share(new))}"
    return Change(size, p, f"{shares}, {within}, on {len(old)} rows, p {p_value(p)}")


def late_fall(metric: str, validation: list[dict[str, Any]]) -> str:
    """A sentence if the metric fell on the validation rows after its best evaluation; else "".

    The best is one between the first (of step 0) and the last. The 5 % of the test are divided by
    the number of evaluations in between (Bonferroni), because the best was picked from all of them.
    """
    outcomes_at = {  # step -> True, False or None for each validation row
        line["step"]: line["metrics"][metric] for line in validation if metric in line["metrics"]
    }
    if len(outcomes_at) < 3:
        return ""
    first, *between, last = sorted(outcomes_at)
    best = max(between, key=lambda step: share(outcomes_at[step]))
    rise = change_of(outcomes_at[first], outcomes_at[best])
    fall = change_of(outcomes_at[best], outcomes_at[last])
    if rise.size <= 0 or fall.size >= 0:
        return ""
    chance = "" if fall.p < LEVEL / len(between) else "; that may be chance"
    return (
        f" On the validation rows {in_words(metric)} was highest at step {best} and lower at step "
        f"{last}, where this model is from: {fall.figures}{chance}."
    )


def one_answer_note(metric: str, rows: list[dict[str, Any]]) -> list[str]:
    """A list with a sentence if the model may be no better than one fixed answer; else empty.

    The fixed answer is the commonest correct answer of the rows, given to every row. An answer that
    is correct for one row only is no pattern to learn.
    """
    rows = [row for row in rows if row["metrics"].get(metric) is not None]
    answers = [row["answer"] for row in rows if isinstance(row.get("answer"), str | int | float)]
    if not answers:
        return []
    answer, count = Counter(answers).most_common(1)[0]
    by_model = known(rows, metric)
    by_answer = [row.get("answer") == answer for row in rows]
    is_better = sum(by_model) > count and mcnemar_p(by_model, by_answer) < LEVEL
    if count < 2 or is_better:
        return []
    return [
        f"The answer {answer!r:.60} to every question would be right in "
        f"{percent(mean(by_answer))}; the model, with {percent(mean(by_model))}, is not shown to "
        "be better."
    ]


def rewards_note(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    """A list with a sentence on the rewards that rose on the test questions; else empty.

    A reward that rose within the first steps shows no trend in the log.
    """
    risen = []
    for name in before[0].get("rewards", {}):
        old, new = paired(*([row["rewards"][name] for row in stage] for stage in (before, after)))
        interval = t_interval([end - start for start, end in zip(old, new, strict=True)])
        if len(old) >= FEWEST_ROWS and interval[0] > 0:
            risen.append(f"{name} {mean(old):.2f} to {mean(new):.2f}")
    return [f"On the test questions rewards rose: {', '.join(risen)}."] if risen else []


def cut_off_note(metric: str, before: list[dict], after: list[dict]) -> list[str]:
    """A list with a sentence if another share of answers was cut off; else empty.

    It gives the metric on the rows whose answers ended both times: a model can gain by ending in
    time alone. Those rows are a choice: if short answers are right more often, equal skill shows
    a fall there.
    """
    pairs = [  # of the rows of the metric's task
        pair for pair in zip(before, after, strict=True) if None not in outcomes(pair, metric)
    ]
    cut = [[row.get("truncated", False) for row in stage] for stage in zip(*pairs, strict=True)]
    ended = [pair for pair in pairs if not any(row.get("truncated", False) for row in pair)]
    if mcnemar_p(*cut) >= LEVEL or not ended:
        return []
    change = change_of(*(outcomes(stage, metric) for stage in zip(*ended, strict=True)))
    return [
        f"Cut off were {percent(mean(cut[0]))}, then {percent(mean(cut[1]))}; where both answers "
        f"ended, {in_words(metric)} went from {change.figures}."
    ]


def figures_of(folder: Path, chosen: int | None) -> dict[str, Any]:
    """The verdict and the evaluations of a run folder; None for what the run has not reached.

    Keys: `verdict`, `before`, `after`, `mcnemar_p`, `voided` (a sentence). `chosen` is the step of
    the best checkpoint, if it replaced the last one.
    """
    log, validation = read_log(folder), read_validation(folder)
    before, after = read_evaluated(folder, BEFORE), read_evaluated(folder, AFTER)
    figures = compare(before, after) if before else dict.fromkeys(("before", "after", "mcnemar_p"))
    of_run = verdict_of_run(log, validation, before, after, chosen)
    return {"verdict": of_run._asdict(), **figures, "voided": left_out_sentence(log)}


def left_out_sentence(log: list[dict[str, Any]]) -> str | None:
    """A sentence on completions that were left out and taught nothing; None if there are none.

    The log has shares of completions; `errors/NAME` and `unparsed/NAME` are failures of a reward.

    >>> left_out_sentence([{"completions/voided": 0.25, "errors/right": 0.25}, {"reward": 1.0}])
    '25.0 % of the completions were left out and taught nothing: right could not score them.'
    """
    shares = [entry["completions/voided"] for entry in log if "completions/voided" in entry]
    if not any(shares):
        return None
    above_zero = {key for entry in log for key in entry if entry[key]}
    failures = [key for key in above_zero if key.startswith(("errors/", "unparsed/"))]
    names = {key.partition("/")[2] for key in failures} - {"metric"}  # that leaves nothing out
    return (
        f"{percent(mean(shares))} of the completions were left out and taught nothing: "
        f"{', '.join(sorted(names))} could not score them."
    )


def ending_of(run: dict[str, Any]) -> list[str]:
    """Sentences on what was left out, early stopping and the best checkpoint, if there are any.

    `run` is the content of summary.json.
    """
    sentences = [run["voided"]] if run["voided"] else []
    if run.get("stopped"):
        sentences.append(f"Stopped early: {run['stopped']}.")
    if best := run.get("best_checkpoint"):
        metric = in_words(best["metric"].removeprefix("validation/"))
        rows = f" over {best['rows']} validation rows" if best["rows"] else ""
        note = " It is the highest of them, so chance raised it: see the test questions."
        if best.get("untrained") is not None and best["untrained"] >= best["value"]:
            note = f" The untrained model had {best['untrained']:.3g}: no step was better."
        sentences.append(
            f"The model is that of step {best['step']}, the best checkpoint by {metric}: "
            f"{best['value']:.3g}{rows}.{note}"
        )
    return sentences
