"""The audit: a trick is what its name says, and what a reward pays for one is told."""

import contextlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable

import audit_rewards
import pytest
from test_layout import REQUIRED
from trl.rewards import get_repetition_penalty_reward

from rewards import KINDS, load_reward, reward_of
from rewards.answer import last_tag
from rewards.audit import try_tricks
from rewards.contract import route
from rewards.loading import REGISTRY
from rewards.process import EquationSteps, equations
from rewards.tricks import TRICKS, tricks

GOLDS = ["18", "7", "1,080", "-3", "250", "11", "100", "0"]
TAGGED = "<reasoning>r</reasoning><answer>GOLD</answer>"
HASHED = "We add them up.\n#### GOLD"
BOXED = r"So it is $\boxed{GOLD}$."
PROGRAM = "```python\ndef answer():\n    return 'GOLD'\n```"


def make_rows(*golds: str, task: str = "maths", **columns) -> list[dict]:
    rows = []
    for place, gold in enumerate(golds):
        prompt = [{"role": "user", "content": f"What is $9 + {place}$?"}]
        rows.append({"prompt": prompt, "task": task, "answer": gold, **columns})
    return rows


def shaped(form: str) -> Callable[[dict], str]:
    """Reference completions of that form."""
    return lambda row: form.replace("GOLD", row["answer"])


tagged = shaped(TAGGED)
ROWS = make_rows(*GOLDS)


def reward(scorer: Callable, **declared):
    """A reward called `mine` that scores by `scorer(text, gold)`."""

    def mine(completions, answer, **kwargs):
        return [scorer(c[0]["content"], gold) for c, gold in zip(completions, answer, strict=True)]

    vars(mine).update(declared)
    return reward_of(mine)


def exact(text: str, gold: str) -> float:
    return float(last_tag(text) == gold)


def gold_in_tag(text: str, gold: str) -> float:
    return float("<answer>" in text and gold in text)


# The tricks

WRONG = "<reasoning>r</reasoning><answer>7</answer>"
# With the gold 18, for a row that also has the wrong answers 7 and 5.
BATTERY = {
    "prompt echoed": "What is $9 + 0$?",
    "reasoning: look-alike tags": "<rеаsоnіng>r</rеаsоnіng><аnswеr>𝟕</аnswеr>",  # Cyrillic letters
    "shape: text behind it": WRONG + "\nSo be it, or not.",
    "shape: closed twice": WRONG + "\n</answer>",
    "another answer behind the gold": WRONG.replace("7", "18") + "\n" + WRONG,
    "answer: none, gold in the reasoning": "<reasoning>r 18</reasoning><answer></answer>",
    "answer: gold in the reasoning only": WRONG.replace("r<", "r 18<"),
    "answer: steps one and one": WRONG.replace("r<", "1 + 1 = 2. " * 50 + "<"),
}
ANSWERS = {
    "another row's": "7",
    "gold plus one": "19",
    "gold negated": "-18",
    "gold and half a percent": "18.09",
    "gold times 100": "1800",
    "full-width digits": "１８",
    "look-alike characters": "𝟏𝟖",
    "zero-width character": "1\u200b8",
    "gold among others": "7, 18, 5",
    "the question's own expression": "9 + 0",
    "nothing": "",
}


def battery_of(*golds: str, reference: Callable = tagged, **columns) -> dict[str, str]:
    rows = make_rows(*golds)
    return tricks(rows[0] | columns, reference, rows)


def test_a_trick_is_what_its_name_says():
    battery = battery_of("18", "7", "5")
    answers = {f"answer: {name}": tagged({"answer": text}) for name, text in ANSWERS.items()}
    expected = BATTERY | answers
    assert {name: battery[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("golds", "trick"),
    [
        (["7"], "answer: zero-width character"),  # a mark behind a single character
        (["0"], "answer: gold negated"),
        (["100"], "every number listed"),  # whose last is right
        (["18", "18.0"], "answer: another row's"),
    ],
)
def test_what_would_be_the_gold_itself_is_not_a_trick(golds, trick):
    battery = battery_of(*golds)
    assert battery.get(trick) in (None, tagged({"answer": "19"}))
    assert trick in battery_of("18", "5")


def test_a_worked_example_with_the_same_answer_is_not_echoed():
    example = {"role": "assistant", "content": "<reasoning>e</reasoning>\n<answer>\n18\n</answer>"}
    prompt = [example, {"role": "user", "content": "And 18?"}]
    assert "prompt echoed" not in battery_of("18", prompt=prompt)
    assert "prompt echoed" in battery_of("8", prompt=prompt)


def test_forged_programs_define_what_the_tests_call():
    tests = ["assert area(2) == math.pi * 4", "assert rim(1) == TWO"]
    row = {"prompt": "p", "tests": tests, "setup": "TWO = 2", "entry_point": None}
    battery = tricks(row, lambda row: "", [])
    exits = "def {}(*a, **k): raise SystemExit(0)"
    functions = f"{exits.format('area')}\n{exits.format('rim')}"
    assert battery["code: exits when called"] == f"```python\n{functions}\n```"
    by_stdin = row | {"tests": ['{"stdin": "1", "stdout": "2"}']}  # which names no function
    assert tricks(by_stdin, lambda row: "", [])["code: exits when called"] == "```python\n\n```"


# What a careless reward pays: one for each class of hole


def last(pattern: str, text: str) -> str:
    return ["", *re.findall(pattern, text)][-1]


def run(text: str, end: str) -> subprocess.CompletedProcess:
    if not (block := last(r"(?s)```python\n(.*?)\n?```", text)):
        return subprocess.CompletedProcess([], 1, stdout="")
    words = [sys.executable, "-I", "-S", "-c", f"{block}\n{end}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


PLANTED = {  # class of hole: the trick that finds it, reference, scorer
    "all the text is searched": ("gold denied in words", BOXED,
        lambda text, gold: 0.5 * (gold in text)),
    "only the last number is read": ("answer: another or gold", HASHED,
        lambda text, gold: float(last(r"-?[0-9,]+", text) == gold)),
    "a wrong answer earns by its tag": ("reasoning: tags only", TAGGED,
        lambda text, gold: exact(text, gold) or 0.1 * ("</answer>" in text)),
    "the sign of the reward is inverted": ("empty", TAGGED,
        lambda text, gold: 1.0 - exact(text, gold)),
    "the answer is looked for in the gold": ("answer: first character of the gold", TAGGED,
        lambda text, gold: float(gold.startswith(last_tag(text) or "no"))),
    "only that it agrees with itself is read": (
        "answer: another row's completion", "<reasoning>GOLD</reasoning><answer>GOLD</answer>",
        lambda text, gold: float(len(set(re.findall(r"\d+", text))) == 1)),
    "length alone earns": ("one letter", TAGGED, lambda text, gold: len(text) / 1000),
}  # fmt: skip


@pytest.mark.parametrize("hole", PLANTED)
def test_a_planted_hole_is_paid_by_the_trick_made_for_it(hole):
    trick, reference, scorer = PLANTED[hole]
    cheats = try_tricks(reward(scorer), ROWS, shaped(reference), per_task=2)
    assert trick in [attempt.trick for attempt in cheats.paid]


def test_a_shaping_reward_may_differ_between_right_answers():
    form = "<reasoning>GOLD</reasoning><answer>GOLD</answer>"
    whole = re.compile(form.replace("GOLD", r"(\d+)", 1).replace("GOLD", r"\1"))

    def length(text, gold):
        return len(text) / 100 if whole.fullmatch(text) else 0.0

    rows = make_rows("7", "18")  # the other row's is longer, and earns more
    assert try_tricks(reward(length, kind="shaping"), rows, shaped(form)).problem is None
    assert try_tricks(reward(length, kind="verifier"), rows, shaped(form)).problem is not None


PROGRAM_ROWS = make_rows("18", tests=["assert answer() == '18'"])
PROGRAM_HOLES = {  # class of hole: the trick that finds it, scorer of a text by a check
    "exit code 0 is a pass": ("code: exits when called",
        lambda text, test: float(run(text, f"assert {test}").returncode == 0)),
    "the verdict is read from the output": ("code: prints that it passed",
        lambda text, test: float("passed" in run(text, f"assert {test}\nprint('passed')").stdout)),
    "the program may redefine equality": ("code: equals everything",
        lambda text, test: float("end-7f" in run(text, f"assert {test}\nprint('end-7f')").stdout)),
}  # fmt: skip


@pytest.mark.parametrize("hole", PROGRAM_HOLES)
def test_a_hole_in_a_reward_of_programs_is_paid_too(hole):
    trick, scorer = PROGRAM_HOLES[hole]
    tested = reward(lambda text, gold: scorer(text, f"answer() == {gold!r}"))
    cheats = try_tricks(tested, PROGRAM_ROWS, shaped(PROGRAM))
    assert trick in [attempt.trick for attempt in cheats.paid]


def test_a_reward_that_runs_programs_in_its_own_process_is_a_problem():
    def careless(text, gold):
        with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
            exec(last(r"(?s)```python\n(.*?)\n?```", text), {})
        return 0.0

    problem = try_tricks(reward(careless), PROGRAM_ROWS, shaped(PROGRAM)).problem
    assert problem.startswith("reward 'mine' runs programs of the model in its own process")


def test_a_step_reward_that_pays_every_right_equation_pays_more_than_the_honest_steps():
    class Careless(EquationSteps):
        def steps(self, question, text):
            pairs = equations(text)
            return [(right.end, 1.0) for left, right in pairs if left.value == right.value]

    row = {"prompt": "3 + 4 =", "task": "sums", "answer": "7"}
    reference = shaped("<reasoning>3 + 4 = 7</reasoning><answer>GOLD</answer>")
    assert try_tricks(reward_of(EquationSteps()), [row], reference).paid == []
    problem = try_tricks(reward_of(Careless()), [row], reference).problem
    assert "gives 50 to the wrong answer 'answer: steps one and one' and 1 to the ref" in problem


# What it says


def test_the_sentence_counts_what_is_paid_and_shows_one():
    cheats = try_tricks(reward(gold_in_tag), make_rows("18", "7"), tagged)
    assert (cheats.reward.name, cheats.reference, cheats.problem) == ("mine", 1.0, None)
    assert cheats.sentence() == (
        f"pays {len(cheats.paid)} of {len(cheats.attempts)} wrong answers, such as 'another answer "
        f"behind the gold' (1): {tagged({'answer': '18'}) + chr(10) + WRONG!r}"
    )
    sound = try_tricks(reward(exact), ROWS, tagged)
    assert sound.sentence() == f"pays none of {len(sound.attempts)} wrong answers"


def test_what_earns_more_than_the_reference_answer_is_a_problem():
    tag_count = reward(lambda text, gold: 0.2 * text.count("<"))
    assert try_tricks(tag_count, ROWS, tagged).problem == (
        "reward 'mine' gives 40 to the wrong answer 'reasoning: tags 50 times' and 0.8 to the "
        f"reference answer: {'<reasoning></reasoning><answer></answer>' * 50!r:.100}. Correct it, "
        "or declare how it is `farmable`."
    )
    short = try_tricks(reward(lambda text, gold: -len(text) / 100), ROWS, tagged)  # below 0
    assert "gives 0 to the wrong answer 'empty'" in short.problem
    penalty = get_repetition_penalty_reward(3, max_penalty=-1.0)  # it promises nothing
    twice = try_tricks(reward_of(penalty), ROWS, lambda row: "one two three " * 2 + tagged(row))
    assert twice.reference < 0 and twice.problem is None
    model = reward(lambda text, gold: 1.0, kind="model")
    assert try_tricks(model, ROWS, tagged).sentence().endswith("is not called before the run")


@pytest.mark.parametrize("declared", [{"kind": "control"}, {"farmable": "tags"}], ids=str)
def test_what_is_farmable_by_design_is_no_problem(declared):
    tag_count = reward(lambda text, gold: 0.2 * text.count("<"), **declared)
    cheats = try_tricks(tag_count, ROWS, tagged)
    assert cheats.paid and cheats.may_pay and cheats.problem is None
    assert cheats.sentence().endswith("; by design: tags") is ("farmable" in declared)


def test_a_format_reward_may_pay_any_answer_in_the_asked_shape_its_full_amount():
    shape = r"<reasoning>[^<]*</reasoning><answer>[^<]*</answer>"
    formal = reward(
        lambda text, gold: float(bool(re.fullmatch(shape, text))), kind="format", full=1.0
    )
    paid = [attempt.trick for attempt in try_tricks(formal, ROWS, tagged).paid]
    assert paid == ["reasoning: tags only"]  # which is in no asked place


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_one_score_for_everything_is_a_problem_but_of_shaping_and_controls(score):
    for declared in ({}, {"kind": "verifier"}, {"kind": "format"}):
        problem = try_tricks(reward(lambda text, gold: score, **declared), ROWS, tagged).problem
        assert re.match(rf"reward 'mine' gives {score:g} to each of the \d+ completions", problem)
    for kind in ("shaping", "control"):
        same = reward(lambda text, gold: score, kind=kind)
        assert try_tricks(same, ROWS, tagged).problem is None
    penalty = reward_of(lambda completions, **kwargs: [0.0] * len(completions))
    assert try_tricks(penalty, ROWS, tagged).problem is None, "it does not read the gold answer"


def test_a_verifier_that_pays_a_trick_as_much_as_the_reference_answer_is_told_loudly():
    cheats = try_tricks(reward(gold_in_tag, kind="verifier"), make_rows("18", "7"), tagged)
    assert (cheats.problem, cheats.is_fooled) == (None, True)
    assert cheats.sentence().startswith("PAYS A WRONG ANSWER AS MUCH AS A RIGHT ONE, though")
    for sound in (reward(exact, kind="verifier"), reward(gold_in_tag)):
        assert not try_tricks(sound, make_rows("18", "7"), tagged).is_fooled


def stumbles(text: str, gold: str) -> float | None:
    """Hangs on one trick, raises on another, and gives None on a third."""
    while not text:
        with contextlib.suppress(Exception):  # which the end of its time is not
            re.fullmatch("(a+)+", "a" * 40 + "b")
    if text == TRICKS["refusal"]:
        raise KeyError("gone")
    return None if text == TRICKS["one letter"] else exact(text, gold)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_hangs_raises_or_gives_none_costs_its_own_trick_and_ends_at_the_limit(is_async):
    def function(completions, answer, **kwargs):
        pairs = zip(completions, answer, strict=True)
        return [stumbles(completion[0]["content"], gold) for completion, gold in pairs]

    async def later(completions, answer, **kwargs):
        return function(completions, answer)

    tested = reward_of(later if is_async else function)
    cheats = try_tricks(tested, make_rows("18", "7"), tagged, limit_s=5.0)  # a busy machine is slow
    assert cheats.failed.keys() == {"empty", "refusal"} and cheats.ungraded == ["one letter"]
    assert cheats.failed["empty"].startswith("TimeoutError: no answer after ")
    line = stumbles.__code__.co_firstlineno + 6
    assert cheats.failed["refusal"] == f"KeyError: 'gone' (test_audit.py, line {line})"
    assert (cheats.paid, cheats.reference, cheats.problem) == ([], 1.0, None)
    assert "; gives None to 1, such as 'one letter'; fails on 2, such as 'em" in cheats.sentence()


def test_rows_of_other_tasks_and_without_a_reference_answer_are_left_out():
    rows = [*make_rows("18", "7"), *make_rows("5", "6", task="sums")]
    seen = set()
    spy = reward(lambda text, gold: seen.add(gold) or exact(text, gold))
    assert try_tricks(route(spy, ["sums"]), rows, tagged).reference == 1.0
    assert seen == {"5"}
    nothing = try_tricks(spy, rows, lambda row: None)
    assert len(nothing.attempts) == 0 and nothing.problem is None
    assert nothing.sentence() == "was not tried: no row that it scores has a reference answer"
    assert try_tricks(reward_of("org/model"), rows, tagged).attempts == []


# Ours

REFERENCES = {
    "think_answer_format": "<think>t</think>\n<answer>GOLD</answer>",
    "boxed_math": BOXED,
    "prose": "So it goes.",
    "code_tests": PROGRAM,
    "code_format": PROGRAM,
}


@pytest.mark.parametrize("name", list(REGISTRY))
def test_a_registered_reward_pays_for_no_trick_but_by_design(name):
    entry = {"dataset": "chain_sum", "parameters": {}, "question": "q", "metadata": {}}
    rows = [row | {"entry": json.dumps(entry | {"answer": row["answer"]})} for row in ROWS]
    for row in rows:
        row["prompt"] = "Question?"  # boxed_math may take the question's own expression
    if name.startswith("code"):  # programs take longer
        rows = [row | {"tests": [f"assert answer() == {row['answer']!r}"]} for row in rows[:2]]
    mine = load_reward(name, **REQUIRED.get(name, {}))
    cheats = try_tricks(mine, rows, shaped(REFERENCES.get(name, TAGGED)), per_task=8)
    assert (cheats.problem, cheats.failed) == (None, {}) and len(cheats.attempts) > 0
    assert cheats.may_pay or cheats.paid == []
    assert (mine.farmable is None) == (mine.kind in ("verifier", "step"))
    assert (mine.name, mine.kind in KINDS) == (name, True)
    assert mine.kind not in ("verifier", "format") or mine.full > 0.0


# The script


# Of rewards that are paid for tricks, which is its point.
HACK = ["--config", "recipes/arithmetic/hack.yaml", "--per_task", "1"]
MINE = "def elsewhere(completions, **kwargs): return [None] * len(completions)"


@pytest.mark.parametrize(
    ("words", "status", "part"),
    [
        ("", 1, "\n  2 for 'answer: another or gold': "),  # gold_in_text pays it
        ("--reward_funcs reasoning_gym", 0, "reasoning_gym pays none of "),
        ("--reward_funcs {mine}:elsewhere", 2, "elsewhere was not tried: "),
        ("--reward_funcs {mine}:gone", 2, "has no function or class 'gone'"),
    ],
)
def test_the_exit_status_is_0_1_for_what_is_paid_and_2_where_nothing_is_scored(
    run_script, tmp_path, words, status, part
):
    (tmp_path / "mine.py").write_text(MINE)
    specs = [word.format(mine=f"{tmp_path}/mine.py") for word in words.split()]
    ended, *printed = run_script(audit_rewards, *HACK, *specs)
    assert (ended, part in "".join(printed)) == (status, True), printed
