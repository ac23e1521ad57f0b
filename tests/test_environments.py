"""Tools and environments: TRL's rollout and ours are one, their rewards are guarded, and only the
model is scored.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from support.launching import ROOT, run
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
    template,
)
from test_preflight import SETTINGS
from transformers import AutoTokenizer

from recipes.calculator.train import metric, reference_completion
from recipes.common.checks.callables import check_tool_template, check_tool_use
from recipes.common.checks.combinations import check_settings
from recipes.common.checks.preflight import check_rows
from recipes.common.checks.run_folder import differences, identity_of
from recipes.common.data.recipe import load_parts, load_recipe
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.environments import environment_rewards, load_environments, load_tools
from recipes.common.training.rollout import opening_of, turn_kinds
from rewards import load_reward, reward_name, reward_of
from rewards.audit import try_tricks
from rewards.audit.call import score

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def make(model: Path, tmp_path: Path) -> Callable[..., trl.GRPOTrainer]:
    """Make the scripted trainer, in tmp_path unless `folder` is given."""
    return lambda folder=tmp_path, **settings: make_trainer(model, folder, **settings)


# Training


@pytest.mark.slow
def test_the_reward_of_an_environment_trains_as_in_trl(make, tmp_path):
    trained = []
    for kind in (GRPOTrainer, trl.GRPOTrainer):
        folder = tmp_path / kind.__module__
        trainer = make(folder, kind=kind, max_steps=2)
        trainer.train()
        table = completions(folder, 2)
        columns = table["Calculator"], table["advantage"]
        trained.append((columns, list(trainer.model.parameters())))
    (ours, our_weights), (theirs, their_weights) = trained
    assert ours == theirs and ours[0] == ENVIRONMENT
    assert all(map(torch.equal, our_weights, their_weights))


@pytest.mark.slow
def test_rewards_turns_and_advantages_of_a_batch(make, tmp_path):
    trainer = make(reward_weights=[1.0, 0.5])
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["gsm8k_correctness"], table["Calculator"]) == (CORRECT, ENVIRONMENT)
    total = [a + 0.5 * b for a, b in zip(CORRECT, ENVIRONMENT, strict=True)]
    assert table["advantage"] == pytest.approx(advantages_of(total), abs=1e-5)
    assert logged["errors/Calculator"] == 0.0
    kinds = [kind for turns in KINDS for kind in turns]
    for kind in set(kinds):
        share = kinds.count(kind) / len(kinds)
        assert logged[f"turns/{kind.replace(' ', '_')}"] == pytest.approx(share)


class Breaks:
    """An environment whose reward fails where the answer is 5."""

    kind, full = "verifier", 1.0

    def reset(self, answer, **row):
        self.answer = answer

    def get_reward(self):
        return 1.0 / (self.answer != "5")


@pytest.mark.slow
def test_a_get_reward_that_raises_is_an_error_of_its_rows(make, tmp_path):
    trainer = make(environment=Breaks)
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert logged["errors/Breaks"] == 0.5
    assert table["Breaks"] == [None] * 4 + [1.0] * 4
    assert table["gsm8k_correctness"][:4] == [None] * 4, "a row that a reward failed on is void"


class Awaited(Breaks):
    async def get_reward(self):
        await asyncio.sleep(0)
        return 0.5


@pytest.mark.slow
def test_environments_by_name_and_an_async_reward(make, tmp_path):
    named = {"one": Breaks, "two": Awaited}
    rows = [{**ROWS[0], "environment": "two"}, {**ROWS[1], "environment": "one"}]
    trainer = make(environment=named, rows=rows)
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["Awaited"], table["Breaks"]) == ([0.5] * 4 + [None] * 4, [None] * 4 + [1.0] * 4)
    assert (logged["unparsed/Breaks"], logged["unparsed/Awaited"]) == (0.0, 0.0), (
        "another's rows do not count"
    )


@pytest.mark.slow
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(make, tmp_path):
    steps = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 0.01}
    weights = []
    for folder, checkpoint in (("whole", None), ("stopped", tmp_path / "whole/checkpoint-2")):
        trainer = make(tmp_path / folder, **steps)
        trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))
        weights.append(list(trainer.model.parameters()))
    assert trainer.state.global_step == 4 and all(map(torch.equal, *weights))


# Evaluation


def test_evaluation_goes_through_the_rollout_of_training_and_leaves_no_trace(make):
    trainer = make()
    torch.manual_seed(3)
    state, rows = torch.get_rng_state(), [dict(row) for row in ROWS for _ in range(4)]
    found = evaluate(trainer, rows, metric, samples=1)
    assert [row["turns"] for row in found] == KINDS
    assert [row["rewards"]["Calculator"] for row in found] == ENVIRONMENT
    assert [row["rewards"]["gsm8k_correctness"] for row in found] == CORRECT
    right = [amount > 0 for amount in CORRECT]
    assert [row["metrics"]["strict"] for row in found] == right
    assert [row["samples"][0]["strict"] for row in found] == right
    roles = [message["role"] for message in found[0]["messages"]]
    assert roles == ["assistant", "tool", "assistant"]
    json.dumps(found)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(trainer._metrics.values()) and not trainer._logs["completion"]
    assert trainer.state.num_input_tokens_seen == 0


def test_what_a_tool_answers_is_not_counted_as_the_models_tokens(make):
    trainer = make()
    first = evaluated(trainer)[0]
    written = [FIRST[0][0] + "<|end|>", "<answer>5</answer><|end|>"]
    assert first["tokens"] == sum(len(trainer._tokenizer(text)["input_ids"]) for text in written)


@pytest.mark.slow
def test_two_ranks_with_rollouts_of_different_lengths_see_what_one_process_does(
    make, model, tmp_path
):
    words = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    words += ["--config_file=accelerate_configs/cpu_2proc.yaml", "tests/support/scripted_tools.py"]
    run([*words, str(model), str(tmp_path)])
    trainer = make(tmp_path / "one", per_device_eval_batch_size=2, max_steps=2)
    expected = evaluated(trainer)
    trainer.train()
    ranks = [json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in (0, 1)]
    kinds = ("call", "text", "failed_call", "broken_call")
    for name in ("rewards/Calculator/mean", *(f"turns/{kind}" for kind in kinds)):
        assert ranks[0]["logged"][0][name] == ranks[1]["logged"][0][name]
    for rank in ranks:
        assert (rank["evaluated"], rank["ranks"]) == (expected, 2)
        assert rank["logged"][0]["rewards/Calculator/mean"] == 0.25
    assert generations(trainer)[0]["rewards/Calculator/mean"] == 0.25


# The pieces


@pytest.mark.parametrize(
    ("messages", "kinds"),
    [
        ([{"role": "assistant", "content": "4"}], ["text"]),
        ([{"role": "assistant", "content": "<tool_call>{"}], ["broken call"]),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], ["call without room"]),
        (
            [
                {"role": "assistant", "content": "", "tool_calls": [{}]},
                {"role": "tool", "content": "{'error': 'x'}"},
            ],
            ["failed call"],
        ),
    ],
)
def test_kinds_of_turns(messages, kinds):
    assert turn_kinds(messages, "<tool_call>") == kinds


def test_outside_a_rollout_the_calls_of_a_completion_are_played():
    (reward,) = environment_rewards(load_environments(CALCULATOR))
    assert (reward.__name__, reward.kind, reward.full) == ("Calculator", "verifier", 1.0)
    assert score(reward, ROWS, [reference_completion(row) for row in ROWS]) == [1.0, 1.0]
    assert score(reward, ROWS, ["", "<answer>20</answer>"]) == [0.0, 0.0]


def test_the_reward_of_an_environment_needs_the_environments_of_its_rollouts(tmp_path):
    rewards = environment_rewards(load_environments(CALCULATOR))
    with pytest.raises(ValueError, match="give its environment_factory"):
        GRPOTrainer("nobody/nothing", rewards, GRPOConfig(output_dir=str(tmp_path), bf16=False))


def test_the_audit_plays_the_reference_and_finds_a_reward_for_nothing(monkeypatch):
    factory = load_environments(CALCULATOR)
    rewards = [load_reward("gsm8k_correctness"), *environment_rewards(factory)]
    tried = [try_tricks(reward_of(one), ROWS, reference_completion) for one in rewards]
    assert [cheats.paid for cheats in tried] == [[], []]
    monkeypatch.setattr(factory, "get_reward", lambda self: 1.0)
    cheats = try_tricks(reward_of(rewards[1]), ROWS, reference_completion)
    assert len(cheats.paid) == cheats.tried > 0


def test_a_warm_start_shows_the_tools_and_trains_on_the_turns_of_the_model():
    from recipes.common.warm_start import reference_rows

    config = ROOT / "recipes/calculator/smollm2-135m.yaml"
    recipe = load_recipe(config, ["--num_train_rows", "4", "--num_eval_rows", "1"])
    (example, *_), (row, *_) = reference_rows(recipe, 2)
    assert example["completion"] == reference_completion(row)
    assert [tool["function"]["name"] for tool in json.loads(example["tools"])] == ["calculate"]


def test_another_tool_makes_it_another_run(tmp_path):
    tool = tmp_path / "tool.py"

    def identity(code: str) -> dict:
        tool.write_text(f"def tool(a):\n    return {code}\n")
        return identity_of(load_tools([f"{tool}:tool"]), [], [], None)

    assert differences(identity("a"), identity("a")) == {}
    assert differences(identity("a"), identity("-a")).keys() == {"the code of 'tool'"}


def test_a_call_that_the_template_writes_is_read_again(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tools = [load_environments(CALCULATOR)().calculate]
    with pytest.raises(ValueError, match=r"writes no tool calls .* chat_template_path"):
        check_tool_template(tokenizer, tools)
    tokenizer.chat_template = template()
    check_tool_template(tokenizer, tools)
    assert opening_of(tokenizer) == "<tool_call>"
    tokenizer.chat_template = tokenizer.chat_template.replace("<tool_call>' + {", "<call>' + {")
    with pytest.raises(ValueError, match=r"do not go together(?s:.)* `response_template`"):
        check_tool_template(tokenizer, tools)


def multiply(a: int, b: int) -> int:
    """
    Multiplies two integers.

    Args:
        a: The first.
        b: The second.

    Returns:
        Their product.
    """
    return a * b


def test_a_tool_may_take_a_number_first(model):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = template()
    check_tool_template(tokenizer, [multiply])


BY_ENVIRONMENT = """
def by_environment(environments, **kwargs):
    return [environment.get_reward() for environment in environments]

async def by_both(completions, environments, **kwargs):
    return [bool(c) * e.get_reward() for c, e in zip(completions, environments, strict=True)]
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of rewards that take environments; it is also imported in a process of its own."""
    (tmp_path / "mine.py").write_text(BY_ENVIRONMENT)
    return tmp_path / "mine.py"


def parts_of(parse, load_rows=lambda args, seed: (Dataset.from_list(ROWS), None), **settings):
    """Arguments, rewards and rows of a run with environments, as a run loads them."""
    args = parse({**SETTINGS, "environment_factory": CALCULATOR, **settings})
    assert args.problems == []
    (rewards, rows, *_), problems = load_parts(args, load_rows)
    return args, rewards, rows, problems


@pytest.mark.parametrize("name", ["by_environment", "by_both"])
def test_a_reward_may_take_the_environments(make, parse, mine, tmp_path, name):
    _, (reward, owned), _, problems = parts_of(parse, reward_funcs=[f"{mine}:{name}"])
    assert problems == [] and reward_name(reward) == name
    played = [reference_completion(row) for row in ROWS]
    assert score(reward, ROWS, played) == [1.0, 1.0], "outside a rollout its calls are played"
    assert score(reward, ROWS, ["", "<answer>20</answer>"]) == [0.0, 0.0]
    make(rewards=[reward, owned]).train()
    assert completions(tmp_path)[name] == ENVIRONMENT


def test_a_reward_that_takes_environments_needs_an_environment(parse, mine):
    funcs = [f"{mine}:by_both"]
    *_, problems = parts_of(parse, reward_funcs=funcs, environment_factory=None)
    assert problems == [
        "reward 'by_both' takes environments, and environment_factory names none: name one."
    ]


@pytest.mark.parametrize("weights", [[0.5, 2.0], [0.5]])
def test_weights_are_of_all_rewards_or_of_reward_funcs_as_in_trl(parse, weights):
    args, rewards, rows, problems = parts_of(
        parse, reward_funcs=["gsm8k_correctness"], reward_weights=weights
    )
    assert problems == [] and not any("weights" in each for each in check_settings(args, rewards))
    lines, _ = check_rows(args, rows.to_list(), [], rewards, reference_completion)
    assert [line.weight for line in lines] == [*weights, 1.0][:2]


class Asks:
    """An environment that brings its question."""

    kind = "shaping"

    def reset(self, **row):
        self.answers = 0
        return QUESTIONS[0]

    def get_reward(self):
        return 1.0


class Silent(Asks):
    def reset(self, **row):
        return None


def test_an_environment_may_make_the_prompt_of_empty_messages(make, parse, tmp_path):
    settings = {"environment_factory": f"{__file__}:Asks", "max_steps": 1, "reward_funcs": []}
    silent = {"prompt": [{"role": "user", "content": ""}], "task": "environment"}
    empty = Dataset.from_list([silent] * 4)
    args, rewards, rows, problems = parts_of(parse, lambda args, seed: (empty, None), **settings)
    assert problems == []
    _, problems = check_rows(args, rows.to_list(), [], rewards, lambda row: None)
    assert problems == [] and check_tool_use(args.training, rows.to_list(), rewards) == []
    trainer = make(
        rows=rows.to_list(), environment=load_environments(f"{__file__}:Asks"), rewards=rewards
    )
    trainer.train()
    table = completions(tmp_path)
    assert QUESTIONS[0] in str(table["prompt"][0]) and table["Asks"] == [1.0] * 8


def test_an_environment_without_a_question_is_refused(parse):
    args = parse({**SETTINGS, "environment_factory": f"{__file__}:Silent"})
    rows = [{"prompt": [{"role": "user", "content": ""}], "task": "environment"}]
    (problem,) = check_tool_use(args.training, rows, [])
    assert "row 0 asks nothing, and reset returned None" in problem


def undescribed(a):
    """Adds."""


class FailsToReset:
    def reset(self, answer, colour, **row): ...


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"tools": ["tests/test_environments.py:undescribed"]},
            "'undescribed' cannot be described to the model",
        ),
        (
            {"environment_factory": f"{__file__}:FailsToReset"},
            "'FailsToReset': reset fails on row 0: TypeError",
        ),
        ({"environment_factory": {"sums": CALCULATOR}}, "rows have the environment 'None'"),
        (
            {"tools": [f"{__file__}:multiply", f"{__file__}:multiply"]},
            "two tools are called multiply: a call would reach one of them alone",
        ),
    ],
)
def test_what_cannot_be_called_is_refused(parse, settings, words):
    args = parse({**SETTINGS, **settings})
    assert args.problems == []
    (problem,) = check_tool_use(args.training, ROWS, [])
    assert words in problem


def test_text_prompts_step_rewards_and_sharded_models_are_refused(parse, monkeypatch):
    args = parse({**SETTINGS, "environment_factory": CALCULATOR})
    rows = [{**row, "prompt": "2 + 3"} for row in ROWS]
    problems = check_tool_use(args.training, rows, [load_reward("equation_steps")])
    assert len(problems) == 2
    assert "plain text" in problems[0] and "step reward" in problems[1]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage, count in (("2", 0), ("3", 1)):
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", stage)
        assert len(check_tool_use(args.training, ROWS, [])) == count
