"""Recall and false alarms of audits of rewards: on planted bugs that public rewards had, and on right rewards.

    python scripts/benchmarks/auditors.py                                  # ours
    python scripts/benchmarks/auditors.py --half held                      # the bugs that it was not developed on
    python scripts/benchmarks/auditors.py --python ENV/bin/python          # others, of an environment that has them

A bug is found when the audit reports anything on its reward, and a right reward raises a false alarm in the same way.
The bugs are split in halves by their place in the list. Each reward and audit has a process and 120 seconds of its own.
What the others take: reward-doctor a scorer of text and reference on its own corpus (found: it calls the reward
permissive, or the reward raises), rewardprobe the reward and the rows, gradecheck an environment made of both and of
the reference's form.
"""

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0
MODULES = ("verifiers", "shapes", "programs", "right")


def ours(case, reward, rows) -> list[str]:
    from rewards.audit.any_reward import audit_by_name

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        found, _ = audit_by_name(f"{case.module}:{case.name}", file, case.reference, kind=case.kind)
    return found.failures


def scorer_of(reward, rows):
    """The reward as a function of a completion and the gold (of programs: the tests): a form that all of them take."""
    import asyncio
    import inspect

    parameters = inspect.signature(reward).parameters
    column = "answer" if "answer" in rows[0] else "tests"

    def scored(completion: str, answer) -> float:
        messages = [{"role": "assistant", "content": completion}]
        if "solution_str" in parameters:
            return reward("", completion, answer)["score"]
        if "completion" in parameters:
            return reward(messages, answer)
        prompt = next((row["prompt"] for row in rows if row[column] == answer), rows[0]["prompt"])
        given = {
            "prompts": [[dict(message) for message in prompt]],
            "completions": [messages],
            column: [answer],
        }
        values = reward(**given)
        return (asyncio.run(values) if inspect.isawaitable(values) else values)[0] or 0.0

    return scored


def reward_doctor(case, reward, rows) -> list[str]:
    from reward_doctor.audit import audit

    if "tests" in rows[0]:
        return []  # it has no programs
    found = audit(scorer_of(reward, rows))
    errors = [str(one.error) for one in found.errors]
    return errors + [
        str(one.case.id) for one in found.false_positives if found.profile == "permissive"
    ]


def _rewardprobe(reward, rows, worst_alone: bool) -> list[str]:
    from rewardprobe.probe import Probe

    tasks = [row | {"answer": row.get("answer", row.get("tests"))} for row in rows]
    report = Probe(num_tasks=8).test_fn(scorer_of(reward, rows), tasks)
    found = [one for family in report.families for one in family.findings]
    kinds = ("critical",) if worst_alone else ("critical", "warning")
    return [
        f"{one.attack}: {one.recommendation}"[:200] for one in found if one.severity.value in kinds
    ]


def rewardprobe(case, reward, rows) -> list[str]:
    return _rewardprobe(reward, rows, worst_alone=False)


def rewardprobe_critical(case, reward, rows) -> list[str]:
    return _rewardprobe(reward, rows, worst_alone=True)


def gradecheck(case, reward, rows) -> list[str]:
    from gradecheck.completion_attacks import run_all
    from gradecheck.verifiers_env import VerifiersEnv

    score = scorer_of(reward, rows)

    def scored(completion, answer, **columns):
        return score(completion[0]["content"], columns.get("tests", answer))

    def format_answer(answer: str) -> str:
        return re.sub(r"\{(?:answer|solution)\}", lambda _: answer, case.reference)

    environment = SimpleNamespace(
        rubric=SimpleNamespace(funcs=[scored], weights=[1.0]),
        parser=SimpleNamespace(answer_field="answer", format=format_answer),
        get_dataset=lambda: rows,
        message_type="chat",
    )
    return [
        one.summary
        for one in run_all(VerifiersEnv(environment, sample=8))
        if one.verdict == "fooled"
    ]


AUDITS = {"ours": ours, "reward_doctor": reward_doctor, "rewardprobe": rewardprobe}
AUDITS |= {"rewardprobe_critical": rewardprobe_critical, "gradecheck": gradecheck}


def one(audit: str, name: str) -> None:
    """Print what the audit finds on the reward, as the last line; run in a process of its own."""
    cases = sys.modules["scripts.benchmarks.planted.cases"]
    case = next(case for case in [*cases.BUGS, *cases.RIGHT] if case.name == name)
    reward = getattr(importlib.import_module(case.module), name)
    print("\n" + json.dumps(AUDITS[audit](case, reward, cases.ROWS[case.rows])))


def found_by(audit: str, case, python: str) -> list[str] | None:
    """The findings of the audit; None when it does not come to an end, or fails itself."""
    command = [python, __file__, "--one", audit, case.name]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{ROOT}",
        "OMP_NUM_THREADS": "1",
        "HOME": "/tmp",
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, env=environment, cwd=ROOT
        )
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--audits", nargs="+", choices=AUDITS, default=["ours"])
    parser.add_argument("--python", default=sys.executable, help="of the environment that has them")
    parser.add_argument(
        "--half", choices=["developed", "held", "both"], default="both", help="of the bugs"
    )
    parser.add_argument("--only", nargs="+", help="names of rewards")
    parser.add_argument("--one", nargs=2, metavar=("AUDIT", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    for module in MODULES:
        importlib.import_module(f"scripts.benchmarks.planted.{module}")
    from scripts.benchmarks.planted.cases import BUGS, RIGHT

    if options.one:
        return one(*options.one)
    wanted = {"developed": BUGS[::2], "held": BUGS[1::2], "both": BUGS}[options.half]
    for audit in options.audits:
        started, results = time.monotonic(), {}
        for case in [*wanted, *RIGHT]:
            if options.only and case.name not in options.only:
                continue
            results[case.name] = found_by(audit, case, options.python)
            state = "no end" if results[case.name] is None else f"{len(results[case.name])} found"
            line = f"  {'right' if case in RIGHT else 'bug':6}{case.name:26}{state}"
            print(line, *(results[case.name] or [])[:3], sep="\n      ")
        caught = [case.name for case in wanted if results.get(case.name)]
        alarms = [case.name for case in RIGHT if results.get(case.name)]
        no_end = [name for name, found in results.items() if found is None]
        print(
            f"{audit}: {len(caught)} of {len(wanted)} bugs found, {len(alarms)} of {len(RIGHT)} false alarms, "
            f"{len(no_end)} without a result, {time.monotonic() - started:.0f} s"
        )
        missed = [case.name for case in wanted if case.name not in caught]
        print(f"  missed: {missed}\n  alarms: {alarms}, no result: {no_end}")


if __name__ == "__main__":
    main()
