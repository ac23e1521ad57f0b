"""Any reward audited by its name and a file of rows: three styles, and each way to fail, apart."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rewards import reward_columns, reward_name
from rewards.audit import apart, check_reward
from rewards.audit.apart import Apart, Lost, audit_by_name
from rewards.audit.call import Raised, score_in_style, style_of

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

def right_verl(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(tagged(solution_str) == ground_truth), "acc": True}

def naive_verl(solution_str, ground_truth):
    return ground_truth in solution_str

def right_rubric(completion, answer, **kwargs):
    return float(tagged(text_of(completion)) == answer)

async def naive_rubric(completion, answer, state):
    return answer in text_of(completion) and state["answer"] == answer

def dies(completions, answer, **kwargs):
    return os._exit(3) if "" in completions else right(completions, answer)

def hangs(completions, answer, **kwargs):
    while "" in completions: pass
    return right(completions, answer)

def not_a_number(completions, answer, **kwargs):
    return [s if c else float("nan") for c, s in zip(completions, right(completions, answer))]

def eats_memory(completions, answer, **kwargs):
    return len("1" * 10**12) if "" in completions else right(completions, answer)

def not_for_trl(completions, answer): pass

"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "my_rewards.py").write_text(MINE)
    return str(tmp_path / "my_rewards.py")


@pytest.fixture
def found_in(tmp_path: Path, mine: str) -> Callable:
    """What the audit finds in a reward of `mine`, on the first rows."""

    def found(name: str, rows: list = ROWS[:1], seconds: float = 5.0) -> str:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        file, spec = tmp_path / "rows.jsonl", name if ":" in name else f"{mine}:{name}"
        return "\n".join(audit_by_name(spec, file, REFERENCE, seconds=seconds)[0].failures)

    return found


# Styles


def in_trl(completions, answer, **kwargs):
    return [float(text.strip() == gold) for text, gold in zip(completions, answer, strict=True)]


def test_a_style_is_recognised_by_its_parameters():
    def verl(data_source, solution_str, ground_truth, extra_info=None): ...

    def rubric(prompt, completion, answer, state): ...

    def both(completions, completion, **kwargs): ...

    def neither(text, gold): ...

    assert [style_of(one) for one in (in_trl, verl, rubric)] == ["trl", "verl", "verifiers"]
    for unclear, fits in ((both, "trl, verifiers"), (neither, "no style")):
        with pytest.raises(ValueError, match=f"fits {fits}: name one of trl, verl, verifiers"):
            style_of(unclear)


def test_each_style_gets_the_arguments_it_knows():
    seen = []

    def rubric(prompt, completion, answer, info, state):
        seen.append((prompt, completion, answer, info, state["task"]))
        return True

    def verl(**kwargs):
        is_right = kwargs["ground_truth"] == kwargs["solution_str"]
        return {"score": is_right and kwargs["data_source"] == "mine"}

    chat = [{"role": "user", "content": "9 + 9"}]
    row = {"prompt": chat, "answer": "18", "info": {"a": 1}, "task": "sums", "data_source": "mine"}
    assert score_in_style(rubric, "verifiers", [row], ["18"]) == [1.0]
    assert seen == [(chat, [{"role": "assistant", "content": "18"}], "18", {"a": 1}, "sums")]
    assert score_in_style(verl, "verl", [row] * 2, ["18", "19"]) == [1.0, 0.0]
    assert score_in_style(verl, "verl", [row | {"ground_truth": "19"}], ["19"]) == [1.0]
    assert score_in_style(in_trl, "trl", [row | {"prompt": "9 + 9"}], ["18"]) == [1.0]


@pytest.mark.parametrize("name", ["verl", "rubric"])
def test_a_naive_reward_is_found_in_each_style_and_a_right_one_passes(found_in, name):
    assert found_in(f"right_{name}", ROWS) == ""
    trick = "the trick 'answer: gold or another'; a verifier gives 0 or less"
    assert f"reward 'naive_{name}' gives 1 for {trick}" in found_in(f"naive_{name}")


# Apart


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dies", "fails on 1 of 77 completions: it ends its process (status 3). The first:"),
        ("hangs", "fails on 1 of 77 completions: it takes more than 0.5 s. The first: row 0, ''"),
        ("eats_memory", "fails on 1 of 77 completions: MemoryError: . The first: row 0, ''"),
        (
            "not_a_number",
            "fails on 1 of 77 completions: ValueError: it returned nan, which is not finite",
        ),
    ],
)
def test_a_crash_a_hang_and_a_nan_are_findings(found_in, name, message):
    assert message in found_in(name, seconds=0.5)


def test_a_call_apart_returns_raises_ends_or_is_late_and_the_next_one_starts_anew(mine):
    reward, rows = Apart(f"{mine}:dies"), [{"prompt": "p", "answer": "18"}]
    assert (reward_name(reward), reward_columns(reward)) == ("dies", ["answer"])
    first = reward.process.pid
    with pytest.raises(Lost, match=r"ends its process \(status 3\)"):
        reward.score(rows, [""], limit_s=60.0)
    assert reward.score(rows, ["<answer>18</answer>"], limit_s=60.0) == [1.0]
    assert reward.process.pid != first
    with pytest.raises(Raised, match="ValueError"):
        reward.score(rows, ["a", "b"], limit_s=60.0)
    reward.close()
    hangs = Apart(f"{mine}:hangs")
    with pytest.raises(Lost, match="takes more than"):
        hangs.score(rows, [""], limit_s=0.5)
    assert hangs.process is None
    hangs.late_s = apart.BUDGET_S  # one that always hangs does not cost its limit each time
    with pytest.raises(Raised, match="it is called no more: 120 s went by in calls that were late"):
        hangs(["p"], [""], answer=["18"])


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import os; os._exit(1)", "importing it ends its process (status 1). What its module"),
        ("1 / 0", "fails to import: ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_an_error_in_words(tmp_path, found_in, code, what):
    (tmp_path / "bad.py").write_text(code + "\ndef reward(completions, **kwargs): ...\n")
    with pytest.raises(ValueError, match=re.escape(what)):
        found_in(f"{tmp_path}/bad.py:reward")


@pytest.mark.slow
def test_what_is_scored_apart_ends_with_the_process_that_asked(tmp_path):
    file, pid_file = tmp_path / "sleepy.py", tmp_path / "pid"
    notes = f"open({str(pid_file)!r}, 'w').write(str(os.getpid()))"
    file.write_text(f"import os\ndef r(completions, **kwargs):\n {notes}\n while True: pass")
    asks = f"Apart('{file}:r').score([{{'prompt': 'p'}}], [''], 0.5)"
    code = f"from rewards.audit.apart import Apart\n{asks}"
    parent, until = subprocess.Popen([sys.executable, "-c", code]), time.monotonic() + 60
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < until:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    process = Path("/proc") / pid_file.read_text()
    while process.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not process.exists(), "the kernel ends it, by its own alarm"


# The script, where torch and its friends cannot be imported


@pytest.fixture
def run(tmp_path: Path, mine: str) -> Callable:
    """Exit status and output of the script for a reward of `mine`."""
    for name in ("torch", "transformers", "trl", "datasets"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')")

    def ran(name: str, *words: str, rows: list = ROWS) -> tuple[int, str]:
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [sys.executable, str(SCRIPT), "--reward", f"my_rewards:{name}", *words]
        command += ["--rows", "rows.jsonl", "--reference", REFERENCE]
        environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{SCRIPT.parents[1]}"}
        options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
        done = subprocess.run(command, timeout=120, **options)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout + done.stderr

    return ran


def test_a_right_reward_has_status_0_and_a_naive_one_1_and_a_file(run, tmp_path):
    assert run("right", "--kind", "verifier")[0] == 0
    assert run("naive", "--json", "audit.json")[0] == 1
    found = json.loads((tmp_path / "audit.json").read_text())
    assert found["scores"]["naive"]["answer: gold or another"] == 1.0


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("gone", ROWS, "has no function or class 'gone'"),
        ("not_for_trl", ROWS, "TRL needs (prompts, completions, <dataset columns>, **kwargs)"),
        ("right", ["no object"], "line 1: it must be a JSON object with prompt"),
        ("right", [{"prompt": "?", "gold": "1"}], "needs the column answer; no row has it."),
    ],
)
def test_what_cannot_be_audited_is_refused_with_status_2(run, name, rows, message):
    status, output = run(name, rows=rows)
    assert (status, message in output) == (2, True), output


# In a test of one's own


def test_check_reward_raises_with_the_table():
    check_reward(in_trl, ROWS, "{answer}")

    def naive(completions, answer, **kwargs):
        return [float(gold in text) for text, gold in zip(completions, answer, strict=True)]

    with pytest.raises(AssertionError) as failed:
        check_reward(naive, ROWS, lambda row: row["answer"])
    assert re.search(r"\n  answer: gold or another  +1.0\n", str(failed.value))
    assert "reward 'naive' gives 1 for the trick 'answer: gold or another'" in str(failed.value)
    with pytest.raises(AssertionError, match="there are no rows"):
        check_reward(in_trl, [], "{answer}")
