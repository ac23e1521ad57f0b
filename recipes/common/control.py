"""Control arms of a run: what is left of a gain once rewards that know nothing have had theirs."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from recipes.common.arguments import REWARD_MAPPINGS
from recipes.common.intervals import Z_95, mcnemar_p, paired_difference, wilson_interval
from recipes.common.judged import metric_names, read_rows
from recipes.common.repeats import Rows, percent, read_evaluation, span, train
from rewards import load_rewards, reward_kind

CONFIGURED = "as configured"
EVALUATE = Path(__file__).resolve().parents[2] / "scripts" / "evaluate_model.py"


def rewards_of_arms(settings: dict[str, Any]) -> dict[str, list[str]]:
    """The arms of a run that are trained: name -> the words that replace its rewards on the command line.

    `format-only` is left out where the run has no format reward, or nothing else.

    Example: the arms of `{"reward_funcs": ["xml_format", "reasoning_gym"]}` are as configured (no words), random,
    constant, and format-only: `["--reward_funcs", "xml_format"]`.
    """
    names = settings["reward_funcs"]
    loaded = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
    formats = [name for name, reward in zip(names, loaded, strict=True) if reward_kind(reward) == "format"]
    arms = {CONFIGURED: [], "random": _only(settings, ["random"]), "constant": _only(settings, ["constant"])}
    if formats and formats != names:
        arms["format-only"] = _only(settings, formats)
    return arms


def _only(settings: dict[str, Any], kept: list[str]) -> list[str]:
    """Name the rewards on the command line, and with them whatever the YAML says of those it names."""
    words = ["--reward_funcs", *kept]
    if settings.get("reward_weights"):
        weights = dict(zip(settings["reward_funcs"], settings["reward_weights"], strict=True))
        words += ["--reward_weights", *(str(weights.get(name, 1.0)) for name in kept)]
    for setting in REWARD_MAPPINGS:
        if settings.get(setting):
            of_kept = {name: value for name, value in settings[setting].items() if name in kept}
            words += [f"--{setting}", json.dumps({} if setting == "reward_gates" else of_kept)]
    return words


def run_arm(
    config: Path, launch: Path, stem: Path, name: str, words: list[str], seed: int, rest: list[str]
) -> tuple[Rows, Rows]:
    """Train one arm with one seed and return its rows, before and after."""
    label = "" if name == CONFIGURED else f"-{name}"
    folder = stem.with_name(f"{stem.name}{label}-seed{seed}")
    return read_evaluation(train(config, launch, folder, [*rest, *words, "--seed", str(seed)]))


def untrained_again(config: Path, stem: Path, seed: int, rest: list[str]) -> tuple[Rows, Rows]:
    """The untrained model's rows as the run judged them, and judged once more by scripts/evaluate_model.py."""
    run = stem.with_name(f"{stem.name}-seed{seed}")
    model = json.loads((run / "run_config.json").read_text(encoding="utf-8"))["model_name_or_path"]
    output = stem.with_name(f"{stem.name}-untrained-seed{seed}.jsonl")
    words = ["--model", model, "--config", str(config), "--output", str(output), *rest, "--seed", str(seed)]
    if not output.is_file():
        print(f"\n== {output}: the untrained model, evaluated again", flush=True)
        subprocess.run([sys.executable, str(EVALUATE), *words], check=True)
    return read_evaluation(run)[0], read_rows(output)


def compare_arms(arms: dict[str, list[tuple[Rows, Rows]]]) -> dict[str, dict[str, Any]]:
    """Each arm and metric over the rows of all seeds.

    Returns:
        arm -> metric -> `n`, `before` and `after` (share, Wilson interval), `change` (share, paired interval, McNemar
        p), and `beyond`: how much the run as configured is above this arm after training, on the same rows (the same).

    Raises:
        ValueError: the arms were not evaluated on the same rows.
    """
    configured = arms[CONFIGURED]
    return {
        name: {metric: _compare(seeds, configured, metric) for metric in metric_names(configured[0][0])}
        for name, seeds in arms.items()
    }


def _compare(arm: list[tuple[Rows, Rows]], configured: list[tuple[Rows, Rows]], metric: str) -> dict[str, Any]:
    before, after = (_pool(arm, stage) for stage in (0, 1))
    best = _pool(configured, 1)
    if not [row["prompt"] for row in before] == [row["prompt"] for row in after] == [row["prompt"] for row in best]:
        raise ValueError("the arms were not evaluated on the same rows in the same order")
    triples = [[row["metrics"].get(metric) for row in rows] for rows in (before, after, best)]
    old, new, aim = zip(*(values for values in zip(*triples, strict=True) if None not in values), strict=True)
    return {
        "n": len(old),
        "before": _share(old),
        "after": _share(new),
        "change": _difference(old, new),
        "beyond": _difference(new, aim),
    }


def _pool(arm: list[tuple[Rows, Rows]], stage: int) -> Rows:
    return [row for evaluation in arm for row in evaluation[stage]]


def _share(judged: tuple[bool, ...]) -> dict[str, Any]:
    return {"share": sum(judged) / len(judged), "interval": wilson_interval(sum(judged), len(judged))}


def _difference(old: tuple[bool, ...], new: tuple[bool, ...]) -> dict[str, Any]:
    change, error = paired_difference(list(old), list(new))
    half = math.inf if error is None else Z_95 * error
    interval = (max(-1.0, change - half), min(1.0, change + half))
    return {"share": change, "interval": interval, "p": mcnemar_p(list(old), list(new))}


def control_table(seeds: list[int], compared: dict[str, dict[str, Any]]) -> str:
    """One block a metric, one line an arm, and a sentence that says what the rewards have done."""
    lines = []
    for metric, configured in compared[CONFIGURED].items():
        lines.append(f"{metric}, {configured['n']} held-out rows, seeds {' '.join(map(str, seeds))}")
        head = f"  {'arm':<14}{'before':>8}{'after (95 %)':>22}{'change (95 %)':>26}{'McNemar p':>12}"
        lines.append(head + f"{'as configured is above it by':>34}")
        lines += [_arm_line(name, arm[metric]) for name, arm in compared.items()]
        lines.append("  " + verdict({name: arm[metric] for name, arm in compared.items()}) + "\n")
    return "\n".join(lines).rstrip()


def _arm_line(name: str, arm: dict[str, Any]) -> str:
    after = f"{percent(arm['after']['share'])} ({span(arm['after']['interval'])})"
    cells = f"{percent(arm['before']['share']):>8}{after:>22}{_points(arm['change']):>26}{arm['change']['p']:>12.2g}"
    return f"  {name:<14}{cells}" + (f"{_points(arm['beyond']):>34}" if name != CONFIGURED else "")


def verdict(arms: dict[str, dict[str, Any]]) -> str:
    """How much of the gain of the run as configured is left above the best control arm.

    A format-only arm is no control of what a format metric gains: it is trained for that.
    """
    gain = arms[CONFIGURED]["change"]
    controls = {name: arm for name, arm in arms.items() if name != CONFIGURED}
    best = max(controls, key=lambda name: controls[name]["after"]["share"])
    left = controls[best]["beyond"]
    said = f"gain {_points(gain)}; above the best other arm ({best}) {_points(left)}."
    if gain["interval"][0] <= 0.0:
        return said + " The run as configured shows no gain of its own here."
    if left["interval"][0] > 0.0:
        return said + " What is above it is the doing of the rewards that arm lacks."
    return said + f" Nothing beyond what {best} brings is shown."


def _points(difference: dict[str, Any]) -> str:
    low, high = difference["interval"]
    return f"{100 * difference['share']:+.1f} pt ({100 * low:+.0f} to {100 * high:+.0f})"
