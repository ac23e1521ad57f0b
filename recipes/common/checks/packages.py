"""Packages that a run needs beyond the core, checked before a model is loaded."""

import importlib
import importlib.util
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement

TRACKERS = {
    "wandb": "wandb",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
TRACKERS |= {
    "comet_ml": "comet_ml",
    "swanlab": "swanlab",
    "clearml": "clearml",
    "neptune": "neptune",
}


def check_packages(training: dict[str, Any], model: dict[str, Any]) -> list[str]:
    """Find settings whose package is not installed, or not in the range that TRL supports."""
    needed = {}
    for setting in ("load_in_4bit", "load_in_8bit"):
        if model.get(setting):
            needed["bitsandbytes"] = f"{setting}: true"
    if training["use_vllm"]:
        needed["vllm"] = "use_vllm: true"
    if training.get("use_liger_kernel"):
        needed["liger_kernel"] = "use_liger_kernel: true"
    trackers, problems = training["report_to"] or [], []
    for tracker in [trackers] if isinstance(trackers, str) else trackers:
        if tracker in TRACKERS:
            needed[TRACKERS[tracker]] = f"report_to: {tracker}"
        elif tracker not in ("none", "all"):
            problems.append(f"report_to is {tracker!r}; allowed: none, all, {', '.join(TRACKERS)}.")
    return problems + [
        problem for package, setting in needed.items() if (problem := _problem(package, setting))
    ]


def _problem(package: str, setting: str) -> str | None:
    if importlib.util.find_spec(package) is None:
        return f"{setting} needs the package {package}, which is not installed: pip install {package.replace('_', '-')}."
    try:
        if package in TRACKERS.values():
            importlib.import_module(package)
    except Exception as error:  # whatever a broken installation raises
        return f"{setting} needs the package {package}, which fails to import: {type(error).__name__}: {error}."
    supported = [Requirement(line) for line in metadata.requires("trl") or []]
    ranges = [
        r.specifier
        for r in supported
        if r.name == package and r.marker and r.marker.evaluate({"extra": package})
    ]
    installed = metadata.version(package.replace("_", "-"))
    if ranges and installed not in ranges[0]:
        return f"{setting} needs {package} {ranges[0]}, the range that TRL supports; {installed} is installed."
    return None
