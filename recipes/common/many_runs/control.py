"""Control arms of a run: how much of a gain is left beyond what other ways to the same held-out rows bring."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from recipes.common.evaluation.scores import metric_names
from recipes.common.many_runs.best_prompt import best_prompt
from recipes.common.many_runs.runs import (
    Rows,
    change_over_seeds,
    check_given,
    read_settings,
    share_over_seeds,
    train,
)
from recipes.common.presets import ADDED, read_presets
from recipes.common.settings import REWARD_MAPPINGS, REWARD_SETTINGS
from recipes.common.utils.power import power_line
from recipes.common.utils.run_files import (
    PROMPTS,
    SUMMARY,
    WARM_START,
    read_evaluation,
    read_json,
    write_json,
    write_whole,
)
from recipes.common.utils.tables import percent, points, share_and_span
from rewards import load_rewards, reward_kind, reward_tasks

CONFIGURED, UNTRAINED, SFT, SFT_GRPO, BEST_PROMPT = (
    "as configured",
    "untrained",
    "sft",
    "sft+grpo",
    "best-prompt",
)
WARM_START_ROWS = 256  # of sft+grpo, as of scripts/warm_start.py
# Each arm sets these for itself, so that they cannot be given for all of them.
TAKEN = {"seed", "output_dir", "preset", "reward_funcs", *REWARD_SETTINGS}

Evaluations = list[tuple[Rows, Rows]]  # before and after, of each seed


def run_arms(
    config: Path,
    seeds: list[int],
    launch: list[str],
    output_dir: Path | None,
    arguments: list[str],
    chosen: list[str],
    sft: tuple[int, int],
    warm_steps: int,
) -> None:
    """Run each chosen arm that is not there yet, compare, print, write the table; `ValueError` where that cannot be.

    `sft`: rows and steps of the arm of that name; `warm_steps`: those before the GRPO of sft+grpo.
    """
    check_given(
        seeds,
        arguments,
        TAKEN,
        "the arms follow from the YAML; seeds: --seeds, folder: --output_dir.",
    )
    settings, arms, minutes = read_settings(config), {}, {}
    stem = output_dir or Path(settings["output_dir"])
    rewards = rewards_of_arms(settings)

    def run(name: str, seed: int) -> list[Path]:
        """Run one arm with one seed; return the folders that hold its start and its end."""

        def folder(label: str) -> Path:
            return stem.with_name(f"{stem.name}{label}-seed{seed}")

        words = [*arguments, "--seed", str(seed)]
        if name == SFT:
            return [supervise(config, words, *sft, folder("-sft"))]
        if name == SFT_GRPO:
            warm = supervise(config, words, WARM_START_ROWS, warm_steps, folder("-warm-start"))
            return [
                warm,
                train(
                    config, launch, folder("-sft-grpo"), [*words, "--model_name_or_path", str(warm)]
                ),
            ]
        if name == BEST_PROMPT:
            return [best_prompt(config, words, folder("-best-prompt"))]
        label = "" if name == CONFIGURED else f"-{name}"
        return [train(config, launch, folder(label), [*words, *rewards[name]])]

    for name in [CONFIGURED, *chosen]:
        if name not in rewards and name not in (SFT, SFT_GRPO, BEST_PROMPT):
            print(f"The arm {name} is left out: it would show nothing here.")
            continue
        folders = [run(name, seed) for seed in seeds]
        arms[name] = [(read_evaluation(of[0])[0], read_evaluation(of[-1])[1]) for of in folders]
        minutes[name] = [sum(map(_minutes, of)) for of in folders]
    # Each arm evaluates the untrained model by itself: two of them show what evaluation varies by without training.
    if again := next((name for name in arms if name in rewards and name != CONFIGURED), None):
        pairs = zip(arms[CONFIGURED], arms[again], strict=True)
        arms[UNTRAINED] = [(before, other) for (before, _), (other, _) in pairs]
    compared = compare_arms(arms)
    table = control_table(seeds, compared, minutes)
    write_json(
        stem.with_name(f"{stem.name}-control.json"),
        {"seeds": seeds, "minutes": minutes, "arms": compared},
    )
    write_whole(stem.with_name(f"{stem.name}-control.txt"), table + "\n")
    print(f"\n{config}\n{table}\nSaved {stem}-control.txt and {stem}-control.json")


def supervise(config: Path, words: list[str], rows: int, steps: int, folder: Path) -> Path:
    """Warm-start into `folder`; not a finished one again, and `ValueError` where that one had other settings."""
    asked = {"overrides": words, "rows": rows, "steps": steps}
    if there := read_json(folder / WARM_START):
        if other := [
            f"{name} {there[name]}, not {value}"
            for name, value in asked.items()
            if there[name] != value
        ]:
            raise ValueError(
                f"{folder} is a warm start with {'; '.join(other)}: remove it, or ask for the same."
            )
        return folder
    from recipes.common.warm_start import warm_start

    print(f"\n== {folder}: {steps} supervised steps on {rows} reference completions", flush=True)
    # In a process of its own, as scripts/warm_start.py: a trainer leaves settings in the environment.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(warm_start, config, words, rows, steps, None, folder).result()
    return folder


def _minutes(folder: Path) -> float:
    return next(
        read_json(folder / name)["minutes"]
        for name in (SUMMARY, WARM_START, PROMPTS)
        if (folder / name).is_file()
    )


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
    formats = {
        name: reward
        for name, reward in zip(names, loaded, strict=True)
        if reward_kind(reward) == "format"
    }
    arms = {
        CONFIGURED: [],
        "random": _only(settings, ["random"]),
        "constant": _only(settings, ["constant"]),
    }
    covered, scored = (
        [reward_tasks(reward) for reward in rewards] for rewards in (formats.values(), loaded)
    )
    all_tasks = None in covered or (
        None not in scored and set().union(*covered) == set().union(*scored)
    )
    if 0 < len(formats) < len(names) and all_tasks:
        arms["format-only"] = _only(settings, list(formats))
    return arms


def _only(settings: dict[str, Any], kept: list[str]) -> list[str]:
    """Name the rewards on the command line, each with its settings from the YAML."""
    words = ["--reward_funcs", *kept]
    if settings.get("reward_weights"):
        weights = dict(zip(settings["reward_funcs"], settings["reward_weights"], strict=True))
        words += ["--reward_weights", *(str(weights.get(name, 1.0)) for name in kept)]
    for setting in REWARD_MAPPINGS:
        if settings.get(setting):
            of_kept = {name: value for name, value in settings[setting].items() if name in kept}
            words += [f"--{setting}", json.dumps({} if setting == "reward_gates" else of_kept)]
    return words


def compare_arms(arms: dict[str, Evaluations]) -> dict[str, dict[str, Any]]:
    """Compare each arm and metric, seed by seed on the same rows; `ValueError` where these differ.

    Arm -> metric -> `n` of each seed, `before` and `after` (as `share_over_seeds`), `change`, and `beyond`: how much
    the run as configured is above this arm after training (both as `change_over_seeds`).
    """
    compared = {}
    names = dict.fromkeys(name for before, _ in arms[CONFIGURED] for name in metric_names(before))
    for name, evaluations in arms.items():
        seeds = [
            (before, after, *aim)
            for (before, after), aim in zip(evaluations, arms[CONFIGURED], strict=True)
        ]
        for stages in seeds:
            if len({json.dumps([row["prompt"] for row in rows]) for rows in stages}) > 1:
                raise ValueError("the arms were not evaluated on the same rows in the same order")
        # An arm's rewards may have started another sandbox, in which the same completions fare otherwise.
        pairs = [pair for before, _, start, _ in seeds for pair in zip(before, start, strict=True)]
        if different := sum(row["metrics"] != same["metrics"] for row, same in pairs):
            print(
                f"warning: in arm {name} the untrained model has other metrics than in the run as configured, in"
            )
            print(
                f"{different} of {len(pairs)} rows: not all that this arm shows comes from its rewards."
            )
        compared[name] = {metric: _compare(seeds, metric) for metric in names}
    return compared


def _compare(seeds: list[tuple[Rows, ...]], metric: str) -> dict[str, Any]:
    outcomes = []
    for before, after, _, aim in seeds:
        triples = zip(
            *([row["metrics"].get(metric) for row in rows] for rows in (before, after, aim)),
            strict=True,
        )
        outcomes.append([triple for triple in triples if None not in triple])
    old, new, best = ([[triple[i] for triple in rows] for rows in outcomes] for i in range(3))
    shares = {
        "n": [len(rows) for rows in old],
        "before": share_over_seeds(old),
        "after": share_over_seeds(new),
    }
    return {**shares, "change": change_over_seeds(old, new), "beyond": change_over_seeds(new, best)}


def control_table(
    seeds: list[int], compared: dict[str, dict[str, Any]], minutes: dict[str, list[float]]
) -> str:
    """One block a metric: one line an arm, and the verdict."""
    lines, several = [], len(seeds) > 1
    for metric, configured in compared[CONFIGURED].items():
        arms = {name: arm[metric] for name, arm in compared.items()}
        lines.append(
            f"{metric}, {sum(configured['n'])} held-out rows, seeds {' '.join(map(str, seeds))}"
        )
        head = f"  {'arm':<14}{'minutes':>8}{'before':>8}{'after (95 %)':>20}{'change (95 %)':>26}"
        lines.append(
            head + "McNemar p".rjust(12) * (not several) + f"{'as configured is above it by':>34}"
        )
        for name, arm in arms.items():
            spent = f"{sum(minutes[name]) / len(seeds):.1f}" if name in minutes else "-"
            before, after = (
                percent(arm["before"]["mean"]),
                share_and_span(arm["after"]["mean"], arm["after"]["interval"]),
            )
            p = "" if several else f"{arm['change']['p'][0]:>12.2g}"
            cells = f"{spent:>8}{before:>8}{after:>20}{_points(arm['change']):>26}{p}"
            lines.append(
                f"  {name:<14}{cells}"
                + (f"{_points(arm['beyond']):>34}" if name != CONFIGURED else "")
            )
        lines.append(f"  {verdict(arms)}")
        if not several:  # the power of McNemar's test, which is of one seed
            changed = configured["change"]["changed"][0]
            condition = f"as {percent(changed, 0)} of them changed as configured"
            lines.append(f"  {power_line(configured['n'][0], changed, condition)}")
        lines.append("")
    over = f"Intervals are Student's over {len(seeds)} seeds; a difference between arms is taken at each seed."
    rows = "Intervals are over rows, of 1 training run an arm: other seeds may move each arm by some points."
    return "\n".join([*lines, over if several else rows])


def verdict(arms: dict[str, dict[str, Any]]) -> str:
    """How much of the gain of the run as configured is left above the best other arm.

    Shown is what has an interval over seeds above 0; of a single seed, what has McNemar's p < 0.05. A format-only arm
    was trained for the metrics of the format: its gain there is expected.
    """
    gain = arms[CONFIGURED]["change"]
    others = {name: arm for name, arm in arms.items() if name != CONFIGURED}
    if not others:
        return f"gain {_points(gain)}."
    best = max(others, key=lambda name: others[name]["after"]["mean"])
    left = others[best]["beyond"]
    figures = f"gain {_points(gain)}; above the best other arm ({best}) {_points(left)}."
    if not _is_shown(gain):
        return f"{figures} The run as configured shows no gain of its own here."
    if _is_shown(left):
        return f"{figures} What is above it came from what that arm lacks, in the runs at hand."
    return f"{figures} Nothing beyond what {best} brings is shown."


def _is_shown(difference: dict[str, Any]) -> bool:
    known = [p for p in difference["p"] if p is not None]
    return (
        difference["interval"][0] > 0.0
        if len(known) > 1
        else difference["mean"] > 0.0 and known[0] < 0.05
    )


def _points(difference: dict[str, Any]) -> str:
    return points(difference["mean"], difference["interval"])
