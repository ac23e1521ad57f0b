"""The audit: a trick is what its name says, and a reward that gives one more than it may is named.

That it finds the mistakes of public rewards is held by tests/test_planted_rewards.py.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import audit_rewards
import pytest
import yaml
from datasets import Dataset
from test_layout import CONFIGS, REQUIRED, ROOT, relative

from recipes.common.checks.preflight import preflight
from recipes.common.settings import RecipeArguments, parse_arguments
from rewards import load_reward
from rewards.audit import audit as audit_module
from rewards.audit.audit import Audit, audit, check_tricks, unusable_rows
from rewards.audit.call import score, stand_in_ids
from rewards.audit.report import report
from rewards.audit.tricks import ASKED, FORMS, LESSONS, LONG, REFERENCE, SHORT, UNREADABLE, tricks
from rewards.code_blocks import extract_program
from rewards.contract import declared, route
from rewards.registry import REGISTRY
from rewards.text import tag_text

GOLDS = ["18", "7", "1,080", "-3", "250", "11", "100", "0"]
REFUSED = ROOT / "recipes/arithmetic/hack.yaml"  # by the audit, which is its point


def make_rows(*golds: str, task: str = "maths") -> list[dict]:
    return [
        {"prompt": [{"role": "user", "content": f"Question {i}?"}], "task": task, "answer": gold}
        for i, gold in enumerate(golds)
    ]


def shaped(form: str) -> Callable[[dict], str]:
    """Reference completions of that form."""
    return lambda row: form.replace("GOLD", row["answer"])


tagged = shaped("<reasoning>r</reasoning><answer>GOLD</answer>")
programmed = shaped("```python\ndef answer():\n    return 'GOLD'\n```")
ROWS = make_rows(*GOLDS)


def reward(name: str, scorer: Callable, kind: str | None = None, **declared) -> Callable:
    """A reward that scores by `scorer(text, gold)`; a verifier declares that it gives 1.0."""

    def scoring(completions, answer, **kwargs):
        return [scorer(c[0]["content"], gold) for c, gold in zip(completions, answer, strict=True)]

    declared |= {"kind": kind} if kind else {}
    declared |= {"full": 1.0} if kind == "verifier" else {}
    for attribute, value in {"__name__": name, **declared}.items():
        setattr(scoring, attribute, value)
    return scoring


def verifier(name: str, is_right: Callable[[str, str], bool]) -> Callable:
    return reward(name, lambda text, gold: float(is_right(text, gold)), "verifier")


exact = verifier("exact", lambda text, gold: tag_text(text, "answer") == gold)
uses_in = verifier("uses_in", lambda text, gold: "<answer>" in text and gold in text)
elsewhere = reward("elsewhere", lambda text, gold: None, "format")
counts_letters = reward("counts_letters", lambda text, gold: min(1.0, len(text) / 100))


def battery_of(*golds: str, reference: Callable = tagged, **row) -> dict[str, str]:
    rows = make_rows(*golds)
    return tricks(rows[0] | row, reference, rows)


def test_a_reward_reads_the_state_of_a_trainer_before_step_1():
    def reads(completions, trainer_state, **kwargs):
        state = trainer_state
        rare = state.save_steps  # as transformers' own state has it
        return [state.global_step, state.max_steps, state.epoch, len(state.log_history), rare]

    assert score(reads, make_rows(*"12345"), [""] * 5) == [0, 1, 0.0, 0, 500]


# The battery

LOOK_ALIKE = "<rеаsоnіng>r</rеаsоnіng><аnswеr>𝟕</аnswеr>"  # of Cyrillic letters
WRONG = "<reasoning>r</reasoning><answer>7</answer>"


# With the gold 18, for a row that also has the wrong answers 7 and 5.
BATTERY = {
    "prompt echoed": "Question 0?",
    "reasoning: look-alike tags": LOOK_ALIKE,
    "think: nested tags": "<think><think></think></think><answer><answer>7</answer></answer>",
    "shape: text behind it": WRONG + "\nSo be it, or not.",
    "shape: closed twice": WRONG + "\n</answer>",
    "shape: back to front": "</answer>7<answer></reasoning>r<reasoning>",
    "shape: nothing in its tags": "<reasoning></reasoning><answer></answer>",
    "another answer behind the gold": WRONG.replace("7", "18") + "\n" + WRONG,
    "gold denied in words": "The answer is definitely not 18. The final answer is not 18.",
    "answer: gold in words": f"The final answer is 18.\n\n{WRONG}",
    "answer: none, gold in the reasoning": "<reasoning>r18</reasoning><answer></answer>",
    "answer: gold in the reasoning only": WRONG.replace("r<", "r18<"),
    "answer: steps there and back": WRONG.replace(
        "r<", ". ".join(["3 + 4 = 7, 7 - 4 = 3"] * 20) + "<"
    ),
}
ANSWERS = {
    "another row's": "7",
    "gold plus one": "19",
    "gold plus one, padded": "19.000000",
    "gold negated": "-18",
    "gold and half a percent": "18.09",
    "gold times 100": "1800",
    "gold squared": "18 squared",
    "full-width digits": "１８",
    "Arabic digits": "١٨",
    "look-alike characters": "𝟏𝟖",
    "zero-width character": "1\u200b8",
    "right-to-left marks": "\u202e81\u202c",
    "part of the gold": "1",
    "gold in a longer one": "18818",
    "gold among others": "7, 18, 5",
    "nothing": "",
}


def test_a_trick_is_what_its_name_says():
    battery = battery_of("18", "7", "5")
    assert len(battery) == 73 + len(FORMS)
    assert {name: battery[name] for name in BATTERY} == BATTERY
    answers = {ASKED + name: tagged({"answer": text}) for name, text in ANSWERS.items()}
    assert {name: battery[name] for name in answers} == answers
    # Without tags the reasoning is a line of its own.
    hashed = battery_of("18", reference=shaped("#### GOLD"))
    assert hashed[ASKED + "gold in the reasoning only"] == "18\n#### 19"
    asked = battery_of("a", reference=shaped("<b>a?</b><p>GOLD</p>"))[ASKED + "gold denied"]
    assert asked == "<b>a?</b><p>definitely not a</p>"


def test_what_would_be_the_gold_itself_is_not_a_trick():
    assert "answer: zero-width character" not in battery_of("7")
    assert "answer: right-to-left marks" not in battery_of("11")
    assert "answer: gold negated" not in battery_of("0")
    assert "every number listed" not in battery_of("100")
    assert "answer: another row's" not in battery_of("18", "18.0")
    assert battery_of("18", "18.0", "18", "5")["answer: another row's"] == tagged({"answer": "5"})
    example = {"role": "assistant", "content": "<reasoning>e</reasoning>\n<answer>\n18\n</answer>"}
    prompt = [example, {"role": "user", "content": "And 18?"}]
    assert "prompt echoed" not in battery_of("18", prompt=prompt)
    assert "prompt echoed" in battery_of("8", prompt=prompt)


def test_a_row_without_an_answer_gets_the_tricks_that_need_none():
    rows = [{"prompt": "Go on:", "task": "text"}] * 2
    battery = tricks(rows[0], lambda row: "1 2 3", rows)
    assert battery["prompt echoed"] == "Go on:"
    assert len(battery) == 10 + 16
    assert not [name for name in battery if name.startswith(ASKED)]


def test_the_short_form_and_every_allowance_name_tricks_that_there_are():
    named = {*SHORT, *LONG}
    for name in REGISTRY:
        named |= set(declared(load_reward(name, **REQUIRED.get(name, {})), "allowances", {}))
    assert named <= set(LESSONS)
    assert len(LONG) == 5


# Programs that solve nothing

STDIN = '{"stdin": "1", "stdout": "2"}'


def forged(reference: str = "", **row) -> dict[str, str]:
    found = tricks({"prompt": "p", **row}, lambda row: reference, [])
    return {name: text for name, text in found.items() if name.startswith(("code", "empty block"))}


def test_forged_programs_define_what_the_tests_call():
    tests = ["assert area(2) == math.pi * 4", "assert rim(1) == TWO"]
    battery = forged(tests=tests, setup="TWO = 2", entry_point=None)
    assert len(battery) == 13
    assert battery["code: exits first"] == "```python\nimport sys\nsys.exit(0)\n```"
    exits = "def {}(*a, **k): raise SystemExit(0)"
    functions = f"{exits.format('area')}\n{exits.format('rim')}"
    assert battery["code: exits when called"] == f"```python\n{functions}\n```"
    assert battery["empty block"] == "```python\n\n```"
    for name, text in battery.items():
        compile(extract_program(text), name, "exec")
    for tests in ([STDIN], ["assert f("], [STDIN, None]):  # that name no function
        assert forged(tests=tests)["code: exits when called"] == "```python\n\n```"


# Rows


def test_rows_without_a_reference_answer_are_left_out():
    seen = []
    careful = verifier("careful", lambda text, gold: seen.append(gold) or exact_one(text, gold))
    short = audit(ROWS, [careful], lambda row: tagged(row) if len(row["answer"]) < 3 else None, 3)
    assert short.failures == []
    assert [gold for gold in dict.fromkeys(seen) if gold in GOLDS] == ["18", "7", "-3"]
    rows = [*make_rows("18", task="sums"), *make_rows("7", task="words")]
    result = audit(rows, [exact], lambda row: tagged(row) if row["task"] == "sums" else None)
    assert (list(result.scores), result.failures) == (["exact (sums)"], [])
    nothing = "no row has a reference answer, so nothing was tried on it."
    assert result.notes == [f"task 'words': {nothing}"]


def exact_one(text: str, gold: str) -> bool:
    return tag_text(text, "answer") == gold


def test_a_question_in_its_answers_place_is_found_out():
    rows = [{"prompt": f"What is ${a} + 4$?", "task": "t", "answer": str(a + 4)} for a in (3, 5)]
    (failure,) = audit(rows, [load_reward("boxed_math")], r"\boxed{{answer}}").failures
    assert "the question's own expression" in failure


@pytest.mark.parametrize(
    ("rewards", "reference"), [([elsewhere], tagged), ([], tagged), ([exact], lambda row: None)]
)
def test_nothing_scored_is_a_failure(rewards, reference):
    result = audit(ROWS, rewards, reference)
    (failure,) = result.failures
    assert failure.startswith("nothing was scored: none of the 8 rows has a reference answer and")
    assert result.scores == {}
    # for preflight, rows without references are no problem
    assert check_tricks(ROWS, rewards, reference) == []


def test_a_reward_is_tried_on_rows_of_its_tasks_alone():
    rows = [*make_rows("18", "7", task="maths"), *make_rows("5", "6", task="sums")]
    result = audit(rows, [exact, route(uses_in, ("sums",)), elsewhere], tagged)
    assert list(result.scores) == ["exact (maths)", "exact (sums)", "uses_in (sums)"]
    assert {"row 2" in text for text in result.failures} == {True}


@pytest.mark.parametrize(
    ("rows", "rewards", "message"),
    [
        ([], [exact], "there are no rows."),
        ([{"task": "maths"}], [], "row 0 lacks a prompt (its columns: ['task'])."),
        ([{"prompt": "p"}], [exact], "reward 'exact' needs the column answer; no row has it."),
        (
            ROWS,
            [route(exact, ("sums",))],
            "reward 'exact' is for ('sums',); no row is of these tasks.",
        ),
    ],
)
def test_rows_that_cannot_be_scored_are_named(rows, rewards, message):
    assert unusable_rows(rows, rewards) == [message]
    assert audit(rows, rewards, tagged) == Audit(failures=[message])


# The scores a reward may give

REFERENCES = {
    "think_answer_format": shaped("<think>t</think>\n<answer>GOLD</answer>"),
    "boxed_math": shaped(r"So it is $\boxed{GOLD}$."),
    "prose": lambda row: "So it goes.",
    **dict.fromkeys(("code_tests", "code_format"), programmed),
}


@pytest.mark.parametrize("name", list(REGISTRY))
def test_a_registered_reward_passes_and_says_how_it_is_earned(name):
    entry = {"dataset": "chain_sum", "parameters": {}, "question": "q", "metadata": {}}
    rows = [row | {"entry": json.dumps(entry | {"answer": row["answer"]})} for row in ROWS]
    if name.startswith("code"):  # programs take longer
        rows = [row | {"tests": [f"assert answer() == {row['answer']!r}"]} for row in ROWS[:2]]
    loaded = load_reward(name, **REQUIRED.get(name, {}))
    result = audit(rows, [loaded], REFERENCES.get(name, tagged))
    assert (result.failures, list(result.scores)) == ([], [name])
    if loaded.kind in ("shaping", "control"):
        assert declared(loaded, "farmable") or declared(loaded, "allowances")
    if loaded.kind == "verifier":
        assert not declared(loaded, "farmable") and not declared(loaded, "allowances")


def test_a_failure_names_reward_trick_score_row_and_completion():
    result = audit(make_rows("5", "18"), [verifier("ends", str.endswith)], shaped("#### GOLD"))
    assert (
        "reward 'ends' gives 1 for the trick 'answer: another or gold'; a verifier gives 0 or "
        "less: row 0, '#### 18 or 5'"
    ) in result.failures


@pytest.mark.parametrize(("allowed", "count"), [(0.5, 0), (0.4, 1)])
def test_an_allowance_is_what_a_trick_may_get(allowed, count):
    empty = "<reasoning></reasoning><answer></answer>"
    allowances = {"reasoning: tags only": (allowed, "it is a start")}
    lenient = reward(
        "lenient",
        lambda text, gold: 0.5 * (text in (empty, tagged({"answer": gold}))),
        "format",
        full=0.5,
        allowances=allowances,
    )
    result = audit(ROWS, [lenient], tagged)
    assert len([text for text in result.failures if "'reasoning: tags only'" in text]) == count
    assert f"lenient may give {allowed} for reasoning: tags only: it is a start." in result.notes


def test_a_penalty_that_an_empty_text_escapes_is_noted_and_not_a_failure():
    brevity = reward("brevity", lambda text, gold: -len(text) / 500)
    result = audit(make_rows("18", "7"), [brevity], tagged)
    note = "brevity gives 0 for the trick 'empty', more than for the reference answer (-0.086)"
    assert result.failures == []
    assert result.notes[0] == f"{note}: gate it by a verifier (reward_gates)."


def test_a_reward_that_is_farmable_by_design_is_named_and_held_to_no_limit(monkeypatch):
    assert "a megabyte of one letter" in audit(ROWS, [counts_letters], tagged).tricks
    monkeypatch.setattr(counts_letters, "farmable", "any letters earn it", raising=False)
    result = audit(ROWS, [counts_letters], tagged)
    assert result.failures == []
    how = "  Farmable by design: counts_letters: any letters earn it\n"
    assert how in report(result, [counts_letters])
    monkeypatch.setattr(uses_in, "farmable", "by tags", raising=False)  # no word for a verifier
    assert "answer: every number" in audit(ROWS, [uses_in], tagged).tricks


# Rewards that fail


def test_an_error_that_a_reward_reports_itself_is_a_failure():
    def reporting(completions, log_extra, **kwargs):
        log_extra("outcome/reporting", ["error: KeyError: gold"] * len(completions))
        return [None] * len(completions)

    (failure,) = audit(make_rows("18"), [reporting], tagged).failures
    assert "completions: KeyError: gold. The first: row 0" in failure


def test_a_slow_reward_is_a_failure(monkeypatch):
    monkeypatch.setattr(audit_module, "SECONDS", 0.001)
    slow = verifier(
        "slow", lambda text, gold: time.sleep(0.3 * (not text)) or exact_one(text, gold)
    )
    failure, *_ = audit(ROWS[:1], [slow], tagged).failures
    assert "too slow to train with" in failure


def test_rewards_that_count_tokens_get_some():
    assert stand_in_ids("one and one") == [0, 1, 2, 1, 0]
    assert stand_in_ids("") == []
    overlong = load_reward("soft_overlong", max_completion_len=100, soft_punish_cache=20)
    found = audit(ROWS, [overlong], tagged).scores["soft_overlong"]
    assert (found["empty"], found["a megabyte of one letter"]) == (0.0, -1.0)


def test_an_answer_to_a_row_without_a_gold_may_raise():
    raises = verifier("raises", lambda text, gold: exact_one(text, gold) if gold[0] else None)
    assert audit(ROWS, [raises], tagged).failures == []


def test_the_report_says_once_why_a_trick_matters():
    names = [name for name in battery_of("18", "7") if not name.startswith(REFERENCE)]
    assert all(LESSONS[name] for name in [*names, *UNREADABLE])
    text = report(audit(ROWS[:2], [uses_in], tagged), [uses_in])
    assert text.count("\n  - one of several answers is enough: hedging doubles the chance") == 1


# The short form, in preflight


def test_the_short_form_finds_careless_verifiers_and_leaves_shaping_out():
    problems = check_tricks(ROWS, [exact, uses_in, counts_letters], tagged)
    assert {text.split("'")[1] for text in problems} == {"uses_in"}
    assert all("row 0" in text for text in problems)


def test_preflight_refuses_a_verifier_that_rewards_a_trick():
    words = "--model_name_or_path org/model --num_generations 4 --max_steps 5 --save_steps 10"
    args, rows = parse_arguments(RecipeArguments, words.split()), Dataset.from_list(ROWS)
    found = preflight(args, rows.to_iterable_dataset(), None, [uses_in], tagged)
    message = "reward 'uses_in' gives 1 for the trick 'answer: gold or another'"
    assert message in "\n".join(found.problems)


# The script

MINE = """
def careless(completions, answer, **kwargs):
    return [float(gold in c[0]["content"]) for c, gold in zip(completions, answer)]

careless.kind, careless.full = "verifier", 1.0

def brevity(completions, **kwargs):
    return [-len(completion[0]["content"]) / 500 for completion in completions]

def elsewhere(completions, **kwargs):
    return [None] * len(completions)
"""


@pytest.fixture
def run_script(monkeypatch, capsys) -> Callable:
    """Exit status and output of scripts/audit_rewards.py."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["audit_rewards.py", *words])
        with pytest.raises(SystemExit) as stop:
            audit_rewards.main()
        output = capsys.readouterr()
        return stop.value.code, output.out + output.err

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows of GSM8K's form, and in `programs` those of the code recipe; one has no reference."""
    questions = [
        {"question": f"{n} and {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"}
        for n in range(3, 40)
    ]
    programs = [
        {
            "prompt": f"Write times{n}(x).",
            "tests": [f"assert times{n}({x}) == {n * x}" for x in (2, 3)],
            "solution": f"def times{n}(x):\n    return {n} * x" if n % 4 != 1 else "",
        }
        for n in range(2, 10)
    ]
    (tmp_path / "programs").mkdir()
    files = {"train": questions, "test": questions}
    files |= {"programs/train": programs[:4], "programs/test": programs[4:]}
    for name, rows in files.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.mark.parametrize("file", [file for file in CONFIGS if file != REFUSED], ids=relative)
def test_the_rewards_of_a_yaml_pass(file, run_script, data):
    config = yaml.safe_load(file.read_text())
    if "/" in (config.get("dataset_name") or ""):
        pytest.skip("its rows are on the Hub")
    folders = {"gsm8k": data, "math": data, "code": data / "programs"}
    folder = folders.get(file.parent.name)
    own_rows = ["--dataset_path", str(folder)] if folder else []
    if "programs" in (sources := config.get("sources", {})):
        mixed = sources | {"programs": sources["programs"] | {"path": str(data / "programs")}}
        own_rows = ["--sources", json.dumps(mixed), "--num_eval_rows", "4"]
    status, output = run_script("--config", str(file), *own_rows)
    assert status == 0, output
    assert "  No reward gives more than it may." in output


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        ("--reward_funcs careless --per_task 2", 1, "\n  answer: every number "),
        ("--reward_funcs reasoning_gym brevity", 0, "Note: brevity gives 0 for the trick 'empty'"),
        ("--reward_funcs elsewhere", 2, "  - nothing was scored: none of the"),
        ("--per_task 0", 2, "0 is too small; at least 1"),
        ('--reward_tasks {"reasoning_gym":["sums"]}', 2, "is for ('sums',); no row is"),
        # the naive rewards of the hack
        ("--reward_funcs reasoning_gym tag_count", 1, "'tag_count' gives"),
        ("--reward_funcs reasoning_gym gold_in_text", 1, "'gold_in_text' gives"),
    ],
)
def test_the_exit_status_is_0_1_for_a_failure_and_2_where_nothing_is_scored(
    run_script, tmp_path, words, status, part
):
    (tmp_path / "mine.py").write_text(MINE)
    own = {name: f"{tmp_path}/mine.py:{name}" for name in ("careless", "brevity", "elsewhere")}
    for name in ("tag_count", "gold_in_text"):
        own[name] = f"recipes/arithmetic/naive_rewards.py:{name}"
    specs = [own.get(word, word) for word in words.split()]
    found, output = run_script("--config", "recipes/arithmetic/warm.yaml", *specs)
    assert (found, part in output) == (status, True), output
    assert "'reasoning_gym' gives" not in output
