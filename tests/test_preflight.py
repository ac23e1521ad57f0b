"""Preflight refuses each bad input before a weight is loaded, names the remedy, and reports all of
them at once.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from datasets import Dataset, concatenate_datasets

from recipes.common.checks.preflight import Preflight, preflight, report, resolved
from recipes.common.settings import RecipeArguments, parse_arguments
from rewards import load_rewards
from rewards.audit.call import score
from rewards.format import XmlFormat
from rewards.sandbox import shared_sandbox

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sandbox is built for Linux"
)
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
            {
                "prompt": [{"role": "user", "content": f"{n} + 1 ="}],
                "task": task,
                "answer": str(n + 1),
                **columns,
            }
            for n in numbers
        ]
    )


def reference(row: dict) -> str:
    return f"<reasoning></reasoning><answer>{row['answer']}</answer>"


TRAIN, HELD_OUT = make_rows(*range(8)), make_rows(100, 101)
TWO_ROWS = (
    "2 held-out rows show no change, however large (80 % power, if a quarter of the rows change)"
)
MANY = make_rows(*range(200, 1300))
# A row of another task behind those of TRAIN, and the reference answers of both.
OTHER = {"prompt": [{"role": "user", "content": "Write."}], "task": "prose", "style": "short"}
MIXED = {"train": Dataset.from_list([*TRAIN.to_list(), OTHER])}
MIXED["reference"] = lambda row: reference(row if row["task"] == "sums" else {"answer": "text"})
TO_SUMS = {"reward_tasks": {"gsm8k_correctness": ["sums"]}}


def with_answer(place: int, answer: str | None, rows: Dataset = TRAIN) -> Dataset:
    """`rows` with another answer at one place."""
    changed = rows.to_list()
    changed[place]["answer"] = answer
    return Dataset.from_list(changed)


def reward(
    function: Callable, kind: str, full: float | None = None, name: str | None = None
) -> Callable:
    function.kind, function.full, function.__name__ = kind, full, name or function.__name__
    return function


def giving(
    amounts: list, kind: str = "shaping", full: float | None = None, name: str = "mine"
) -> Callable:
    """A reward that gives each completion the first of `amounts`, or returns `amounts` where there
    are several.
    """
    many = len(amounts) > 1
    return reward(
        lambda completions, **kwargs: amounts if many else amounts * len(completions),
        kind,
        full,
        name,
    )


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
    monkeypatch.chdir(tmp_path)

    def run(
        train=TRAIN,
        held_out=HELD_OUT,
        rewards=None,
        reference=reference,
        words=(),
        problems=(),
        **settings,
    ) -> Outcome:
        Path("run.yaml").write_text(yaml.safe_dump({**SETTINGS, **settings}))
        args, found = (
            parse_arguments(RecipeArguments, ["--config", "run.yaml", *words]),
            list(problems),
        )
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


# What passes


def shorter(completions, **kwargs):
    return [-len(completion[0]["content"]) / 1000 for completion in completions]


def test_a_reward_that_declares_nothing_trains_and_is_named_with_its_audit(check):
    outcome = check(rewards=[XmlFormat(), shorter])
    assert outcome.status is None
    assert [line["kind"] for line in outcome.table] == ["format", "undeclared"]
    assert "undeclared, so that no score of theirs is checked: shorter; " in outcome.printed
    command = "python scripts/audit_rewards.py --config run.yaml --reward_funcs xml_format"
    assert command in outcome.printed


def test_a_reward_of_the_kind_model_is_not_called(check):
    outcome = check(
        rewards=[
            XmlFormat(),
            reward(lambda completions, **kwargs: 1 / 0, "model", name="mine"),
            "org/scorer",
        ]
    )
    assert outcome.status is None
    cells = [
        (line["reward"], line["kind"], line["reference earns"], line["empty earns"])
        for line in outcome.table[1:]
    ]
    assert cells == [("mine", "model", None, None), ("scorer", "model", None, None)]
    words = "of the kind model, which neither preflight nor the audit call: mine, scorer\n"
    assert words in outcome.printed


def test_good_input_becomes_a_run_and_the_report_shows_what_each_reward_gives(check):
    outcome = check()
    assert outcome.status is None and outcome.result.notes == [TWO_ROWS]
    assert outcome.result.training.num_generations == 4
    assert outcome.result.training.steps_per_generation == 1
    assert outcome.result.model.model_name_or_path == "org/model"
    assert outcome.config["reward_funcs"] == ["xml_format", "gsm8k_correctness"]
    assert outcome.config["world_size"] == 1
    assert [list(line.values()) for line in outcome.table] == [
        ["sums", 1.0, "xml_format", "format", 8, 0.8, 0.8, 0.0],
        ["sums", 1.0, "gsm8k_correctness", "verifier", 8, 2.0, 2.0, 0.0],
    ]
    for line in (
        "Preflight of run.yaml",
        "  sums  1.0     gsm8k_correctness  verifier  8            2.0              2.0   0.0",
        "8 rows; an optimizer step learns from 8 completions (2 prompts x 4) on 1 CPU process.",
    ):
        assert line in outcome.printed


# fmt: off
PASSES = {
    "no held-out rows": {"held_out": Dataset.from_list([])},
    "plain-text prompts": {
        "train": Dataset.from_list(
            [{**row, "prompt": row["prompt"][0]["content"]} for row in TRAIN]
        )
    },
    "a shaping reward that scores an empty completion": {
        "rewards": [giving([-0.5], "shaping", 1.0)]
    },
    "saving between generations": {"save_steps": 8, "steps_per_generation": 4},
    "no saving": {"save_steps": 7, "save_strategy": "no", "steps_per_generation": 4},
    "saving at every step": {"save_steps": 7, "gradient_accumulation_steps": 4}
    | {"num_iterations": 2, "steps_per_generation": 2},
}
# fmt: on


@pytest.mark.parametrize("changes", PASSES.values(), ids=PASSES)
def test_what_can_train_passes(check, changes):
    assert check(**changes).status is None


# Rows and rewards


async def generous_async(completions, **kwargs):
    return [1.0] * len(completions)


def sums_only(completions, task, **kwargs):
    return [1.0 if name == "sums" else None for name in task]


def scores_the_last(completions, answer, **kwargs):
    return [1.0 if answer[i] == "8" or c[0]["content"] else 0.0 for i, c in enumerate(completions)]


def after_example(text: str) -> Dataset:
    """A held-out row with the question `text` after another worked example."""
    shown = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "9 + 0 ="}]
    shown += [{"role": "assistant", "content": "9"}, {"role": "user", "content": text}]
    return Dataset.from_list([{"prompt": shown, "task": "sums", "answer": "4"}])


PRODUCTS = make_rows(1, 2, task="products")
EMPTY_EARNS = "is a verifier but scores an empty completion 1.0"
ALSO_TRAINED = "1 of 1 evaluation rows are also training rows"
NO_GATE = "a gate is a verifier or a format reward"
NO_NAMES = "give the name of a reward, or a list of names"


def tag_count(completions, **kwargs):
    return [0.2 * completion[0]["content"].count("<") for completion in completions]


# What is refused: settings, rows and rewards, and the message, ... where parts are left out.
# fmt: off
REFUSED = {
    "a reward that pays a trick more than the reference answer": (
        {"rewards": [tag_count]},
        "reward 'tag_count' gives 40 to the wrong answer 'reasoning: tags 50 times' and ",
    ),
    "a column that all rows lack": (
        {
            "train": TRAIN.remove_columns("answer"),
            "reference": lambda row: reference({"answer": 5}),
        },
        "reward 'gsm8k_correctness' needs the column answer, which row 0 lacks (its columns: "
        "['prompt', 'task'])",
    ),
    "a column of the reference completion that all rows lack": (
        {"train": TRAIN.remove_columns("answer"), "rewards": [XmlFormat()]},
        "row 0 lacks the column 'answer', of which the recipe makes the reference completion (its "
        "columns: ['prompt', 'task'])",
    ),
    "a column that one row lacks": (
        {"train": with_answer(3, None)}, "needs the column answer, which row 3 lacks",
    ),
    "rows without a task": ({"train": TRAIN.remove_columns("task")}, "rows lack task"),
    "rows without a prompt": ({"train": TRAIN.remove_columns("prompt")}, "rows lack prompt"),
    "a reference answer that does not earn the full reward": (
        {
            "reference": lambda row: reference(
                {"answer": row["answer"] + ".0" * (row["answer"] == "4")}
            )
        },
        "reward 'gsm8k_correctness' scores 1.5 instead of 2.0 for the reference answer of 1 of 8 "
        "rows of task 'sums'; the first is row 3: '<reasoning></reasoning><answer>4.0</answer>'",
    ),
    "a reference answer out of format": (
        {"reference": lambda row: f"<answer>{row['answer']}</answer>"},
        "reward 'xml_format' scores 0.4 instead of 0.8 for the reference answer of 8 of 8 rows",
    ),
    "a gold that cannot be graded": (
        {"train": with_answer(5, "six")},
        "'gsm8k_correctness' scores None instead of 2.0 ... 1 of 8 rows ... the first is row 5",
    ),
    "a gold that cannot be graded and has no reference answer": (
        {
            "train": with_answer(5, "six"),
            "reference": lambda row: None if row["answer"] == "six" else reference(row),
        },
        "'gsm8k_correctness' cannot grade 1 of the rows without a reference answer; the first is "
        "row 5.",
    ),
    "a held-out gold that cannot be graded": (
        {"held_out": with_answer(1, "many", HELD_OUT)},
        "evaluation rows: ... gsm8k_correctness ... row 1",
    ),
    "a verifier that scores an empty completion": (
        {"rewards": [giving([1.0], "verifier", 1.0)]}, EMPTY_EARNS,
    ),
    "such a verifier, async": ({"rewards": [reward(generous_async, "verifier", 1.0)]}, EMPTY_EARNS),
    "a verifier that scores an empty completion of the last row alone": (
        {"rewards": [reward(scores_the_last, "verifier", 1.0)]}, EMPTY_EARNS,
    ),
    "a task that no reward scores": (
        {
            "train": concatenate_datasets([TRAIN, PRODUCTS]),
            "rewards": [reward(sums_only, "shaping")],
        },
        "task 'products': none of the rewards sums_only scores its 2 rows",
    ),
    "a training question after another prompt": (
        {"held_out": after_example("3 + 1 =")}, ALSO_TRAINED,
    ),
    "the thousandth row of a stream": (
        {"train": with_answer(999, "checked", MANY).to_iterable_dataset(), "max_steps": 5},
        "the first is row 999",
    ),
    "a stream without an end": (
        {"train": TRAIN.to_iterable_dataset(), "max_steps": -1}, "set max_steps",
    ),
    "a verifier that can grade no row of a task": (
        MIXED,
        "can grade none of the rows of task 'prose' ... reward_tasks: {gsm8k_correctness: [sums]}",
    ),
    "a misspelt task": (
        {"reward_tasks": {"gsm8k_correctness": ["sum"]}},
        "is for rows of task 'sum', but the rows have only: sums",
    ),
    "a task that all rewards are routed past": (
        {**MIXED, "reward_tasks": {"gsm8k_correctness": ["sums"], "xml_format": ["sums"]}},
        "task 'prose': none of the rewards xml_format, gsm8k_correctness scores its 1 rows",
    ),
    "a routed reward whose column the task lacks": (
        {**MIXED, "reward_tasks": {"gsm8k_correctness": ["prose"]}},
        "reward 'gsm8k_correctness' needs the column answer, which row 8 lacks",
    ),
    "a row by its place in the whole data set": (
        {
            **MIXED,
            **TO_SUMS,
            "train": concatenate_datasets([MIXED["train"].select([8]), with_answer(7, "many")]),
        },
        "the first is row 8",
    ),
}
# fmt: on
BATCH = "per_device_train_batch_size"
# Settings that are refused, and the message.
# fmt: off
WRONG = [
    (
        {
            "reward_gates": {"xml_format": "gsm8k_correctness"},
            "multi_objective_aggregation": "normalize_then_sum",
        },
        "reward_gates do not go with multi_objective_aggregation: normalize_then_sum",
    ),
    (
        {**MIXED, **TO_SUMS, "reward_gates": {"xml_format": "gsm8k_correctness"}},
        "reward_gates would never open 'xml_format' for task 'prose'",
    ),
    (
        {"reward_gates": {"length": "gsm8k_correctness"}},
        "reward_gates names 'length', which is not in reward_funcs",
    ),
    ({"reward_gates": {"gsm8k_correctness": "xml_format"}}, NO_GATE),
    ({"reward_gates": {"xml_format": "xml_format"}}, "opens 'xml_format' by itself"),
    ({"reward_gates": {"xml_format": None}}, NO_NAMES),
    ({"load_in_4bit": True}, "load_in_4bit or load_in_8bit needs the package bitsandbytes"),
    ({"use_vllm": True}, "use_vllm: true needs the package vllm"),
    ({"report_to": ["none", "trackio"]}, "report_to: trackio needs the package trackio"),
    ({"generation_batch_size": 12}, "generation_batch_size 12 does not divide by 8"),
    (
        {"train": make_rows(1), "per_device_train_batch_size": 8},
        "the training rows are fewer than the 2 prompts of one generation",
    ),
    (
        {"gradient_accumulation_steps": 3, "steps_per_generation": 2},
        "gradient_accumulation_steps (3) and steps_per_generation x num_iterations (2 x 1) do not "
        "divide one another",
    ),
    (
        {"reward_weights": [1.0, 2.0, 3.0]},
        "reward_weights has 3 values for 2 rewards: xml_format, gsm8k_correctness",
    ),
    *(
        (settings, f"does not divide by num_generations=4: make it a multiple of 4, or {advice}")
        for settings, advice in (
            ({BATCH: 6}, "num_generations one of 2, 3, 6."),
            ({BATCH: 3}, "num_generations one of 3."),
            ({BATCH: 3, "gradient_accumulation_steps": 2}, "num_generations one of 2, 3, 6."),
            ({BATCH: 3, "generation_batch_size": 6}, "num_generations one of 2, 3, 6."),
        )
    ),
    *(
        (
            settings,
            f"save_steps={settings['save_steps']} would save in the middle ... set it to a "
            f"multiple of {period}.",
        )
        for settings, period in (
            ({"save_steps": 10, "steps_per_generation": 4}, 4),
            ({"save_steps": 1, "num_iterations": 2}, 2),
            ({"save_steps": 0.5}, 1),
            ({"save_steps": 3, "generation_batch_size": 16}, 2),
        )
    ),
    *(({name: True}, name) for name in ("ignore_data_skip", "save_only_model")),
]
# fmt: on


@pytest.mark.parametrize(
    ("changes", "message"),
    [*REFUSED.values(), *WRONG],
    ids=[*REFUSED, *(message for _, message in WRONG)],
)
def test_what_cannot_train_is_refused_with_the_remedy(check, changes, message):
    outcome = check(**changes)
    assert_refused(outcome, *message.split(" ... "))
    assert "streamed" not in outcome.printed or "max_steps" in changes


def test_a_batch_is_counted_over_all_processes(check, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    parts = (
        "a generation batch of 6 completions",
        "x 2 processes",
        "num_generations one of 2, 3, 6",
    )
    assert_refused(check(per_device_train_batch_size=3), *parts)


def test_all_problems_are_reported_at_once(check):
    outcome = check(
        train=with_answer(2, "three"),
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
    parts = (
        "scores None instead of 2.0",
        "1 of 1 evaluation rows",
        "model_name_or_path is missing",
        "save_steps=3",
    )
    parts += (
        "unknown argument 'num_generation'",
        "does not divide by num_generations=4",
        "unknown argument '--zzz'",
    )
    for part in (*parts, "reward_weights has 1 values"):
        assert part in outcome.printed


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


def test_rows_without_a_reference_answer_are_scored_by_what_needs_none(check):
    odd = check(reference=lambda row: None if int(row["answer"]) % 2 else reference(row))
    none = check(reference=lambda row: None)
    assert odd.status is none.status is None
    earned = [
        [(line["rows scored"], line["reference earns"]) for line in o.table] for o in (odd, none)
    ]
    assert earned == [[(8, 0.8), (8, 2.0)], [(8, None), (8, None)]]


def test_a_routed_verifier_does_not_apply_to_other_tasks(check):
    outcome = check(**MIXED, **TO_SUMS)
    assert outcome.status is None
    scored = {(line["task"], line["reward"]): line["rows scored"] for line in outcome.table}
    assert (
        scored[("prose", "gsm8k_correctness")] == 0 and scored[("sums", "gsm8k_correctness")] == 8
    )
    assert scored[("prose", "xml_format")] == 1


# Notes


def test_the_change_that_the_held_out_rows_show_is_noted(check):
    held_out = make_rows(*range(100, 260))
    assert (
        check(held_out=held_out)
        .result.notes[-1]
        .startswith("160 held-out rows show a change of 11.4 points or more")
    )
    assert check(held_out=None).result.notes == []


def test_only_the_first_1000_rows_of_a_stream_are_checked_and_the_report_says_so(check):
    outcome = check(train=with_answer(1000, "not checked", MANY).to_iterable_dataset(), max_steps=5)
    assert outcome.status is None
    assert "streamed data: only its first 1000 rows were checked" in outcome.printed
    assert outcome.table[1]["rows scored"] == 1000


def test_named_rows_with_another_prompt_than_the_held_out_ones_are_noted(check, tmp_path_factory):
    file = tmp_path_factory.mktemp("named") / "rows.jsonl"
    rows = TRAIN.to_list()
    rows[0]["prompt"].insert(0, {"role": "system", "content": "Be brief."})
    file.write_text(json.dumps(rows[0]) + "\n")
    outcome = check(train=Dataset.from_list(rows), only_rows=str(file))
    assert outcome.status is None
    assert (
        "  only_rows: the messages before the question are not those of the held-out rows"
        in outcome.printed
    )


def test_secrets_are_not_part_of_the_recorded_configuration(check):
    outcome = check(hub_token="secret")
    assert outcome.status is None and "secret" not in str(outcome.config)


# Rewards that get ready


def ready(prepare: Callable[[int, float], str]) -> list[Callable]:
    """A format reward, and one that gets ready."""
    readied = giving([0.0], name="readied")
    readied.prepare = prepare
    return [XmlFormat(), readied]


@pytest.mark.parametrize(
    ("settings", "world", "completions"),
    [
        ({}, 1, 8),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 4, "save_steps": 4}, 1, 32),
        ({"generation_batch_size": 16}, 2, 8),
    ],
)
def test_a_reward_gets_ready_for_the_completions_of_one_process(
    check, monkeypatch, settings, world, completions
):
    monkeypatch.setenv("WORLD_SIZE", str(world))
    seen = []
    rewards = ready(lambda *asked: seen.append(asked))
    check(train=make_rows(*range(32)), rewards=rewards, reward_timeout_s=7.5, **settings)
    assert seen == [(completions, 7.5)]


def test_the_note_of_a_reward_that_is_ready_is_printed_and_kept(check):
    outcome = check(rewards=ready(lambda completions, limit_s: f"{completions} in {limit_s:g} s"))
    assert outcome.result.notes == ["readied: 8 in 300 s", TWO_ROWS]
    assert "\n  readied: 8 in 300 s\n" in outcome.printed


def test_a_reward_that_cannot_get_ready_joins_the_problems(check):
    def refuse(completions: int, limit_s: float) -> str:
        raise ValueError("no isolation holds here")

    assert_refused(check(rewards=ready(refuse)), "reward 'readied': no isolation holds here")
    outcome = check(rewards=ready(refuse), num_generations=1)
    assert (
        "\n2 problems; " in outcome.printed
        and "reward 'readied': no isolation holds here" in outcome.printed
    )


# Programs


def program_rows(*tests: list[str]) -> Dataset:
    prompt = [{"role": "user", "content": "Write double(x)."}]
    return Dataset.from_list(
        [{"prompt": prompt, "task": "code", "tests": list(of_row)} for of_row in tests]
    )


DOUBLE = ["assert double(2) == 4"]
PROGRAMS = {"reward_funcs": ["code_tests", "code_format"], "held_out": None}
PROGRAMS["reference"] = lambda row: "```python\ndef double(x):\n    return 2 * x\n```"


@linux
@pytest.mark.parametrize("answer", [PROGRAMS["reference"], lambda row: None])
def test_a_run_with_code_rewards_notes_its_isolation_and_needs_no_reference(check, answer):
    outcome = check(train=program_rows(DOUBLE, DOUBLE), **{**PROGRAMS, "reference": answer})
    assert outcome.status is None
    scored = [(line["rows scored"], line["empty earns"]) for line in outcome.table]
    assert scored == [(2, 0.0), (2, 0.0)]
    assert outcome.result.notes == [f"code_tests: {shared_sandbox().describe()}"]


@linux
def test_programs_that_never_end_must_fit_into_the_time_of_a_call(check):
    workers = shared_sandbox().workers
    longest = 5.5 * -(-8 // workers)  # the tests of each may end half a second after its limit
    settings = {**PROGRAMS, "train": program_rows(DOUBLE, DOUBLE)}
    message = f"8 programs that never end take {workers} workers {longest:g} s at timeout_s 5, and "
    message += f"reward_timeout_s is {longest:g}: lower the one"
    assert_refused(check(reward_timeout_s=longest, **settings), message)
    assert check(reward_timeout_s=longest + 1, **settings).status is None


@linux
@pytest.mark.parametrize(
    "tests", [[], ["assert double("], ["assert double(1) == 2", '{"stdin": "", "stdout": ""}']]
)
def test_a_row_whose_tests_cannot_be_used_is_refused(check, tests):
    rows = program_rows(DOUBLE, ["assert double(1) == 2"], tests)
    for first in (rows, rows.select([2, 0, 1])):
        outcome = check(train=first, **PROGRAMS)
        assert outcome.status == 2 and "reward 'code_tests' " in outcome.printed
