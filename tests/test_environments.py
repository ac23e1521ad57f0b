"""Tools and environments: TRL's rollout and ours are one, their rewards are guarded, and only the model is scored."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
import trl
from datasets import Dataset
from support.launching import ROOT
from support.paid_by_place import TINY, advantages_of, completions, generations
from test_preflight import SETTINGS
from transformers import AutoTokenizer

from recipes.calculator.train import metric, reference_completion, to_row
from recipes.common.before.recipe import load_parts
from recipes.common.before.tool_use import check_tool_use
from recipes.common.during.environments import environment_rewards, load_environments
from recipes.common.during.rollout import check_tool_template, opening_of, read_calls, turn_kinds
from recipes.common.evaluation.evaluate import evaluate_in_training
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from rewards import load_reward
from rewards.audit.call import score

pytestmark = pytest.mark.usefixtures("one_thread")

CALCULATOR = "recipes/calculator/calculator.py:Calculator"
ROWS = [to_row(2, [("+", 3)]), to_row(4, [("*", 5)])]
ANSWERS = {row["answer"]: row for row in ROWS}


def call(expression: str, name: str = "calculate") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{"expression": "{expression}"}}}}</tool_call>'


# By question and place in its group: what the model writes at its first turn. Its second repeats the tool's answer.
FIRST = [call("2 + 3"), call("9 * 9"), call("7", "unknown"), "<answer>5</answer>"]
FIRST += [call("4 * 5"), call("4 *"), "<tool_call>{", "no"]
KINDS = [["call", "text"], ["call", "text"], ["failed call", "text"], ["text"]]
KINDS += [["call", "text"], ["failed call", "text"], ["broken call"], ["text"]]
ENVIRONMENT = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
CORRECT = [2.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The recipe's chat template with the end token of the tiny model."""
    file = tmp_path_factory.mktemp("template") / "template.jinja"
    text = Path(ROOT, "recipes/calculator/chat_template.jinja").read_text()
    file.write_text(text.replace("<|im_end|>", "<|end|>"))
    return str(file)


def scripted(kind: type[trl.GRPOTrainer]) -> type[trl.GRPOTrainer]:
    """A trainer whose model writes FIRST, and then the last answer of a tool in a tag."""

    class Scripted(kind):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            texts = [self._tokenizer.decode(ids) for ids in prompt_ids]
            replies = FIRST if "<|im_start|>tool" not in "".join(texts) else [answered(text) for text in texts]
            return [self._tokenizer(reply + "<|end|>")["input_ids"] for reply in replies[: len(texts)]], None

    return Scripted


def answered(text: str) -> str:
    return f"<answer>{text.rpartition('<|im_start|>tool')[2].partition('<|end|>')[0].strip()}</answer>"


@pytest.fixture
def make(model: Path, tmp_path: Path, template: str):
    """Make a trainer with the calculator; a keyword is a field of our GRPOConfig or of the trainer."""

    def made(
        kind=GRPOTrainer, rewards=("gsm8k_correctness",), folder=tmp_path, rows=ROWS, environment=None, **settings
    ):
        environment = environment or load_environments(CALCULATOR)
        fields = {**TINY, "max_completion_length": 400, **settings}
        args = GRPOConfig(output_dir=str(folder), **fields)
        rewards = [load_reward(reward) if isinstance(reward, str) else reward for reward in rewards]
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", truncation_side="left")
        tokenizer.chat_template = Path(template).read_text()
        read_calls(tokenizer)
        rows, given = Dataset.from_list(rows), {"environment_factory": environment, "processing_class": tokenizer}
        return scripted(kind)(model=str(model), reward_funcs=rewards, args=args, train_dataset=rows, **given)

    return made


# Training


def test_the_reward_of_an_environment_trains_as_in_trl(make, tmp_path):
    trained = []
    for kind in (GRPOTrainer, trl.GRPOTrainer):
        folder = tmp_path / kind.__module__
        trainer = make(kind, folder=folder, max_steps=2)
        trainer.train()
        table = completions(folder, 2)
        trained.append(({name: table[name] for name in ("Calculator", "advantage")}, trainer.model.state_dict()))
    (ours, our_weights), (theirs, their_weights) = trained
    assert ours == theirs
    assert ours["Calculator"] == ENVIRONMENT
    assert all(torch.equal(our_weights[name], their_weights[name]) for name in their_weights)


def test_rewards_turns_and_advantages_of_a_batch(make, tmp_path):
    trainer = make(reward_weights=[1.0, 0.5])
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["gsm8k_correctness"], table["Calculator"]) == (CORRECT, ENVIRONMENT)
    total = [a + 0.5 * b for a, b in zip(CORRECT, ENVIRONMENT, strict=True)]
    assert table["advantage"] == pytest.approx(advantages_of(total), abs=1e-5)
    assert logged["errors/Calculator"] == 0.0
    kinds = [kind for turns in KINDS for kind in turns]
    shares = {f"turns/{kind.replace(' ', '_')}": kinds.count(kind) / len(kinds) for kind in set(kinds)}
    assert {name: logged[name] for name in shares} == pytest.approx(shares)


class Breaks:
    """An environment whose reward fails where the answer is 5."""

    kind, full = "verifier", 1.0

    def reset(self, answer, **row):
        self.answer = answer

    def get_reward(self):
        return 1.0 / (self.answer != "5")


def test_a_get_reward_that_raises_is_an_error_of_its_rows(make, tmp_path):
    trainer = make(environment=Breaks)
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert logged["errors/Breaks"] == 0.5
    assert table["Breaks"] == [None] * 4 + [1.0] * 4
    assert table["gsm8k_correctness"][:4] == [None] * 4, "a row that a reward failed on is void"


def test_the_reward_of_an_environment_opens_a_gate(make, tmp_path):
    def bonus(completions, **kwargs):
        return [1.0] * len(completions)

    make(rewards=[bonus], reward_gates={"bonus": "Calculator"}).train()
    assert completions(tmp_path)["bonus"] == [1.0 if amount else None for amount in ENVIRONMENT]


class Awaited(Breaks):
    async def get_reward(self):
        await asyncio.sleep(0)
        return 0.5


def test_environments_by_name_and_an_async_reward(make, tmp_path):
    named = {"one": Breaks, "two": Awaited}
    rows = [{**ROWS[0], "environment": "two"}, {**ROWS[1], "environment": "one"}]
    trainer = make(environment=named, rows=rows)
    trainer.train()
    (logged,), table = generations(trainer), completions(tmp_path)
    assert (table["Awaited"], table["Breaks"]) == ([0.5] * 4 + [None] * 4, [None] * 4 + [1.0] * 4)
    assert (logged["unparsed/Breaks"], logged["unparsed/Awaited"]) == (0.0, 0.0), "another's rows do not count"


def test_the_text_of_a_tool_earns_nothing():
    messages = [{"role": "tool", "name": "t", "content": "<answer>18</answer>"}, {"role": "assistant", "content": "no"}]
    row = {"prompt": [{"role": "user", "content": "?"}], "answer": "18"}
    assert score(load_reward("gsm8k_correctness"), [row], [messages]) == [0.0]
    messages[0]["role"] = "assistant"
    assert score(load_reward("gsm8k_correctness"), [row], [messages]) == [2.0]


# Evaluation


def test_evaluation_goes_through_the_rollout_of_training_and_leaves_no_trace(make):
    trainer = make()
    torch.manual_seed(3)
    state, rows = torch.get_rng_state(), [dict(row) for row in ROWS for _ in range(4)]
    evaluated = evaluate_in_training(trainer, rows, metric, samples=1, title="before")
    assert [row["turns"] for row in evaluated] == KINDS
    assert [row["rewards"]["Calculator"] for row in evaluated] == ENVIRONMENT
    assert [row["rewards"]["gsm8k_correctness"] for row in evaluated] == CORRECT
    assert [row["metrics"]["strict"] for row in evaluated] == [amount > 0 for amount in CORRECT]
    assert [message["role"] for message in evaluated[0]["messages"]] == ["assistant", "tool", "assistant"]
    assert [row["samples"][0]["strict"] for row in evaluated] == [amount > 0 for amount in CORRECT]
    json.dumps(evaluated)
    assert torch.equal(torch.get_rng_state(), state)
    assert not trainer._metrics["train"] and not trainer._metrics["eval"] and not trainer._logs["completion"]
    assert trainer.state.num_input_tokens_seen == 0 and "_generate" not in vars(trainer)


def test_a_greedy_rollout_without_calls_is_what_generate_writes(model, make, template):
    from recipes.common.evaluation.generate import generate, generation_config

    trainer = make()
    own = trl.GRPOTrainer._generate_single_turn.__get__(trainer)
    trainer._generate_single_turn = own
    trainer.model.eval()
    greedy = generation_config(trainer.model, trainer.processing_class, 20, {})
    rolled = trainer.roll_out([dict(row) for row in ROWS], greedy)
    tools = [trainer._env_tools[None]]
    rows = generate(trainer.model, trainer.processing_class, ROWS, 20, {"tools": tools[0]})
    assert [one.token_ids for one in rolled] == [one.token_ids for one in rows]
    assert [one.truncated for one in rolled] == [one.truncated for one in rows]


def test_what_a_tool_answers_is_not_counted_as_the_models_tokens(make):
    trainer = make()
    (first, *_) = evaluate_in_training(trainer, [dict(ROWS[0])], metric, samples=0, title="before")
    written = [FIRST[0] + "<|end|>", "<answer>5</answer><|end|>"]
    assert first["tokens"] == sum(len(trainer._tokenizer(text)["input_ids"]) for text in written)


# The pieces


@pytest.mark.parametrize(
    ("messages", "kinds"),
    [
        ([{"role": "assistant", "content": "4"}], ["text"]),
        ([{"role": "assistant", "content": "<tool_call>{"}], ["broken call"]),
        ([{"role": "assistant", "content": "", "tool_calls": [{}]}], ["call without room"]),
        (
            [{"role": "assistant", "content": "", "tool_calls": [{}]}, {"role": "tool", "content": "{'error': 'x'}"}],
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


def test_the_reward_of_an_environment_is_one_of_the_run(parse, tmp_path):
    args = parse({**SETTINGS, "reward_funcs": [], "environment_factory": CALCULATOR})
    (rewards, *_), problems = load_parts(args, None)
    assert ([reward.__name__ for reward in rewards], problems) == (["Calculator"], [])


def test_a_call_that_the_template_writes_is_read_again(model, template):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tools = [load_environments(CALCULATOR)().calculate]
    (problem,) = check_tool_template(tokenizer, tools)
    assert "writes no tool calls" in problem and "chat_template_path" in problem
    tokenizer.chat_template = Path(template).read_text()
    assert check_tool_template(tokenizer, tools) == []
    assert opening_of(tokenizer) == "<tool_call>"
    tokenizer.chat_template = tokenizer.chat_template.replace("<tool_call>' + {", "<call>' + {")
    (problem,) = check_tool_template(tokenizer, tools)
    assert "do not go together" in problem and "response_template" in problem


def undescribed(a):
    """Adds."""


class FailsToReset:
    def reset(self, answer, colour, **row): ...


class NoReset: ...


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tools": ["recipes/calculator/calculator.py:valu_of"]}, "Did you mean 'value_of'?"),
        ({"tools": ["calculate"]}, "tool 'calculate': give path/to/file.py:name"),
        ({"environment_factory": "recipes/calculator/none.py:Calculator"}, "environment_factory 'recipes/calculator"),
        ({"environment_factory": "recipes/calculator/calculator.py:Calculater"}, "Did you mean 'Calculator'?"),
        ({"tools": ["tests/test_environments.py:undescribed"]}, "'undescribed' cannot be described to the model"),
        ({"environment_factory": f"{__file__}:FailsToReset"}, "'FailsToReset': reset fails on row 0: TypeError"),
        ({"environment_factory": f"{__file__}:NoReset"}, "'NoReset' has no method `reset`"),
        ({"environment_factory": {"sums": CALCULATOR}}, "rows have the environment 'None'"),
        ({"chat_template_path": "no.jinja"}, "chat_template_path: there is no file no.jinja"),
    ],
)
def test_what_cannot_be_called_is_refused(parse, settings, words):
    args = parse({**SETTINGS, **settings})
    assert args.problems == []
    (problem,) = check_tool_use(args.training, ROWS, [])
    assert words in problem


def test_an_environment_with_the_columns_it_needs_passes(parse):
    args = parse({**SETTINGS, "environment_factory": CALCULATOR})
    assert check_tool_use(args.training, ROWS, []) == []


def test_text_prompts_step_rewards_and_sharded_models_are_refused(parse, monkeypatch):
    args = parse({**SETTINGS, "environment_factory": CALCULATOR})
    rows = [{**row, "prompt": "2 + 3"} for row in ROWS]
    problems = check_tool_use(args.training, rows, [load_reward("equation_steps")])
    assert ["plain text" in problems[0], "step reward" in problems[1], len(problems)] == [True, True, 2]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage, count in (("2", 0), ("3", 1)):
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", stage)
        assert len(check_tool_use(args.training, ROWS, [])) == count
