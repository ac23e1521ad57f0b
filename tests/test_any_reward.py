"""Any reward audited by its name and a file of rows: TRL's, verl's and verifiers' styles, and each way to fail."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rewards.audit import any_reward, check_reward
from rewards.audit.any_reward import agreement
from rewards.audit.call import score_in_style as score_completions
from rewards.audit.call import style_of
from rewards.audit.parts import fill

SCRIPT = Path(__file__).parents[1] / "scripts/audit_rewards.py"
REFERENCE = "<answer>{answer}</answer>"
ROWS = [{"prompt": f"What is {n} and {n}?", "answer": str(2 * n)} for n in (9, 21, 50, 4)]
MINE = """
import os, re, time

def tagged(text):
    found = re.fullmatch("<answer>([0-9]+)</answer>[ \\n]*", text)
    return found and found[1]

def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]

def right(completions, answer, **kwargs):
    return [float(tagged(text_of(c)) == gold) for c, gold in zip(completions, answer)]

def naive(completions, answer, **kwargs):
    return [float(gold in text_of(c)) for c, gold in zip(completions, answer)]

async def right_later(completions, answer, **kwargs):
    return right(completions, answer)

def right_verl(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(tagged(solution_str) == ground_truth), "acc": True}

def naive_verl(solution_str, ground_truth):
    return ground_truth in solution_str

def right_rubric(completion, answer, **kwargs):
    return float(tagged(text_of(completion)) == answer)

async def naive_rubric(completion, answer, state):
    return answer in text_of(completion) and state["answer"] == answer

def raises(completions, answer, **kwargs):
    return [float(c) for c in completions]

def dies(completions, answer, **kwargs):
    return os._exit(3) if "" in completions else right(completions, answer)

def hangs(completions, answer, **kwargs):
    while "" in completions: pass
    return right(completions, answer)

def not_a_number(completions, answer, **kwargs):
    return [s if c else float("nan") for c, s in zip(completions, right(completions, answer))]

def always_wrong(completions, **kwargs):
    return [0.0] * len(completions)

def both(completions, completion, **kwargs): pass
def neither(text, gold): pass
def not_for_trl(completions, answer): pass

def one_score(completions, answer, **kwargs):
    return right(completions[:1], answer)

def takes_the_gold(completions, answer, info, **kwargs):
    return [float(tagged(text_of(c)) == i.pop("gold", None)) for c, i in zip(completions, info)]

async def of_whole_batch(completions, **kwargs):
    return [1.0 / len(completions)] * len(completions)

def runs_it(completions, tests, **kwargs):
    def passes(text, lines):
        try:
            exec(chr(10).join([text.replace("```python", "").replace("```", ""), *lines]), {})
        except BaseException:
            return 0.0
        return 1.0
    return [passes(text_of(c), lines) for c, lines in zip(completions, tests)]
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "my_rewards.py").write_text(MINE)
    return str(tmp_path / "my_rewards.py")


@pytest.fixture
def run(tmp_path: Path, mine: str) -> Callable:
    """Exit status and output of the script for a reward of `mine`, where torch and its friends cannot be imported."""
    for name in ("torch", "transformers", "trl", "datasets"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")

    def ran(name: str, *words: str, rows: list = ROWS) -> tuple[int, str]:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = name if ":" in name else f"my_rewards:{name}"
        command = [sys.executable, str(SCRIPT), "--reward", spec, "--rows", "rows.jsonl", *words]
        if "--reference" not in words:
            command += ["--reference", REFERENCE]
        environment = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    return ran


def test_a_style_is_recognised_by_its_parameters():
    def verl(data_source, solution_str, ground_truth, extra_info=None): ...

    def rubric(prompt, completion, answer, state): ...

    def both(completions, completion, **kwargs): ...

    def neither(text, gold): ...

    assert [style_of(one) for one in (check_trl, verl, rubric)] == ["trl", "verl", "verifiers"]
    for unclear, fits in ((both, "trl, verifiers"), (neither, "no style")):
        with pytest.raises(
            ValueError, match=rf"fits {fits}: name one of trl, verl, verifiers as the style"
        ):
            style_of(unclear)


def check_trl(completions, answer, **kwargs):
    return [float(text.strip() == gold) for text, gold in zip(completions, answer, strict=True)]


def test_each_style_gets_the_arguments_it_knows():
    seen = []

    def rubric(prompt, completion, answer, info, state):
        seen.append((prompt, completion, answer, info, state["task"]))
        return True

    def verl(**kwargs):
        return {
            "score": kwargs["ground_truth"] == kwargs["solution_str"]
            and kwargs["data_source"] == "mine"
        }

    chat = [{"role": "user", "content": "9 + 9"}]
    row = {"prompt": chat, "answer": "18", "info": {"a": 1}, "task": "sums", "data_source": "mine"}
    assert score_completions(rubric, "verifiers", [row], ["18"]) == [1.0]
    assert seen == [(chat, [{"role": "assistant", "content": "18"}], "18", {"a": 1}, "sums")]
    assert score_completions(verl, "verl", [row] * 2, ["18", "19"]) == [1.0, 0.0]
    assert score_completions(verl, "verl", [row | {"ground_truth": "19"}], ["19"]) == [1.0]
    assert score_completions(check_trl, "trl", [row | {"prompt": "9 + 9"}], ["18"]) == [1.0]


def test_a_reference_is_filled_from_the_columns_of_a_row():
    row = {"answer": 18, "solution": "x"}
    assert fill(r"\boxed{{answer}} {solution} {other}", row) == r"\boxed{18} x {other}"


@pytest.mark.parametrize(
    "name", ["right", "right_later", "right_verl", "right_rubric", "my_rewards.py:right"]
)
def test_a_right_reward_passes_in_each_style(run, name):
    status, output = run(name)
    assert status == 0, output
    assert "  No reward gives more than it may." in output


@pytest.mark.parametrize("name", ["naive", "naive_verl", "naive_rubric"])
def test_a_naive_reward_is_found_in_each_style(run, name):
    status, output = run(name)
    assert status == 1
    for trick in (
        "answer: gold or another",
        "answer: gold in the reasoning only",
        "another answer behind the gold",
    ):
        assert (
            f"reward '{name}' gives 1 for the trick '{trick}'; a verifier gives 0 or less" in output
        )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", "ValueError: could not convert string to float: "),
        ("dies", " completions: its process died. The first: row 0, ''"),
        ("hangs", " completions: it takes more than 1 s. The first: row 0, ''"),
        ("not_a_number", "fails on 1 of 77 completions: it returned nan. The first: row 0, ''"),
        (
            "always_wrong",
            "gives 0 instead of more than 0 for the reference answer of 1 of 1 rows: row 0, '<answer>18",
        ),
    ],
)
def test_a_crash_a_hang_and_a_nan_are_findings(run, name, message):
    status, output = run(name, "--seconds", "1", rows=ROWS[:1])
    assert status == 1
    assert message in output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("one_score", "ValueError: it returned 1 rewards for "),
        ("takes_the_gold", "ValueError: it changes its argument info. The first: row 0"),
        ("of_whole_batch", " for the same completion, in another order and batch: row 0"),
    ],
)
def test_a_reward_gets_batches_as_from_a_trainer(run, name, message):
    status, output = run(name, rows=[row | {"info": {"gold": row["answer"]}} for row in ROWS])
    assert status == 1
    assert message in output


def test_a_reward_that_runs_programs_in_its_own_process_is_found(run):
    rows = [{"prompt": "p", "tests": ["assert f() == 1"], "solution": "def f(): return 1"}]
    status, output = run("runs_it", "--reference", "```python\n{solution}\n```", rows=rows)
    assert status == 1
    assert "it runs programs of the model in its own process, the trainer's" in output


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import os; os._exit(1)", "importing it ends its process"),
        ("raise SystemExit", "fails to import: SystemExit"),
        ("1 / 0", "fails to import: ZeroDivisionError: division by zero"),
        ("while True: pass", "importing it takes more than 2 s"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_error_in_words(tmp_path, monkeypatch, code, what):
    (tmp_path / "bad.py").write_text(code + "\ndef reward(completions, **kwargs): ...\n")
    monkeypatch.setattr(any_reward, "IMPORT_S", 2.0)
    with pytest.raises(ValueError, match=re.escape(what)):
        any_reward.ForeignReward(f"{tmp_path}/bad.py:reward", None, "verifier", 1.0)


def test_labelled_pairs_give_accuracy_and_mistakes(run, tmp_path):
    pairs = [
        ("18", "<answer>18</answer>", True),
        ("18", "<answer>180</answer>", False),
        ("7", "seven", True),
    ]
    lines = [
        json.dumps(dict(zip(("gold", "prediction", "label"), pair, strict=True))) for pair in pairs
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    command = ["--reward", "my_rewards:naive", "--labels", "pairs.jsonl", "--json", "found.json"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *command], capture_output=True, text=True, cwd=tmp_path, timeout=120,
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        "3 labelled pairs: accuracy 0.333 (0.061-0.792)\n  false positives: 1\n    gold '18', prediction"
        in done.stdout
    )
    found = json.loads((tmp_path / "found.json").read_text())["labels"]
    assert [pair["prediction"] for pair in found["false_negatives"]] == ["seven"]
    assert (found["pairs"], found["not_scored"]) == (3, [])


@pytest.mark.parametrize(
    ("line", "message"),
    [("", "holds no rows"), ('{"gold": "1"}', "line 1: a pair has gold, prediction, label")],
)
def test_labels_that_cannot_be_used_are_refused(tmp_path, line, message):
    (tmp_path / "pairs.jsonl").write_text(line)
    with pytest.raises(ValueError, match=message):
        agreement("number_count", tmp_path / "pairs.jsonl")


@pytest.mark.parametrize(
    ("name", "words", "rows", "message"),
    [
        ("gone", [], ROWS, "has no function or class 'gone'"),
        ("both", [], ROWS, "fits trl, verifiers: name one of trl, verl, verifiers as the style"),
        ("not_for_trl", [], ROWS, "TRL needs (prompts, completions, <dataset columns>, **kwargs)"),
        ("right", [], [], "rows.jsonl holds no rows"),
        ("right", [], [{"question": "?"}], "line 1: prompt missing (its keys: question; wanted: prompt)"),
        (
            "right",
            [],
            ["no object"],
            "rows.jsonl, line 1: it must be a JSON object with prompt",
        ),
        ("right", [], [{"prompt": "?", "gold": "1"}], "needs the column answer; no row has it."),
    ],
)
def test_what_cannot_be_audited_is_refused_with_status_2(run, name, words, rows, message):
    status, output = run(name, *words, rows=rows)
    assert (status, message in output) == (2, True), output


def test_the_audit_is_written_as_json(run, tmp_path):
    status, _ = run("naive", "--json", "audit.json")
    found = json.loads((tmp_path / "audit.json").read_text())
    assert status == 1
    assert found["scores"]["naive"]["reference answer"] == 1.0
    assert found["scores"]["naive"]["answer: gold or another"] == 1.0


def test_check_reward_raises_with_the_table():
    check_reward(check_trl, ROWS, "{answer}")

    def naive(completions, answer, **kwargs):
        return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]

    with pytest.raises(AssertionError) as failed:
        check_reward(naive, ROWS, lambda row: row["answer"])
    assert re.search(r"\n  answer: gold or another  +1.0\n", str(failed.value))
    assert "reward 'naive' gives 1 for the trick 'answer: gold or another'" in str(failed.value)
    with pytest.raises(AssertionError, match="there are no rows"):
        check_reward(check_trl, [], "{answer}")
