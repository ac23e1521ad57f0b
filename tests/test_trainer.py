"""The trainer works on the rewards of a batch: failures are counted and voided, shaping gated."""

import inspect
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import trl
from accelerate import FullyShardedDataParallelPlugin
from datasets import Dataset
from support.launching import run_on_two
from support.scored_by_place import (
    TINY,
    advantages_of,
    as_async,
    completions,
    generations,
    give,
    make_trainer,
)

from recipes.common.trainer import GRPOConfig, GRPOTrainer
from rewards.rows import score_rows

pytestmark = pytest.mark.usefixtures("one_thread")

MATHS = ["math", "math"]
RIGHT = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0]
FAILED = [1.0, 0.0, None, 0.0, 0.0, 1.0, 1.0, 1.0]
BONUS = [0.1, 0.2, 5.0, 0.3, 0.0, 0.25, 0.5, 0.75]
TOTAL = [1.1, 0.2, None, 0.3, 0.0, 1.25, 1.5, 1.75]  # FAILED + BONUS, the failed row left out


@pytest.fixture
def train(model: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """Train for a step or as many as asked for; the completions are in tmp_path."""

    def trained(*rewards: Callable, tasks: list[str] = MATHS, **settings) -> GRPOTrainer:
        trainer = make_trainer(model, tmp_path, list(rewards), tasks, settings)
        trainer.train()
        return trainer

    return trained


def test_the_checkpoint_just_saved_stays_although_the_clock_went_back(train, tmp_path):
    trainer = train(give("right", RIGHT), max_steps=1)
    trainer.args.save_total_limit = 1
    earlier = tmp_path / "checkpoint-0"
    earlier.mkdir()
    ahead = time.time() + 3600
    os.utime(earlier, (ahead, ahead))
    trainer._save_checkpoint(trainer.model, None)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-1"]


# The signature is TRL's


@pytest.mark.slow
def test_it_takes_its_arguments_as_trl_does_by_position_and_with_trls_own_config(model, tmp_path):
    rows = Dataset.from_list([{"prompt": "Row:", "task": "math"}] * 2)
    args = trl.GRPOConfig(str(tmp_path), **TINY)
    whole = give("right", list(map(int, RIGHT)))

    class Doubling(GRPOTrainer):  # as a script may extend TRL's
        def _calculate_rewards(self, inputs, *arguments):
            return 2 * super()._calculate_rewards(list(inputs), *arguments)

    trainer = Doubling(str(model), [whole, whole], args, rows, None, None)
    trainer.train()
    logged = generations(trainer)[0]  # of two rewards of one name the second is numbered
    assert (logged["rewards/right/mean"], logged["rewards/right_2/mean"]) == (1.25, 1.25)
    assert trainer.args.max_reward_error_rate == 0.05 and args.reward_weights is None


def test_its_parameters_are_those_of_trl_and_args_may_be_left_out(model, monkeypatch):
    ours, theirs = (inspect.signature(kind.__init__) for kind in (GRPOTrainer, trl.GRPOTrainer))
    assert list(ours.parameters) == list(theirs.parameters)
    own = type("Own", (GRPOConfig,), {})  # a script's, with properties and fields of its own
    assert type(GRPOConfig.of(object.__new__(own))) is own
    made = []
    monkeypatch.setattr(GRPOConfig, "__init__", lambda self, folder: made.append(folder))
    with pytest.raises(AttributeError):  # what such an empty configuration lacks
        GRPOTrainer(str(model), give("right", RIGHT))
    assert made == [f"{model.name}-GRPO"]


@pytest.mark.slow
def test_without_failures_and_gates_it_trains_as_trl_does(model, tmp_path):
    rewards = [give("right", RIGHT), as_async(give("bonus", BONUS, "shaping"))]
    trained = []
    for kind in (GRPOTrainer, trl.GRPOTrainer):
        folder = tmp_path / kind.__module__
        trainer = make_trainer(model, folder, rewards, MATHS, {}, kind, max_steps=2)
        trainer.train()
        trained.append((completions(folder, 2), list(trainer.model.parameters())))
    (ours, our_weights), (theirs, their_weights) = trained
    assert ours == theirs and all(map(torch.equal, our_weights, their_weights))


# Rows that a reward failed on


@pytest.mark.slow
def test_a_failed_row_has_advantage_0_and_its_group_is_as_if_it_were_absent(train, tmp_path):
    """A scorer raises on the third row; a row of None is in the test of two ranks."""

    def raises(prompts, completions, log_extra, **kwargs):
        places = [0, 1, 8, *range(3, 8)]
        return score_rows("raises", RIGHT.__getitem__, places, log_extra=log_extra)

    raises.kind = "verifier"
    trainer = train(raises, give("bonus", BONUS, "shaping"), scale_rewards="batch")
    logged, table = generations(trainer)[0], completions(tmp_path)
    assert (logged["errors/raises"], logged["completions/voided"]) == (0.125, 0.125)
    assert table["advantage"][2] == 0.0
    assert table["advantage"] == pytest.approx(advantages_of(TOTAL, scale="batch"), abs=1e-5)
    assert (table["raises"], table["bonus"][2]) == (FAILED, None)


@pytest.mark.slow
def test_a_failed_row_is_as_if_absent_where_each_reward_is_normalised_alone(train, tmp_path):
    alone = {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [1.0, 0.5]}
    trainer = train(give("right", FAILED), give("bonus", BONUS, "shaping"), **alone)
    bonus = [None if right is None else amount for right, amount in zip(FAILED, BONUS, strict=True)]
    parts = zip(advantages_of(FAILED), advantages_of(bonus), FAILED, strict=True)
    total = [None if right is None else first + 0.5 * second for first, second, right in parts]
    table = completions(tmp_path)
    assert table["advantage"] == pytest.approx(advantages_of(total, group=8), abs=1e-5)
    # Over all seven completions with a score, and with the weights, the parts add up.
    logged = generations(trainer)[0]
    parts = [logged["reward_parts/right"], logged["reward_parts/bonus"]]
    assert parts == pytest.approx([4 / 7, 1.05 / 7])
    assert sum(parts) == pytest.approx(logged["reward"])


# Completions of advantage 0

HALF_ALIKE = [1.0, 0.0, 0.0, 0.0, *[-0.2] * 4]  # the second group teaches nothing
MICRO_BATCHES = {
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "optim": "sgd",
    "learning_rate": 10.0, "max_grad_norm": 0.0,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "cispo"])
def test_completions_of_advantage_0_can_be_left_out_of_the_same_gradient(
    model, tmp_path, loss_type
):
    changes, rows = {}, {True: 0, False: 0}
    for skip in rows:
        settings = {**MICRO_BATCHES, "loss_type": loss_type, "skip_zero_advantages": skip}
        trainer = make_trainer(model, tmp_path, [give("right", HALF_ALIKE)], MATHS, settings)
        start = [weight.detach().clone() for weight in trainer.model.parameters()]
        forward = trainer._get_per_token_logps_and_entropies

        def counted(model, ids, *args, skip=skip, forward=forward, **kwargs):
            rows[skip] += len(ids)
            return forward(model, ids, *args, **kwargs)

        trainer._get_per_token_logps_and_entropies = counted
        trainer.train()
        ends = trainer.model.parameters()
        changes[skip] = [end.detach() - begin for begin, end in zip(start, ends, strict=True)]
    largest = max(change.abs().max().item() for change in changes[False])
    assert largest > 1e-3
    for skipped, whole in zip(changes[True], changes[False], strict=True):
        assert torch.allclose(skipped, whole, atol=1e-4 * largest)
    # A micro-batch without any keeps one, so that all ranks go along.
    assert rows[False] == 8 and 4 <= rows[True] <= 7


@pytest.mark.slow
@pytest.mark.parametrize("skip", [True, False])
def test_rounding_in_a_group_without_spread_moves_nothing_where_it_is_skipped(
    model, tmp_path, skip
):
    settings = {"num_generations": 8, "learning_rate": 1e-3, "skip_zero_advantages": skip}
    trainer = make_trainer(model, tmp_path, [give("alike", [-0.2] * 8)], MATHS[:1], settings)
    start = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    moved = not all(map(torch.equal, start, trainer.model.parameters()))
    assert moved is not skip  # Adam makes a step of any gradient


@pytest.mark.parametrize(
    "settings",
    [
        {"beta": 0.04}, {"entropy_coef": 0.1}, {"top_entropy_quantile": 0.2}, {"loss_type": "bnpo"},
        {"multi_objective_aggregation": "normalize_then_sum"},
    ],
)  # fmt: skip
def test_a_loss_in_which_every_completion_counts_skips_none(tmp_path, settings):
    config = {"output_dir": str(tmp_path), "bf16": False, "skip_zero_advantages": True}
    assert GRPOConfig(**config).skips and not GRPOConfig(**config, **settings).skips


def test_fsdp2_returns_log_probabilities_in_float32(model, tmp_path, monkeypatch):
    trainer = make_trainer(model, tmp_path, [give("right", RIGHT)], MATHS, {})
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    monkeypatch.setattr(trainer.accelerator.state, "fsdp_plugin", plugin, raising=False)
    trainer.create_accelerator_and_postprocess()
    assert plugin.mixed_precision_policy.output_dtype is None


# Rates


@pytest.mark.slow
def test_an_evaluation_groups_and_counts_by_its_own_numbers(model, tmp_path):
    rewards = [give("right", [1.0, 1.0, None, 1.0]), give("bonus", [0.0, 0.5, 0.0, 0.0], "shaping")]
    settings = {"num_generations_eval": 2, "per_device_eval_batch_size": 4}
    trainer = make_trainer(model, tmp_path, rewards, MATHS, settings)
    logged = trainer.evaluate(trainer.train_dataset)
    assert (logged["eval_unparsed/right"], logged["eval_groups/without_spread"]) == (0.25, 0.5)


# Two processes


@pytest.fixture(scope="module")
def two_ranks(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two_ranks.py, launched on two processes; it must fail."""
    folder = tmp_path_factory.mktemp("two_ranks")
    run_on_two("tests/support/two_ranks.py", model, folder, expect=1)
    return folder


@pytest.mark.slow
def test_two_ranks_settle_rewards_rates_and_updates_of_their_groups_together(two_ranks):
    """A row that fails on one rank is voided in a group that spans both."""
    seen = [json.loads((two_ranks / f"seen_{rank}.json").read_text()) for rank in (0, 1)]
    scores = [1.1, 0.0, 1.3, 1.4, 0.0, 1.6, None, 1.1, 1.2, 0.0, 0.0, 1.5]
    kinds, names = ("errors", "unparsed", "timeouts"), ("right", "spoken", "bonus")
    rates = {f"{kind}/{name}": 0.0 for kind in kinds for name in names}
    rates |= {"unparsed/right": 0.125, "timeouts/spoken": 0.25}  # of eight rows, and of four
    for rank in seen:
        assert rank["world size"] == 2
        assert rank["advantages"][6] == 0.0
        assert rank["advantages"] == pytest.approx(advantages_of(scores), abs=1e-5)
        bonus = [None if math.isnan(amount) else amount for amount in rank["bonus"]]
        opened = [0.1, None, 0.3, 0.4, None, 0.6, None, 0.1, 0.2, None, None, 0.5]
        assert bonus == pytest.approx(opened)
        assert {key: of for key, of in rank["logged"].items() if key.startswith(kinds)} == rates
        assert rank["logged"]["rewards/right/mean"] == pytest.approx(5 / 7)
        assert rank["logged"]["rewards/spoken/mean"] == 0.5
        # They have different numbers of advantages that are not 0, and leave out as many.
        assert rank["moved"] > 1e-4 and rank["apart"] < 1e-3 * rank["moved"]
    # The majority of a group is that of all ranks.
    assert [rank["agreement"] for rank in seen] == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.slow
def test_all_ranks_stop_together(two_ranks):
    messages = [(two_ranks / f"raised_{rank}.txt").read_text() for rank in (0, 1)]
    assert all("reward 'right' could not score 1 of its last 8 rows" in text for text in messages)
    assert "on this rank: None" in messages[0] and "on this rank: it returned None" in messages[1]
