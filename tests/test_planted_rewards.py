"""The audit finds each planted mistake by the trick made for it, and nothing in sound rewards."""

import json
import random
from pathlib import Path

import pytest
from support.planted import BUGS, ROWS, SOUND

from rewards.audit.apart import audit_by_name
from rewards.audit.audit import audit

APART = ("evaluates", "runs_in_process")  # hangs, and lets a program end its process


@pytest.mark.parametrize("reward", [one for one in BUGS if one.__name__ not in APART])
def test_a_planted_mistake_is_found_by_the_trick_made_for_it(reward):
    random.seed(0)
    found = audit(ROWS[reward.rows], [reward], reward.reference)
    assert reward.finds in "\n".join(found.failures)


@pytest.mark.slow
@pytest.mark.parametrize("reward", [one for one in BUGS if one.__name__ in APART])
def test_a_mistake_that_costs_the_process_is_found_from_outside(reward, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[reward.rows][0]))
    spec = f"{reward.__module__}:{reward.__name__}"
    found, _ = audit_by_name(spec, tmp_path / "rows.jsonl", reward.reference, seconds=0.5)
    assert reward.finds in "\n".join(found.failures)


@pytest.mark.parametrize("reward", SOUND)
def test_a_sound_reward_passes(reward):
    assert audit(ROWS[reward.rows], [reward], reward.reference).failures == []
