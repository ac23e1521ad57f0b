"""Preflight refuses each bad input before a weight is loaded, names the remedy, and reports all of them at once."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from datasets import Dataset

from recipes.common.before.arguments import RecipeArguments, parse_arguments
from recipes.common.before.overlap import near_duplicates
from recipes.common.before.preflight import Preflight, preflight, report, resolved
from recipes.common.during.interrupt import generation_period
from recipes.common.run import _apply_model_arguments
from recipes.common.tools.tables import format_table
from rewards import load_rewards
from rewards.audit.call import score
from rewards.format import XmlFormat
from rewards.sandbox import shared_sandbox

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox is built for Linux")
SETTINGS = {
    "model_name_or_path": "org/model",
    "reward_funcs": ["xml_format", "gsm8k_correctness"],
    "num_generations": 4,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "save_steps": 10,
    "use_cpu": True,
    "bf16": False,
    "report_to": "none",
}


def make_rows(*numbers: int, task: str = "sums", **columns) -> Dataset:
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": f"{n} + 1 ="}], "task": task, "answer": str(n + 1), **columns}
            for n in numbers
        ]
    )


def reference(row: dict) -> str:
    return f"<reasoning></reasoning><answer>{row['answer']}</answer>"


TRAIN, HELD_OUT = make_rows(*range(8)), make_rows(100, 101)


@dataclass
class Outcome:
    """The result of a preflight and its report; status 2 where it found problems."""

    result: Preflight
    printed: str
    config: dict

    @property
    def status(self) -> int | None:
        return 2 if self.result.problems else None

    @property
    def table(self) -> list[dict]:
        return [line.cells() for line in self.result.lines]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run preflight on good settings, rows and rewards, changed as a test asks."""
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "ACCELERATE_USE_CPU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(
        train=TRAIN, held_out=HELD_OUT, rewards=None, reference=reference, words=(), problems=(), **settings
    ) -> Outcome:
        Path("run.yaml").write_text(yaml.safe_dump({**SETTINGS, **settings}))
        args, found = parse_arguments(RecipeArguments, ["--config", "run.yaml", *words]), list(problems)
        if rewards is None:
            try:
                named = args.recipe
                rewards = load_rewards(named.reward_funcs, named.reward_kwargs, named.reward_tasks)
            except ValueError as problem:
                found.append(str(problem))
        result = preflight(args, train, held_out, rewards, reference, found)
        assert sorted(os.listdir()) == ["run.yaml"], "preflight wrote something"
        config = resolved(args.recipe, args.training, args.model, "sums")
        return Outcome(result, report(result, args), config)

    return run


def assert_refused(outcome: Outcome, *parts: str) -> None:
    """Exactly one problem, which says all of `parts`."""
    assert outcome.status == 2
    assert "\n1 problem; nothing was loaded and nothing was written:\n" in outcome.printed
    for part in parts:
        assert part in outcome.printed


def reward(function: Callable, kind: str, full: float | None = None) -> Callable:
    function.kind, function.full = kind, full
    return function


# What passes


def test_good_input_becomes_a_run(check):
    outcome = check()
    assert outcome.status is None
    assert outcome.result.training.num_generations == 4
    assert outcome.result.training.steps_per_generation == 1
    assert outcome.result.model.model_name_or_path == "org/model"
    assert outcome.config["reward_funcs"] == ["xml_format", "gsm8k_correctness"]
    assert outcome.config["world_size"] == 1


def test_the_table_says_what_each_reward_pays(check):
    assert check().table == [
        {
            "task": "sums",
            "weight": 1.0,
            "reward": "xml_format",
            "kind": "format",
            "rows scored": 8,
            "reference earns": 0.8,
            "full": 0.8,
            "empty earns": 0.0,
        },
        {
            "task": "sums",
            "weight": 1.0,
            "reward": "gsm8k_correctness",
            "kind": "verifier",
            "rows scored": 8,
            "reference earns": 2.0,
            "full": 2.0,
            "empty earns": 0.0,
        },
    ]


def test_the_report_shows_the_table_and_the_batch(check):
    printed = check().printed
    assert "Preflight of run.yaml" in printed
    assert "  sums  1.0     gsm8k_correctness  verifier  8            2.0              2.0   0.0" in printed
    assert "8 rows; an optimizer step learns from 8 completions (2 prompts x 4) on 1 CPU process." in printed


def test_dtype_reaches_the_model(check):
    result = check(dtype="bfloat16", model_revision="abc").result
    _apply_model_arguments(result.training, result.model)
    assert result.training.model_init_kwargs == {
        "dtype": "bfloat16",
        "revision": "abc",
    }


def test_no_held_out_rows_are_fine(check):
    assert check(held_out=Dataset.from_list([])).status is None


def test_plain_text_prompts_are_fine(check):
    rows = [{"prompt": f"{n} + 1 =", "task": "sums", "answer": str(n + 1)} for n in range(8)]
    assert check(train=Dataset.from_list(rows)).status is None


# Rows and rewards


def test_a_missing_column_is_refused(check):
    assert_refused(
        check(train=TRAIN.remove_columns("answer"), reference=lambda row: reference({"answer": 5})),
        "reward 'gsm8k_correctness' needs the column answer, which row 0 lacks (its columns: ['prompt', 'task'])",
    )


def test_a_column_that_one_row_lacks_is_refused(check):
    rows = TRAIN.to_list()
    rows[3]["answer"] = None
    assert_refused(check(train=Dataset.from_list(rows)), "needs the column answer, which row 3 lacks")


@pytest.mark.parametrize("column", ["task", "prompt"])
def test_rows_without_prompt_or_task_are_refused(check, column):
    assert_refused(check(train=TRAIN.remove_columns(column)), f"rows lack {column}")


def test_a_reference_that_does_not_earn_the_full_reward_is_refused(check):
    assert_refused(
        check(reference=lambda row: reference({"answer": row["answer"] + ".0" * (row["answer"] == "4")})),
        "reward 'gsm8k_correctness' scores 1.5 instead of 2.0 for the reference answer of 1 of 8 rows of task 'sums'",
        "the first is row 3: '<reasoning></reasoning><answer>4.0</answer>'",
    )


def test_a_reference_out_of_format_is_refused(check):
    outcome = check(reference=lambda row: f"<answer>{row['answer']}</answer>")
    assert_refused(outcome, "reward 'xml_format' scores 0.4 instead of 0.8 for the reference answer of 8 of 8 rows")


def test_a_gold_that_cannot_be_graded_is_refused(check):
    rows = TRAIN.to_list()
    rows[5]["answer"] = "six"
    outcome = check(train=Dataset.from_list(rows))
    assert_refused(outcome, "'gsm8k_correctness' scores None instead of 2.0", "1 of 8 rows", "the first is row 5")


@pytest.mark.parametrize("full", [1.0, None])
def test_a_verifier_that_pays_an_empty_completion_is_refused(check, full):
    def generous(completions, **kwargs):
        return [1.0] * len(completions)

    outcome = check(rewards=[reward(generous, "verifier", full)])
    assert_refused(outcome, "reward 'generous' is a verifier but scores an empty completion 1.0")


def test_a_shaping_reward_may_pay_what_it_likes(check):
    def brevity(completions, **kwargs):
        return [-0.5] * len(completions)

    assert check(rewards=[reward(brevity, "shaping", 1.0)]).status is None


def test_an_async_reward_is_judged_too(check):
    async def generous(completions, **kwargs):
        return [1.0] * len(completions)

    assert_refused(check(rewards=[reward(generous, "verifier", 1.0)]), "scores an empty completion 1.0")


def test_a_task_that_no_reward_scores_is_refused(check):
    def sums_only(completions, task, **kwargs):
        return [1.0 if name == "sums" else None for name in task]

    rows = Dataset.from_list([*TRAIN.to_list(), *make_rows(1, 2, task="products").to_list()])
    outcome = check(train=rows, rewards=[reward(sums_only, "shaping")])
    assert_refused(outcome, "task 'products': none of the rewards sums_only scores its 2 rows")


def test_a_reward_that_raises_is_refused(check):
    def broken(completions, **kwargs):
        raise KeyError("gold")

    outcome = check(rewards=[XmlFormat(), reward(broken, "shaping")])
    assert_refused(outcome, "'broken' fails on the reference answers", "KeyError")


def test_a_reward_that_returns_too_few_amounts_is_refused(check):
    def short(completions, **kwargs):
        return [0.0]

    outcome = check(rewards=[XmlFormat(), reward(short, "shaping")])
    assert_refused(outcome, "it returned 1 rewards for 8 completions")


def test_an_evaluation_row_in_the_training_rows_is_refused(check):
    assert_refused(
        check(held_out=make_rows(100, 3)), "1 of 2 evaluation rows are also training rows (the first is row 1)"
    )


def with_example(number: int, text: str) -> Dataset:
    """A held-out row that asks `text` after another worked example."""
    shown = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{number} + 0 ="}]
    shown += [{"role": "assistant", "content": str(number)}, {"role": "user", "content": text}]
    return Dataset.from_list([{"prompt": shown, "task": "sums", "answer": "4"}])


@pytest.mark.parametrize("text", ["3 + 1 =", " 3  + 1\n="])
def test_a_training_question_is_found_whatever_prompt_stands_before_it(check, text):
    assert_refused(check(held_out=with_example(9, text)), "1 of 1 evaluation rows are also training rows")


def test_near_duplicates_are_noted_with_the_pair(check):
    story = "Tom buys {} boxes of four pens and gives two pens to Ann and one to Bob. How many pens are left?"
    train, held_out = TRAIN.to_list(), HELD_OUT.to_list()
    train[2]["prompt"][0]["content"], held_out[1]["prompt"][0]["content"] = story.format(3), story.format(5)
    outcome = check(train=Dataset.from_list(train), held_out=Dataset.from_list(held_out))
    (note,) = outcome.result.notes
    assert note.startswith("1 of 2 evaluation questions share half of their 8-word runs")
    assert "row 1: 'tom buys 5 boxes" in note and "training row 2: 'tom buys 3 boxes" in note
    assert check().result.notes == []


def test_an_instruction_that_all_questions_share_makes_no_near_duplicates():
    asked = "Continue this passage in English with names dates and figures please and stop there:"
    rows = [{"prompt": f"{asked} {n} {n} {n}"} for n in range(20)]
    assert near_duplicates(rows[:10], rows[10:]) == []


def test_a_reward_that_scores_no_row_is_refused(check):
    def silent(completions, **kwargs):
        return [None] * len(completions)

    outcome = check(rewards=[XmlFormat(), reward(silent, "shaping")])
    assert_refused(outcome, "reward 'silent' scores none of the rows")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"load_in_4bit": True}, "load_in_4bit: true needs the package bitsandbytes"),
        ({"use_vllm": True}, "use_vllm: true needs the package vllm"),
        ({"report_to": ["none", "trackio"]}, "report_to: trackio needs the package trackio"),
    ],
)
def test_a_package_that_a_setting_needs_is_named_before_training(check, settings, problem):
    assert_refused(check(**settings), problem)


def test_scores_are_rounded_for_people(check):
    def tenth(completions, **kwargs):
        return [0.1 + 0.2 for _ in completions]

    assert check(rewards=[XmlFormat(), reward(tenth, "shaping")]).table[1]["reference earns"] == 0.3


def test_an_unknown_reward_is_refused(check):
    outcome = check(reward_funcs=["xml_formt"])
    assert outcome.status == 2
    assert "unknown reward 'xml_formt'. Known rewards: boxed_math, " in outcome.printed


@pytest.mark.parametrize("weights", [[1.0], [1.0, 2.0, 3.0], 1.0])
def test_the_wrong_number_of_weights_is_refused(check, weights):
    count = len(weights) if isinstance(weights, list) else 1
    outcome = check(reward_weights=weights)
    assert_refused(outcome, f"reward_weights has {count} values for 2 rewards: xml_format, gsm8k_correctness")


def test_rewards_are_called_as_trl_calls_them():
    seen = {}

    def spy(**kwargs):
        seen.update(kwargs)
        return [None]

    row = {"prompt": [{"role": "user", "content": "1 + 1 ="}], "task": "sums", "answer": "2"}
    assert score(spy, [row], ["two"]) == [None]
    assert seen["completions"] == [[{"role": "assistant", "content": "two"}]]
    assert (seen["prompts"], seen["task"], seen["answer"]) == ([row["prompt"]], ["sums"], ["2"])
    assert {"completion_ids", "trainer_state", "log_extra", "log_metric"} < set(seen)
    score(spy, [{"prompt": "1 + 1 =", "task": "sums"}], ["two"])
    assert seen["completions"] == ["two"]


def test_rows_without_a_reference_answer_are_judged_by_what_needs_none(check):
    outcome = check(reference=lambda row: None if int(row["answer"]) % 2 else reference(row))
    assert outcome.status is None
    assert [(line["rows scored"], line["reference earns"]) for line in outcome.table] == [(8, 0.8), (8, 2.0)]
    outcome = check(reference=lambda row: None)
    assert outcome.status is None
    assert [(line["rows scored"], line["reference earns"]) for line in outcome.table] == [(8, None), (8, None)]


def test_a_row_without_a_reference_answer_that_no_verifier_can_grade_is_refused(check):
    def where_known(row: dict) -> str | None:
        return None if row["answer"] == "six" else reference(row)

    rows = TRAIN.to_list()
    rows[5]["answer"] = "six"
    said = "'gsm8k_correctness' cannot grade 1 of the rows without a reference answer; the first is row 5."
    assert_refused(check(train=Dataset.from_list(rows), reference=where_known), said)


def test_a_verifier_that_pays_an_empty_completion_is_refused_without_a_reference_answer_too(check):
    def generous(completions, **kwargs):
        return [1.0] * len(completions)

    outcome = check(rewards=[reward(generous, "verifier", 1.0)], reference=lambda row: None)
    assert_refused(outcome, "reward 'generous' is a verifier but scores an empty completion 1.0")


# Rewards that get ready


def ready(prepare: Callable[[int, float], str]) -> Callable:
    """A reward that gets ready."""

    def readied(completions, **kwargs):
        return [0.0] * len(completions)

    readied.prepare = prepare
    return reward(readied, "shaping")


@pytest.mark.parametrize(
    ("settings", "world", "completions"),
    [
        ({}, 1, 8),
        ({"gradient_accumulation_steps": 2}, 1, 16),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4, "save_steps": 4}, 1, 32),
        ({"generation_batch_size": 16}, 2, 8),
        ({"gradient_accumulation_steps": 2}, 2, 16),
    ],
)
def test_a_reward_gets_ready_for_the_completions_of_one_process(check, monkeypatch, settings, world, completions):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    seen = []
    rewards = [XmlFormat(), ready(lambda *asked: seen.append(asked))]
    check(train=make_rows(*range(32)), rewards=rewards, reward_timeout_s=7.5, **settings)
    assert seen == [(completions, 7.5)]


def test_what_a_reward_says_of_its_readiness_is_printed_and_kept(check):
    rewards = [XmlFormat(), ready(lambda completions, limit_s: f"seccomp; {completions} in {limit_s:g} s")]
    outcome = check(rewards=rewards)
    assert outcome.result.notes == ["readied: seccomp; 8 in 300 s"]
    assert check(rewards=[XmlFormat(), ready(lambda completions, limit_s: "")]).result.notes == []
    assert "\n  readied: seccomp; 8 in 300 s\n" in outcome.printed


def test_a_reward_that_cannot_get_ready_joins_the_problems(check):
    def refuse(completions: int, limit_s: float) -> str:
        raise ValueError("no isolation holds here")

    assert_refused(check(rewards=[XmlFormat(), ready(refuse)]), "reward 'readied': no isolation holds here")
    outcome = check(rewards=[XmlFormat(), ready(refuse)], num_generations=1)
    assert "\n2 problems; " in outcome.printed and "reward 'readied': no isolation holds here" in outcome.printed


# Programs


def program_rows(*tests: list[str]) -> Dataset:
    prompt = [{"role": "user", "content": "Write double(x)."}]
    return Dataset.from_list([{"prompt": prompt, "task": "code", "tests": list(of_row)} for of_row in tests])


DOUBLE = "```python\ndef double(x):\n    return 2 * x\n```"
PROGRAMS = {"reward_funcs": ["code_tests", "code_format"], "held_out": None}


@linux
def test_a_run_with_code_rewards_notes_its_isolation(check):
    rows = program_rows(*[["assert double(2) == 4", "assert double(0) == 0"]] * 2)
    outcome = check(train=rows, reference=lambda row: DOUBLE, **PROGRAMS)
    assert outcome.status is None
    assert [(line["rows scored"], line["reference earns"]) for line in outcome.table] == [(2, 1.0), (2, 1.0)]
    assert outcome.result.notes == [f"code_tests: {shared_sandbox().describe()}"]


@linux
def test_programs_that_never_end_must_fit_into_the_time_of_a_call(check):
    longest = 5 * -(-8 // shared_sandbox().workers)
    settings = {**PROGRAMS, "train": program_rows(*[["assert double(2) == 4"]] * 2), "reference": lambda row: DOUBLE}
    said = f"8 programs that never end take {shared_sandbox().workers} workers {longest} s at timeout_s 5, and "
    assert_refused(check(reward_timeout_s=longest, **settings), f"{said}reward_timeout_s is {longest}: lower the one")
    assert check(reward_timeout_s=longest + 1, **settings).status is None


@linux
@pytest.mark.parametrize("tests", [[], ["assert double("], ["assert double(1) == 2", '{"stdin": "", "stdout": ""}']])
def test_a_row_whose_tests_cannot_be_used_is_refused(check, tests):
    rows = program_rows(["assert double(2) == 4"], ["assert double(1) == 2"], tests)
    for first in (rows, rows.select([2, 0, 1])):
        outcome = check(train=first, reference=lambda row: DOUBLE, **PROGRAMS)
        assert outcome.status == 2 and "reward 'code_tests' " in outcome.printed


@linux
def test_programs_need_no_reference_answer(check):
    outcome = check(train=program_rows(*[["assert double(2) == 4"]] * 3), reference=lambda row: None, **PROGRAMS)
    assert outcome.status is None
    assert [(line["rows scored"], line["empty earns"]) for line in outcome.table] == [(3, 0.0), (3, 0.0)]


# Streams


def test_a_stream_is_judged_on_its_first_1000_rows_and_says_so(check):
    rows = make_rows(*range(200, 1300)).to_list()
    rows[1000]["answer"] = "not checked"
    outcome = check(train=Dataset.from_list(rows).to_iterable_dataset(), max_steps=5)
    assert outcome.status is None
    assert "streamed data: only its first 1000 rows were checked" in outcome.printed
    assert outcome.table[1]["rows scored"] == 1000


def test_the_thousandth_row_of_a_stream_is_judged(check):
    rows = make_rows(*range(200, 1300)).to_list()
    rows[999]["answer"] = "checked"
    outcome = check(train=Dataset.from_list(rows).to_iterable_dataset(), max_steps=5)
    assert_refused(outcome, "the first is row 999")


def test_rows_that_are_no_stream_are_all_judged(check):
    rows = make_rows(*range(200, 1300)).to_list()
    rows[1000]["answer"] = "checked"
    outcome = check(train=Dataset.from_list(rows))
    assert_refused(outcome, "the first is row 1000")
    assert "streamed" not in outcome.printed


# Arguments


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"per_device_train_batch_size": 6}, "per_device_train_batch_size to 4 or 8, or num_generations to 2 or 3."),
        ({"per_device_train_batch_size": 3}, "per_device_train_batch_size to 4, or num_generations to 3."),
        ({"per_device_train_batch_size": 1}, "set per_device_train_batch_size to 4."),
        (
            {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2},
            "set per_device_train_batch_size to 2 or 4, or num_generations to 2 or 3.",
        ),
        (
            {"per_device_train_batch_size": 3, "generation_batch_size": 6},
            "set generation_batch_size to 12, or num_generations to 2 or 3.",
        ),
    ],
)
def test_a_batch_that_does_not_divide_names_the_nearest_that_do(check, settings, advice):
    assert_refused(check(**settings), "does not divide by num_generations=4", advice)


def test_a_batch_is_counted_over_all_processes(check, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    outcome = check(per_device_train_batch_size=3)
    assert_refused(
        outcome, "a generation batch of 6 completions", "x 2 processes", "per_device_train_batch_size to 2 or 4"
    )


def test_a_generation_batch_that_the_processes_cannot_share_is_refused(check):
    assert_refused(check(generation_batch_size=12), "generation_batch_size 12 does not divide by 8")


def test_one_generation_is_refused(check):
    assert_refused(check(num_generations=1), "num_generations is 1; GRPO compares completions of one prompt")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_generations", 0),
        ("num_generations", [4]),
        ("per_device_train_batch_size", 0),
        ("gradient_accumulation_steps", -1),
        ("num_iterations", 0),
        ("steps_per_generation", 0),
        ("generation_batch_size", 0),
    ],
)
def test_a_count_below_one_is_refused(check, name, value):
    assert_refused(check(**{name: value}), f"{name} is {value}; it must be a whole number of at least 1.")


def test_fewer_rows_than_a_generation_needs_are_refused(check):
    outcome = check(train=make_rows(1), per_device_train_batch_size=8)
    assert_refused(outcome, "1 training rows are fewer than the 2 prompts of one generation")


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"save_steps": 10, "steps_per_generation": 4}, "set it to 8 or 12 (a multiple of 4)"),
        ({"save_steps": 5, "num_iterations": 2}, "set it to 4 or 6 (a multiple of 2)"),
        ({"save_steps": 1, "num_iterations": 2}, "set it to 2 (a multiple of 2)"),
        ({"save_steps": 6, "num_iterations": 2, "steps_per_generation": 2}, "set it to 4 or 8 (a multiple of 4)"),
        ({"save_steps": 0.5}, "set it to 1 (a multiple of 1)"),
        ({"save_steps": 3, "generation_batch_size": 16}, "set it to 2 or 4 (a multiple of 2)"),
    ],
)
def test_saving_within_a_generation_is_refused(check, settings, advice):
    assert_refused(check(**settings), f"save_steps={settings['save_steps']} would save in the middle", advice)


@pytest.mark.parametrize(
    "settings",
    [
        {"save_steps": 8, "steps_per_generation": 4},
        {"save_steps": 7, "save_strategy": "no", "steps_per_generation": 4},
        {"save_steps": 7, "gradient_accumulation_steps": 4, "num_iterations": 2, "steps_per_generation": 2},
    ],
)
def test_saving_between_generations_is_fine(check, settings):
    assert check(**settings).status is None


def test_misaligned_accumulation_is_refused(check):
    assert_refused(
        check(gradient_accumulation_steps=3, steps_per_generation=2),
        "gradient_accumulation_steps (3) and steps_per_generation x num_iterations (2 x 1) do not divide one another",
    )


@pytest.mark.parametrize(
    ("accumulation", "steps", "iterations", "period"),
    [
        (1, 1, 1, 1),
        (1, 4, 2, 8),
        (4, 4, 1, 1),
        (4, 4, 2, 2),
        (8, 4, 1, 1),
        (8, 2, 2, 1),
        (2, 8, 1, 4),
        (3, 2, 1, None),
        (4, 6, 1, None),
        (4, 2, 3, None),
    ],
)
def test_generation_period_is_when_the_buffer_is_used_up(accumulation, steps, iterations, period):
    assert generation_period(accumulation, steps, iterations) == period


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "model_name_or_path is missing"),
        ("./nowhere", "model_name_or_path './nowhere' is not a folder"),
        ("/nowhere", "model_name_or_path '/nowhere' is not a folder"),
        ("models/SmolLM2", "is not a folder. Run `python scripts/prepare_model.py` first."),
    ],
)
def test_a_missing_model_is_refused(check, name, problem):
    assert_refused(check(model_name_or_path=name), problem)


def test_an_unknown_key_is_refused(check):
    assert_refused(check(num_generation=4), "unknown argument 'num_generation' in run.yaml; did you mean")


def test_what_trl_refuses_is_reported_as_well(check):
    assert_refused(check(generation_batch_size=8, steps_per_generation=1), "can not be both configured")


def test_rows_that_could_not_be_loaded_are_refused_with_the_reason(check):
    assert_refused(
        check(train=None, held_out=None, problems=["dataset_path 'x' has no train.jsonl."]),
        "dataset_path 'x' has no train.jsonl.",
        "(no rows or rewards to check)",
    )


def test_all_problems_are_reported_at_once(check):
    rows = TRAIN.to_list()
    rows[2]["answer"] = "three"
    outcome = check(
        train=Dataset.from_list(rows),
        held_out=make_rows(3),
        model_name_or_path=None,
        num_generation=4,
        per_device_train_batch_size=6,
        save_steps=3,
        num_iterations=2,
        reward_weights=[1.0],
        words=["--zzz"],
    )
    assert outcome.status == 2
    assert "\n8 problems; nothing was loaded and nothing was written:\n" in outcome.printed
    for part in (
        "scores None instead of 2.0",
        "1 of 1 evaluation rows",
        "model_name_or_path is missing",
        "unknown argument 'num_generation'",
        "does not divide by num_generations=4",
        "save_steps=3",
        "reward_weights has 1 values",
        "unknown argument '--zzz'",
    ):
        assert part in outcome.printed


def test_a_table_is_as_wide_as_its_widest_cell():
    assert format_table([{"a": 1, "bb": None}, {"a": 100, "bb": "x"}]) == "  a    bb\n  1    -\n  100  x"


# Several tasks


def mixed_rows() -> Dataset:
    other = [{"prompt": [{"role": "user", "content": "Write."}], "task": "prose", "style": "short"}]
    return Dataset.from_list(TRAIN.to_list() + other)


def reference_of_either(row: dict) -> str:
    return reference(row) if row["task"] == "sums" else "<reasoning></reasoning><answer>text</answer>"


def test_a_verifier_that_can_grade_no_row_of_a_task_is_refused_with_the_routing_that_mends_it(check):
    outcome = check(train=mixed_rows(), reference=reference_of_either)
    assert_refused(outcome, "can grade none of the rows of task 'prose'", "reward_tasks: {gsm8k_correctness: [sums]}")


def test_a_routed_verifier_does_not_apply_to_other_tasks(check):
    tasks = {"gsm8k_correctness": ["sums"]}
    outcome = check(train=mixed_rows(), reference=reference_of_either, reward_tasks=tasks)
    assert outcome.status is None
    scored = {(line["task"], line["reward"]): line["rows scored"] for line in outcome.table}
    assert scored[("prose", "gsm8k_correctness")] == 0 and scored[("sums", "gsm8k_correctness")] == 8
    assert scored[("prose", "xml_format")] == 1


def test_a_misspelt_task_is_refused_with_the_tasks_that_there_are(check):
    outcome = check(reward_tasks={"gsm8k_correctness": ["sum"]})
    assert_refused(outcome, "is for rows of task 'sum', but the rows have only: sums")


def test_a_task_that_all_rewards_are_routed_past_is_refused(check):
    tasks = {"gsm8k_correctness": ["sums"], "xml_format": ["sums"]}
    outcome = check(train=mixed_rows(), reference=reference_of_either, reward_tasks=tasks)
    assert_refused(outcome, "task 'prose': none of the rewards xml_format, gsm8k_correctness scores its 1 rows")


def test_a_routed_reward_whose_column_the_task_lacks_is_refused(check):
    outcome = check(train=mixed_rows(), reference=reference_of_either, reward_tasks={"gsm8k_correctness": ["prose"]})
    assert_refused(outcome, "reward 'gsm8k_correctness' needs the column answer, which row 8 lacks")


@pytest.mark.parametrize(
    "gates, said",
    [
        ({"length": "gsm8k_correctness"}, "reward_gates names 'length', which is not in reward_funcs"),
        ({"xml_format": "gsm8k"}, "reward_gates names 'gsm8k', which is not in reward_funcs"),
        ({"gsm8k_correctness": "xml_format"}, "a gate is a verifier or a format reward"),
        ({"xml_format": ["gsm8k_correctness", "xml_format"]}, "a gate is a verifier or a format reward"),
    ],
)
def test_a_gate_that_cannot_open_is_refused(check, gates, said):
    assert_refused(check(reward_gates=gates), said)


@pytest.mark.parametrize("gates", [{"xml_format": None}, {"xml_format": []}, {"xml_format": {"a": 1}}])
def test_a_gate_without_names_is_refused(check, gates):
    assert_refused(check(reward_gates=gates), "give the name of a reward, or a list of names")


@pytest.mark.parametrize("name", ["reward_kwargs", "reward_tasks", "reward_gates"])
def test_a_reward_setting_that_is_no_mapping_is_refused(check, name):
    assert_refused(check(words=[f"--{name}", "xml_format"]), f"{name} must be a mapping by reward, not 'xml_format'")


def test_gates_are_refused_where_each_reward_is_normalised_alone(check):
    gates = {"xml_format": "gsm8k_correctness"}
    outcome = check(reward_gates=gates, multi_objective_aggregation="normalize_then_sum")
    assert_refused(outcome, "reward_gates do not go with multi_objective_aggregation: normalize_then_sum")


def test_a_gate_that_does_not_score_the_gated_task_is_refused(check):
    tasks, gates = {"gsm8k_correctness": ["sums"]}, {"xml_format": "gsm8k_correctness"}
    outcome = check(train=mixed_rows(), reference=reference_of_either, reward_tasks=tasks, reward_gates=gates)
    assert_refused(outcome, "reward_gates would never open 'xml_format' for task 'prose'")


@pytest.mark.parametrize("name, value", [("max_reward_error_rate", 1.5), ("reward_timeout_s", 0.0)])
def test_a_limit_that_means_nothing_is_refused(check, name, value):
    assert_refused(check(**{name: value}), f"{name} is {value:g}")


def test_a_row_is_named_by_its_place_in_the_data_set(check):
    rows = Dataset.from_list([*mixed_rows().to_list()[::-1][:1], *TRAIN.to_list(), {**TRAIN[0], "answer": "many"}])
    tasks = {"gsm8k_correctness": ["sums"]}
    outcome = check(train=rows, reference=reference_of_either, reward_tasks=tasks)
    assert outcome.status == 2 and "the first is row 9" in outcome.printed


def test_an_evaluation_row_that_cannot_be_graded_is_refused(check):
    held_out = Dataset.from_list([make_rows(100)[0], {**make_rows(101)[0], "answer": "many"}])
    assert_refused(check(held_out=held_out), "evaluation rows: ", "gsm8k_correctness", "row 1")


def test_every_row_is_tried_with_an_empty_answer(check):
    def pays_the_last(completions, answer, **kwargs):
        return [1.0 if answer[i] == "8" or c[0]["content"] else 0.0 for i, c in enumerate(completions)]

    assert_refused(check(rewards=[reward(pays_the_last, "verifier", 1.0)]), "scores an empty completion 1.0")


# Rows that are named


def test_named_rows_that_are_asked_otherwise_than_the_held_out_ones_are_noted(check, tmp_path_factory):
    file = tmp_path_factory.mktemp("named") / "rows.jsonl"
    rows = TRAIN.to_list()
    rows[0]["prompt"].insert(0, {"role": "system", "content": "Be brief."})
    file.write_text(json.dumps(rows[0]) + "\n")
    outcome = check(train=Dataset.from_list(rows), only_rows=str(file))
    assert (
        outcome.status is None
        and "  only_rows: the messages before the question are not those of the held-out rows" in outcome.printed
    )


# What could not be resumed


@pytest.mark.parametrize("name", ["ignore_data_skip", "save_only_model"])
def test_a_setting_that_a_resume_could_not_honour_is_refused(check, name):
    assert_refused(check(**{name: True}), name)


def test_a_stream_needs_max_steps(check):
    assert_refused(check(train=TRAIN.to_iterable_dataset(), max_steps=-1), "set max_steps")


def test_secrets_are_not_part_of_the_recorded_configuration(check):
    outcome = check(hub_token="secret")
    assert outcome.status is None and "secret" not in str(outcome.config)


def test_half_an_example_is_refused(check):
    assert_refused(check(example=["a question"]), "example has 1 entries; give a question and its completion, or none")
