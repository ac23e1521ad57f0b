"""Presets: a paper's settings as a fragment of YAML in recipes/presets/, added to any run.

Precedence, from weak to strong: TRL's default, the run's YAML, `--preset`, the rest of the command line. A `preset:`
that stands in a run's YAML is part of that YAML: its other keys win over it. Of several presets the later wins.
"""

from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parents[1] / "presets"
ADDED = "add_reward_funcs"  # the one key of a preset that is not an argument of a run


def preset_names() -> list[str]:
    """The presets there are, in alphabetical order."""
    return sorted(file.stem for file in FOLDER.glob("*.yaml"))


def read_presets(names: list[str]) -> dict[str, Any]:
    """The keys of the presets, a later one over those before; rewards to be added are those of all.

    Raises ValueError for an unknown name. Example: `read_presets(["dr_grpo"])["scale_rewards"] == "none"`
    """
    unknown = [name for name in names if name not in preset_names()]
    if unknown:
        raise ValueError(
            f"unknown preset {', '.join(map(repr, unknown))}; there are {', '.join(preset_names())}."
        )
    fragments = [
        yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")) for name in names
    ]
    added = list(
        dict.fromkeys(reward for fragment in fragments for reward in fragment.pop(ADDED, []))
    )
    keys = {key: value for fragment in fragments for key, value in fragment.items()}
    return keys | ({ADDED: added} if added else {})


def add_rewards(names: list[str], recipe: dict[str, Any], training: dict[str, Any]) -> list[str]:
    """Append rewards that the run has not got, and say what was added, a line each.

    A weight of 1.0 is appended where the run gives one weight for each of its own rewards. Parameters that the run
    gives in its reward_kwargs win over ours. A run without rewards stays without: it is refused for that.
    """
    if not recipe["reward_funcs"]:
        return []
    lines = []
    for name in (name for name in names if name not in recipe["reward_funcs"]):
        weights = training["reward_weights"]
        if weights is not None and len(weights) == len(recipe["reward_funcs"]):
            training["reward_weights"] = [*weights, 1.0]
        given = recipe["reward_kwargs"] or {}
        kwargs = {**_parameters(name, training["max_completion_length"]), **given.get(name, {})}
        recipe["reward_funcs"] = [*recipe["reward_funcs"], name]
        recipe["reward_kwargs"] = {**given, name: kwargs} if kwargs else recipe["reward_kwargs"]
        lines.append(f"reward_funcs + {name} {kwargs}")
    return lines


def _parameters(name: str, max_completion_length: Any) -> dict[str, int]:
    """Parameters of a reward that follow from the run; DAPO's cache is a fifth of its limit (4,096 of 20,480)."""
    if name != "soft_overlong" or not isinstance(
        max_completion_length, int
    ):  # a bad length is reported elsewhere
        return {}
    return {
        "max_completion_len": max_completion_length,
        "soft_punish_cache": max_completion_length // 5,
    }


def changes(preset: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Settings of the preset that are in force and were others without it: `["beta 0.04 -> 0.0"]`."""
    return [
        f"{name} {before[name]} -> {after[name]}"
        for name, value in preset.items()
        if name != ADDED and after[name] == value != before[name]
    ]
