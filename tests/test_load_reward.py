"""Rewards by name, file or module: each form loads, and every mistake is refused with its remedy."""

import asyncio
import functools
import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from test_layout import REQUIRED
from trl.trainer.utils import get_callable_name, is_async_callable

from rewards import full_reward, load_reward, load_rewards, reward_columns, reward_kind, reward_name
from rewards.contract import prepare_reward, reward_max_error_rate
from rewards.format import XmlFormat
from rewards.registry import REGISTRY
from rewards.routing import route

MINE = """
import functools
def brevity(prompts, completions, limit=10, **kwargs): return [1.0 if len(c) <= limit else 0.0 for c in completions]
def at_most(prompts, completions, limit, **kwargs): return [float(len(c) <= limit) for c in completions]
def right(prompts, completions, answer, *, unit="", task, trainer_state=None, log_metric, **kwargs): return []
async def slow(prompts, completions, amount=1.0, **kwargs): return [amount] * len(completions)
async def slow_steps(completions, **kwargs): return []
def odd(completions, **kwargs): return []
right.kind, right.full, odd.kind, slow_steps.kind = "verifier", 1.0, "oddity", "step"
class Counter:
    def __init__(self, limit=5): self.limit = limit
    def __call__(self, prompts, completions, **kwargs): return [float(len(c) <= self.limit) for c in completions]
class Later(Counter):
    async def __call__(self, prompts, completions, **kwargs): return super().__call__(prompts, completions)
class not_a_reward: pass
counter, later, at_most_4 = Counter(4), Later(4), functools.partial(at_most, limit=4)
def make(limit): return Counter(limit)
def make_text(text): return text
def no_kwargs(prompts, completions): return []
def no_completions(prompts, **kwargs): return []
def by_position(prompts, completions, /, **kwargs): return []
not_callable = 5
"""
FULL = "<reasoning>r</reasoning><answer>18</answer>"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch) -> str:
    """The path of a file with rewards, that is also the module `my_rewards`."""
    (tmp_path / "my_rewards.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return str(tmp_path / "my_rewards.py")


def score(reward, *texts: str, **columns) -> list:
    return reward(prompts=[""] * len(texts), completions=list(texts), **columns)


def message(call, *args, **kwargs) -> str:
    """The message of a refused call."""
    with pytest.raises(ValueError) as refused:
        call(*args, **kwargs)
    return str(refused.value)


# Forms that load


@pytest.mark.parametrize(
    ("spec", "kwargs", "text", "expected"),
    [
        ("gsm8k_correctness", {}, FULL, 2.0),
        ("gsm8k_correctness", {"exact": 5.0}, FULL, 5.0),
        ("{mine}:brevity", {}, "short", 1.0),
        ("{mine}:brevity", {}, "a long completion", 0.0),
        ("{mine}:brevity", {"limit": 3}, "short", 0.0),
        ("my_rewards.py:brevity", {}, "short", 1.0),  # from the working directory
        ("my_rewards:brevity", {"limit": 3}, "short", 0.0),
        ("rewards.format:XmlFormat", {"per_tag": 0.1}, FULL, 0.4),
        ("rewards.format.XmlFormat", {"per_tag": 0.1}, FULL, 0.4),
        ("my_rewards.brevity", {"limit": 3}, "short", 0.0),
        ("{mine}:Counter", {}, "short", 1.0),
        ("{mine}:Counter", {"limit": 4}, "short", 0.0),
        ("{mine}:counter", {}, "short", 0.0),
        ("{mine}:at_most_4", {}, "short", 0.0),
        ("{mine}:at_most_4", {"limit": 5}, "short", 1.0),
        ("{mine}:make", {"limit": 4}, "short", 0.0),
        ("{mine}:make", {"limit": 5}, "short", 1.0),
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


def test_rewards_of_every_kind_load_in_the_order_named(mine):
    specs = ["xml_format", "equation_steps", f"{mine}:brevity", "gsm8k_correctness"]
    loaded = load_rewards(specs, {"equation_steps": {"max_steps": 3}}, {"equation_steps": ["sums"]})
    names = [reward_name(reward) for reward in loaded]
    assert names == ["xml_format", "equation_steps", "brevity", "gsm8k_correctness"]
    assert (reward_kind(loaded[1]), loaded[1].tasks, loaded[1].__wrapped__.max_steps) == (
        "step",
        ("sums",),
        3,
    )


def test_kwargs_reach_a_reward_by_specification_and_by_name(mine):
    by_spec = load_rewards(["xml_format", f"{mine}:brevity"], {f"{mine}:brevity": {"limit": 3}})
    by_name = load_rewards(
        ["xml_format", f"{mine}:brevity"], {"brevity": {"limit": 3}, "xml_format": {"per_tag": 1.0}}
    )
    assert [score(reward, "short") for reward in by_spec] == [[0.0], [0.0]]
    assert [score(reward, FULL[:11]) for reward in by_name] == [[1.0], [0.0]]


def test_two_files_of_one_name_do_not_collide(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            f"def in_{folder}(completions, **kwargs): return ['{folder}']"
        )
    loaded = load_rewards([f"{tmp_path}/a/mine.py:in_a", f"{tmp_path}/b/mine.py:in_b"])
    assert [score(reward, "") for reward in loaded] == [["a"], ["b"]]


# Declarations


def test_the_name_is_the_one_trl_logs(mine):
    loaded = [
        load_reward(name, **REQUIRED.get(name, {}))
        for name in (*REGISTRY, f"{mine}:brevity", f"{mine}:slow")
    ]
    loaded.append(functools.partial(loaded[0], prompts=[]))
    assert [reward_name(reward) for reward in loaded] == [
        get_callable_name(reward) for reward in loaded
    ]


def test_kind_and_full_amount_are_declared_or_unknown(mine):
    right, brevity = load_rewards([f"{mine}:right", f"{mine}:brevity"])
    assert (reward_kind(right), full_reward(right)) == ("verifier", 1.0)
    assert (reward_kind(brevity), full_reward(brevity)) == ("undeclared", None)
    assert reward_kind(functools.partial(XmlFormat(), prompts=[])) == "format"


def test_columns_are_the_named_parameters_that_neither_trl_nor_the_run_sets(mine):
    assert reward_columns(load_reward("xml_format")) == []
    assert reward_columns(load_reward("gsm8k_correctness")) == ["answer"]
    assert reward_columns(load_reward(f"{mine}:right")) == ["answer", "task"]
    for spec in (f"{mine}:at_most", "my_rewards:at_most"):
        assert reward_columns(load_reward(spec)) == ["limit"]
        assert reward_columns(load_reward(spec, limit=3)) == []
        assert score(load_reward(spec, limit=3), "abcd", "abc") == [0.0, 1.0]


def test_error_rate_and_preparation_are_those_of_the_wrapped_reward():
    def strict(completions, **kwargs):
        return [0.0] * len(completions)

    strict.max_error_rate, strict.prepare = (
        0.001,
        lambda completions, limit_s: f"{completions} in {limit_s:g} s",
    )
    for wrapped in (strict, functools.partial(strict, prompts=[]), route(strict, ("maths",))):
        assert reward_max_error_rate(wrapped) == 0.001
        assert prepare_reward(wrapped, 8, 2.5) == "8 in 2.5 s"
    assert (reward_max_error_rate(XmlFormat()), prepare_reward(XmlFormat(), 8, 2.5)) == (1.0, None)


# Processes and event loops


def test_a_reward_of_a_file_pickles_and_works_in_a_spawned_process(mine):
    reward = load_reward(f"{mine}:brevity", limit=3)
    copy = pickle.loads(pickle.dumps(reward))
    assert (reward_name(copy), score(copy, "abcd", "abc")) == ("brevity", [0.0, 1.0])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        scores = pool.apply_async(
            reward, (), {"prompts": ["", ""], "completions": ["abcd", "abc"]}
        ).get(timeout=60)
    assert scores == [0.0, 1.0]


def test_an_async_reward_of_a_file_is_seen_as_one_by_trl(mine):
    slow = load_reward(f"{mine}:slow", amount=3.0)
    assert is_async_callable(slow)
    assert not is_async_callable(load_reward(f"{mine}:brevity"))
    assert asyncio.run(score(slow, "a", "b")) == [3.0, 3.0]
    assert is_async_callable(pickle.loads(pickle.dumps(slow)))
    for spec, kwargs in (
        (f"{mine}:later", {}),
        (f"{mine}:Later", {"limit": 4}),
        ("my_rewards.later", {}),
    ):
        assert is_async_callable(load_reward(spec, **kwargs))
        assert asyncio.run(score(load_reward(spec, **kwargs), "abcd", "abcde")) == [1.0, 0.0]


# Mistakes

TRL_NEEDS = "TRL needs (prompts, completions, <dataset columns>, **kwargs)"


@pytest.mark.parametrize(
    ("spec", "kwargs", "parts"),
    [
        ("gsm8k_corectness", {}, ["unknown reward 'gsm8k_corectness'", *REGISTRY]),
        ("{mine}", {}, ["path/to/file.py:function"]),
        ("nowhere.py:brevity", {}, [f"no file {Path('nowhere.py').resolve()}"]),
        ("no_such_package:f", {}, ["cannot import 'no_such_package'"]),
        ("{mine}:gone", {}, ["has no function or class 'gone'"]),
        ("{mine}:not_callable", {}, ["has no function or class 'not_callable'"]),
        ("{mine}:no_kwargs", {}, [TRL_NEEDS]),
        ("{mine}:no_completions", {}, [TRL_NEEDS]),
        ("{mine}:by_position", {}, [TRL_NEEDS]),
        ("{mine}:not_a_reward", {}, ["not_a_reward' makes <", "cannot be called; TRL needs"]),
        (
            "{mine}:make",
            {},
            ["(limit)", "a function that returns a reward takes its parameters from reward_kwargs"],
        ),
        ("{mine}:make", {"limt": 3}, ["has no parameter limt", "(limit)"]),
        ("{mine}:make_text", {"text": "high"}, ["makes 'high', which cannot be called"]),
        (
            "trl.rewards.acuracy_reward",
            {},
            ["trl.rewards has no function or class 'acuracy_reward'"],
        ),
        (
            "org/model",
            {"limit": 3},
            ["'org/model' is a reward model; it has no parameters (limit)"],
        ),
        ("{mine}:odd", {}, ["has kind 'oddity'; allowed: verifier, format, shaping, control"]),
        ("{mine}:slow_steps", {}, ["is async; a step reward is a plain function"]),
        ("gsm8k_correctness", {"exakt": 2.0}, ["exakt", "exact: float = 2.0"]),
        ("{mine}:brevity", {"limt": 3}, ["has no parameter limt", "limit=10"]),
        ("my_rewards:brevity", {"limt": 3}, ["has no parameter limt", "limit=10"]),
        ("{mine}:brevity", {"completions": []}, ["has no parameter completions"]),  # TRL sets it
    ],
)
def test_a_reward_that_cannot_be_loaded_is_refused_with_its_remedy(mine, spec, kwargs, parts):
    text = message(load_reward, spec.format(mine=mine), **kwargs)
    assert [part for part in parts if part not in text] == []


FAULTS = {
    "import no_such_package": "ModuleNotFoundError: No module named 'no_such_package'",
    "def f(:": "SyntaxError",
    "1 / 0": "ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize(("source", "error"), FAULTS.items())
def test_a_file_that_fails_to_import_is_refused_with_its_error(tmp_path, source, error):
    (tmp_path / "broken.py").write_text(source)
    assert f"broken.py fails to import: {error}" in message(load_reward, f"{tmp_path}/broken.py:f")


def test_a_file_that_hides_the_package_is_named(tmp_path):
    (tmp_path / "rewards.py").write_text("def mine(completions, **kwargs): ...")
    (tmp_path / "train.py").write_text("from recipes.common.run import start")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], env=environment, capture_output=True, text=True
    )
    assert (
        f"{tmp_path}/rewards.py hides the package `rewards` of grpo-recipes: rename it"
        in done.stderr
    )


def test_two_rewards_of_one_name_are_refused(mine):
    (Path(mine).parent / "other.py").write_text(
        "def brevity(completions, **kwargs):\n    return []\n"
    )
    text = message(load_rewards, [f"{mine}:brevity", f"{Path(mine).parent}/other.py:brevity"])
    assert (
        text
        == "two rewards are called 'brevity': what is logged of them would be one. Rename or remove one."
    )
    lines = message(load_rewards, ["xml_format", "gsm8k_correctness"] * 2).splitlines()
    assert [line.split("'")[1] for line in lines] == ["gsm8k_correctness", "xml_format"]


def test_a_run_needs_a_reward_of_whole_completions():
    remedy = "name at least one reward of whole completions, if only of weight 0."
    assert (
        message(load_rewards, [])
        == message(load_rewards, None)
        == f"reward_funcs is empty; {remedy}"
    )
    steps = "reward_funcs names only step rewards (equation_steps)"
    assert message(load_rewards, ["equation_steps"]) == f"{steps}; {remedy}"


def test_a_single_reward_needs_no_list():
    assert [reward_name(reward) for reward in load_rewards("xml_format")] == ["xml_format"]


def test_a_reward_model_is_named_as_trl_logs_it_and_scores_every_row(tmp_path):
    folder = tmp_path / "scorer"
    folder.mkdir()
    assert load_rewards(["org/model", f"{folder}/"]) == ["org/model", str(folder)]
    assert [reward_name(name) for name in ("org/model", str(folder))] == ["model", "scorer"]
    assert (reward_kind("org/model"), reward_columns("org/model"), full_reward("org/model")) == (
        "model",
        [],
        None,
    )
    text = message(load_rewards, ["org/model"], None, {"model": ["sums"]})
    assert text == "reward_tasks of 'org/model': a reward model scores every row; leave it out."


def test_all_problems_are_reported_at_once(mine):
    specs = ["nothing", f"{mine}:gone", "xml_format", "xml_format"]
    lines = message(load_rewards, specs, {"absent": {}, "xml_format": 5}).splitlines()
    parts = ["'xml_format' must be a mapping", "'nothing'", "'gone'", "two rewards"]
    assert [part for part, line in zip(parts, lines[:4], strict=True) if part not in line] == []
    assert lines[4:] == [
        f"reward_kwargs names 'absent', which is not in reward_funcs ({', '.join(specs)})."
    ]
