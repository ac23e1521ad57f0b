"""A script with `watch` trains as without it: the same weights and logs, whatever it is made of."""

import asyncio
import random

import pytest
import torch
import trl
from datasets import Dataset
from peft import LoraConfig

from recipes.common.watch import watch
from rewards.text import completion_text

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
CHAT = [{"prompt": [{"role": "user", "content": f"{i} + 1 ="}], "gold": "8"} for i in range(8)]
PLAIN = [{"prompt": f"Row {i}:", "gold": "8"} for i in range(8)]
SETTINGS = {
    "num_generations": 4, "per_device_train_batch_size": 8, "max_steps": 2, "bf16": False,
    "use_cpu": True, "max_completion_length": 6, "logging_steps": 1, "save_strategy": "no",
    "report_to": "none", "eval_steps": 1, "learning_rate": 1e-2, "disable_tqdm": True,
}  # fmt: skip


def letters(completions, **kwargs):
    return [float(len(set(completion_text(completion)))) for completion in completions]


def vowels(completions, **kwargs):
    texts = map(completion_text, completions)
    return [None if text.startswith("a") else 1.0 * text.count("e") for text in texts]


async def later(completions, **kwargs):
    await asyncio.sleep(0)
    return letters(completions)


def forging(completions, gold, log_extra, log_metric, **kwargs):
    log_metric("forged", 1.0)
    log_extra("gold", gold)
    scores = letters(completions)
    for completion, answer in zip(completions, gold, strict=True):
        completion[0]["content"] += answer
    return scores


class Curriculum:
    """Gives less the more often it was called."""

    def __init__(self):
        self.calls, self.draws = [], random.Random(0)

    def __call__(self, completions, **kwargs):
        self.calls.append(len(completions))
        draws = [self.draws.random() for _ in completions]
        return [d + s / len(self.calls) for d, s in zip(draws, letters(completions), strict=True)]


def counted(row, text):
    return {"letters": len(set(text)) % 2 == 1, "gold": row["gold"] in text}


def fails_on_some(row, text):
    return {"right": bool(text) and text[0] == text[5]}


SCRIPTS = {
    "a function": {},
    "two rewards with weights": {"rewards": [letters, vowels], "reward_weights": [1.0, 0.5]},
    "an async one between others": {"rewards": [letters, later, vowels]},
    "a class that remembers": {"rewards": Curriculum},
    "a reward that forges": {"rewards": [forging, letters], "rows": CHAT},
    "a metric that fails on some": {"metric": fails_on_some},
    "LoRA": {"peft_config": LoraConfig(r=2, target_modules=["q_proj"])},
    "two iterations": {"num_iterations": 2},
    "accumulation": {"gradient_accumulation_steps": 2, "steps_per_generation": 4},
    "a reference model": {"beta": 0.1},
    "other advantages": {
        "rewards": [letters, vowels], "scale_rewards": "batch",
        "multi_objective_aggregation": "normalize_then_sum",
    },
    "evaluations of its own": {"eval_strategy": "steps", "eval_dataset": True},
    "checkpoints": {"save_strategy": "steps", "save_steps": 1, "log_completions": True},
}  # fmt: skip


def trained(model, folder, script: dict, is_watched: bool) -> trl.GRPOTrainer:
    script = {"rewards": [letters], "metric": counted, "rows": PLAIN, **script}
    rewards, metric, rows = (script.pop(name) for name in ("rewards", "metric", "rows"))
    parts = {"peft_config": script.pop("peft_config", None)}
    if script.pop("eval_dataset", False):
        parts["eval_dataset"] = Dataset.from_list(rows[:4])
    trainer = trl.GRPOTrainer(
        str(model),
        rewards() if isinstance(rewards, type) else list(rewards),
        args=trl.GRPOConfig(str(folder), **{**SETTINGS, **script}),
        train_dataset=Dataset.from_list(rows),
        **parts,
    )
    if is_watched:
        watch(trainer, rows[:2], metric, rows[2:4])
    trainer.train()
    return trainer


def log_of(trainer: trl.GRPOTrainer) -> list[dict]:
    """What the steps logged, without times."""
    times = ("time", "runtime", "per_second")
    return [
        {name: value for name, value in entry.items() if not name.endswith(times)}
        for entry in trainer.state.log_history
        if not any(name.startswith("validation/") for name in entry)
    ]


@pytest.fixture(scope="module")
def stock_trainer(model, tmp_path_factory):
    """Train a script without `watch`; scripts that differ in the metric alone share a training."""
    trainers = {}

    def trainer_of(script: dict) -> trl.GRPOTrainer:
        parts = {name: part for name, part in script.items() if name != "metric"}
        if repr(parts) not in trainers:
            folder = tmp_path_factory.mktemp("stock")
            trainers[repr(parts)] = trained(model, folder, parts, is_watched=False)
        return trainers[repr(parts)]

    return trainer_of


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_trains_with_watch_as_without_it(model, tmp_path, stock_trainer, script):
    stock, watched = stock_trainer(script), trained(model, tmp_path, script, is_watched=True)
    expected, log = log_of(stock), log_of(watched)
    assert len(log) == len(expected) and expected[0]["grad_norm"] > 0.0
    for entry, stock_entry in zip(log, expected, strict=True):
        logged = {name: entry.get(name) for name in stock_entry}
        assert repr(logged) == repr(stock_entry)  # NaN equals NaN
    weights = watched.model.state_dict()
    for name, weight in stock.model.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    assert (tmp_path / "report.html").is_file()
