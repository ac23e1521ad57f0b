"""A batch of jobs in a file, judged by the sandbox of the machine it runs on: what `hosted` starts on a hired one.

    python3 -I rewards/sandbox/batch.py question.json answer.json

Promises: no program is run before the self-test has passed here; otherwise the answer is `{"refused": why}`. The answer
is there whole or not at all. It needs nothing but these files and Python's standard library.

What is not covered: what a program printed is cut to OUTPUT_CHARACTERS, so that no program can stuff an answer.
"""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

HERE = os.path.dirname(os.path.abspath(__file__))
for _name, _folder in (("rewards", os.path.dirname(HERE)), ("rewards.sandbox", HERE)):
    if _name not in sys.modules:  # this package without the rest of `rewards`, which imports torch
        sys.modules[_name] = ModuleType(_name)
        sys.modules[_name].__path__ = [_folder]

from rewards.sandbox.jobs import Asserts, Outcome, Stdio  # noqa: E402
from rewards.sandbox.pool import Sandbox, SandboxError  # noqa: E402

KINDS = {"Asserts": Asserts, "Stdio": Stdio}
OUTPUT_CHARACTERS = 2_000


def pack(job: Asserts | Stdio) -> list:
    """A job as JSON can hold it: `pack(Stdio("1", []))` is `["Stdio", {"program": "1", "cases": [], ...}]`."""
    return [type(job).__name__, job._asdict()]


def unpack(kind: str, fields: dict) -> Asserts | Stdio:
    """The job again: `unpack(*pack(Stdio("1", [])))` is `Stdio("1", [])`."""
    return KINDS[kind](**fields)


def answer(question: dict) -> dict:
    """The outcomes of `question["jobs"]`, and the isolation in force; or why nothing was run."""
    try:
        sandbox = Sandbox(question["workers"], packages=question["packages"])
        sandbox.start()
    except (SandboxError, ValueError) as error:
        return {"refused": str(error)}
    with sandbox:
        outcomes = sandbox.run_batch([unpack(*job) for job in question["jobs"]])
        in_force = {"isolation": sandbox.describe(), "workers": sandbox.workers}
    return {"id": question["id"], "outcomes": [_short(outcome) for outcome in outcomes], **in_force}


def _short(outcome: Outcome) -> dict:
    return outcome._replace(output=outcome.output[:OUTPUT_CHARACTERS])._asdict()


def main() -> None:
    question, answered = map(Path, sys.argv[1:])
    text = json.dumps(answer(json.loads(question.read_text())))
    unfinished = answered.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.replace(answered)


if __name__ == "__main__":
    main()
