"""Rewards by name, file, module or model, and by task: each form loads, each mistake is refused."""

import asyncio
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from rewards import load_reward, load_rewards, reward_of
from rewards.contract import route
from rewards.format import XmlFormat
from rewards.loading import REGISTRY

MINE = """
import functools
from rewards import for_tasks

def short(prompts, completions, limit=10, **kwargs):
    return [float(len(c) <= limit) for c in completions]

def right(prompts, completions, answer, *, unit="", task, trainer_state=None, **kwargs):
    return []

async def slow(prompts, completions, amount=1.0, **kwargs):
    return [amount] * len(completions)

class Counter:
    def __init__(self, limit=5):
        self.limit = limit

    def __call__(self, prompts, completions, **kwargs):
        return short(prompts, completions, self.limit)

class Later(Counter):
    async def __call__(self, prompts, completions, **kwargs):
        return super().__call__(prompts, completions)

def make(limit):
    return Counter(limit)

def make_usual():
    return Counter()

def by_position(prompts, completions, /, **kwargs): ...
def of_a_kind(completions, **kwargs): ...
def wordy(completions, **kwargs): ...
def endless(completions, **kwargs): ...
async def slow_steps(completions, **kwargs): ...

@for_tasks("math", "words")
def lengths(prompts, completions, amount=1.0, **kwargs):
    return [amount * len(c) for c in completions]

short_of_4 = functools.partial(short, limit=4)
right.kind, right.full, of_a_kind.kind, slow_steps.kind = "verifier", 1.0, "verifyer", "step"
wordy.full, endless.full = "1.0", float("inf")
"""
FULL = "<reasoning>r</reasoning><answer>18</answer>"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch) -> str:
    """The path of a file with rewards, that is also the module `my_rewards`."""
    (tmp_path / "my_rewards.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    return str(tmp_path / "my_rewards.py")


def call(reward, **arguments) -> list:
    """As TRL calls it."""
    return asyncio.run(reward(**arguments)) if is_async_callable(reward) else reward(**arguments)


def message(load, *args, **kwargs) -> str:
    """The message of a refused call."""
    with pytest.raises(ValueError) as refused:
        load(*args, **kwargs)
    return str(refused.value)


# Forms that load

PENALTY = "trl.rewards.get_repetition_penalty_reward"


@pytest.mark.parametrize(
    ("spec", "kwargs", "text", "expected"),
    [
        ("gsm8k_correctness", {"exact": 5.0}, FULL, 5.0),  # of the registry
        ("{mine}:short", {"limit": 3}, "short", 0.0),  # a file
        ("my_rewards.short", {"limit": 3}, "short", 0.0),  # a module, there or installed
        ("{mine}:Counter", {"limit": 4}, "short", 0.0),  # a class with its parameters
        ("{mine}:Later", {"limit": 5}, "short", 1.0),  # whose instances are async
        ("{mine}:slow", {"amount": 3.0}, "short", 3.0),  # async def
        ("{mine}:short_of_4", {"limit": 5}, "short", 1.0),  # a partial
        ("{mine}:make", {"limit": 5}, "short", 1.0),  # a function that returns one, as TRL's do
        ("{mine}:make_usual", {}, "short", 1.0),  # which takes no parameter
        (PENALTY, {"ngram_size": 1, "max_penalty": -2.0}, "short", -1.5),
    ],
)
def test_a_reward_loads_with_its_parameters(mine, spec, kwargs, text, expected):
    reward = load_reward(spec.format(mine=mine), **kwargs)
    columns = {"answer": ["18"], "completion_ids": [[5, 5, 5, 5]], "limit": [10]}  # parameters win
    assert call(reward, prompts=[""], completions=[text], **columns) == [expected]
    assert get_callable_name(reward) == reward.name
    assert is_async_callable(reward) is reward.is_async


@pytest.mark.parametrize("key", ["{mine}:lengths", "lengths"])
def test_settings_reach_a_reward_by_specification_and_by_name(mine, key):
    key, specs = key.format(mine=mine), ["xml_format", f"{mine}:lengths"]
    xml, lengths = load_rewards(specs, {key: {"amount": 3.0}})
    assert (xml.tasks, lengths.tasks) == (None, ("math", "words"))  # as declared
    xml, lengths = load_rewards(specs, {key: {"amount": 3.0}}, {key: "code"})
    batch = {"prompts": ["", ""], "completions": [FULL[:11], "12"], "task": ["math", "code"]}
    assert (xml(**batch), lengths(**batch)) == ([0.2, 0.0], [None, 6.0])


def test_two_files_of_one_name_do_not_collide(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        source = f"def in_{folder}(completions, **kwargs): return ['{folder}']"
        (tmp_path / folder / "mine.py").write_text(source)
    loaded = load_rewards([f"{tmp_path}/a/mine.py:in_a", f"{tmp_path}/b/mine.py:in_b"])
    assert [reward(completions=[""]) for reward in loaded] == [["a"], ["b"]]
    assert load_reward(f"{tmp_path}/a/mine.py:in_a").call is loaded[0].call  # imported once


def test_the_file_of_a_reward_imports_from_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("amounts.py").write_text("amount = 3.0")
    Path("mine.py").write_text("import amounts\ndef f(completions, **_): return [amounts.amount]")
    assert load_reward("mine.py:f")(completions=[""]) == [3.0]


def test_a_reward_model_is_named_as_trl_logs_it_and_scores_every_row(tmp_path):
    folder = tmp_path / "scorer"
    folder.mkdir()
    hub, local = load_rewards(["org/model", f"{folder}/"])
    assert (hub.call, hub.name, hub.kind) == ("org/model", "model", "model")
    assert (local.call, local.name, local.kind) == (str(folder), "scorer", "model")
    text = message(load_rewards, ["org/model"], None, {"model": ["sums"]})
    assert text == "reward_tasks of 'org/model': a reward model scores every row."


# The record


def test_a_record_has_what_the_callable_declares(mine):
    right = load_reward(f"{mine}:right")
    assert (right.kind, right.full, right.columns) == ("verifier", 1.0, ("answer", "task"))
    short = load_reward(f"{mine}:short")
    assert (short.kind, short.full, short.tasks, short.columns) == ("undeclared", None, None, ())
    assert (short.farmable, short.prepare) == (None, None)
    assert reward_of(functools.partial(XmlFormat(), prompts=[])).kind == "format"


# Mistakes

TRL_NEEDS = "TRL needs (prompts, completions, <dataset columns>, **kwargs)"
FACTORY = "a function that returns a reward takes its parameters from reward_kwargs"


@pytest.mark.parametrize(
    ("spec", "kwargs", "parts"),
    [
        ("gsm8k_corectness", {}, ["unknown reward 'gsm8k_corectness'", *REGISTRY]),
        ("nowhere.py:short", {}, ["no file ", "nowhere.py"]),
        ("no_such_package.f", {}, ["cannot import 'no_such_package'"]),
        ("{mine}:shrt", {}, ["has no function or class 'shrt'. Did you mean 'short'?"]),
        ("{mine}:by_position", {}, ["(my_rewards.py, line ", TRL_NEEDS]),
        ("{mine}:make", {}, ["(limit)", FACTORY]),
        ("{mine}:of_a_kind", {}, ["has kind 'verifyer'; allowed: verifier, format"]),
        ("{mine}:wordy", {}, ["allowed: a number, the score of a right answer"]),
        ("{mine}:endless", {}, ["allowed: a number, the score of a right answer"]),
        ("org/model", {"limit": 3}, ["is a reward model; it has no parameters (limit)"]),
        ("{mine}:slow_steps", {}, ["is async; a step reward is a plain function"]),
        ("length", {}, ["argument: 'target'", "reward_kwargs gives parameters of (target: int, "]),
        ("gsm8k_correctness", {"exact": "2"}, ["exact is '2'; it must be a number"]),
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
    specs = ["nothing", f"{mine}:gone", "xml_format", "code_format"]
    kwargs, tasks = {"absent": {}, "xml_format": 5}, {"code_format": 5, "gon": ["a"]}
    named = f"which is not in reward_funcs ({', '.join(specs)})."
    parts = [
        "unknown reward 'nothing'",
        "has no function or class 'gone'",
        "reward_kwargs of 'xml_format' must be a mapping, not 5.",
        "reward_tasks of 'code_format' must be a list of task names, not 5.",
        f"reward_kwargs names 'absent', {named}",
        f"reward_tasks names 'gon', {named}",
    ]
    lines = message(load_rewards, specs, kwargs, tasks).splitlines()
    assert [part for part, line in zip(parts, lines, strict=True) if part not in line] == []


def test_a_module_of_torch_that_is_no_reward_model_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("import torch\nhead = torch.nn.Linear(1, 1)\n")
    text = message(load_rewards, [f"{tmp_path}/mine.py:head"])
    assert text.startswith(f"reward '{tmp_path}/mine.py:head': AttributeError: 'Linear' object has")


def test_two_rewards_of_one_name_are_refused(mine):
    Path("other.py").write_text("def short(completions, **kwargs): return []\n")
    text = message(load_rewards, [f"{mine}:short", "other.py:short"])
    assert text.startswith("two rewards are called 'short': what is logged of them would be one.")


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([], "is empty"),
        (["equation_steps"], "names only step rewards (equation_steps)"),
    ],
)
def test_a_run_needs_a_reward_of_whole_completions(specs, words):
    remedy = "name at least one reward of whole completions, if only of weight 0."
    assert message(load_rewards, specs) == f"reward_funcs {words}; {remedy}"
    assert len(load_rewards(specs, allow_none=True)) == len(specs)


# Tasks

BATCH = {
    "prompts": ["p0", "p1", "p2", "p3"],
    "completions": ["c0", "c1", "c2", "c3"],
    "completion_ids": [[0], [1], [2], [3]],
    "task": ["math", "code", "math", "words"],
    "answer": ["10", None, "12", None],
}


class Recorder:
    """Scores a row with its number (its completion is `c<number>`) and remembers its calls."""

    __name__, kind, full = "recorder", "verifier", 3.0

    def __init__(self):
        self.calls: list[dict] = []

    def __call__(self, answer, **arguments):
        self.calls.append({"answer": answer, **arguments})
        return [float(text[1:]) for text in arguments["completions"]]


class AsyncRecorder(Recorder):
    async def __call__(self, answer, **arguments):
        await asyncio.sleep(0)
        return super().__call__(answer, **arguments)


@pytest.fixture(params=[Recorder, AsyncRecorder], ids=["sync", "async"])
def recorder(request: pytest.FixtureRequest) -> Recorder:
    return request.param()


def test_the_reward_sees_its_own_rows_alone_and_the_others_get_none(recorder):
    assert call(route(recorder, ("words", "code")), **BATCH) == [None, 1.0, None, 3.0]
    assert call(route(recorder, ("math",)), **BATCH) == [0.0, None, 2.0, None]
    assert recorder.calls[-1] == {name: rows[::2] for name, rows in BATCH.items()}
    assert call(route(recorder, ("sums",)), **BATCH) == [None] * 4
    assert len(recorder.calls) == 2, "it is not called when no row is its own"


def test_what_trl_passes_once_a_call_reaches_the_reward_whole_and_none_does_not(recorder):
    state, log_metric = object(), print
    arguments = {**BATCH, "completion_ids": None}
    call(route(recorder, ("math",)), **arguments, trainer_state=state, log_metric=log_metric)
    (seen,) = recorder.calls
    assert seen["trainer_state"] is state and seen["log_metric"] is log_metric
    assert "completion_ids" not in seen


@pytest.mark.parametrize(
    "wrap", [lambda reward: reward, functools.partial], ids=["object", "partial"]
)
def test_a_routed_reward_declares_what_the_reward_declares_and_is_async_where_it_is(recorder, wrap):
    is_one, routed = isinstance(recorder, AsyncRecorder), route(wrap(recorder), ["math", "code"])
    assert (routed.is_async, is_async_callable(routed)) == (is_one, is_one)
    assert (routed.name, get_callable_name(routed)) == ("recorder", "recorder")
    assert (routed.kind, routed.full, routed.columns) == ("verifier", 3.0, ("answer",))
    assert [routed.scores(task) for task in ("math", "words", None)] == [True, False, False]


def test_what_a_file_does_to_the_process_at_its_import_is_undone(tmp_path):
    code = f"import os\nos.chdir({str(tmp_path.parent)!r})\ndef mine(completions, **kwargs): pass\n"
    (tmp_path / "mine.py").write_text(code)
    before = os.getcwd()
    load_reward(f"{tmp_path}/mine.py:mine")
    assert os.getcwd() == before
