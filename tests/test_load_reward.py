"""Rewards by name, file or module: each form loads, every mistake is refused with its remedy."""

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from rewards import full_reward, load_reward, load_rewards, reward_columns, reward_kind, reward_name
from rewards.format import XmlFormat
from rewards.registry import REGISTRY

MINE = """
import functools
def short(prompts, completions, limit=10, **kwargs): return [float(len(c) <= limit) for c in completions]
def at_most(prompts, completions, limit, **kwargs): return [float(len(c) <= limit) for c in completions]
def right(prompts, completions, answer, *, unit="", task, trainer_state=None, log_metric, **kwargs): return []
async def slow(prompts, completions, amount=1.0, **kwargs): return [amount] * len(completions)
async def slow_steps(completions, **kwargs): return []
right.kind, right.full, slow_steps.kind = "verifier", 1.0, "step"
class Counter:
    def __init__(self, limit=5): self.limit = limit
    def __call__(self, prompts, completions, **kwargs): return [float(len(c) <= self.limit) for c in completions]
class Later(Counter):
    async def __call__(self, prompts, completions, **kwargs): return super().__call__(prompts, completions)
at_most_4 = functools.partial(at_most, limit=4)
def make(limit): return Counter(limit)
def by_position(prompts, completions, /, **kwargs): return []
"""  # noqa: E501
FULL = "<reasoning>r</reasoning><answer>18</answer>"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch) -> str:
    """The path of a file with rewards, that is also the module `my_rewards`."""
    (tmp_path / "my_rewards.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return str(tmp_path / "my_rewards.py")


def score(reward, *texts: str, **columns) -> list:
    """As TRL calls it."""
    scores = reward(prompts=[""] * len(texts), completions=list(texts), **columns)
    return asyncio.run(scores) if is_async_callable(reward) else scores


def message(call, *args, **kwargs) -> str:
    """The message of a refused call."""
    with pytest.raises(ValueError) as refused:
        call(*args, **kwargs)
    return str(refused.value)


# Forms that load


@pytest.mark.parametrize(
    ("spec", "kwargs", "text", "expected"),
    [
        ("gsm8k_correctness", {"exact": 5.0}, FULL, 5.0),  # of the registry
        ("{mine}:short", {"limit": 3}, "short", 0.0),
        ("my_rewards.py:short", {}, "short", 1.0),  # from the working directory
        ("my_rewards:short", {"limit": 3}, "short", 0.0),
        ("my_rewards.short", {"limit": 3}, "short", 0.0),
        ("rewards.format.XmlFormat", {"per_tag": 0.1}, FULL, 0.4),
        ("{mine}:Counter", {"limit": 4}, "short", 0.0),  # a class
        ("{mine}:at_most_4", {"limit": 5}, "short", 1.0),  # a partial
        ("{mine}:make", {"limit": 5}, "short", 1.0),  # a function that returns one
        ("{mine}:slow", {"amount": 3.0}, "short", 3.0),  # async: function, instance, class
        ("{mine}:Later", {"limit": 5}, "short", 1.0),
        (
            "trl.rewards.get_repetition_penalty_reward",
            {"ngram_size": 1, "max_penalty": -2.0},
            "short",
            -1.5,
        ),
    ],
)
def test_a_reward_loads_with_its_parameters(mine, monkeypatch, spec, kwargs, text, expected):
    monkeypatch.chdir(Path(mine).parent)
    reward = load_reward(spec.format(mine=mine), **kwargs)
    assert score(reward, text, answer=["18"], completion_ids=[[5, 5, 5, 5]]) == [expected]
    assert get_callable_name(reward) == reward_name(reward)


def test_kwargs_reach_a_reward_by_specification_and_by_name(mine):
    for key in (f"{mine}:short", "short"):
        xml, short = load_rewards(["xml_format", f"{mine}:short"], {key: {"limit": 3}})
        assert (score(xml, FULL[:11]), score(short, "long")) == ([0.2], [0.0])


def test_two_files_of_one_name_do_not_collide(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        source = f"def in_{folder}(completions, **kwargs): return ['{folder}']"
        (tmp_path / folder / "mine.py").write_text(source)
    loaded = load_rewards([f"{tmp_path}/a/mine.py:in_a", f"{tmp_path}/b/mine.py:in_b"])
    assert [score(reward, "") for reward in loaded] == [["a"], ["b"]]


def test_a_reward_model_is_named_as_trl_logs_it_and_scores_every_row(tmp_path):
    folder = tmp_path / "scorer"
    folder.mkdir()
    rewards = load_rewards(["org/model", f"{folder}/"])
    assert [reward.call for reward in rewards] == ["org/model", str(folder)]
    assert [reward_name(name) for name in ("org/model", str(folder))] == ["model", "scorer"]
    assert (reward_kind("org/model"), reward_columns("org/model")) == ("model", [])
    text = message(load_rewards, ["org/model"], None, {"model": ["sums"]})
    assert text == "reward_tasks of 'org/model': a reward model scores every row; leave it out."


# Declarations


def test_kind_and_full_amount_are_declared_or_unknown(mine):
    right, short = load_rewards([f"{mine}:right", f"{mine}:short"])
    assert (reward_kind(right), full_reward(right)) == ("verifier", 1.0)
    assert (reward_kind(short), full_reward(short)) == ("undeclared", None)
    assert reward_kind(functools.partial(XmlFormat(), prompts=[])) == "format"


def test_columns_are_the_named_parameters_that_neither_trl_nor_the_run_sets(mine):
    assert reward_columns(load_reward("xml_format")) == []
    assert reward_columns(load_reward("gsm8k_correctness")) == ["answer"]
    assert reward_columns(load_reward(f"{mine}:right")) == ["answer", "task"]
    assert reward_columns(load_reward(f"{mine}:at_most")) == ["limit"]
    assert reward_columns(load_reward(f"{mine}:at_most", limit=3)) == []


# Mistakes

TRL_NEEDS = "TRL needs (prompts, completions, <dataset columns>, **kwargs)"
FACTORY = "a function that returns a reward takes its parameters from reward_kwargs"


@pytest.mark.parametrize(
    ("spec", "kwargs", "parts"),
    [
        ("gsm8k_corectness", {}, ["unknown reward 'gsm8k_corectness'", *REGISTRY]),
        ("{mine}", {}, ["path/to/file.py:function"]),
        ("nowhere.py:short", {}, [f"no file {Path('nowhere.py').resolve()}"]),
        ("no_such_package:f", {}, ["cannot import 'no_such_package'"]),
        ("{mine}:shrt", {}, ["has no function or class 'shrt'. Did you mean 'short'?"]),
        ("trl.rewards.acuracy_reward", {}, ["trl.rewards has no function or class"]),
        ("{mine}:by_position", {}, [TRL_NEEDS]),
        ("{mine}:make", {}, ["(limit)", FACTORY]),
        ("{mine}:make", {"limt": 3}, ["has no parameter limt", "(limit)"]),
        (
            "org/model",
            {"limit": 3},
            ["'org/model' is a reward model; it has no parameters (limit)"],
        ),
        ("{mine}:slow_steps", {}, ["is async; a step reward is a plain function"]),
        ("gsm8k_correctness", {"exakt": 2.0}, ["exakt", "exact: float = 2.0"]),
        ("{mine}:short", {"limt": 3}, ["has no parameter limt", "limit=10"]),
        ("{mine}:short", {"completions": []}, ["has no parameter completions"]),  # TRL sets it
    ],
)
def test_a_reward_that_cannot_be_loaded_is_refused_with_its_remedy(mine, spec, kwargs, parts):
    text = message(load_reward, spec.format(mine=mine), **kwargs)
    assert [part for part in parts if part not in text] == []


def test_a_file_that_hides_the_package_is_named(tmp_path):
    (tmp_path / "rewards.py").write_text("def mine(completions, **kwargs): ...")
    (tmp_path / "train.py").write_text("from recipes.common.run import start")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, tmp_path / "train.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    hidden = f"{tmp_path}/rewards.py hides the package `rewards` of grpo-recipes: rename it"
    assert hidden in done.stderr


def test_all_problems_of_the_rewards_of_a_run_are_reported_at_once(mine):
    specs = ["nothing", f"{mine}:gone", "xml_format", "xml_format"]
    lines = message(
        load_rewards, specs, {"absent": {}, "xml_format": 5}, {"xml_format": 5, "gon": ["a"]}
    ).splitlines()
    named = f"which is not in reward_funcs ({', '.join(specs)})."
    parts = [
        "unknown reward 'nothing'",
        "has no function or class 'gone'",
        "reward_kwargs of 'xml_format' must be a mapping of names to values, not 5.",
        "reward_tasks of 'xml_format' must be a list of task names, not 5.",
        f"reward_kwargs names 'absent', {named}",
        f"reward_tasks names 'gon', {named}",
    ]
    assert [part for part, line in zip(parts, lines, strict=True) if part not in line] == []


def test_two_rewards_of_one_name_are_refused(mine):
    (Path(mine).parent / "other.py").write_text("def short(completions, **kwargs): return []\n")
    text = message(load_rewards, [f"{mine}:short", f"{Path(mine).parent}/other.py:short"])
    assert text.startswith("two rewards are called 'short': what is logged of them would be one.")


def test_a_run_needs_a_reward_of_whole_completions():
    remedy = "name at least one reward of whole completions, if only of weight 0."
    empty = f"reward_funcs is empty; {remedy}"
    assert message(load_rewards, []) == message(load_rewards, None) == empty
    steps = "reward_funcs names only step rewards (equation_steps)"
    assert message(load_rewards, ["equation_steps"]) == f"{steps}; {remedy}"
