"""Control arms of a run: how much of a gain is left beyond what rewards that know nothing bring."""

import json
import operator
from pathlib import Path
from typing import Any

from recipes.common.before.presets import ADDED, read_presets
from recipes.common.evaluation.scores import metric_names
from recipes.common.many_runs.runs import Rows, check_given, read_settings, train
from recipes.common.tools.folder import read_evaluation, write_json, write_whole
from recipes.common.tools.power import power_line
from recipes.common.tools.stats import mcnemar_p, paired_interval, wilson_interval
from recipes.common.tools.tables import percent, points, share_and_span
from rewards import load_rewards, reward_kind, reward_tasks

CONFIGURED = "as configured"
MAPPINGS = ("reward_kwargs", "reward_tasks", "reward_gates")
# Each arm sets these for itself, so that they cannot be given for all of them.
TAKEN = {"seed", "output_dir", "preset", "reward_funcs", "reward_weights", *MAPPINGS}

Evaluations = list[tuple[Rows, Rows]]  # before and after, of each seed


def run_arms(config: Path, seeds: list[int], launch: list[str], output_dir: Path | None, arguments: list[str]) -> None:
    """Train each arm that is not trained yet, compare, print, write the table; `ValueError` where that cannot be."""
    check_given(seeds, arguments, TAKEN, "the arms follow from the YAML; seeds: --seeds, folder: --output_dir.")
    settings, arms = read_settings(config), {}
    stem = output_dir or Path(settings["output_dir"])
    for name, words in rewards_of_arms(settings).items():
        label = "" if name == CONFIGURED else f"-{name}"
        folders = [stem.with_name(f"{stem.name}{label}-seed{seed}") for seed in seeds]
        for seed, folder in zip(seeds, folders, strict=True):
            train(config, launch, folder, [*arguments, *words, "--seed", str(seed)])
        arms[name] = [read_evaluation(folder) for folder in folders]
    # Each run evaluates the untrained model by itself: two of them show what evaluation varies by without training.
    pairs = zip(arms[CONFIGURED], arms["constant"], strict=True)
    arms["untrained"] = [(before, again) for (before, _), (again, _) in pairs]
    compared = compare_arms(arms)
    table = control_table(seeds, compared)
    write_json(stem.with_name(f"{stem.name}-control.json"), {"seeds": seeds, "arms": compared})
    write_whole(stem.with_name(f"{stem.name}-control.txt"), table + "\n")
    print(f"\n{config}\n{table}\nSaved {stem}-control.txt and {stem}-control.json")


def rewards_of_arms(settings: dict[str, Any]) -> dict[str, list[str]]:
    """The arms of a run that are trained: name -> the options that replace its rewards on the command line.

    `format-only` is left out where the run has no format reward, nothing else, or a task that no format reward scores.
    `ValueError`: a preset of the run adds a reward to every arm.
    """
    preset = settings.get("preset") or []
    if added := read_presets([preset] if isinstance(preset, str) else preset).get(ADDED):
        raise ValueError(
            f"the preset {preset} adds {', '.join(added)} to every arm, so none would know nothing. Put its other keys "
            "into the YAML, without the preset."
        )
    names = settings["reward_funcs"]
    loaded = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
    formats = {name: reward for name, reward in zip(names, loaded, strict=True) if reward_kind(reward) == "format"}
    arms = {CONFIGURED: [], "random": _only(settings, ["random"]), "constant": _only(settings, ["constant"])}
    covered, scored = ([reward_tasks(reward) for reward in rewards] for rewards in (formats.values(), loaded))
    all_tasks = None in covered or (None not in scored and set().union(*covered) == set().union(*scored))
    if 0 < len(formats) < len(names) and all_tasks:
        arms["format-only"] = _only(settings, list(formats))
    return arms


def _only(settings: dict[str, Any], kept: list[str]) -> list[str]:
    """Name the rewards on the command line, each with its settings from the YAML."""
    words = ["--reward_funcs", *kept]
    if settings.get("reward_weights"):
        weights = dict(zip(settings["reward_funcs"], settings["reward_weights"], strict=True))
        words += ["--reward_weights", *(str(weights.get(name, 1.0)) for name in kept)]
    for setting in MAPPINGS:
        if settings.get(setting):
            of_kept = {name: value for name, value in settings[setting].items() if name in kept}
            words += [f"--{setting}", json.dumps({} if setting == "reward_gates" else of_kept)]
    return words


def compare_arms(arms: dict[str, Evaluations]) -> dict[str, dict[str, Any]]:
    """Compare each arm and metric over the rows of all seeds; `ValueError` where these differ.

    Arm -> metric -> `n`, `before` and `after` (share, Wilson interval), `change` (share, paired interval, McNemar p,
    share of the rows that changed), and `beyond`: how much the run as configured is above this arm after training, on
    the same rows (the same).
    """
    start, aim = _pool(arms[CONFIGURED])
    compared = {}
    for name, evaluations in arms.items():
        before, after = _pool(evaluations)
        if not [row["prompt"] for row in before] == [row["prompt"] for row in after] == [row["prompt"] for row in aim]:
            raise ValueError("the arms were not evaluated on the same rows in the same order")
        # An arm's rewards may have started another sandbox, in which the same completions fare otherwise.
        different = sum(row["metrics"] != same["metrics"] for row, same in zip(before, start, strict=True))
        if different:
            print(f"warning: in arm {name} the untrained model has other metrics than in the run as configured, in")
            print(f"{different} of {len(before)} rows: not all that this arm shows comes from its rewards.")
        compared[name] = {metric: _compare(before, after, aim, metric) for metric in metric_names(start)}
    return compared


def _pool(evaluations: Evaluations) -> tuple[Rows, Rows]:
    before, after = ([row for rows in stage for row in rows] for stage in zip(*evaluations, strict=True))
    return before, after


def _compare(before: Rows, after: Rows, aim: Rows, metric: str) -> dict[str, Any]:
    triples = [[row["metrics"].get(metric) for row in rows] for rows in (before, after, aim)]
    old, new, best = zip(*(values for values in zip(*triples, strict=True) if None not in values), strict=True)
    n, stages = len(old), {"before": sum(old), "after": sum(new)}
    shares = {name: {"share": right / n, "interval": wilson_interval(right, n)} for name, right in stages.items()}
    return {"n": n, **shares, "change": _difference(old, new), "beyond": _difference(new, best)}


def _difference(old: tuple[bool, ...], new: tuple[bool, ...]) -> dict[str, Any]:
    share = (sum(new) - sum(old)) / len(old)
    changed = sum(map(operator.ne, old, new)) / len(old)
    return {"share": share, "interval": paired_interval(old, new), "p": mcnemar_p(old, new), "changed": changed}


def control_table(seeds: list[int], compared: dict[str, dict[str, Any]]) -> str:
    """One block a metric: one line an arm, and the verdict."""
    lines = []
    for metric, configured in compared[CONFIGURED].items():
        arms = {name: arm[metric] for name, arm in compared.items()}
        lines.append(f"{metric}, {configured['n']} held-out rows, seeds {' '.join(map(str, seeds))}")
        head = f"  {'arm':<14}{'before':>8}{'after (95 %)':>20}{'change (95 %)':>26}{'McNemar p':>12}"
        lines.append(head + f"{'as configured is above it by':>34}")
        for name, arm in arms.items():
            before, after = percent(arm["before"]["share"]), share_and_span(*arm["after"].values())
            cells = f"{before:>8}{after:>20}{_points(arm['change']):>26}{arm['change']['p']:>12.2g}"
            lines.append(f"  {name:<14}{cells}" + (f"{_points(arm['beyond']):>34}" if name != CONFIGURED else ""))
        changed = configured["change"]["changed"]
        condition = f"as {percent(changed, 0)} of them changed as configured"
        lines += [f"  {verdict(arms)}", f"  {power_line(configured['n'], changed, condition)}\n"]
    runs = f"{len(seeds)} training run{'s' * (len(seeds) > 1)} an arm"
    return "\n".join([*lines, f"Intervals are over rows, of {runs}: other seeds may move each arm by some points."])


def verdict(arms: dict[str, dict[str, Any]]) -> str:
    """How much of the gain of the run as configured is left above the best other arm; "shown" is p < 0.05.

    A format-only arm was trained for the metrics of the format: its gain there is expected.
    """
    gain = arms[CONFIGURED]["change"]
    others = {name: arm for name, arm in arms.items() if name != CONFIGURED}
    best = max(others, key=lambda name: others[name]["after"]["share"])
    left = others[best]["beyond"]
    figures = f"gain {_points(gain)}; above the best other arm ({best}) {_points(left)}."
    if not _is_shown(gain):
        return f"{figures} The run as configured shows no gain of its own here."
    if _is_shown(left):
        return f"{figures} The rewards that arm lacks brought what is above it, in the runs at hand."
    return f"{figures} Nothing beyond what {best} brings is shown."


def _is_shown(difference: dict[str, Any]) -> bool:
    return difference["share"] > 0.0 and difference["p"] < 0.05


def _points(difference: dict[str, Any]) -> str:
    return points(difference["share"], difference["interval"])
