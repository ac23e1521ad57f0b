"""The audit: each trick is what its name says, and a reward that pays one more than it may is named with it."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import audit_rewards
import pytest
import yaml
from datasets import Dataset
from test_layout import CONFIGS, REQUIRED, relative

from recipes.common.before.arguments import RecipeArguments, parse_arguments
from recipes.common.before.preflight import preflight
from recipes.common.before.rows import Problem
from rewards import load_reward
from rewards.audit import audit as audit_module
from rewards.audit.audit import Audit, audit, check_tricks, report, stand_in_ids, unusable_rows
from rewards.audit.tricks import ASKED, SHORT, forged, tricks
from rewards.code_blocks import extract_program
from rewards.contract import farmable, reward_allowances
from rewards.parsing import last_number, parse_number, tag_text
from rewards.registry import REGISTRY
from rewards.routing import route
from rewards.steps import SumOfSteps

GOLDS = ["18", "7", "1,080", "-3", "250", "11", "100", "0"]
CYRILLIC = str.maketrans("aeio7", "\u0430\u0435\u0456\u043e\U0001d7d5")


def make_rows(*golds: str, task: str = "maths") -> list[dict]:
    return [
        {"prompt": [{"role": "user", "content": f"Question {i}?"}], "task": task, "answer": gold}
        for i, gold in enumerate(golds)
    ]


def tagged(row: dict) -> str:
    return f"<reasoning>r</reasoning><answer>{row['answer']}</answer>"


def thought(row: dict) -> str:
    return f"<think>t</think>\n<answer>{row['answer']}</answer>"


def boxed(row: dict) -> str:
    return rf"So it is $\boxed{{{row['answer']}}}$."


def hashed(row: dict) -> str:
    return f"#### {row['answer']}"


def programmed(row: dict) -> str:
    return f"```python\ndef answer():\n    return '{row['answer']}'\n```"


ROWS = make_rows(*GOLDS)


def reward(kind: str | None = None, full: float | None = None, **attributes) -> Callable:
    """Make a scorer of (text, gold) a reward."""

    def make(scorer: Callable[[str, str], float | None]) -> Callable:
        def paying(completions, answer, **kwargs):
            return [scorer(c[0]["content"], gold) for c, gold in zip(completions, answer, strict=True)]

        paying.__name__ = scorer.__name__
        declared = {"kind": kind, "full": full, **attributes}
        for name, value in declared.items():
            if value is not None:
                setattr(paying, name, value)
        return paying

    return make


@reward("verifier", 1.0)
def exact(text, gold):
    return float(tag_text(text, "answer") == gold)


@reward("verifier", 1.0)
def uses_in(text, gold):
    return float("<answer>" in text and gold in text)


@reward("verifier", 1.0)
def takes_last_number(text, gold):
    return float(last_number(text) == parse_number(gold))


def texts(*golds: str, reference=tagged, gold_row: int = 0) -> dict[str, str]:
    rows = make_rows(*golds)
    return tricks(rows[gold_row], reference, rows)


def failing_tricks(result: Audit, name: str) -> set[str]:
    return {text.split("'")[3] for subject, text in result.failures if subject == name and "for the trick" in text}


# The battery


def test_each_trick_is_what_its_name_says():
    battery = texts("18", "7", "5")
    numbers = " ".join(str(n) for n in range(101))
    assert {name: battery[name] for name in battery if len(battery[name]) < 5000} == {
        "empty": "",
        "whitespace": " \n\t\u00a0\u3000" * 20,
        "prompt echoed": "Question 0?",
        "every number listed": numbers,
        "reasoning: tags only": "<reasoning></reasoning><answer></answer>",
        "reasoning: tags 50 times": "<reasoning></reasoning><answer></answer>" * 50,
        "reasoning: nested tags": "<reasoning><reasoning></reasoning></reasoning><answer><answer>7</answer></answer>",
        "reasoning: unclosed tags": "<reasoning>r<answer>7",
        "reasoning: answer inside": "<reasoning>r<answer>7</answer></reasoning>",
        "reasoning: answer before": "<answer>7</answer><reasoning>r</reasoning>",
        "reasoning: look-alike tags": "<reasoning>r</reasoning><answer>7</answer>".translate(CYRILLIC),
        "reasoning: code fence around": "```\n<reasoning>r</reasoning><answer>7</answer>\n```",
        "think: tags only": "<think></think><answer></answer>",
        "think: tags 50 times": "<think></think><answer></answer>" * 50,
        "think: nested tags": "<think><think></think></think><answer><answer>7</answer></answer>",
        "think: unclosed tags": "<think>r<answer>7",
        "think: answer inside": "<think>r<answer>7</answer></think>",
        "think: answer before": "<answer>7</answer><think>r</think>",
        "think: look-alike tags": "<think>r</think><answer>7</answer>".translate(CYRILLIC),
        "think: code fence around": "```\n<think>r</think><answer>7</answer>\n```",
        "another answer behind the gold": "<reasoning>r</reasoning><answer>18</answer>\n"
        "<reasoning>r</reasoning><answer>7</answer>",
        **{
            f"answer: {name}": f"<reasoning>r</reasoning><answer>{text}</answer>"
            for name, text in {
                "another row's": "7",
                "gold plus one": "19",
                "gold minus one": "17",
                "gold negated": "-18",
                "full-width digits": "１８",
                "look-alike characters": "𝟏𝟖",
                "zero-width character": "1\u200b8",
                "right-to-left marks": "\u202e81\u202c",
                "gold or another": "18 or 7",
                "another or gold": "7 or 18",
                "gold among others": "7, 18, 5",
                "NaN": "NaN",
                "inf": "inf",
                "1e999": "1e999",
                "9**9**9": "9**9**9",
                "nothing": "",
                "every number": numbers,
            }.items()
        },
        "answer: gold in the reasoning only": "<reasoning>r18</reasoning><answer>7</answer>",
        "answer: none, gold in the reasoning": "<reasoning>r18</reasoning><answer></answer>",
        **{
            f"answer: steps {name}": f"<reasoning>{text}</reasoning><answer>7</answer>"
            for name, text in {
                "one and one": "1 + 1 = 2. " * 50,
                "that say nothing": "3 = 3, 0 + 0 = 0, 3 * 1 = 3, 3 + 0 = 3, 3 - 3 = 0, 3 / 3 = 1. " * 5,
                "that say it again": ", ".join(["3 + 4 = 3 + 4, 7 - 4 = 7 - 4"] * 20),
                "repeated": "3 + 4 = 7. " * 49 + "3 + 4 = 7",
                "there and back": "3 + 4 = 7, 7 - 4 = 3. " * 19 + "3 + 4 = 7, 7 - 4 = 3",
                "in a chain": "3 + 4 = 4 + 3 = " * 20 + "7",
                "that add up and up": "3 + 4 = 7, " + ", ".join(f"{n} + 4 = {n + 4}" for n in range(7, 87, 4)),
            }.items()
        },
    }
    assert battery["a megabyte of one letter"] == "a" * 1_000_000
    assert battery["braces 50 000 deep"] == "{" * 50_000 + "}" * 50_000
    assert battery["boxes 10 000 deep"] == r"\boxed{" * 10_000 + "}" * 10_000
    assert tag_text(battery["answer: deep braces"], "answer") == "{" * 5000 + "}" * 5000
    assert len(battery) == 51


@pytest.mark.parametrize(
    ("reference", "text"),
    [(boxed, r"So it is $\boxed{19}$."), (hashed, "#### 19"), (thought, "<think>t</think>\n<answer>19</answer>")],
)
def test_the_asked_place_is_that_of_the_reference(reference, text):
    assert texts("18", reference=reference)["answer: gold plus one"] == text


def test_the_asked_place_is_the_last_that_is_no_letter_of_a_tag():
    battery = texts("a", "b", reference=lambda row: f"<reasoning>a?</reasoning><answer>{row['answer']}</answer>")
    assert battery["answer: another or gold"] == "<reasoning>a?</reasoning><answer>b or a</answer>"


def test_a_gold_that_is_no_number_has_its_last_digit_changed():
    assert texts(r"\frac{1}{2}x", reference=boxed)["answer: last digit changed"] == r"So it is $\boxed{\frac{1}{3}x}$."


def test_what_would_be_the_gold_itself_is_no_trick():
    assert "answer: zero-width character" not in texts("7")
    assert "answer: right-to-left marks" not in texts("11")
    assert "answer: gold negated" not in texts("0")
    assert "every number listed" not in texts("100")
    assert "answer: every number" in texts("100")


def test_another_rows_answer_is_another_value():
    assert tag_text(texts("18", "18.0", "18", "5")["answer: another row's"], "answer") == "5"
    assert "answer: another row's" not in texts("18", "18.0")


def test_a_prompt_that_shows_the_right_answer_is_not_echoed():
    example = {"role": "assistant", "content": "<reasoning>e</reasoning>\n<answer>\n18\n</answer>"}
    for gold, is_echoed in {"18": False, "8": True, "1": True}.items():
        row = {"prompt": [example, {"role": "user", "content": "And 18?"}], "task": "maths", "answer": gold}
        assert ("prompt echoed" in tricks(row, tagged, [])) is is_echoed


def test_a_row_without_an_answer_gets_the_tricks_that_need_none():
    rows = [{"prompt": "Go on:", "task": "text"}] * 2
    battery = tricks(rows[0], lambda row: "1 2 3", rows)
    assert battery["prompt echoed"] == "Go on:"
    assert len(battery) == 7 + 16
    assert not [name for name in battery if name.startswith(ASKED)]


def test_the_short_form_and_every_allowance_name_tricks_that_there_are():
    battery = texts("18", "7") | forged({"tests": ["assert f(1) == 2"]})
    assert set(SHORT) <= set(battery)
    for name in REGISTRY:
        assert set(reward_allowances(load_reward(name, **REQUIRED.get(name, {})))) <= set(battery)


# Programs that solve nothing


def test_forged_programs_define_what_the_tests_ask_for():
    row = {"tests": ["assert area(2) == math.pi * 4", "assert rim(1) == TWO"], "setup": "TWO = 2", "entry_point": None}
    battery = forged(row)
    assert list(battery) == [
        "code: exits first",
        "code: exits at once",
        "code: exits when called",
        "code: equals everything",
        "code: patches the checks",
        "code: prints that it passed",
        "code: nothing in the block",
        "code: comment only",
    ]
    assert battery["code: exits first"] == "```python\nimport sys\nsys.exit(0)\n```"
    assert battery["code: exits when called"] == (
        "```python\ndef area(*a, **k): raise SystemExit(0)\ndef rim(*a, **k): raise SystemExit(0)\n```"
    )
    assert battery["code: nothing in the block"] == "```python\n\n```"
    for name, text in battery.items():
        compile(extract_program(text), name, "exec")


def test_a_forged_program_defines_the_entry_point_of_its_row():
    battery = forged({"tests": ["assert max(sum([1]), 2) == 2"], "entry_point": "max"})
    assert battery["code: exits when called"] == "```python\ndef max(*a, **k): raise SystemExit(0)\n```"


@pytest.mark.parametrize(
    "tests",
    [
        ['{"stdin": "1", "stdout": "2"}'],
        ["assert f("],
        ["assert f(1) == 2", '{"stdin": "1", "stdout": "2"}'],
        ["assert f(1) == 2", None],
        "assert f(1) == 2",
    ],
)
def test_tests_that_name_no_function_are_forged_without_one(tests):
    battery = forged({"tests": tests})
    assert len(battery) == 8
    assert battery["code: exits when called"] == "```python\n\n```"


@pytest.mark.parametrize("row", [{}, {"tests": None}, {"tests": []}])
def test_a_row_without_tests_is_not_forged(row):
    assert forged(row) == {}


@reward("verifier", 1.0)
def trusts_the_exit_code(text, gold):
    return float(text == f"```python\nreturn {gold}\n```" or "sys.exit(0)" in text)


def test_a_verifier_that_trusts_an_exit_code_is_found_out_before_a_run():
    rows, problems = [row | {"tests": [f"assert f() == {row['answer']}"]} for row in make_rows("18", "7")], []
    check_tricks(rows, [trusts_the_exit_code], lambda row: f"```python\nreturn {row['answer']}\n```", problems)
    assert [problem.text.partition(":")[0] for problem in problems] == [
        "reward 'trusts_the_exit_code' pays 1 for the trick 'code"
    ]
    assert "code: exits first" in problems[0].text and "row 0" in problems[0].text


# Rows without a reference answer


def test_rows_without_a_reference_answer_are_left_out():
    asked = []

    @reward("verifier", 1.0)
    def careful(text, gold):
        asked.append(gold)
        return float(tag_text(text, "answer") == gold)

    def of_short_golds(row: dict) -> str | None:
        return tagged(row) if len(row["answer"]) < 3 else None

    result = audit(ROWS, [careful], of_short_golds, per_task=3)
    assert result.failures == []
    assert list(dict.fromkeys(asked)) == ["18", "7", "-3"]


def test_a_task_without_any_reference_answer_is_noted():
    rows = [*make_rows("18", task="sums"), *make_rows("7", task="words")]
    result = audit(rows, [exact], lambda row: tagged(row) if row["task"] == "sums" else None)
    assert list(result.paid) == ["exact (sums)"]
    assert result.failures == []
    assert result.notes == ["task 'words': no row has a reference answer, so nothing was tried on it."]


# What a reward may pay

ASKED_BY = {
    "think_answer_format": thought,
    "boxed_math": boxed,
    "cosine_scaled": boxed,
    "prose": lambda row: "So it goes.",
    **dict.fromkeys(("code_tests", "code_tests_async", "code_format"), programmed),
}


@pytest.mark.parametrize("name", REGISTRY)
def test_a_registered_reward_passes(name):
    entry = {"dataset": "chain_sum", "parameters": {}, "question": "q", "metadata": {}}
    rows = [row | {"entry": json.dumps(entry | {"answer": row["answer"]})} for row in ROWS]
    if name.startswith("code"):
        rows = [row | {"tests": [f"assert answer() == {row['answer']!r}"]} for row in ROWS[:2]]  # programs take longer
    reward = load_reward(name, **REQUIRED.get(name, {}))
    reward = SumOfSteps(reward) if reward.kind == "step" else reward
    result = audit(rows, [reward], ASKED_BY.get(name, tagged))
    assert result.failures == []
    assert name in result.paid


@pytest.mark.parametrize("name", REGISTRY)
def test_a_registered_reward_that_promises_nothing_says_how_it_is_earned(name):
    loaded = load_reward(name, **REQUIRED.get(name, {}))
    if loaded.kind in ("shaping", "control"):
        assert farmable(loaded) or reward_allowances(loaded)
    if loaded.kind == "verifier":
        assert farmable(loaded) is None and reward_allowances(loaded) == {}


def test_a_strict_verifier_passes():
    result = audit(ROWS, [exact], tagged)
    assert result.failures == []
    assert set(result.paid["exact"].values()) == {0.0, 1.0}
    assert result.paid["exact"]["reference answer"] == 1.0


def test_tags_looked_for_with_in_are_found_out():
    assert failing_tricks(audit(ROWS, [uses_in], tagged), "uses_in") >= {
        "answer: gold or another",
        "answer: gold among others",
        "answer: every number",
        "answer: gold in the reasoning only",
        "answer: none, gold in the reasoning",
        "another answer behind the gold",
    }


def test_the_last_number_anywhere_is_found_out():
    result = audit(ROWS, [takes_last_number], tagged)
    assert result.paid["takes_last_number"]["answer: every number"] == 1.0  # by one row of eight: gold 100
    assert failing_tricks(result, "takes_last_number") == {
        "answer: another or gold",
        "answer: none, gold in the reasoning",
        "answer: every number",
    }


def test_a_failure_names_reward_trick_amount_row_and_completion():
    result = audit(make_rows("5", "18"), [takes_last_number], hashed)
    assert result.failures == [
        Problem(
            "takes_last_number",
            "reward 'takes_last_number' pays 1 for the trick 'answer: another or gold'; a verifier pays none of them: "
            "row 0, '#### 18 or 5'",
        )
    ]


def test_a_reference_below_the_full_reward_is_a_failure():
    result = audit(make_rows("18", "7"), [exact], lambda row: f"<answer>{row['answer']}.</answer>")
    assert result.failures == [
        Problem(
            "exact",
            "reward 'exact' pays 0 instead of 1 for the reference answer of 2 of 2 rows: row 0, '<answer>18.</answer>'",
        )
    ]


def test_a_verifier_that_grades_nothing_is_a_failure():
    @reward("verifier", 1.0)
    def mute(text, gold):
        return None

    (failure,) = audit(ROWS, [mute], tagged).failures
    assert "pays nothing instead of 1 for the reference answer of 8 of 8 rows" in failure.text


def test_a_format_reward_may_pay_the_asked_shape_and_no_other():
    @reward("format", 0.5)
    def shape(text, gold):
        return 0.5 * text.startswith("<reasoning>")

    assert failing_tricks(audit(ROWS, [shape], tagged), "shape") == {
        "reasoning: tags only",
        "reasoning: tags 50 times",
        "reasoning: nested tags",
        "reasoning: unclosed tags",
        "reasoning: answer inside",
        "another answer behind the gold",
    }


@pytest.mark.parametrize(("allowed", "count"), [(0.5, 0), (0.4, 1)])
def test_an_allowance_is_what_a_trick_may_be_paid(allowed, count):
    @reward("format", 0.5, allowances={"reasoning: tags only": (allowed, "it is a start")})
    def shape(text, gold):
        return 0.5 * (text in ("<reasoning></reasoning><answer></answer>", tagged({"answer": gold})))

    result = audit(ROWS, [shape], tagged)
    assert len(result.failures) == count
    assert result.notes == [f"shape may pay {allowed} for reasoning: tags only: it is a start."]


def test_a_penalty_that_an_empty_text_escapes_is_noted_and_no_failure():
    @reward()
    def brevity(text, gold):
        return -len(text) / 500

    result = audit(make_rows("18", "7"), [brevity], tagged)
    assert result.failures == []
    assert result.notes == [
        "brevity pays 0 for the trick 'empty', more than for the reference answer (-0.086): gate it by a verifier "
        "(reward_gates)."
    ]


@reward()
def counts_letters(text, gold):
    return min(1.0, len(text) / 100)


def test_shaping_that_pays_a_trick_more_than_the_answer_is_a_failure():
    assert "a megabyte of one letter" in failing_tricks(audit(ROWS, [counts_letters], tagged), "counts_letters")


@reward()
def has_tags(text, gold):
    return float("<answer>" in text and "</answer>" in text)


def test_shaping_that_pays_a_trick_as_much_as_the_answer_is_a_failure_too():
    tricked = failing_tricks(audit(ROWS, [has_tags], tagged), "has_tags")
    assert {"reasoning: tags only", "reasoning: tags 50 times", "answer: gold plus one"} <= set(tricked)


def test_a_reward_that_is_farmable_by_design_is_named_and_not_judged(monkeypatch):
    monkeypatch.setattr(counts_letters, "farmable", "any letters earn it", raising=False)
    result = audit(ROWS, [counts_letters], tagged)
    assert result.failures == []
    assert "  Farmable by design: counts_letters: any letters earn it\n" in report(result, [counts_letters])
    assert "  Farmable by design: none of these rewards.\n" in report(audit(ROWS, [exact], tagged), [exact])


def test_a_verifier_cannot_declare_itself_farmable(monkeypatch):
    monkeypatch.setattr(uses_in, "farmable", "by tags", raising=False)
    monkeypatch.setattr(uses_in, "allowances", {"answer: every number": (1.0, "why not")}, raising=False)
    assert "answer: every number" in failing_tricks(audit(ROWS, [uses_in], tagged), "uses_in")


def test_a_reward_is_judged_on_rows_of_its_tasks_alone():
    rows = [*make_rows("18", "7", task="maths"), *make_rows("5", "6", task="sums")]
    result = audit(rows, [exact, route(uses_in, ("sums",))], tagged)
    assert list(result.paid) == ["exact (maths)", "exact (sums)", "uses_in (sums)"]
    assert {"row 2" in text for name, text in result.failures} == {True}


def test_a_reward_that_says_it_does_not_apply_is_left_out():
    @reward("format", 1.0)
    def elsewhere(text, gold):
        return None

    assert audit(ROWS, [elsewhere], tagged) == Audit()


@pytest.mark.parametrize("kind", ["verifier", "shaping"])
def test_a_reward_that_raises_is_named_with_the_trick(kind):
    @reward(kind, 1.0)
    def brittle(text, gold):
        return float(float(tag_text(text, "answer") or 0) == 0.5)

    (failure,) = audit(make_rows("0.5"), [brittle], tagged, only=("answer: 9**9**9",)).failures
    assert failure.text == (
        "reward 'brittle' fails on 1 of 2 completions: ValueError: could not convert string to float: '9**9**9'. "
        "The first: row 0, '<reasoning>r</reasoning><answer>9**9**9</answer>'"
    )


def test_an_error_that_a_reward_reports_itself_is_a_failure():
    def reporting(completions, log_extra, **kwargs):
        log_extra("outcome/reporting", ["error: KeyError: gold"] * len(completions))
        return [None] * len(completions)

    (failure,) = audit(make_rows("18"), [reporting], tagged, only=("empty",)).failures
    assert "fails on 2 of 2 completions: KeyError: gold. The first: row 0" in failure.text


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_an_amount_that_is_no_finite_number_is_a_failure(amount):
    @reward()
    def odd(text, gold):
        return amount if text == "" else 0.0

    (failure,) = audit(ROWS, [odd], tagged).failures
    assert f"it paid {amount}. The first: row 0, ''" in failure.text


def test_a_slow_reward_is_a_failure(monkeypatch):
    monkeypatch.setattr(audit_module, "SECONDS", 0.05)

    @reward()
    def slow(text, gold):
        time.sleep(0.1 * (text == ""))
        return 0.0

    (failure,) = audit(ROWS[:1], [slow], tagged).failures
    assert "too slow to train with" in failure.text


def test_an_async_reward_is_judged_too():
    async def generous(completions, **kwargs):
        return [1.0] * len(completions)

    generous.kind, generous.full = "verifier", 1.0
    assert "empty" in failing_tricks(audit(ROWS, [generous], tagged), "generous")


def test_rewards_of_token_ids_are_shown_some():
    assert stand_in_ids("one and one") == [0, 1, 2, 1, 0]
    assert stand_in_ids("") == []
    assert len(stand_in_ids("a" * 1_000_000)) == 250_000
    paid = audit(ROWS, [load_reward("soft_overlong", max_completion_len=100, soft_punish_cache=20)], tagged).paid
    assert paid["soft_overlong"]["empty"] == 0.0
    assert paid["soft_overlong"]["a megabyte of one letter"] == -1.0


def test_rows_that_cannot_be_judged_are_said():
    bare = [{"prompt": "p", "task": "maths"}]
    assert unusable_rows([], [exact]) == ["there are no training rows to judge."]
    assert unusable_rows([{"prompt": "p"}], []) == ["row 0 lacks a prompt or a task (its columns: ['prompt'])."]
    assert unusable_rows(bare, [exact]) == ["reward 'exact' needs the column answer; no row has it."]
    assert "is for ('sums',); no row is of these tasks." in unusable_rows(bare, [route(exact, ("sums",))])[0]
    assert unusable_rows(ROWS, [exact]) == []


# The short form, in preflight


def short_form(rewards: list[Callable], *found: Problem) -> list[Problem]:
    problems = list(found)
    check_tricks(ROWS, rewards, tagged, problems)
    return problems[len(found) :]


def test_the_short_form_finds_the_planted_verifiers():
    for planted in (uses_in, takes_last_number):
        problems = short_form([exact, planted])
        assert {problem.subject for problem in problems} == {planted.__name__}
        assert "row 0" in problems[0].text


def test_the_short_form_lets_shaping_be():
    assert short_form([counts_letters]) == []


def test_the_short_form_does_not_repeat_what_is_known():
    assert short_form([uses_in], Problem("uses_in", "it is broken")) == []
    assert short_form([uses_in], Problem("rows", "they lack a task")) == []


def test_the_short_form_takes_no_second():
    start = time.perf_counter()
    check_tricks(ROWS * 1000, [load_reward("xml_format"), load_reward("gsm8k_correctness")], tagged, [])
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("streamed", [False, True])
def test_preflight_refuses_a_verifier_that_pays_a_trick(streamed, capsys, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    words = ["--model_name_or_path", "org/model", "--num_generations", "4", "--max_steps", "5", "--save_steps", "10"]
    args = parse_arguments(RecipeArguments, words)
    rows = Dataset.from_list(ROWS)
    with pytest.raises(SystemExit) as stop:
        preflight(args, rows.to_iterable_dataset() if streamed else rows, None, [takes_last_number], tagged)
    assert stop.value.code == 2
    said = "reward 'takes_last_number' pays 1 for the trick 'answer: another or gold'; a verifier pays none of them"
    assert said in capsys.readouterr().out


# The script

PLANTED = """
def uses_in(completions, answer, **kwargs):
    return [float("<answer>" in c[0]["content"] and gold in c[0]["content"])
            for c, gold in zip(completions, answer)]

uses_in.kind, uses_in.full = "verifier", 1.0

def brevity(completions, **kwargs):
    return [-len(completion[0]["content"]) / 500 for completion in completions]
"""


@pytest.fixture
def run_script(monkeypatch, capsys) -> Callable:
    """Exit status and output of scripts/audit_rewards.py."""

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["audit_rewards.py", *words])
        with pytest.raises(SystemExit) as stop:
            audit_rewards.main()
        said = capsys.readouterr()
        return stop.value.code, said.out + said.err

    return run


@pytest.fixture
def planted(tmp_path: Path) -> str:
    file = tmp_path / "planted.py"
    file.write_text(PLANTED)
    return str(file)


@pytest.fixture
def questions(tmp_path: Path) -> str:
    """A folder of GSM8K's form."""
    lines = [json.dumps({"question": f"{n} and {n}?", "answer": f"It is {2 * n}.\n#### {2 * n}"}) for n in range(3, 40)]
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    return str(tmp_path)


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A folder as scripts/prepare_code.py writes it; the last row has no reference answer."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for split, start in (("train", 2), ("test", 6)):
        lines = [
            {
                "prompt": f"Write times{n}(x).",
                "tests": [f"assert times{n}({x}) == {n * x}" for x in (2, 3)],
                "solution": f"def times{n}(x):\n    return {n} * x" if n % 4 != 1 else "",
            }
            for n in range(start, start + 4)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


@pytest.mark.parametrize("file", CONFIGS, ids=relative)
def test_the_rewards_of_a_yaml_pass(file, run_script, questions, programs):
    config = yaml.safe_load(file.read_text())
    if "/" in (config.get("dataset_name") or ""):
        pytest.skip("its rows are on the Hub")
    own_rows = {"gsm8k": ["--dataset_path", questions], "code": ["--dataset_path", programs]}.get(file.parent.name, [])
    if "mbpp" in (sources := config.get("sources", {})):
        mixed = sources | {"mbpp": sources["mbpp"] | {"path": programs}}
        own_rows = ["--sources", json.dumps(mixed), "--num_eval_rows", "4"]
    status, output = run_script("--config", str(file), *own_rows)
    assert status == 0, output
    assert "  No reward pays more than it may." in output


def test_a_planted_verifier_is_named(run_script, planted):
    quickstart = "recipes/arithmetic/quickstart.yaml"
    status, output = run_script("--config", quickstart, "--rows", "2", "--reward_funcs", f"{planted}:uses_in")
    assert status == 1
    assert "\n  answer: every number " in output
    assert "reward 'uses_in' pays 1 for the trick 'answer: gold or another'; a verifier pays none" in output


def test_the_brevity_of_the_readme_passes(run_script, planted):
    quickstart = "recipes/arithmetic/quickstart.yaml"
    status, output = run_script("--config", quickstart, "--reward_funcs", "reasoning_gym", f"{planted}:brevity")
    assert status == 0
    assert "  Note: brevity pays 0 for the trick 'empty', more than for the reference answer" in output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--reward_funcs", "xml_formt"], "error: unknown reward 'xml_formt'"),
        (["--no_such_key", "1"], "unknown argument '--no_such_key'"),
        (["--rows", "0"], "--rows is 0; at least 1"),
        (["--reward_tasks", '{"reasoning_gym": ["sums"]}'], "reward 'reasoning_gym' is for ('sums',); no row is"),
    ],
)
def test_what_cannot_be_used_is_refused(run_script, words, said):
    status, output = run_script("--config", "recipes/arithmetic/quickstart.yaml", *words)
    assert status == 2
    assert said in output
