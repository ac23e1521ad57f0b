"""Accounts that a run needs: one of W&B to report to, one of the Hub to push to."""

import os
from typing import Any

from huggingface_hub import get_token
from requests.utils import get_netrc_auth


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
    """Look where W&B looks, without a call of it: offline, a key of the environment, or .netrc."""
    given = os.environ
    without = given.get("WANDB_MODE", "online") in ("offline", "disabled", "dryrun")
    if without or given.get("WANDB_DISABLED", "").lower() in ("1", "true"):
        return True
    named = given.get("WANDB_API_KEY") or given.get("WANDB_IDENTITY_TOKEN_FILE")
    return bool(named or get_netrc_auth(given.get("WANDB_BASE_URL", "https://api.wandb.ai")))
