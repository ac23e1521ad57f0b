"""Control arms of a run: what is left of a gain once rewards that know nothing have had theirs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recipes.common.before.arguments import REWARD_MAPPINGS, REWARD_SETTINGS, STEP_SETTINGS
from recipes.common.before.presets import ADDED, read_presets
from recipes.common.evaluation.scores import metric_names
from recipes.common.many_runs.runs import Rows, percent, read_evaluation, span, train
from recipes.common.tools.folder import read_rows
from recipes.common.tools.stats import mcnemar_p, paired_interval, wilson_interval
from rewards import load_rewards, reward_kind, reward_tasks

CONFIGURED = "as configured"
# What each arm sets for itself, so that it cannot be said for all of them.
TAKEN = {"seed", "output_dir", "preset", "reward_funcs", "step_reward_funcs", *REWARD_SETTINGS, *STEP_SETTINGS}
EVALUATE = Path(__file__).resolve().parents[3] / "scripts" / "evaluate_model.py"


def rewards_of_arms(settings: dict[str, Any]) -> dict[str, list[str]]:
    """The arms of a run that are trained: name -> the words that replace its rewards on the command line.

    `format-only` is left out where the run has no format reward, nothing else, or a task that no format reward scores.

    Raises:
        ValueError: a preset of the run adds a reward to every arm.

    Example: the arms of `{"reward_funcs": ["xml_format", "reasoning_gym"]}` are as configured (no words), random,
    constant, and format-only: `["--reward_funcs", "xml_format"]`.
    """
    _refuse_added_rewards(settings.get("preset"))
    names = settings["reward_funcs"]
    loaded = load_rewards(names, settings.get("reward_kwargs"), settings.get("reward_tasks"))
    formats = {name: reward for name, reward in zip(names, loaded, strict=True) if reward_kind(reward) == "format"}
    alone = formats and (len(formats) < len(names) or settings.get("step_reward_funcs"))
    arms = {CONFIGURED: [], "random": _only(settings, ["random"]), "constant": _only(settings, ["constant"])}
    if alone and _tasks(list(formats.values())) in (None, _tasks(loaded)):
        arms["format-only"] = _only(settings, list(formats))
    return arms


def _refuse_added_rewards(preset: str | list[str] | None) -> None:
    added = read_presets([preset] if isinstance(preset, str) else preset or []).get(ADDED)
    if added:
        raise ValueError(
            f"the preset {preset} adds {', '.join(added)} to every arm, so none would know nothing. Put its other keys "
            "into the YAML, without the preset."
        )


def _tasks(rewards: list[Callable]) -> set[str] | None:
    """The tasks that the rewards score together; None for all."""
    tasks = [reward_tasks(reward) for reward in rewards]
    return None if None in tasks else {task for of_one in tasks for task in of_one}


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
    return [*words, "--step_reward_funcs"] if settings.get("step_reward_funcs") else words  # without a name: none


def run_arm(
    config: Path, launch: list[str], stem: Path, name: str, words: list[str], seed: int, rest: list[str]
) -> tuple[Rows, Rows]:
    """Train one arm with one seed and return its rows, before and after."""
    label = "" if name == CONFIGURED else f"-{name}"
    folder = stem.with_name(f"{stem.name}{label}-seed{seed}")
    return read_evaluation(train(config, launch, folder, [*rest, *words, "--seed", str(seed)]))


def untrained_again(config: Path, stem: Path, seed: int, rest: list[str]) -> tuple[Rows, Rows]:
    """The untrained model's rows as the run judged them, and judged once more by scripts/evaluate_model.py.

    Raises:
        SystemExit: that script failed.
    """
    run = stem.with_name(f"{stem.name}-seed{seed}")
    record = run / "run_config.json"
    model = json.loads(record.read_text(encoding="utf-8"))["model_name_or_path"]
    output = stem.with_name(f"{stem.name}-untrained-seed{seed}.jsonl")
    words = ["--model", model, "--config", str(config), "--output", str(output), *rest, "--seed", str(seed)]
    if not output.is_file() or output.stat().st_mtime < record.stat().st_mtime:  # of a run that was started anew
        print(f"\n== {output}: the untrained model, evaluated again", flush=True)
        if subprocess.run([sys.executable, str(EVALUATE), *words], check=False).returncode:
            raise SystemExit("error: evaluating the untrained model failed; what it said stands above.")
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
    for name, arm in arms.items():
        _check_same_start(name, _pool(arm, 0), _pool(configured, 0))
    return {
        name: {metric: _compare(seeds, configured, metric) for metric in metric_names(configured[0][0])}
        for name, seeds in arms.items()
    }


def _check_same_start(name: str, arm: Rows, configured: Rows) -> None:
    """The untrained model must have been judged alike: an arm's rewards may have started another sandbox."""
    judged = [[row["metrics"] for row in rows] for rows in (arm, configured)]
    different = sum(one != other for one, other in zip(*judged, strict=False))
    if different:
        print(f"warning: in arm {name} the untrained model was judged otherwise than in the run as configured, in")
        print(f"{different} of {len(arm)} rows: what is said of that arm is not only the doing of its rewards.")


def _compare(arm: list[tuple[Rows, Rows]], configured: list[tuple[Rows, Rows]], metric: str) -> dict[str, Any]:
    before, after = (_pool(arm, stage) for stage in (0, 1))
    best = _pool(configured, 1)
    if not [row["prompt"] for row in before] == [row["prompt"] for row in after] == [row["prompt"] for row in best]:
        raise ValueError("the arms were not evaluated on the same rows in the same order")
    triples = [[row["metrics"].get(metric) for row in rows] for rows in (before, after, best)]
    known = [values for values in zip(*triples, strict=True) if None not in values]
    old, new, aim = (list(column) for column in zip(*known, strict=True))
    return {
        "n": len(old),
        "before": _share(old),
        "after": _share(new),
        "change": _difference(old, new),
        "beyond": _difference(new, aim),
    }


def _pool(arm: list[tuple[Rows, Rows]], stage: int) -> Rows:
    return [row for evaluation in arm for row in evaluation[stage]]


def _share(judged: list[bool]) -> dict[str, Any]:
    return {"share": sum(judged) / len(judged), "interval": wilson_interval(sum(judged), len(judged))}


def _difference(old: list[bool], new: list[bool]) -> dict[str, Any]:
    change = (sum(new) - sum(old)) / len(old)
    return {"share": change, "interval": paired_interval(old, new), "p": mcnemar_p(old, new)}


def control_table(seeds: list[int], compared: dict[str, dict[str, Any]]) -> str:
    """One block a metric, one line an arm, and a sentence that says what the rewards have done."""
    lines = []
    for metric, configured in compared[CONFIGURED].items():
        lines.append(f"{metric}, {configured['n']} held-out rows, seeds {' '.join(map(str, seeds))}")
        head = f"  {'arm':<14}{'before':>8}{'after (95 %)':>22}{'change (95 %)':>26}{'McNemar p':>12}"
        lines.append(head + f"{'as configured is above it by':>34}")
        lines += [_arm_line(name, arm[metric]) for name, arm in compared.items()]
        lines.append("  " + verdict({name: arm[metric] for name, arm in compared.items()}) + "\n")
    runs = f"{len(seeds)} training run{'s' * (len(seeds) > 1)} an arm"
    return "\n".join([*lines, f"Intervals are over rows, of {runs}: other seeds may move each arm by some points."])


def _arm_line(name: str, arm: dict[str, Any]) -> str:
    after = f"{percent(arm['after']['share'])} ({span(arm['after']['interval'])})"
    cells = f"{percent(arm['before']['share']):>8}{after:>22}{_points(arm['change']):>26}{arm['change']['p']:>12.2g}"
    return f"  {name:<14}{cells}" + (f"{_points(arm['beyond']):>34}" if name != CONFIGURED else "")


def verdict(arms: dict[str, dict[str, Any]]) -> str:
    """How much of the gain of the run as configured is left above the best other arm; "shown" is p < 0.05.

    What a format-only arm brings to a metric of the format is what it was trained for.
    """
    gain = arms[CONFIGURED]["change"]
    others = {name: arm for name, arm in arms.items() if name != CONFIGURED}
    best = max(others, key=lambda name: others[name]["after"]["share"])
    left = others[best]["beyond"]
    said = f"gain {_points(gain)}; above the best other arm ({best}) {_points(left)}."
    if not _is_shown(gain):
        return said + " The run as configured shows no gain of its own here."
    if _is_shown(left):
        return said + " What is above it is the doing of the rewards that arm lacks, in the runs at hand."
    return said + f" Nothing beyond what {best} brings is shown."


def _is_shown(difference: dict[str, Any]) -> bool:
    return difference["share"] > 0.0 and difference["p"] < 0.05


def _points(difference: dict[str, Any]) -> str:
    low, high = difference["interval"]
    return f"{100 * difference['share']:+.1f} pt ({100 * low:+.0f} to {100 * high:+.0f})"
