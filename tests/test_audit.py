"""The audit: each trick is what its name says, and a reward that gives one more than it may is named with it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import audit_rewards
import pytest
import yaml
from datasets import Dataset
from test_layout import CONFIGS, REQUIRED, ROOT, relative

from recipes.common.checks.preflight import preflight
from recipes.common.settings import RecipeArguments, parse_arguments
from rewards import load_reward
from rewards.latex.number import number_of
from rewards.audit import audit as audit_module
from rewards.audit.audit import Audit, audit, check_tricks, unusable_rows
from rewards.audit.call import score, stand_in_ids
from rewards.audit.parts import variants
from rewards.audit.report import report
from rewards.audit.tricks import ASKED, LESSONS, LONG, SHORT, UNREADABLE, tricks
from rewards.code_blocks import extract_program
from rewards.contract import farmable, reward_allowances
from rewards.registry import REGISTRY
from rewards.routing import route
from rewards.text import tag_text

GOLDS = ["18", "7", "1,080", "-3", "250", "11", "100", "0"]
CYRILLIC = str.maketrans("aeio7", "\u0430\u0435\u0456\u043e\U0001d7d5")


def make_rows(*golds: str, task: str = "maths") -> list[dict]:
    return [
        {"prompt": [{"role": "user", "content": f"Question {i}?"}], "task": task, "answer": gold}
        for i, gold in enumerate(golds)
    ]


def shaped(form: str) -> Callable[[dict], str]:
    """Reference completions of that form."""
    return lambda row: form.replace("GOLD", row["answer"])


tagged = shaped("<reasoning>r</reasoning><answer>GOLD</answer>")
boxed = shaped(r"So it is $\boxed{GOLD}$.")
programmed = shaped("```python\ndef answer():\n    return 'GOLD'\n```")
ROWS = make_rows(*GOLDS)
REFUSED = ROOT / "recipes/arithmetic/hack.yaml"  # by the audit, which is its point


def reward(
    name: str, scorer: Callable[[str, str], float | None], kind=None, full=None, **declared
) -> Callable:
    """A reward that scores by `scorer(text, gold)`."""

    def scoring(completions, answer, **kwargs):
        return [scorer(c[0]["content"], gold) for c, gold in zip(completions, answer, strict=True)]

    scoring.__name__ = name
    for attribute, value in {"kind": kind, "full": full, **declared}.items():
        if value is not None:
            setattr(scoring, attribute, value)
    return scoring


def verifier(name: str, is_right: Callable[[str, str], bool]) -> Callable:
    return reward(name, lambda text, gold: float(is_right(text, gold)), "verifier", 1.0)


def last_number(text: str) -> Fraction | None:
    return number_of(["", *re.findall(r"-?\$?[0-9][0-9,]*(?:\.[0-9]+)?(?:/[0-9]+)?", text)][-1])


exact = verifier("exact", lambda text, gold: tag_text(text, "answer") == gold)
uses_in = verifier("uses_in", lambda text, gold: "<answer>" in text and gold in text)
takes_last_number = verifier(
    "takes_last_number", lambda text, gold: last_number(text) == number_of(gold)
)
trusts_the_exit_code = verifier(
    "trusts_the_exit_code",
    lambda text, gold: text == programmed({"answer": gold}) or "sys.exit" in text,
)
mute = reward("mute", lambda text, gold: None, "verifier", 1.0)
shape = reward("shape", lambda text, gold: 0.5 * text.startswith("<reasoning>"), "format", 0.5)
elsewhere = reward("elsewhere", lambda text, gold: None, "format", 1.0)
has_tags = reward("has_tags", lambda text, gold: float("<answer>" in text and "</answer>" in text))
counts_letters = reward("counts_letters", lambda text, gold: min(1.0, len(text) / 100))
CARELESS = (shape, takes_last_number, uses_in, counts_letters, has_tags)
brevity = reward("brevity", lambda text, gold: -len(text) / 500)


def battery_of(*golds: str, reference: Callable = tagged) -> dict[str, str]:
    rows = make_rows(*golds)
    return tricks(rows[0], reference, rows)


def forged(row, reference=""):
    found = tricks({"prompt": "p", "entry_point": None, **row}, lambda row: reference, [])
    return {n: t for n, t in found.items() if n.startswith("code: ") or n == "empty block"}


def failing_tricks(result: Audit, name: str) -> set[str]:
    found = [
        text
        for text in result.failures
        if text.startswith(f"reward {name!r}") and "for the trick" in text
    ]
    return {text.split("'")[3] for text in found}


def test_nothing_heavy_is_imported_and_no_row_of_maths_loads_the_sandbox():
    code = """
import sys
from rewards import load_rewards
from rewards.audit.audit import audit
heavy = ["torch", "transformers", "trl", "rewards.sandbox", "rewards.code_tests", "rewards.process", "recipes"]
print([name for name in heavy if name in sys.modules])
audit([{"prompt": "9+9", "answer": "18"}], load_rewards(["gsm8k_correctness"]), lambda row: "#### 18")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['rewards.process']\n"


def test_a_reward_reads_the_state_of_a_trainer_before_step_1():
    def reads(completions, trainer_state, **kwargs):
        return [
            trainer_state.global_step,
            trainer_state.max_steps,
            trainer_state.epoch,
            len(trainer_state.log_history),
        ]

    assert score(reads, make_rows(*"1234"), [""] * 4) == [0, 1, 0.0, 0]


# The battery


# fmt: off
ANSWERS = {
    "another row's": "7", "gold plus one": "19", "gold minus one": "17", "gold negated": "-18",
    "full-width digits": "１８", "look-alike characters": "𝟏𝟖", "zero-width character": "1\u200b8",
    "right-to-left marks": "\u202e81\u202c", "gold or another": "18 or 7", "another or gold": "7 or 18",
    "gold among others": "7, 18, 5", "gold denied": "definitely not 18", "gold times 1000": "18 thousand",
    "gold plus one, padded": "19.000000", "Arabic digits": "١٨", "NaN": "NaN", "inf": "inf", "1e999": "1e999",
    "9**9**9": "9**9**9",
    "part of the gold": "1", "gold in a longer one": "18818", "gold called wrong": "18 is wrong",
    "another equals gold": "7 = 18", "gold times 100": "1800", "gold with an exponent": "18e3",
    "gold in millions": "18M", "gold squared": "18 squared", "gold and half a percent": "18.09",
    "nothing": "", "every number": " ".join(map(str, range(101))), "deep braces": "{" * 5000 + "}" * 5000,
}
STEPS = {
    "one and one": "1 + 1 = 2. " * 50,
    "that say nothing": "3 = 3, 0 + 0 = 0, 3 * 1 = 3, 3 + 0 = 3, 3 - 3 = 0, 3 / 3 = 1. " * 5,
    "that say it again": ", ".join(["3 + 4 = 3 + 4, 7 - 4 = 7 - 4"] * 20),
    "repeated": "3 + 4 = 7. " * 49 + "3 + 4 = 7",
    "there and back": "3 + 4 = 7, 7 - 4 = 3. " * 19 + "3 + 4 = 7, 7 - 4 = 3",
    "in a chain": "3 + 4 = 4 + 3 = " * 20 + "7",
    "that add up and up": "3 + 4 = 7, " + ", ".join(f"{n} + 4 = {n + 4}" for n in range(7, 87, 4)),
}
MISSHAPEN = {
    "tags only": "<r></r><answer></answer>", "tags 50 times": "<r></r><answer></answer>" * 50,
    "nested tags": "<r><r></r></r><answer><answer>7</answer></answer>", "unclosed tags": "<r>r<answer>7",
    "answer inside": "<r>r<answer>7</answer></r>", "answer before": "<answer>7</answer><r>r</r>",
    "code fence around": "```\n<r>r</r><answer>7</answer>\n```",
}
UNASKED = {
    "empty": "", "refusal": "I'm sorry, but I can't help with that.",
    "whitespace": " \n\t\u00a0\u3000" * 20, "prompt echoed": "Question 0?",
    "every number listed": ANSWERS["every number"], "a megabyte of one letter": "a" * 1_000_000,
    "braces 50 000 deep": "{" * 50_000 + "}" * 50_000, "boxes 10 000 deep": r"\boxed{" * 10_000 + "}" * 10_000,
    "a long mixture": "".join(f"<think><answer>\n#### \\boxed{{{n},$ 1" for n in range(1000)) + "1" * 9_000 + "x",
    "words of steps": "Step 1: First,\nStep 2: Second,\n- Next,\n* Therefore,\n3. Finally, so the answer is",
}
WRONG = "<reasoning>r</reasoning><answer>7</answer>"
OUT_OF_SHAPE = {
    "text behind it": WRONG + "\nSo be it, or not.", "closed twice": WRONG + "\n</answer>",
    "back to front": "</answer>7<answer></reasoning>r<reasoning>",
    "nothing in its tags": "<reasoning></reasoning><answer></answer>",
}
# fmt: on


def test_each_trick_is_what_its_name_says():
    expected = UNASKED | {
        "another answer behind the gold": tagged({"answer": "18"}) + "\n" + tagged({"answer": "7"}),
        "answer: gold in the reasoning only": "<reasoning>r18</reasoning><answer>7</answer>",
        "answer: none, gold in the reasoning": "<reasoning>r18</reasoning><answer></answer>",
        "answer: gold in words": f"The final answer is 18.\n\n{WRONG}",
        "gold denied in words": "The answer is definitely not 18. The final answer is not 18.",
    }
    expected |= {f"shape: {name}": text for name, text in OUT_OF_SHAPE.items()}
    expected |= {f"answer: {name}": tagged({"answer": text}) for name, text in ANSWERS.items()}
    for name, text in STEPS.items():
        expected[f"answer: steps {name}"] = f"<reasoning>{text}</reasoning><answer>7</answer>"
    for kind in ("reasoning", "think"):
        for name, text in MISSHAPEN.items():
            expected[f"{kind}: {name}"] = text.replace("<r>", f"<{kind}>").replace(
                "</r>", f"</{kind}>"
            )
        look_alike = f"<{kind}>r</{kind}><answer>7</answer>".translate(CYRILLIC)
        expected[f"{kind}: look-alike tags"] = look_alike
    assert battery_of("18", "7", "5") == expected


def test_the_asked_place_is_that_of_the_reference():
    for form in (r"So it is $\boxed{GOLD}$.", "#### GOLD", "<think>t</think>\nGOLD"):
        assert battery_of("18", reference=shaped(form))["answer: gold plus one"] == form.replace(
            "GOLD", "19"
        )
    last_digit = battery_of(r"\frac{1}{2}x", reference=boxed)["answer: last digit changed"]
    assert last_digit == r"So it is $\boxed{\frac{1}{3}x}$."
    # the last place that is not a letter of a tag
    battery = battery_of(
        "a", "b", reference=shaped("<reasoning>a?</reasoning><answer>GOLD</answer>")
    )
    assert battery["answer: another or gold"] == "<reasoning>a?</reasoning><answer>b or a</answer>"


def test_what_would_be_the_gold_itself_is_not_a_trick():
    assert "answer: zero-width character" not in battery_of("7")
    assert "answer: right-to-left marks" not in battery_of("11")
    assert "answer: gold negated" not in battery_of("0")
    assert "every number listed" not in battery_of("100") and "answer: every number" in battery_of(
        "100"
    )
    assert "answer: another row's" not in battery_of("18", "18.0")
    assert tag_text(battery_of("18", "18.0", "18", "5")["answer: another row's"], "answer") == "5"


def test_a_prompt_that_shows_the_right_answer_is_not_echoed():
    example = {"role": "assistant", "content": "<reasoning>e</reasoning>\n<answer>\n18\n</answer>"}
    for gold, is_echoed in {"18": False, "8": True, "1": True}.items():
        row = {
            "prompt": [example, {"role": "user", "content": "And 18?"}],
            "task": "maths",
            "answer": gold,
        }
        assert ("prompt echoed" in tricks(row, tagged, [])) is is_echoed


def test_a_row_without_an_answer_gets_the_tricks_that_need_none():
    rows = [{"prompt": "Go on:", "task": "text"}] * 2
    battery = tricks(rows[0], lambda row: "1 2 3", rows)
    assert battery["prompt echoed"] == "Go on:"
    assert len(battery) == 10 + 16
    assert not [name for name in battery if name.startswith(ASKED)]


def test_the_short_form_and_every_allowance_name_tricks_that_there_are():
    battery = battery_of("18", "7") | forged({"tests": ["assert f(1) == 2"]})
    assert set(SHORT) <= set(battery) | {
        "answer: the question's own expression"
    }  # of a question that has one
    assert set(LONG) <= set(battery)
    for name in REGISTRY:
        assert set(reward_allowances(load_reward(name, **REQUIRED.get(name, {})))) <= set(battery)


# Programs that solve nothing


def test_forged_programs_define_what_the_tests_call():
    row = {
        "tests": ["assert area(2) == math.pi * 4", "assert rim(1) == TWO"],
        "setup": "TWO = 2",
        "entry_point": None,
    }
    battery = forged(row)
    names = "marks its process, exits first, exits at once, exits when called, exits on a failure, exits at the end, "
    names += "equals everything, patches the checks, replaces the test library, prints that it passed, comment only, "
    names += "wrong answer"
    assert list(battery) == [*(f"code: {name}" for name in names.split(", ")), "empty block"]
    assert battery["code: exits first"] == "```python\nimport sys\nsys.exit(0)\n```"
    assert battery["code: exits when called"] == (
        "```python\ndef area(*a, **k): raise SystemExit(0)\ndef rim(*a, **k): raise SystemExit(0)\n```"
    )
    assert battery["empty block"] == "```python\n\n```"
    for name, text in battery.items():
        compile(extract_program(text), name, "exec")
    entry = forged({"tests": ["assert max(sum([1]), 2) == 2"], "entry_point": "max"})
    assert (
        entry["code: exits when called"] == "```python\ndef max(*a, **k): raise SystemExit(0)\n```"
    )


STDIN = '{"stdin": "1", "stdout": "2"}'


@pytest.mark.parametrize(
    "tests", [[STDIN], ["assert f("], ["assert f(1) == 2", STDIN], ["f(1)", None], "assert f(1)"]
)
def test_tests_that_name_no_function_are_forged_without_one(tests):
    battery = forged({"tests": tests})
    assert len(battery) == 13
    assert battery["code: exits when called"] == "```python\n\n```"


def test_the_first_line_alone_is_printed_where_the_tests_want_several():
    row = {"tests": ['{"stdin": "1", "stdout": "2\\n3\\n"}']}
    program = extract_program(
        forged(row, "```python\nprint(2)\nprint(3)\n```")["code: prints the first line alone"]
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "2\n"
    assert "code: prints the first line alone" not in forged({"tests": [STDIN]})


@pytest.mark.parametrize("tests", [None, []])
def test_a_row_without_tests_is_not_forged(tests):
    assert not [
        name for name in tricks(ROWS[0] | {"tests": tests}, tagged, ROWS) if name.startswith("code")
    ]


def test_a_verifier_that_trusts_an_exit_code_is_found_before_a_run():
    rows = [row | {"tests": [f"assert f() == {row['answer']}"]} for row in make_rows("18", "7")]
    (problem,) = check_tricks(rows, [trusts_the_exit_code], programmed)
    assert problem.startswith(
        "reward 'trusts_the_exit_code' gives 1 for the trick 'code: exits first'"
    )
    assert "row 0" in problem


# Rows


def test_rows_without_a_reference_answer_are_left_out():
    seen = []
    careful = verifier(
        "careful", lambda text, gold: seen.append(gold) or tag_text(text, "answer") == gold
    )
    result = audit(
        ROWS, [careful], lambda row: tagged(row) if len(row["answer"]) < 3 else None, per_task=3
    )
    assert (result.failures, [gold for gold in dict.fromkeys(seen) if gold in GOLDS]) == (
        [],
        ["18", "7", "-3"],
    )
    rows = [*make_rows("18", task="sums"), *make_rows("7", task="words")]
    result = audit(rows, [exact], lambda row: tagged(row) if row["task"] == "sums" else None)
    assert (list(result.scores), result.failures) == (["exact (sums)"], [])
    assert result.notes == [
        "task 'words': no row has a reference answer, so nothing was tried on it."
    ]


def test_a_question_in_its_answers_place_is_found_out():
    rows = [{"prompt": f"What is ${a} + 4$?", "task": "t", "answer": str(a + 4)} for a in (3, 5)]
    refusing = load_reward("boxed_math", prompt_expressions="refuse")
    assert (
        "the question's own expression"
        in audit(rows, [load_reward("boxed_math")], boxed).failures[0]
    )
    assert audit(rows, [refusing], boxed).failures == []


def test_rows_without_a_task_are_one_task():
    rows = [{name: row[name] for name in ("prompt", "answer")} for row in ROWS]
    assert audit(rows, [exact], tagged).scores == audit(ROWS, [exact], tagged).scores
    assert "answer: gold or another" in failing_tricks(audit(rows, [uses_in], tagged), "uses_in")
    mixed = audit([*rows[:2], *make_rows("5", "6", task="sums")], [exact], tagged)
    assert list(mixed.scores) == ["exact (no task)", "exact (sums)"]


@pytest.mark.parametrize("why", ["no reward applies", "no reference", "no reward"])
def test_nothing_scored_is_a_failure(why):
    rewards = {"no reward applies": [elsewhere], "no reward": []}.get(why, [exact])
    reference = (lambda row: None) if why == "no reference" else tagged
    result = audit(ROWS, rewards, reference)
    nothing = (
        "nothing was scored: none of the 8 rows has a reference answer and a reward that scores it."
    )
    assert (result.scores, result.failures) == ({}, [nothing])
    assert (
        check_tricks(ROWS, rewards, reference) == []
    )  # for preflight, rows without references are no problem


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
        (
            [{"prompt": "p", "task": "maths"}],
            [exact],
            "reward 'exact' needs the column answer; no row has it.",
        ),
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
    "boxed_math": boxed,
    "prose": lambda row: "So it goes.",
    **dict.fromkeys(("code_tests", "code_format"), programmed),
}


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "llm_judge"])
def test_a_registered_reward_passes_and_says_how_it_is_earned(name):
    entry = {"dataset": "chain_sum", "parameters": {}, "question": "q", "metadata": {}}
    rows = [row | {"entry": json.dumps(entry | {"answer": row["answer"]})} for row in ROWS]
    if name.startswith("code"):
        rows = [
            row | {"tests": [f"assert answer() == {row['answer']!r}"]} for row in ROWS[:2]
        ]  # programs take longer
    loaded = load_reward(name, **REQUIRED.get(name, {}))
    result = audit(rows, [loaded], REFERENCES.get(name, tagged))
    assert result.failures == []
    assert name in result.scores
    if loaded.kind in ("shaping", "control"):
        assert farmable(loaded) or reward_allowances(loaded)
    if loaded.kind == "verifier":
        assert farmable(loaded) is None and reward_allowances(loaded) == {}


def test_a_strict_verifier_passes_and_the_highest_score_of_all_rows_is_shown():
    result = audit(ROWS, [exact, takes_last_number], tagged)
    assert [text for text in result.failures if "'exact'" in text] == []
    names = {name for name, score in result.scores["exact"].items() if score}
    assert names == {
        "reference answer",
        *(f"reference answer {name}" for name in variants("18", tagged(ROWS[0]))),
    }
    # the highest score of all rows: of one in eight, whose gold is 100
    assert result.scores["takes_last_number"]["answer: every number"] == 1.0


def test_a_careless_reward_is_found_by_its_tricks():
    tricked = {one: failing_tricks(audit(ROWS, [one], tagged), one.__name__) for one in CARELESS}
    shapes = ("tags only", "tags 50 times", "nested tags", "unclosed tags", "answer inside")
    behind = {
        "shape: text behind it",
        "shape: closed twice",
        "shape: nothing in its tags",
        "another answer behind the gold",
    }
    assert tricked[shape] == {f"reasoning: {name}" for name in shapes} | behind
    last = {
        "answer: another or gold",
        "answer: none, gold in the reasoning",
        "answer: every number",
    }
    assert tricked[takes_last_number] >= last | {
        "answer: gold denied",
        "answer: gold squared",
        "gold denied in words",
    }
    hedged = {
        "answer: gold or another",
        "answer: gold among others",
        "answer: gold in the reasoning only",
    }
    assert tricked[uses_in] >= hedged | last - {"answer: another or gold"} | {
        "another answer behind the gold"
    }
    assert "a megabyte of one letter" in tricked[counts_letters]  # more than for the answer
    assert tricked[has_tags] >= {
        "reasoning: tags only",
        "reasoning: tags 50 times",
        "answer: gold plus one",
    }  # as much


def test_a_failure_names_reward_trick_score_row_and_completion():
    result = audit(make_rows("5", "18"), [takes_last_number], shaped("#### GOLD"))
    assert (
        "reward 'takes_last_number' gives 1 for the trick 'answer: another or gold'; a verifier gives 0 or less: "
        "row 0, '#### 18 or 5'"
    ) in result.failures


@pytest.mark.parametrize(
    ("verifier", "form", "score"),
    [(exact, "<answer>GOLD.</answer>", "0"), (mute, "GOLD", "nothing")],
)
def test_a_reference_below_the_full_reward_is_a_failure(verifier, form, score):
    (failure,) = audit(make_rows("18", "7"), [verifier], shaped(form)).failures
    expected = f"gives {score} instead of 1 for the reference answer of 2 of 2 rows: row 0, {form.replace('GOLD', '18')!r}"
    assert failure == f"reward {verifier.__name__!r} {expected}"


@pytest.mark.parametrize(("allowed", "count"), [(0.5, 0), (0.4, 1)])
def test_an_allowance_is_what_a_trick_may_get(allowed, count):
    shapes = (
        "<reasoning></reasoning><answer></answer>",
        "<reasoning>r</reasoning><answer>{}</answer>",
    )
    scorer, allowance = (
        lambda text, gold: 0.5 * (text in (shapes[0], shapes[1].format(gold))),
        (allowed, "it is a start"),
    )
    lenient = reward(
        "lenient", scorer, "format", 0.5, allowances={"reasoning: tags only": allowance}
    )
    result = audit(ROWS, [lenient], tagged)
    assert len([text for text in result.failures if "'reasoning: tags only'" in text]) == count
    assert f"lenient may give {allowed} for reasoning: tags only: it is a start." in result.notes


def test_a_penalty_that_an_empty_text_escapes_is_noted_and_not_a_failure():
    note = "brevity gives 0 for the trick 'empty', more than for the reference answer (-0.086): gate it by a verifier "
    result = audit(make_rows("18", "7"), [brevity], tagged)
    assert (result.failures, result.notes[0]) == ([], note + "(reward_gates).")


def test_a_reward_that_is_farmable_by_design_is_named_and_held_to_no_limit(monkeypatch):
    monkeypatch.setattr(counts_letters, "farmable", "any letters earn it", raising=False)
    result = audit(ROWS, [counts_letters], tagged)
    assert result.failures == []
    assert "  Farmable by design: counts_letters: any letters earn it\n" in report(
        result, [counts_letters]
    )
    assert "  Farmable by design: none of these rewards.\n" in report(
        audit(ROWS, [exact], tagged), [exact]
    )


def test_a_verifier_cannot_declare_itself_farmable(monkeypatch):
    monkeypatch.setattr(uses_in, "farmable", "by tags", raising=False)
    monkeypatch.setattr(
        uses_in, "allowances", {"answer: every number": (1.0, "why not")}, raising=False
    )
    assert "answer: every number" in failing_tricks(audit(ROWS, [uses_in], tagged), "uses_in")


# Rewards that fail


def returns(value, kind: str = "verifier") -> Callable:
    """A reward that returns or calls `value` for the empty text, and is right elsewhere."""

    def scorer(text, gold):
        right = float(text == tagged({"answer": gold}))
        return right if text else value() if callable(value) else value

    return reward("mostly_right", scorer, kind, 1.0, farmable="by no trick")


@pytest.mark.parametrize("kind", ["verifier", "shaping"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: float("one"), "ValueError: could not convert string to float: 'one'"),
        (float("nan"), "it returned nan"),
        (float("inf"), "it returned inf"),
    ],
)
def test_a_score_that_fails_is_named_with_its_completion(kind, value, message):
    failure, *_ = audit(make_rows("0.5"), [returns(value, kind)], tagged).failures
    count = len(battery_of("0.5")) + 7  # the reference answer and its variants
    assert (
        failure
        == f"reward 'mostly_right' fails on 1 of {count} completions: {message}. The first: row 0, ''"
    )


def test_the_same_completion_gets_the_same_score_in_any_order_and_batch():
    calls = []
    by_call = reward(
        "by_call",
        lambda text, gold: calls.append(text) or float(len(calls) > 60),
        farmable="by waiting",
    )
    (failure,) = audit(make_rows("18"), [by_call], tagged).failures
    assert failure.startswith(
        "reward 'by_call' gives 0 and then 1 for the same completion, in another order and batch"
    )

    def by_batch(completions, **kwargs):
        return [1.0 / len(completions)] * len(completions)

    by_batch.farmable = "by a small batch"
    (failure,) = audit(make_rows("18"), [by_batch], tagged).failures
    reference = "row 0, '<reasoning>r</reasoning><answer>18</answer>'"
    assert failure.endswith(
        f" and then 1 for the same completion, in another order and batch: {reference}"
    )


@pytest.mark.parametrize("name", ["prompts", "completions", "answer"])
def test_a_reward_that_changes_its_arguments_is_a_failure(name):
    def careless(**arguments):
        arguments[name].reverse() if name == "answer" else arguments[name][0][0].update(content="")
        return [0.0] * len(arguments["completions"])

    (failure,) = audit(make_rows("18", "7"), [careless], tagged).failures
    assert f"completions: ValueError: it changes its argument {name}" in failure
    assert ("(only in a batch)" in failure) is (
        name == "answer"
    )  # a list of one is its own reverse


def test_an_error_that_a_reward_reports_itself_is_a_failure():
    def reporting(completions, log_extra, **kwargs):
        log_extra("outcome/reporting", ["error: KeyError: gold"] * len(completions))
        return [None] * len(completions)

    (failure,) = audit(make_rows("18"), [reporting], tagged).failures
    assert "completions: KeyError: gold. The first: row 0" in failure


def test_a_slow_reward_is_a_failure(monkeypatch):
    monkeypatch.setattr(audit_module, "SECONDS", 0.001)
    failure, *_ = audit(ROWS[:1], [returns(lambda: time.sleep(0.3) or 0.0)], tagged).failures
    assert "too slow to train with" in failure


def test_an_async_reward_is_tried_too():
    async def generous(completions, **kwargs):
        return [1.0] * len(completions)

    generous.kind, generous.full = "verifier", 1.0
    assert "empty" in failing_tricks(audit(ROWS, [generous], tagged), "generous")


def test_rewards_that_count_tokens_get_some():
    assert stand_in_ids("one and one") == [0, 1, 2, 1, 0]
    assert stand_in_ids("") == []
    assert len(stand_in_ids("a" * 1_000_000)) == 250_000
    scores = audit(
        ROWS, [load_reward("soft_overlong", max_completion_len=100, soft_punish_cache=20)], tagged
    ).scores
    assert scores["soft_overlong"]["empty"] == 0.0
    assert scores["soft_overlong"]["a megabyte of one letter"] == -1.0


def test_the_reference_answer_earns_whatever_neutral_text_stands_around_it():
    forms = variants("18", tagged(ROWS[0]))
    assert forms["with a line end behind it"] == "<reasoning>r</reasoning><answer>18</answer>\n"
    assert forms["with a short text before it"].startswith(
        "<reasoning>r\nLet us see what we know, and go on step by step.<"
    )
    assert (
        forms["with a long text behind it"].count("step by step")
        == 60
        == forms["with a long text before it"].count("step by")
    )
    ends = verifier("ends", lambda text, gold: text.endswith(f"<answer>{gold}</answer>"))
    clips = verifier("clips", lambda text, gold: tag_text(text[-300:], "answer") == gold)
    (failure,) = audit(ROWS, [ends], tagged).failures
    assert failure.startswith(
        "reward 'ends' gives 0 for the reference answer with a line end behind it, and 1 for the reference"
    )
    (failure,) = audit(ROWS, [clips], tagged).failures
    assert failure.startswith(
        "reward 'clips' gives 0 for the reference answer with a long text behind it, and 1 for the"
    )


def test_an_answer_to_a_row_without_a_gold_earns_nothing_and_may_raise():
    skips = verifier("skips", lambda text, gold: gold == "" or tag_text(text, "answer") == gold)
    raises = verifier(
        "raises", lambda text, gold: tag_text(text, "answer") == gold if gold[0] else None
    )
    (failure,) = audit(ROWS, [skips, raises], tagged).failures
    assert failure.startswith(
        "reward 'skips' gives 1 for the trick 'answer: any, gold column empty'; a verifier gives 0"
    )


def test_a_reward_that_runs_programs_in_this_process_is_found():
    rows = [{"prompt": "p", "tests": ["assert f() == 1"]}]

    def runs(completions, **kwargs):
        for completion in completions:
            exec(extract_program(completion), {}) if "audit_mark" in completion else None
        return [0.0] * len(completions)

    failure, *_ = audit(rows, [runs], lambda row: "```python\ndef f(): return 1\n```").failures
    assert (
        "fails on 1 of 40 completions: ValueError: it runs programs of the model in its own process"
        in failure
    )


def test_long_tricks_are_tried_on_one_row_and_the_audit_says_so():
    seen = []
    careful = verifier(
        "careful", lambda text, gold: seen.append(text) or tag_text(text, "answer") == gold
    )
    result = audit(ROWS, [careful], tagged)
    assert len([text for text in seen if len(text) > 10_000]) == 2 * len(
        LONG
    )  # once more in another order
    assert result.notes == [
        f"task 'maths': tried on 8 rows; on row 0 alone, being long: {', '.join(LONG)}."
    ]


def test_every_trick_says_why_it_matters():
    battery = battery_of("18", "7", reference=lambda row: f"#### {row['answer']}") | forged(
        {"tests": ["assert f(1) == 2"]}
    )
    assert [
        name for name in [*battery_of("18", "7"), *battery, *UNREADABLE] if not LESSONS[name]
    ] == []
    text = report(audit(ROWS[:2], [uses_in], tagged), [uses_in])
    assert text.count("\n  - one of several answers is enough: hedging doubles the chance") == 1


# The short form, in preflight


def test_the_short_form_finds_careless_verifiers_and_leaves_shaping_out():
    problems = check_tricks(ROWS, [exact, uses_in, takes_last_number, counts_letters], tagged)
    assert {text.split("'")[1] for text in problems} == {"uses_in", "takes_last_number"}
    assert all("row 0" in text for text in problems)


def test_the_short_form_takes_less_than_a_second():
    start = time.perf_counter()
    check_tricks(ROWS * 1000, [load_reward("xml_format"), load_reward("gsm8k_correctness")], tagged)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize("streamed", [False, True])
def test_preflight_refuses_a_verifier_that_rewards_a_trick(streamed, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    words = [
        "--model_name_or_path",
        "org/model",
        "--num_generations",
        "4",
        "--max_steps",
        "5",
        "--save_steps",
        "10",
    ]
    args, rows = parse_arguments(RecipeArguments, words), Dataset.from_list(ROWS)
    found = preflight(
        args, rows.to_iterable_dataset() if streamed else rows, None, [takes_last_number], tagged
    )
    message = "reward 'takes_last_number' gives 1 for the trick 'answer: another or gold'; a verifier gives 0 or less"
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
    """Rows of GSM8K's form, and in `programs` as scripts/prepare_code.py writes them; one has no reference answer."""
    (tmp_path / "programs").mkdir()
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
    for folder, split, rows in (
        ("", "train", questions),
        ("", "test", questions),
        ("programs", "train", programs[:4]),
        ("programs", "test", programs[4:]),
    ):
        (tmp_path / folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


@pytest.mark.parametrize("file", [file for file in CONFIGS if file != REFUSED], ids=relative)
def test_the_rewards_of_a_yaml_pass(file, run_script, data):
    config = yaml.safe_load(file.read_text())
    if "/" in (config.get("dataset_name") or ""):
        pytest.skip("its rows are on the Hub")
    folders = {"gsm8k": data, "math": data, "code": data / "programs"}
    own_rows = (
        ["--dataset_path", str(folders[file.parent.name])] if file.parent.name in folders else []
    )
    if "programs" in (sources := config.get("sources", {})):
        mixed = sources | {"programs": sources["programs"] | {"path": str(data / "programs")}}
        own_rows = ["--sources", json.dumps(mixed), "--num_eval_rows", "4"]
    status, output = run_script("--config", str(file), *own_rows)
    assert status == 0, output
    assert "  No reward gives more than it may." in output


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        (["--reward_funcs", "careless", "--per_task", "2"], 1, "\n  answer: every number "),
        (
            ["--reward_funcs", "careless", "--per_task", "2"],
            1,
            "'careless' gives 1 for the trick 'answer: gold or another'",
        ),
        (
            ["--reward_funcs", "reasoning_gym", "brevity"],
            0,
            "Note: brevity gives 0 for the trick 'empty', more than",
        ),
        (["--reward_funcs", "elsewhere"], 2, "  - nothing was scored: none of the"),
        (["--reward_funcs", "xml_formt"], 2, "error: unknown reward 'xml_formt'"),
        (["--no_such_key", "1"], 2, "unknown argument '--no_such_key'"),
        (["--per_task", "0"], 2, "--per_task is 0; at least 1"),
        (
            ["--reward_tasks", '{"reasoning_gym": ["sums"]}'],
            2,
            "reward 'reasoning_gym' is for ('sums',); no row is",
        ),
    ],
)
def test_the_exit_status_is_0_1_for_a_failure_and_2_where_nothing_is_scored(
    run_script, tmp_path, words, status, part
):
    (tmp_path / "mine.py").write_text(MINE)
    own = {name: f"{tmp_path}/mine.py:{name}" for name in ("careless", "brevity", "elsewhere")}
    found, output = run_script(
        "--config", "recipes/arithmetic/quickstart.yaml", *(own.get(word, word) for word in words)
    )
    assert (found, part in output) == (status, True), output


@pytest.mark.parametrize("name", ["tag_count", "gold_in_text"])
def test_the_naive_rewards_of_the_hack_are_refused(name, run_script):
    naive = f"recipes/arithmetic/naive_rewards.py:{name}"
    status, output = run_script("--config", str(REFUSED), "--reward_funcs", "reasoning_gym", naive)
    assert status == 1
    assert f"'{name}' gives" in output and "'reasoning_gym' gives" not in output
