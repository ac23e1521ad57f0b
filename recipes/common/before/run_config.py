"""The configuration of a run as its folder keeps it, and what makes two of them different runs."""

from typing import Any

RECORD = "run_config.json"
# What may be said anew at a later start without making it another run.
NOT_COMPARED = {
    "disable_tqdm",
    "dry_run",
    "fresh",
    "merge_adapter",
    "num_completions_to_print",
    "output_dir",
    "push_to_hub",
    "report_to",
    "resume_from_checkpoint",
    "save_total_limit",
}


def options_given(words: list[str]) -> set[str]:
    """The names of the options on a command line, as fields are named.

    Example: `options_given(["train.py", "--max-steps=3", "--seed", "1"]) == {"max_steps", "seed"}`
    """
    return {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def config_differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that make it another run: name -> (was, is).

    Example: `config_differences({"seed": 0}, {"seed": 1}) == {"seed": (0, 1)}`
    """
    names = sorted((old.keys() | new.keys()) - NOT_COMPARED)
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
