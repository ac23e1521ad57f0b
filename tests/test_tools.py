"""Tools and environments: TRL's rollout is ours, `get_reward` is guarded, the model is scored."""

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from support.launching import ROOT, run_on_two
from support.scored_by_place import advantages_of, completions, generations
from support.scripted_tools import (
    CALCULATOR,
    CORRECT,
    ENVIRONMENT,
    FIRST,
    KINDS,
    QUESTIONS,
    ROWS,
    evaluated,
    make_trainer,
)
from test_preflight import SETTINGS

from recipes.calculator.train import metric, reference_completion
from recipes.common.checks.rewards_on_rows import check_rewards
from recipes.common.data.recipe import load_parts, load_recipe
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.sampling.probe import check as check_probe
from recipes.common.trainer import GRPOTrainer
from recipes.common.training.completion import complete, turn_kinds
from recipes.common.training.tools import load_environment
from recipes.common.utils.run_files import completion_files, messages, read_completions

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def make(model: Path, tmp_path: Path) -> Callable[..., trl.GRPOTrainer]:
    """Make the scripted trainer, in tmp_path or the folder of the call."""
    return lambda folder=tmp_path, **settings: make_trainer(model, folder, **settings)


# Training


@pytest.mark.slow
def test_the_reward_of_an_environment_trains_as_in_trl(make, tmp_path):
    trained = []
    for kind in (GRPOTrainer, trl.GRPOTrainer):
        trainer = make(tmp_path / kind.__module__, kind=kind)
        trainer.train()
        table = completions(tmp_path / kind.__module__)
        columns = [table[name] for name in ("Calculator", "gsm8k_correctness", "advantage")]
        trained.append((columns, list(trainer.model.parameters())))
    (ours, our_weights), (theirs, their_weights) = trained
    assert ours == theirs and ours[0] == ENVIRONMENT
    # A step changes a weight by 1e-6. On a CPU our update leaves masked tokens out of its sums,
    # which may round a weight of 0.2 by its last bit.
    for mine, of_trl in zip(our_weights, their_weights, strict=True):
        torch.testing.assert_close(mine, of_trl, rtol=0.0, atol=3e-8)


@pytest.mark.slow
def test_rewards_turns_and_advantages_of_a_batch(make, tmp_path):
    trainer = make(reward_weights=[0.5])  # of reward_funcs; an environment's weight is 1, as in TRL
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["gsm8k_correctness"], table["Calculator"]) == (CORRECT, ENVIRONMENT)
    total = [0.5 * a + b for a, b in zip(CORRECT, ENVIRONMENT, strict=True)]
    assert table["advantage"] == pytest.approx(advantages_of(total), abs=1e-5)
    assert logged["errors/Calculator"] == 0.0
    kinds = [kind for turns in KINDS for kind in turns]
    for kind in set(kinds):
        share = kinds.count(kind) / len(kinds)
        assert logged[f"turns/{kind.replace(' ', '_')}"] == pytest.approx(share)


class Unruly:
    """A calculator that draws, forks, changes its arguments, and exits on what it cannot read."""

    def reset(self, **row):
        pass

    def calculate(self, expression: str) -> str:
        """Calculate.

        Args:
            expression: a sum
        """
        os.fork()
        torch.manual_seed(3)
        if expression == "9 * 9":
            sys.exit(f"no {random.random()}")
        return str(random.random())


@pytest.mark.slow
def test_a_tool_is_foreign_code(make, tmp_path):
    """It neither moves the trainer's random states, nor goes on in a twin, nor ends the run."""
    found = []
    for number in range(2):
        trainer = make(tmp_path / str(number), environment=Unruly)
        torch.manual_seed(5), random.seed(5 + number)
        trainer.model.eval()
        rollouts = trainer.complete([ROWS[0]] * 4)
        with (tmp_path / "processes").open("a") as file:
            file.write("one\n")
        found.append(([rollout.completion for rollout in rollouts], torch.rand(1)))
    assert found[0] == found[1] and (tmp_path / "processes").read_text() == "one\n" * 2
    torch.manual_seed(5)
    assert torch.rand(1) == found[0][1]
    first, second = (rollout[1]["content"] for rollout in found[0][0][:2])
    assert 0.0 < float(first) < 1.0 and "SystemExit: no 0." in second


class Breaks:
    """An environment whose reward fails where the answer is 5."""

    kind, full = "verifier", 1.0

    def reset(self, answer, **row):
        self.answer = answer

    def get_reward(self):
        return 1.0 / (self.answer != "5")


class Awaited(Breaks):
    async def get_reward(self):
        await asyncio.sleep(0)
        return 0.5


@pytest.mark.slow
def test_several_environments_of_trl_score_their_own_rows_and_may_be_async(make, tmp_path):
    """One of them fails on its rows: no other reward of those rows counts."""
    rows = [{**ROWS[0], "environment": "one"}, {**ROWS[1], "environment": "two"}]
    trainer = make(environment={"one": Breaks, "two": Awaited}, rows=rows)
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["Breaks"], table["Awaited"]) == ([None] * 8, [None] * 4 + [0.5] * 4)
    assert table["gsm8k_correctness"][:4] == [None] * 4
    assert (logged["errors/Breaks"], logged["errors/Awaited"]) == (1.0, 0.0)
    assert logged["unparsed/Awaited"] == 0.0


def test_whatever_a_reward_a_tool_and_a_model_write_the_table_of_completions_is_written(
    make, tmp_path
):
    """Also where columns have one type on each rank, and several over all of them."""

    def called(**function) -> dict:
        return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}

    calls = [called(name="add", arguments={"a": value}) for value in ("1", 2, {"b": [3]})]
    broken = [called(name=5), {"role": "assistant", "content": None, "tool_calls": [{"type": "x"}]}]
    answers = [{"role": "tool", "name": 5, "content": [{"type": "text", "text": "\ud800"}]}]
    trainer, written = make(), [*calls, *broken, *answers]
    odd = [1.5, True, "a", 10**30, "\ud800", None]
    trainer._logs["prompt"].extend(["47 + 38 ="] * 6)
    trainer._logs["completion"].extend([[message] for message in written])
    trainer._logs["advantages"].extend([0.0] * 6)
    trainer._logs["extra"]["odd"].extend(odd)
    trainer._logs["extra"]["bools"].extend([True, 2.5, 0, 1, 2, 3])
    for _ in range(2):  # the same again, as at the end of a run
        trainer.log({"loss": 0.0})
    table = read_completions(*completion_files(tmp_path))
    shown = [messages(line["completion"])[0][1] for line in table.to_pylist()]
    values = ('"1"', "2", '{"b": [3]}')
    assert shown[:3] == [f'{{"call": "add", "arguments": {{"a": {one}}}}}' for one in values]
    assert '"call": "5"' in shown[3] and '"call": "unknown"' in shown[4] and "text" in shown[5]
    assert table["odd"].to_pylist() == ["1.5", "True", "a", str(10**30), "?", None]
    assert table["bools"].to_pylist() == ["True", "2.5", "0", "1", "2", "3"]


# Evaluation


def test_evaluation_goes_through_the_rollout_of_training_and_leaves_no_trace(make):
    trainer = make()
    torch.manual_seed(3)
    state, rows = torch.get_rng_state(), [dict(row) for row in ROWS for _ in range(4)]
    results = evaluate(trainer, rows, metric, samples=1)
    assert [row["turns"] for row in results] == KINDS
    assert [row["rewards"]["Calculator"] for row in results] == ENVIRONMENT
    assert [row["rewards"]["gsm8k_correctness"] for row in results] == CORRECT
    right = [amount > 0 for amount in CORRECT]
    assert [row["metrics"]["strict"] for row in results] == right
    assert [row["samples"][0]["strict"] for row in results] == right
    roles = [message["role"] for message in results[0]["messages"]]
    assert roles == ["assistant", "tool", "assistant"]
    json.dumps(results)
    written = [FIRST[0][0] + "<|end|>", "<answer>5</answer><|end|>"]  # not what the tool answered
    assert results[0]["tokens"] == sum(len(trainer._tokenizer(t)["input_ids"]) for t in written)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(trainer._metrics.values()) and not trainer._logs["completion"]
    assert trainer.state.num_input_tokens_seen == 0


def test_a_trainer_of_trl_completes_rows_with_its_tools(make):
    trainer = make(kind=trl.GRPOTrainer)
    trainer.model.eval()
    rollouts = complete(trainer, [dict(row) for row in ROWS for _ in range(4)])
    assert [rollout.turns for rollout in rollouts] == KINDS


@pytest.mark.slow
def test_two_ranks_with_rollouts_of_different_lengths_see_what_one_process_does(
    make, model, tmp_path
):
    run_on_two("tests/support/scripted_tools.py", model, tmp_path)
    trainer = make(tmp_path / "one", per_device_eval_batch_size=2, max_steps=2)
    expected = evaluated(trainer)
    trainer.train()
    ranks = [json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in (0, 1)]
    kinds = ("call", "text", "failed_call", "broken_call")
    for name in ("rewards/Calculator/mean", *(f"turns/{kind}" for kind in kinds)):
        alone = pytest.approx(generations(trainer)[0][name])
        assert [rank["logged"][0][name] for rank in ranks] == [alone, alone], name
    for rank in ranks:
        assert (rank["evaluated"], rank["ranks"]) == (expected, 2)
        assert rank["logged"][0]["rewards/Calculator/mean"] == 0.25


def test_a_call_whose_answer_did_not_fit_is_one_without_room():
    turns = [{"role": "assistant", "content": "", "tool_calls": [{}]}]
    assert turn_kinds(turns, "<tool_call>") == ["call without room"]


# Loading and checks


def test_a_warm_start_shows_the_tools_and_trains_on_the_turns_of_the_model():
    from recipes.common.warm_start import reference_examples

    config = ROOT / "recipes/calculator/smollm2-135m.yaml"
    recipe = load_recipe(config, ["--num_train_rows", "4", "--num_eval_rows", "1"])
    example, _ = reference_examples(recipe, 2)
    (row,) = [row for row in recipe.train_rows if row["prompt"] == example["prompt"]]
    assert example["completion"] == reference_completion(row)
    assert [tool["function"]["name"] for tool in json.loads(example["tools"])] == ["calculate"]


def parts_of(parse, load_rows=lambda args, seed: (Dataset.from_list(ROWS), None), **settings):
    """Arguments, rewards and rows of a run with an environment, as a run loads them."""
    args = parse({**SETTINGS, "environment_factory": CALCULATOR, **settings})
    rewards, rows, *_ = load_parts(args, load_rows)
    assert args.problems == []
    return args, rewards, rows


def by_environment(environments, **kwargs):
    return [environment.get_reward() for environment in environments]


@pytest.mark.slow
def test_a_reward_may_take_the_environments_and_preflight_does_not_call_it(make, parse, tmp_path):
    names = [f"{__file__}:by_environment", "gsm8k_correctness"]
    args, rewards, rows = parts_of(parse, reward_funcs=names)
    lines = check_rewards(args, rows.to_list(), [], rewards, reference_completion)
    assert args.problems == []
    assert [line["reward"] for line in lines] == ["gsm8k_correctness"]
    make(rewards=rewards).train()
    assert completions(tmp_path)["by_environment"] == ENVIRONMENT


def test_the_probe_refuses_an_environment_whose_rollouts_are_over(parse):
    args, rewards, _ = parts_of(parse, reward_funcs=["gsm8k_correctness"])
    with pytest.raises(ValueError, match="an environment lives as long as its rollout"):
        check_probe(args.training, rewards, ROWS, batch=4)


class Asks:
    """An environment that brings its question."""

    kind = "shaping"

    def reset(self, **row):
        return QUESTIONS[0]

    def get_reward(self):
        return 1.0


@pytest.mark.slow
def test_an_environment_may_make_the_prompt_of_empty_messages_and_score_it_alone(
    make, parse, tmp_path
):
    settings = {"environment_factory": f"{__file__}:Asks", "max_steps": 1, "reward_funcs": []}
    silent = {"prompt": [{"role": "user", "content": ""}], "task": "environment"}
    empty = Dataset.from_list([silent] * 4)
    args, rewards, rows = parts_of(parse, lambda args, seed: (empty, None), **settings)
    check_rewards(args, rows.to_list(), [], rewards, lambda row: None)
    assert args.problems == []
    environment = load_environment(f"{__file__}:Asks")
    make(rows=rows.to_list(), environment=environment, rewards=None).train()
    table = completions(tmp_path)
    assert QUESTIONS[0] in str(table["prompt"][0]) and table["Asks"] == [1.0] * 8


def test_step_rewards_have_no_place_among_the_turns_of_tools(make):
    with pytest.raises(ValueError, match="cannot be placed among the turns of tools"):
        make(rewards=["gsm8k_correctness", "equation_steps"])
