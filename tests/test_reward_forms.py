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

TRLS = ["trl.rewards.accuracy_reward", "trl.rewards.get_repetition_penalty_reward"]
SETTINGS = {"get_repetition_penalty_reward": {"ngram_size": 9}}


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
    rewards = load_rewards([*TRLS, "xml_format", str(scorer)], SETTINGS)
    names = [reward.name for reward in rewards[:3]]
    trainer = trained(model, tmp_path, rewards)
    assert trainer.reward_func_names == [*names, "scorer"]
    logged = generations(trainer)
    assert len(logged) == 2
    for entry in logged:
        kinds = ("rewards/{}/mean", "errors/{}", "unparsed/{}")
        assert {entry[kind.format(name)] for kind in kinds for name in names} == {0.0}
        # TRL calls a reward model, and no guard of ours.
        assert math.isfinite(entry["rewards/scorer/mean"]) and "errors/scorer" not in entry
    evaluated = evaluate(trainer, trainer.train_dataset.to_list(), lambda row, completion: {})
    assert list(evaluated[0]["rewards"]) == names


def test_a_single_reward_needs_no_list_and_a_model_may_be_loaded(model, scorer, tmp_path):
    loaded = AutoModelForSequenceClassification.from_pretrained(scorer, num_labels=1)
    trainer = trained(model, tmp_path, loaded)
    assert trainer.reward_func_names == ["scorer"]
    assert math.isfinite(generations(trainer)[1]["reward"])
