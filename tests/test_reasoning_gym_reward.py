"""reasoning_gym: the task's own verifier scores the answer tag, all or nothing."""

import json
import re
import sys
from pathlib import Path

import pytest
import reasoning_gym

from rewards import load_reward
from rewards.reasoning_gym import NO_ANSWER, RUNS_ANSWERS, score_reasoning_gym

PARAMETERS = {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2}


def make_entries(dataset: str, parameters: dict, size: int) -> list[dict]:
    items = reasoning_gym.create_dataset(dataset, **parameters, seed=7, size=size)
    return [{"dataset": dataset, "parameters": parameters, **item} for item in items]


SUMS = make_entries("chain_sum", PARAMETERS, 8)
ENTRY, GOLD = json.dumps(SUMS[0]), SUMS[0]["answer"]


def score(text: str, entry: str = ENTRY, **parameters: float) -> float | None:
    reward = load_reward("reasoning_gym", **parameters)
    return reward(prompts=["p"], completions=[text], entry=[entry])[0]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (f"<answer>\n{GOLD}\n</answer>", 2.0),
        (rf"<answer>\boxed{{{GOLD}}}</answer>", 2.0),
        (f"<answer>1</answer><answer>{GOLD}</answer>", 2.0),  # the last tag
        (f"<answer>{int(GOLD) + 1}</answer>", 0.0),
        (f"<answer>{GOLD} or 1</answer>", 0.0),  # for which its verifier gives a part
        (f"{GOLD}", 0.0),
        (f"<think><answer>{GOLD}</answer></think>I do not know.", 0.0),
        ("<answer>1e999999999</answer>", 0.0),  # at once, without a Fraction of it
    ],
)
def test_the_right_answer_in_its_tag_earns(text, amount):
    assert score(text) == amount


def test_each_row_of_a_mixed_batch_is_scored_by_its_own_task():
    tasks = ["basic_arithmetic", "gcd", "spell_backward", "leg_counting"]
    entries = SUMS[:2] + [entry for task in tasks for entry in make_entries(task, {}, 2)]
    texts = [f"<answer>{entry['answer']}</answer>" for entry in entries]
    reward, rows = load_reward("reasoning_gym"), [json.dumps(entry) for entry in entries]
    assert reward(prompts=texts, completions=texts, entry=rows) == [2.0] * 10
    assert reward(prompts=texts, completions=texts[::-1], entry=rows) == [0.0] * 10


def test_a_verifier_that_raises_gives_nothing(monkeypatch):
    class Raises:
        def score_answer(self, answer: str, entry: dict) -> float:
            raise RecursionError("too deep")

    monkeypatch.setattr("rewards.reasoning_gym._verifier", lambda dataset, parameters: Raises())
    assert score(f"<answer>{GOLD}</answer>", ENTRY + " ") == 0.0  # a row not seen before


def test_a_verifier_that_would_run_the_answer_as_code_is_refused(tmp_path):
    attack = f"[open({str(tmp_path / 'written')!r}, 'w')]"
    row = {"dataset": "string_insertion", "parameters": {}, "question": "?", "answer": "AB"}
    with pytest.raises(ValueError, match="as code"):
        score_reasoning_gym(attack, json.dumps(row))
    assert not (tmp_path / "written").exists()


def test_every_reasoning_gym_module_that_evaluates_text_is_refused_or_was_read():
    # Read by a person: what these evaluate is the task's own text, never the answer.
    own_text_only = {
        "codeio", "number_sorting", "bitwise_arithmetic", "basic_arithmetic", "propositional_logic",
        "gsm_symbolic",
    }  # fmt: skip
    pattern = re.compile(r"\b(eval|exec|parse_expr|sympify|parse_latex)\(")
    for name, (dataset, _) in reasoning_gym.factory.DATASETS.items():
        source = Path(sys.modules[dataset.__module__].__file__).read_text()
        if pattern.search(source) and name not in own_text_only:
            assert name in RUNS_ANSWERS, name


@pytest.mark.parametrize(("dataset", "text"), [("game_of_life_halting", "?"), ("coin_flip", "0")])
def test_a_verifier_that_accepts_what_is_no_answer_is_refused(dataset, text):
    (entry,) = make_entries(dataset, {}, 1)
    assert reasoning_gym.create_dataset(dataset, size=1).score_answer(text, entry) == 1.0
    with pytest.raises(ValueError, match=r"accepts '[?0]' .* it pays for wrong answers"):
        score_reasoning_gym(entry["answer"], json.dumps(entry))
    assert score(f"<answer>{entry['answer']}</answer>", json.dumps(entry)) is None


@pytest.mark.parametrize(
    ("gold", "text", "amount"),
    [
        ("18", "18", 2.0),
        ("18", "１８", 0.0),  # digits of other scripts, which have its value
        ("0", "0", 2.0),  # which is refused as an answer of other rows
        ("0", "1", 0.0),
    ],
)
def test_digits_are_those_of_ascii_and_zero_may_be_the_answer(gold, text, amount):
    entry = json.dumps(SUMS[0] | {"answer": gold})
    assert score(f"<answer>{text}</answer>", entry) == amount


def test_no_comparison_with_nan_makes_an_answer_right():
    (entry,) = make_entries("complex_arithmetic", {}, 1)
    verifier = reasoning_gym.create_dataset("complex_arithmetic", size=1)
    assert verifier.score_answer("nan", entry) == 1.0
    for text in ("nan", "NaN+nanj", "inf - inf"):
        assert score(f"<answer>{text}</answer>", json.dumps(entry)) == 0.0
    assert score(f"<answer>{entry['answer']}</answer>", json.dumps(entry)) == 2.0


def test_a_fraction_among_the_metadata_makes_no_row_unusable():
    from recipes.arithmetic.train import RecipeArguments, to_row

    items = reasoning_gym.create_dataset("gsm_symbolic", seed=0, size=8)
    rows = [to_row(item, RecipeArguments(dataset_name="gsm_symbolic")) for item in items]
    assert {score(f"<answer>{row['answer']}</answer>", row["entry"]) for row in rows} == {2.0}


def test_a_hexadecimal_answer_is_no_huge_exponent():
    entries = make_entries("bitwise_arithmetic", {}, 300)
    (entry, *_) = (entry for entry in entries if NO_ANSWER.search(entry["answer"]))
    assert score(f"<answer>{entry['answer']}</answer>", json.dumps(entry)) == 2.0


def test_the_fraction_of_the_question_is_no_answer_to_simplifying_it():
    from recipes.arithmetic.train import RecipeArguments, metric, to_row

    args = RecipeArguments(dataset_name="fraction_simplification")
    (item,) = reasoning_gym.create_dataset(args.dataset_name, seed=1, size=1)
    row, metadata = to_row(item, args), item["metadata"]
    copied = f"{metadata['numerator']}/{metadata['denominator']}"
    assert copied in item["question"]
    for answer, right in ((copied, False), (f"${copied}$", False), (item["answer"], True)):
        assert metric(row, f"<answer>{answer}</answer>")["lenient"] is right
