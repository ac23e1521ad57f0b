"""Preflight names all problems, each with a remedy, before a weight is loaded (see bad_inputs)."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from datasets import Dataset
from transformers import AutoTokenizer

from recipes.common.checks.preflight import Preflight, preflight, report, resolved
from recipes.common.data.recipe import load_parts
from recipes.common.settings import RecipeArguments, parse_arguments
from rewards import load_rewards
from rewards.contract import reward_of
from rewards.format import XmlFormat
from rewards.sandbox import shared_sandbox

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "model_name_or_path": "org/model", "reward_funcs": ["xml_format", "gsm8k_correctness"],
    "num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1,
    "save_steps": 10, "use_cpu": True, "bf16": False, "report_to": "none",
}  # fmt: skip


def make_rows(*numbers: int, task: str = "sums") -> Dataset:
    prompts = [[{"role": "user", "content": f"{n} + 1 ="}] for n in numbers]
    columns = {"task": [task] * len(numbers), "answer": [str(n + 1) for n in numbers]}
    return Dataset.from_dict({"prompt": prompts, **columns})


def reference(row: dict) -> str:
    return f"<reasoning></reasoning><answer>{row['answer']}</answer>"


TRAIN, HELD_OUT = make_rows(*range(8)), make_rows(100, 101)
# A row of another task behind those of TRAIN, and the reference answers of both.
PROSE = {"prompt": [{"role": "user", "content": "Write."}], "task": "prose", "answer": None}
MIXED = {"train": Dataset.from_list([*TRAIN.to_list(), PROSE])}
MIXED["reference"] = lambda row: reference(row if row["task"] == "sums" else {"answer": "text"})


def with_answer(place: int, answer: str | None, rows: Dataset = TRAIN) -> Dataset:
    """`rows` with another answer at one place."""
    changed = rows.to_list()
    changed[place]["answer"] = answer
    return Dataset.from_list(changed)


def getting_ready(prepare: Callable) -> Callable:
    """A reward that gives nothing, with its `prepare`."""

    def mine(completions, **kwargs):
        return [0.0] * len(completions)

    mine.prepare = prepare
    return mine


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Preflight]:
    """The whole flow, with rewards of a test in place of those that the settings name."""
    monkeypatch.chdir(tmp_path)

    def run(
        train=TRAIN, held_out=HELD_OUT, rewards=None, reference=reference, words=(), **settings
    ) -> Preflight:
        Path("run.yaml").write_text(yaml.safe_dump({**SETTINGS, **settings}))
        args = parse_arguments(RecipeArguments, ["--config", "run.yaml", *words])
        named, *rows = load_parts(args, lambda recipe, seed: (train, held_out))
        rewards = named if rewards is None else [*map(reward_of, rewards)]
        result = preflight(args, (rewards, *rows), reference)
        assert sorted(os.listdir()) == ["run.yaml"], "preflight wrote something"
        return result

    return run


# What passes


def test_the_table_names_the_gate_of_a_reward(check):
    lines = check(reward_gates={"xml_format": "gsm8k_correctness"}).lines
    assert [line["counts only if"] for line in lines] == ["gsm8k_correctness", None]
    assert "counts only if" not in check().lines[0]


def test_good_input_becomes_a_run_and_the_report_shows_what_each_reward_gives(check):
    result = check(hub_token="a secret")
    assert result.args.problems == []
    assert result.args.notes[-1].startswith("2 test questions can show no change, however large")
    assert result.training.steps_per_generation == 1
    assert result.model.model_name_or_path == "org/model"
    assert [list(line.values()) for line in result.lines] == [
        ["sums", 1.0, "xml_format", "format", 8, 0.8, 0.8, 0.0],
        ["sums", 1.0, "gsm8k_correctness", "verifier", 8, 2.0, 2.0, 0.0],
    ]
    assert result.record() == {"rewards": result.lines, "notes": result.args.notes}
    step = "  8 rows; an optimizer step learns from 8 completions (2 prompts x 4) on 1 CPU process."
    assert step in report(result).split("\n") and "streamed" not in report(result)
    values = resolved(result.args.recipe, result.args.training, result.args.model, "sums")
    assert (values["recipe"], values["world_size"], values["num_generations"]) == ("sums", 1, 4)
    assert "a secret" not in str(values)


def test_answers_that_would_be_cut_off_are_noted(check, model):
    def note(**settings):
        notes = check(model_name_or_path=str(model), **settings).args.notes
        return [text for text in notes if text.startswith("max_completion_length is")]

    assert note(max_completion_length=400) == []
    (text,) = note(max_completion_length=4)
    assert "and 8 of 8 reference answers have as many tokens or more" in text


def with_tokenizer(model: Path, folder: Path, change: Callable) -> str:
    """A copy of a model whose tokenizer is changed; return its folder."""
    shutil.copytree(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    change(tokenizer)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<|assistant|>{%", "<|assistant|><think>\n{%", "opens <think> in the prompt"),
        ("<|end|>", "<|user|>", "ends a turn by '<|user|>', which ends no completion"),
        ("<|end|>", "", None),
    ],
)
def test_how_a_template_opens_and_ends_the_models_turn_is_noted(
    old, new, words, check, model, tmp_path_factory
):
    def change(tokenizer):
        tokenizer.chat_template = tokenizer.chat_template.replace(old, new)

    folder = with_tokenizer(model, tmp_path_factory.mktemp("other") / "model", change)
    result = check(model_name_or_path=folder)
    assert result.args.problems == []
    notes = [note for note in result.args.notes if note.startswith("its chat template")]
    assert [words in note for note in notes] == [True] * (words is not None)


def test_a_first_row_without_a_reference_answer_is_passed_over(check, model):
    rows = Dataset.from_list([PROSE, *TRAIN.to_list()])
    tasks = {"gsm8k_correctness": ["sums"], "xml_format": ["sums"], "length": ["prose"]}
    rewards = [*tasks]
    result = check(
        train=rows,
        reference=lambda row: None if row["task"] == "prose" else reference(row),
        model_name_or_path=str(model),
        reward_funcs=rewards,
        reward_tasks=tasks,
    )
    assert [text for text in result.args.problems if "model_name_or_path" in text] == []


def test_a_question_that_asks_for_another_format_is_noted(check):
    rows = TRAIN.to_list()
    for row in rows:
        row["prompt"][0]["content"] += " Give it after ####."
    (note,) = [one for one in check(train=Dataset.from_list(rows)).args.notes if "'####'" in one]
    assert "which its reference answer does not" in note


def test_a_tag_that_decoding_leaves_out_is_refused(check, model, tmp_path_factory):
    def change(tokenizer):
        tokenizer.add_special_tokens({"additional_special_tokens": ["<answer>"]})

    folder = with_tokenizer(model, tmp_path_factory.mktemp("other") / "model", change)
    (problem,) = check(model_name_or_path=folder).args.problems
    assert "reads <answer> of the reference answer as special tokens" in problem


def test_what_can_train_passes(check):
    """Of a stream the first rows are checked."""
    rows = with_answer(1000, "not checked", make_rows(*range(200, 1300)))
    result = check(train=rows.to_iterable_dataset(), max_steps=5)
    assert result.args.problems == []
    assert "only its first 1000 rows were checked" in report(result)


def test_a_model_that_the_cache_has_in_part_is_downloaded_on(check, monkeypatch, tmp_path_factory):
    part = tmp_path_factory.mktemp("cache") / "1.safetensors"  # or config.json alone
    part.with_name("x.index.json").write_text('{"weight_map": {"a": "1.safetensors", "b": "2"}}')
    cached = "recipes.common.checks.model.try_to_load_from_cache"
    monkeypatch.setattr(cached, lambda *_, **__: str(part))
    assert check().args.problems == []


def test_a_row_without_a_reference_answer_is_scored_by_what_needs_none(check):
    def earned(answer: Callable) -> list[tuple]:
        result = check(reference=answer)
        assert result.args.problems == []
        return [(line["rows scored"], line["reference earns"]) for line in result.lines]

    odd = earned(lambda row: None if int(row["answer"]) % 2 else reference(row))
    assert (odd, earned(lambda row: None)) == ([(8, 0.8), (8, 2.0)], [(8, None), (8, None)])


def test_a_reward_of_the_kind_model_is_not_called(check):
    def mine(completions, **kwargs):
        raise AssertionError("it is called")

    mine.kind = "model"
    result = check(rewards=[XmlFormat(), mine])
    assert result.args.problems == []
    assert (result.lines[1]["rows scored"], result.lines[1]["empty earns"]) == (8, None)


# Rows and rewards


def sums_only(completions, task, **kwargs):
    return [1.0 if name == "sums" else None for name in task]


def scores_the_last(completions, answer, **kwargs):
    return [1.0 if answer[i] == "8" or c[0]["content"] else 0.0 for i, c in enumerate(completions)]


scores_the_last.kind, scores_the_last.full = "verifier", 1.0


def fines_the_wrong(completions, answer, **kwargs):
    return [float(g in c[0]["content"]) - 1 for c, g in zip(completions, answer, strict=True)]


fines_the_wrong.kind = "verifier"


def with_steps(row: dict) -> str:
    question, answer = row["prompt"][-1]["content"], row["answer"]
    return f"<reasoning>{question} {answer}</reasoning><answer>{answer}</answer>"


def of_a_float(row: dict) -> str:
    return f"{row['answer'] / 2}"


PRODUCTS = Dataset.from_list([*TRAIN, *make_rows(11, 12, task="products")])
# What is changed, and parts of the one problem, with ... between them.
# fmt: off
REFUSED = [
    ({"train": TRAIN.remove_columns("answer"), "reference": lambda row: reference({"answer": 5})},
     "reward 'gsm8k_correctness': needs the column answer, which row 0 lacks (its columns: "
     "['prompt', 'task'])"),
    ({"train": TRAIN.remove_columns("answer")},
     "row 0 lacks the column 'answer', of which the recipe makes the reference completion"),
    ({"train": TRAIN.remove_columns("prompt")}, "rows lack prompt"),
    ({"train": TRAIN.to_list()}, "load_rows returns list; allowed: two datasets.Dataset"),
    ({"reference": of_a_float}, "reference_completion fails on row 0: TypeError: ... line"),
    # The reference answer
    ({"reference": lambda row: reference(row).replace(">4<", ">4.0<")},
     "'gsm8k_correctness': scores 1.5 instead of 2.0 for the reference answer of 1 of 8 rows "
     "of task 'sums'; the first is row 3: '<reasoning></reasoning><answer>4.0</answer>'"),
    ({"held_out": with_answer(1, "many", HELD_OUT)},
     "evaluation rows: reward 'gsm8k_correctness': ... row 1"),
    # A verifier that scores nothing as something, of one row alone
    ({"rewards": [scores_the_last]}, "is a verifier but scores an empty completion 1.0"),
    ({"rewards": [fines_the_wrong]}, "the reference answer of row 0 0, ... A constant"),
    # Tasks
    ({"train": PRODUCTS, "rewards": [sums_only]},
     "task 'products': no reward scores its rows"),
    ({"reward_tasks": {"gsm8k_correctness": ["sum"]}},
     "is for rows of task 'sum', but the rows have only: sums"),
    ({**MIXED, "reward_tasks": {"gsm8k_correctness": ["prose"]}},
     "reward 'gsm8k_correctness': needs the column answer, which row 8 lacks"),
    # Gates
    ({**MIXED, "reward_tasks": {"gsm8k_correctness": ["sums"]},
      "reward_gates": {"xml_format": "gsm8k_correctness"}},
     "opens 'xml_format' by ... do not score task prose"),
    ({"reward_gates": {"length": "gsm8k_correctness"}},
     "reward_gates opens 'length' by ... length is not in reward_funcs"),
    ({"reward_gates": {"gsm8k_correctness": "xml_format"}},
     "a gate is a verifier or a format reward"),
    ({"reward_gates": {"xml_format": "xml_format"}}, "what it gates is another reward"),
    ({"reward_gates": {"xml_format": None}}, "give the name of a reward, or a list of names"),
    # Step rewards
    ({"rewards": [XmlFormat(), *load_rewards(["equation_steps"], allow_none=True)],
      "reference": with_steps, "importance_sampling_level": "sequence"},
     "need importance_sampling_level: token"),
]
# fmt: on


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_rows_and_rewards_that_do_not_fit_are_refused(check, changes, message):
    (problem,) = check(**changes).args.problems
    assert all(part in problem for part in message.split(" ... "))


def test_all_problems_are_reported_at_once(check):
    result = check(
        train=with_answer(2, "three"),  # a row, of which a verifier gives None
        model_name_or_path=None,  # the model
        per_device_train_batch_size=6,  # a combination
        words=["--zzz"],  # the command line
    )
    assert "\n4 problems; nothing was loaded and nothing was written:\n" in report(result)


def test_what_is_raised_on_any_rank_is_a_problem_with_its_source(check, monkeypatch):
    def refuse(completions: int, limit_s: float) -> str:
        raise ValueError("no isolation holds here")

    (problem,) = check(rewards=[XmlFormat(), getting_ready(refuse)]).args.problems
    assert problem == "reward 'mine': no isolation holds here"
    name = "recipes.common.checks.preflight.gather_object"
    monkeypatch.setattr(name, lambda own: [*own, problem, problem])  # one node has no sandbox
    assert check().args.problems == [problem]


# Notes


def test_the_curve_is_noted_and_its_rows_are_checked(check):
    curve = {"eval_strategy": "steps", "eval_steps": 2, "num_validation_rows": 2}
    result = check(train=make_rows(*range(10)), **curve)
    assert result.args.problems == [] and result.training.num_generations_eval == 1
    note = "validation: 2 rows of the training side, evaluated every 2 steps and never trained on"
    assert note in result.args.notes
    result = check(train=make_rows(*range(10)), held_out=result.validation_rows, **curve)
    assert any("evaluation rows are also training rows" in text for text in result.args.problems)


def test_the_command_of_the_audit_is_printed_without_secrets(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    mine = tmp_path / "my own.py"
    mine.write_text("def short(completions, **kwargs): return [1.0] * len(completions)")
    words = ["--config", "recipes/arithmetic/hack.yaml", "--reward_funcs", f"{mine}:short"]
    args = parse_arguments(RecipeArguments, [*words, "--hub_token=a-secret-token"])
    result = preflight(args, load_parts(args, None), lambda row: "")
    (command,) = [note for note in result.args.notes if "audit_rewards.py" in note]
    printed = shlex.split(command.partition(": ")[2])
    assert printed == ["python", "scripts/audit_rewards.py", *words, "--hub_token=..."]


# Rewards that get ready


def test_a_reward_gets_ready_for_the_completions_of_a_generation(check):
    rewards = [XmlFormat(), getting_ready(lambda *asked: f"asked for {asked}")]
    sizes = {"gradient_accumulation_steps": 2, "steps_per_generation": 4, "save_steps": 4}
    result = check(make_rows(*range(32)), rewards=rewards, reward_timeout_s=7.5, **sizes)
    assert "mine: asked for (32, 7.5)" in result.args.notes


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")
def test_a_run_with_code_rewards_notes_its_isolation_and_needs_no_reference(check):
    prompt = [{"role": "user", "content": "Write double(x)."}]
    row = {"prompt": prompt, "task": "code", "tests": ["assert double(2) == 4"]}
    rows, names = Dataset.from_list([row] * 2), ["code_tests", "code_format"]
    result = check(train=rows, held_out=None, reference=lambda row: None, reward_funcs=names)
    assert result.args.problems == []
    scored = [(line["rows scored"], line["empty earns"]) for line in result.lines]
    assert scored == [(2, 0.0), (2, 0.0)]
    assert f"code_tests: {shared_sandbox().describe()}" in result.args.notes
