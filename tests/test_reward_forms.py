"""Rewards of ours, of TRL and of a model train two steps under our trainer.

That every other form loads is test_load_reward's matter; async ones are test_trainer's.
"""

import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from support.scored_by_place import TINY, generations
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from recipes.common.data.recipe import with_columns
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from rewards import load_rewards

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

MINE = """
def by_tokens(completion_ids, **kwargs): return [float(len(ids)) for ids in completion_ids]
def by_gold(completions, solution, **kwargs):
    return [float(gold in c[0]["content"]) for c, gold in zip(completions, solution)]
"""
# Specification -> parameters, and the mean score where it is known.
FORMS = {
    "{mine}:by_tokens": ({}, None),
    "{mine}:by_gold": ({}, None),
    "trl.rewards.accuracy_reward": ({}, 0.0),
    "trl.rewards.get_repetition_penalty_reward": ({"ngram_size": 9}, 0.0),
    "xml_format": ({}, 0.0),
    "{model}": ({}, None),
}


@pytest.fixture(scope="module")
def scorer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny reward model."""
    folder = tmp_path_factory.mktemp("models") / "scorer"
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(model, num_labels=1)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def trained(model: Path, folder: Path, rewards) -> GRPOTrainer:
    """Train two steps on chat prompts with a gold in `answer`, for TRL's rewards in `solution`."""
    rows = [
        {"prompt": [{"role": "user", "content": f"{n} + 1 ="}], "task": task, "answer": str(n + 1)}
        for n, task in enumerate(["sums", "prose"])
    ]
    train_rows = with_columns(Dataset.from_list(rows), {"solution": "answer"})
    args = GRPOConfig(output_dir=str(folder), **TINY | {"max_steps": 2, "log_completions": False})
    trainer = GRPOTrainer(
        model=str(model), reward_funcs=rewards, args=args, train_dataset=train_rows
    )
    trainer.train()
    return trainer


def test_every_form_of_reward_trains_two_steps_without_a_failure(model, scorer, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    forms = {spec.format(mine=file, model=scorer): form for spec, form in FORMS.items()}
    rewards = load_rewards(list(forms), {spec: own for spec, (own, _) in forms.items() if own})
    names = [reward.name for reward in rewards]
    trainer = trained(model, tmp_path / "run", rewards)
    assert trainer.reward_func_names == names
    logged = generations(trainer)
    assert len(logged) == 2
    for name, (_, expected) in zip(names, forms.values(), strict=True):
        means = [entry[f"rewards/{name}/mean"] for entry in logged]
        assert all(map(math.isfinite, means)), name
        assert expected is None or means == [expected] * 2, name
        rates = [entry.get(f"{rate}/{name}") for entry in logged for rate in ("errors", "unparsed")]
        # TRL calls a reward model, and no guard of ours.
        assert set(rates) == ({None} if name == "scorer" else {0.0}), name
    evaluated = evaluate(trainer, trainer.train_dataset.to_list(), lambda row, completion: {})
    assert list(evaluated[0]["rewards"]) == [name for name in names if name != "scorer"]


def test_a_single_reward_needs_no_list_and_a_model_may_be_loaded(model, scorer, tmp_path):
    loaded = AutoModelForSequenceClassification.from_pretrained(scorer, num_labels=1)
    trainer = trained(model, tmp_path, loaded)
    assert trainer.reward_func_names == ["scorer"]
    assert math.isfinite(generations(trainer)[1]["reward"])
