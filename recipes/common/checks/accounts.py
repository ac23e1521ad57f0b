"""Accounts that a run needs: one of W&B to report to, one of the Hub to push to."""

import os
from typing import Any

from huggingface_hub import get_token


def check_accounts(training: dict[str, Any]) -> list[str]:
    """Refuse to report or to push where nobody is logged in: it would end the run, late."""
    problems = []
    trackers = training["report_to"]
    trackers = [trackers] if isinstance(trackers, str) else trackers or []
    if {"wandb", "all"} & set(trackers) and not _wandb_is_ready():
        problems.append(
            "report_to is wandb, and W&B has no key: run `wandb login`, set WANDB_MODE=offline, or "
            "give --report_to none."
        )
    if training["push_to_hub"] and not (training["hub_token"] or get_token()):
        problems.append(
            "push_to_hub is set, and nobody is logged in to the Hub: run `hf auth login`, or set "
            "HF_TOKEN."
        )
    return problems


def _wandb_is_ready() -> bool:
    without = os.environ.get("WANDB_MODE", "online") in ("offline", "disabled", "dryrun")
    if without or os.environ.get("WANDB_DISABLED", "").lower() in ("1", "true"):
        return True
    try:
        import wandb

        return bool(wandb.api.api_key)  # of the environment or of .netrc
    except Exception:  # reported by check_packages
        return True
