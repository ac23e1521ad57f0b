"""Loading rewards by name, file or module: what is accepted, and that every mistake is refused with its remedy."""

import asyncio
import functools
import multiprocessing
import pickle
from pathlib import Path

import pytest
from test_layout import REQUIRED
from trl.trainer.utils import get_callable_name, is_async_callable

import rewards
from rewards import full_reward, load_reward, load_rewards, reward_columns, reward_kind, reward_name
from rewards.contract import prepare_reward, reward_max_error_rate
from rewards.format import XmlFormat
from rewards.registry import REGISTRY
from rewards.routing import route

MINE = '''
"""Rewards of one's own."""

def brevity(prompts, completions, limit=10, **kwargs):
    return [1.0 if len(c) <= limit else 0.0 for c in completions]

def right(prompts, completions, answer, *, unit="", task, trainer_state=None, log_metric, **kwargs):
    return [1.0] * len(completions)

def at_most(prompts, completions, limit, **kwargs):
    return [float(len(c) <= limit) for c in completions]

async def slow(prompts, completions, amount=1.0, **kwargs):
    return [amount] * len(completions)

def odd(completions, **kwargs):
    return [None] * len(completions)

right.kind, right.full = "verifier", 1.0
odd.kind = "oddity"

class Counter:
    def __call__(self, prompts, completions, **kwargs):
        return [0.0] * len(completions)

def no_kwargs(prompts, completions): return []
def no_completions(prompts, **kwargs): return []
def by_position(prompts, completions, /, **kwargs): return []
not_callable = 5
'''
FULL = "<reasoning>r</reasoning><answer>18</answer>"


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """The path of a file with rewards."""
    file = tmp_path / "my_rewards.py"
    file.write_text(MINE)
    return str(file)


def pay(reward, *texts: str, **columns) -> list:
    return reward(prompts=[""] * len(texts), completions=list(texts), **columns)


def message(call, *args, **kwargs) -> str:
    """What a refused call says."""
    with pytest.raises(ValueError) as refused:
        call(*args, **kwargs)
    return str(refused.value)


# What is accepted


def test_a_registry_name_loads():
    assert pay(load_reward("gsm8k_correctness"), FULL, answer=["18"]) == [2.0]


def test_a_function_of_a_file_loads(mine):
    assert pay(load_reward(f"{mine}:brevity"), "short", "a long completion") == [1.0, 0.0]


def test_a_file_is_found_from_the_working_directory(mine, monkeypatch):
    monkeypatch.chdir(Path(mine).parent)
    assert pay(load_reward("my_rewards.py:brevity"), "short") == [1.0]


def test_a_class_of_a_module_loads():
    assert pay(load_reward("rewards.format:XmlFormat", per_tag=0.1), FULL) == [0.4]


def test_a_function_of_a_module_loads(mine, monkeypatch):
    monkeypatch.syspath_prepend(Path(mine).parent)
    assert pay(load_reward("my_rewards:brevity", limit=3), "short") == [0.0]


def test_parameters_are_set(mine):
    assert pay(load_reward("gsm8k_correctness", exact=5.0), FULL, answer=["18"]) == [5.0]
    assert pay(load_reward(f"{mine}:brevity", limit=3), "short", "abc") == [0.0, 1.0]


def test_several_rewards_load_in_their_order(mine):
    loaded = load_rewards(["xml_format", f"{mine}:brevity", "gsm8k_correctness"])
    assert [reward_name(reward) for reward in loaded] == ["xml_format", "brevity", "gsm8k_correctness"]


def test_kwargs_reach_a_reward_by_specification_and_by_name(mine):
    by_spec = load_rewards(["xml_format", f"{mine}:brevity"], {f"{mine}:brevity": {"limit": 3}})
    by_name = load_rewards(["xml_format", f"{mine}:brevity"], {"brevity": {"limit": 3}, "xml_format": {"per_tag": 1.0}})
    assert [pay(reward, "short") for reward in by_spec] == [[0.0], [0.0]]
    assert [pay(reward, FULL[:11]) for reward in by_name] == [[1.0], [0.0]]


def test_two_files_of_one_name_do_not_collide(tmp_path):
    for folder, amount in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(
            f"def pays_{folder}(completions, **kwargs):\n    return [{amount}]\n"
        )
    a, b = load_rewards([f"{tmp_path}/a/mine.py:pays_a", f"{tmp_path}/b/mine.py:pays_b"])
    assert (pay(a, ""), pay(b, "")) == ([1.0], [2.0])


# What a reward says of itself


def test_the_name_is_the_one_trl_logs(mine):
    loaded = [load_reward(name, **REQUIRED.get(name, {})) for name in (*REGISTRY, f"{mine}:brevity", f"{mine}:slow")]
    loaded.append(functools.partial(loaded[0], prompts=[]))
    assert [reward_name(reward) for reward in loaded] == [get_callable_name(reward) for reward in loaded]


def test_a_kind_is_declared_or_shaping(mine):
    assert reward_kind(load_reward(f"{mine}:right")) == "verifier"
    assert reward_kind(load_reward(f"{mine}:brevity")) == "shaping"
    assert reward_kind(functools.partial(XmlFormat(), prompts=[])) == "format"


def test_the_full_amount_is_declared_or_unknown(mine):
    assert full_reward(load_reward(f"{mine}:right")) == 1.0
    assert full_reward(load_reward(f"{mine}:brevity")) is None


def test_columns_are_the_named_parameters_that_trl_does_not_fill(mine):
    assert reward_columns(load_reward("xml_format")) == []
    assert reward_columns(load_reward("gsm8k_correctness")) == ["answer"]
    assert reward_columns(load_reward(f"{mine}:right")) == ["answer", "task"]


def test_a_parameter_that_is_set_is_no_column(mine, monkeypatch):
    monkeypatch.syspath_prepend(Path(mine).parent)
    for spec in (f"{mine}:at_most", "my_rewards:at_most"):
        assert reward_columns(load_reward(spec)) == ["limit"]
        assert reward_columns(load_reward(spec, limit=3)) == []
        assert pay(load_reward(spec, limit=3), "abcd", "abc") == [0.0, 1.0]


def test_what_a_reward_declares_of_its_failures_and_its_readiness_is_that_of_what_it_wraps():
    def strict(completions, **kwargs):
        return [0.0] * len(completions)

    strict.max_error_rate, strict.prepare = 0.001, lambda completions, limit_s: f"{completions} in {limit_s:g} s"
    for wrapped in (strict, functools.partial(strict, prompts=[]), route(strict, ("maths",))):
        assert reward_max_error_rate(wrapped) == 0.001
        assert prepare_reward(wrapped, 8, 2.5) == "8 in 2.5 s"
    assert (reward_max_error_rate(XmlFormat()), prepare_reward(XmlFormat(), 8, 2.5)) == (1.0, None)


# Processes and event loops


def test_every_registered_reward_pickles():
    for name in REGISTRY:
        assert reward_name(pickle.loads(pickle.dumps(load_reward(name, **REQUIRED.get(name, {}))))) == name


def test_a_reward_of_a_file_pickles_by_its_specification(mine):
    reward = pickle.loads(pickle.dumps(load_reward(f"{mine}:brevity", limit=3)))
    assert (reward_name(reward), pay(reward, "abcd", "abc")) == ("brevity", [0.0, 1.0])


def test_a_reward_of_a_file_works_in_a_spawned_process(mine):
    reward = load_reward(f"{mine}:brevity", limit=3)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        paid = pool.apply_async(reward, (), {"prompts": ["", ""], "completions": ["abcd", "abc"]}).get(timeout=60)
    assert paid == [0.0, 1.0]


def test_an_async_reward_of_a_file_is_seen_as_one_by_trl(mine):
    slow = load_reward(f"{mine}:slow", amount=3.0)
    assert is_async_callable(slow)
    assert not is_async_callable(load_reward(f"{mine}:brevity"))
    assert asyncio.run(pay(slow, "a", "b")) == [3.0, 3.0]
    assert is_async_callable(pickle.loads(pickle.dumps(slow)))


# What is refused


def test_an_unknown_name_lists_the_known_ones():
    text = message(load_reward, "gsm8k_corectness")
    assert "unknown reward 'gsm8k_corectness'" in text
    assert all(name in text for name in REGISTRY)


def test_a_file_without_a_function_is_refused(mine):
    assert "path/to/file.py:function" in message(load_reward, mine)


def test_a_missing_file_is_named():
    assert f"no file {Path('nowhere.py').resolve()}" in message(load_reward, "nowhere.py:brevity")


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_fails_to_import_says_why(tmp_path, source, error):
    (tmp_path / "broken.py").write_text(source)
    text = message(load_reward, f"{tmp_path}/broken.py:f")
    assert "broken.py fails to import" in text
    assert error in text


def test_a_missing_module_is_named():
    assert "cannot import 'no_such_package'" in message(load_reward, "no_such_package:f")


def test_a_missing_function_is_named(mine):
    assert "has no function or class 'gone'" in message(load_reward, f"{mine}:gone")


def test_what_cannot_be_called_is_refused(mine):
    assert "has no function or class 'not_callable'" in message(load_reward, f"{mine}:not_callable")


@pytest.mark.parametrize("name", ["no_kwargs", "no_completions", "by_position"])
def test_a_signature_that_trl_cannot_call_is_refused(mine, name):
    assert "TRL needs (prompts, completions, <dataset columns>, **kwargs)" in message(load_reward, f"{mine}:{name}")


def test_a_class_of_a_file_is_refused(mine):
    assert "is a class" in message(load_reward, f"{mine}:Counter")


def test_an_unknown_kind_is_refused(mine):
    assert "has kind 'oddity'; allowed: verifier, format, shaping, control" in message(load_reward, f"{mine}:odd")


def test_an_unknown_parameter_of_a_class_is_refused():
    text = message(load_reward, "gsm8k_correctness", exakt=2.0)
    assert "exakt" in text
    assert "exact: float = 2.0" in text


def test_an_unknown_parameter_of_a_function_is_refused(mine, monkeypatch):
    monkeypatch.syspath_prepend(Path(mine).parent)
    for spec in (f"{mine}:brevity", "my_rewards:brevity"):
        assert "has no parameter limt" in message(load_reward, spec, limt=3)
        assert "limit=10" in message(load_reward, spec, limt=3)


def test_what_trl_fills_is_no_parameter(mine):
    assert "has no parameter completions" in message(load_reward, f"{mine}:brevity", completions=[])


def test_two_rewards_of_one_name_are_refused(mine):
    (Path(mine).parent / "other.py").write_text("def brevity(completions, **kwargs):\n    return []\n")
    text = message(load_rewards, [f"{mine}:brevity", f"{Path(mine).parent}/other.py:brevity"])
    assert text == "two rewards are called 'brevity': what is logged of them would be one. Rename or remove one."
    lines = message(load_rewards, ["xml_format", "gsm8k_correctness"] * 2).splitlines()
    assert [line.split("'")[1] for line in lines] == ["gsm8k_correctness", "xml_format"]


def test_kwargs_of_a_reward_that_is_not_loaded_are_refused():
    text = message(load_rewards, ["xml_format"], {"gsm8k_correctness": {"exact": 1.0}})
    assert "reward_kwargs names 'gsm8k_correctness', which is not in reward_funcs (xml_format)" in text


def test_no_reward_at_all_is_refused():
    assert "reward_funcs is empty" in message(load_rewards, [])
    assert "reward_funcs is empty" in message(load_rewards, None)


def test_all_problems_are_reported_at_once(mine):
    specs = ["nothing", f"{mine}:gone", "xml_format", "xml_format"]
    lines = message(load_rewards, specs, {"absent": {}}).splitlines()
    assert len(lines) == 4
    for line, part in zip(lines, ["'nothing'", "'gone'", "two rewards", "'absent'"], strict=True):
        assert part in line


def test_the_example_of_the_package_is_true():
    reward = rewards.load_reward("gsm8k_correctness", exact=2.0)
    assert reward(prompts=["..."], completions=["<answer>18</answer>"], answer=["18"]) == [2.0]
