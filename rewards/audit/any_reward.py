"""Any reward function, by its name and a file of rows: in TRL's, verl's or verifiers' style, in worker processes.

Each completion is scored by a call of its own with a limit on its time, so that a crash and a hang are findings.
"""

import asyncio
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rewards.audit.audit import ROWS_PER_TASK, Audit, audit
from rewards.audit.call import score, unchanged
from rewards.contract import declared, parameters_of, reward_name
from rewards.loading import load_function, load_reward
from rewards.parsing import completion_text
from rewards.worker_pool import Result, WorkerPool

STYLES = {"trl": {"completions"}, "verl": {"solution_str", "ground_truth"}, "verifiers": {"completion"}}
IN_WORKER = "GRPO_RECIPES_AUDITED"  # the environment variable that names the reward to a worker
NOT_SENT = ("completion_ids", "trainer_state", "log_metric")
DECLARATIONS = ("full", "allowances", "farmable")


def audit_by_name(
    spec: str,
    rows_file: Path,
    reference: str,
    style: str | None = None,
    kind: str = "verifier",
    seconds: float = 5.0,
    per_task: int = ROWS_PER_TASK,
) -> tuple[Audit, list[Callable]]:
    """Audit the reward named `spec` on the rows of a JSON Lines file; the audit and its rewards, for a report.

    Raises:
        ValueError: a reward or a file of rows that cannot be used.
    """
    rows = read_rows(rows_file)
    reward = WorkerReward(spec, style, kind, seconds)
    try:
        return audit(rows, [reward], reference, per_task), [reward]
    finally:
        reward.pool.close()


def read_rows(file: Path) -> list[dict]:
    """The rows of a JSON Lines file.

    Raises:
        ValueError: no such file, or a line that is not a JSON object.
    """
    if not file.is_file():
        raise ValueError(f"no file {file}: --rows names a JSON Lines file with a prompt in each row.")
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError:
            row = line
        if row is not None and not isinstance(row, dict):
            raise ValueError(f"{file}, line {number}: a row is a JSON object with the columns of one question.")
        rows += [row] if row is not None else []
    return rows


def style_of(function: Callable) -> str:
    """The style of a reward function, by the names of its parameters.

    Raises:
        ValueError: its parameters fit no style, or more than one.
    """
    names = {parameter.name for parameter in parameters_of(function)}
    found = [style for style, needed in STYLES.items() if needed <= names]
    if len(found) != 1:
        fits = f"{reward_name(function)!r} with the parameters {sorted(names)} fits {', '.join(found) or 'no style'}"
        raise ValueError(f"{fits}: name one of {', '.join(STYLES)} as the style.")
    return found[0]


def score_completion(function: Callable, style: str, row: dict, text: str) -> float | None:
    """Score one completion as a trainer of that style does."""
    if style == "trl":
        (value,) = score(unchanged(function), [row], [text])
    else:
        completion = text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]
        given = {"data_source": "", "extra_info": None, "info": {}, "task": "default", **row}
        given |= {"solution_str": text, "completion": completion}
        given["ground_truth"] = row.get("ground_truth", row.get("answer"))
        given["state"] = dict(given)
        wanted = {parameter.name for parameter in parameters_of(function)}
        if style == "verl":  # which passes these four and nothing else
            given = {name: given[name] for name in ("data_source", "solution_str", "ground_truth", "extra_info")}
        takes_rest = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters_of(function))
        value = function(**{name: value for name, value in given.items() if takes_rest or name in wanted})
        value = asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
        value = value["score"] if isinstance(value, dict) else value
    return None if value is None else float(value)


class WorkerReward:
    """A reward under TRL's contract that has each completion scored by the function `spec` in a worker process."""

    def __init__(self, spec: str, style: str | None, kind: str, seconds: float):
        function = load_function(spec)
        style = style or style_of(function)
        if style == "trl":
            load_reward(spec)  # refuses a signature that TRL cannot call
        self.__name__, self.kind, self.seconds = reward_name(function), declared(function, "kind", kind), seconds
        for name in DECLARATIONS:
            if declared(function, name, None) is not None:
                setattr(self, name, declared(function, name, None))
        if style == "trl":
            self.__signature__ = inspect.signature(function)
        os.environ[IN_WORKER] = json.dumps([style, spec, os.getcwd(), sys.path])
        self.pool = WorkerPool("rewards.audit.any_reward:score_in_worker", seconds)
        self.pool.run([({"prompt": ""}, "")] * self.pool.size)  # the imports of the workers are not timed

    def __call__(self, prompts: list, completions: list, log_extra: Callable, **columns: Any) -> list[float | None]:
        sent = {name: values for name, values in columns.items() if name not in NOT_SENT} | {"prompt": prompts}
        rows = [{name: values[i] for name, values in sent.items()} for i in range(len(prompts))]
        calls = [(row, completion_text(completion)) for row, completion in zip(rows, completions, strict=True)]
        results = self.pool.run(calls)
        log_extra(f"outcome/{self.__name__}", [self._outcome(result) for result in results])
        return [result.value if result.status == "done" else None for result in results]

    def _outcome(self, result: Result) -> str:
        late = f"it takes more than {self.seconds:g} s or too much memory"
        return {"done": "graded", "timeout": f"error: {late}"}.get(
            result.status, f"error: {result.value or 'its process died'}"
        )


@functools.cache
def _function_of_worker() -> tuple[str, Callable]:
    style, spec, folder, path = json.loads(os.environ[IN_WORKER])
    os.chdir(folder)
    sys.path[:] = path
    return style, load_function(spec)


def score_in_worker(row: dict, text: str) -> float | None:
    """Score one completion with the reward that the environment names."""
    style, function = _function_of_worker()
    return score_completion(function, style, row, text)


score_in_worker.warm_up = _function_of_worker


async def _awaited(value: Any) -> Any:
    return await value
