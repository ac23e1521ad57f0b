"""Any reward function, by its name and a file of rows: in TRL's, verl's or verifiers' style, in worker processes.

Completions are scored with a limit on their time, so that a crash and a hang are findings.
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
from rewards.audit.call import awaited, score, stand_in_ids, unchanged
from rewards.contract import declared, is_model, parameters_of, reward_columns, reward_name
from rewards.jsonl import read_jsonl
from rewards.loading import build_reward, load_reward
from rewards.text import completion_text
from rewards.worker_pool import Result, WorkerPool

STYLES = {
    "trl": {"completions"},
    "verl": {"solution_str", "ground_truth"},
    "verifiers": {"completion"},
}
IN_WORKER = "GRPO_RECIPES_AUDITED"  # the environment variable that names the reward to a worker
NOT_SENT = ("completion_ids", "trainer_state", "log_metric")
DECLARATIONS = ("full", "allowances", "farmable")
BATCH, LONG = 64, 10_000  # completions in a batch; characters above which one is scored alone
IMPORT_S, MEMORY_BYTES = 60.0, 8 << 30


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
    rows = read_jsonl(rows_file, as_row)
    reward = WorkerReward(spec, style, kind, seconds)
    try:
        return audit(rows, [reward], reference, per_task), [reward]
    finally:
        reward.pool.close()


def as_row(value: Any) -> dict:
    """A row of a JSON Lines file; ValueError for anything but an object."""
    if not isinstance(value, dict):
        raise ValueError(
            f"a row is a JSON object with the columns of one question, not {str(value)[:80]}"
        )
    return value


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


def score_completions(
    function: Callable, style: str, rows: list[dict], texts: list[str]
) -> list[float | None]:
    """Score completions as a trainer of that style does: TRL all in one call, the others one by one."""
    if not rows:
        return []
    if style == "trl":
        takes_ids = "completion_ids" in {parameter.name for parameter in parameters_of(function)}
        values = score(
            unchanged(function),
            rows,
            texts,
            [stand_in_ids(text) for text in texts] if takes_ids else None,
        )
    else:
        values = [
            _score_one(function, style, row, text) for row, text in zip(rows, texts, strict=True)
        ]
    return [None if value is None else float(value) for value in values]


def _score_one(function: Callable, style: str, row: dict, text: str) -> Any:
    completion = (
        text if isinstance(row["prompt"], str) else [{"role": "assistant", "content": text}]
    )
    given = {"data_source": "", "extra_info": None, "info": {}, "task": "default", **row}
    given |= {"solution_str": text, "completion": completion}
    given["ground_truth"] = row.get("ground_truth", row.get("answer"))
    given["state"] = dict(given)
    wanted = {parameter.name for parameter in parameters_of(function)}
    if style == "verl":  # which passes these four and nothing else
        given = {
            name: given[name]
            for name in ("data_source", "solution_str", "ground_truth", "extra_info")
        }
    takes_rest = any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in parameters_of(function)
    )
    value = function(
        **{name: value for name, value in given.items() if takes_rest or name in wanted}
    )
    value = asyncio.run(awaited(value)) if inspect.isawaitable(value) else value
    return value["score"] if isinstance(value, dict) else value


class WorkerReward:
    """A reward under TRL's contract that has completions scored by the function `spec` in worker processes.

    Short completions go in batches, as a trainer's do; those of a batch that fails are scored again, each alone, and so
    is a long one. This process never imports the function: what its module does at import stays in a worker.
    """

    def __init__(self, spec: str, style: str | None, kind: str, seconds: float):
        os.environ[IN_WORKER] = json.dumps([style, spec, os.getcwd(), sys.path])
        found = _describe(spec)
        self.__name__, self.kind, self.seconds = found["name"], found["kind"] or kind, seconds
        for name in DECLARATIONS:
            if found[name] is not None:
                setattr(self, name, found[name])
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in found["columns"]
        ]
        self.__signature__ = inspect.Signature(
            [*named, inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD)]
        )
        self.pool = WorkerPool(
            "rewards.audit.any_reward:score_in_worker", seconds, memory_bytes=MEMORY_BYTES
        )
        self.pool.run([([], [])] * self.pool.size)  # the imports of the workers are not timed

    def __call__(
        self, prompts: list, completions: list, log_extra: Callable, **columns: Any
    ) -> list[float | None]:
        sent = {name: values for name, values in columns.items() if name not in NOT_SENT} | {
            "prompt": prompts
        }
        rows = [{name: values[i] for name, values in sent.items()} for i in range(len(prompts))]
        texts = [completion_text(completion) for completion in completions]
        order = sorted(
            range(len(texts)), key=lambda i: len(texts[i])
        )  # rows mix, and a slow kind is in few batches
        short = [i for i in order if len(texts[i]) <= LONG]
        batches = [short[i : i + BATCH] for i in range(0, len(short), BATCH)]
        long = [[i] for i in order[len(short) :]]

        def run(groups: list[list[int]], seconds: float) -> list[Result]:
            self.pool.timeout_s = seconds
            results = self.pool.run(
                [([rows[i] for i in group], [texts[i] for i in group]) for group in groups]
            )
            return [Result("error", r.value) if isinstance(r.value, str) else r for r in results]

        found: dict[int, Result] = {}  # of one completion: its score, or what went wrong
        for batch, result in zip(batches, run(batches, 4 * self.seconds), strict=True):
            is_done = result.status == "done"
            found |= {
                i: Result("done", result.value[place]) if is_done else result
                for place, i in enumerate(batch)
            }
        failed = [batch for batch in batches if found[batch[0]].status != "done"]
        alone = run([[i] for batch in failed + long for i in batch], self.seconds)
        for batch in failed + long:
            results, alone = alone[: len(batch)], alone[len(batch) :]
            if (
                len(batch) > 1
                and found[batch[0]].status == "error"
                and all(result.status == "done" for result in results)
            ):
                found |= {i: Result("error", f"{found[i].value} (only in a batch)") for i in batch}
            else:
                done = [Result("done", r.value[0]) if r.status == "done" else r for r in results]
                found |= dict(zip(batch, done, strict=True))
        outcomes = [self._outcome(found[i]) for i in range(len(texts))]
        log_extra(f"outcome/{self.__name__}", outcomes)
        return [found[i].value if found[i].status == "done" else None for i in range(len(texts))]

    def _outcome(self, result: Result) -> str:
        late = f"it takes more than {self.seconds:g} s or too much memory"
        reasons = {"timeout": late, "error": result.value or "its process died"}
        return "graded" if result.status == "done" else f"error: {reasons[result.status]}"


def _describe(spec: str) -> dict[str, Any]:
    """Name, style, declarations and columns of a reward, by a worker that imports it.

    Raises:
        ValueError: it cannot be imported, or called in any style.
    """
    pool = WorkerPool(
        "rewards.audit.any_reward:describe_in_worker",
        IMPORT_S,
        workers=1,
        memory_bytes=MEMORY_BYTES,
    )
    try:
        (result,) = pool.run([()])
    finally:
        pool.close()
    if result.status == "done":
        return result.value
    if result.value:
        raise ValueError(result.value.removeprefix("ValueError: "))
    what = f"takes more than {IMPORT_S:g} s" if result.status == "timeout" else "ends its process"
    raise ValueError(
        f"reward {spec!r}: importing it {what}. What its module does besides definitions, move away."
    )


@functools.cache
def _function_of_worker() -> tuple[str | None, str, Callable]:
    style, spec, folder, path = json.loads(os.environ[IN_WORKER])
    os.chdir(folder)
    sys.path[:] = path
    for output in (1, 2):  # what a reward prints, thousands of times
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return style, spec, build_reward(spec, {})


def describe_in_worker() -> dict[str, Any]:
    """The facts that the audit needs to know of the reward that the environment names."""
    style, spec, function = _function_of_worker()
    if is_model(function):
        raise ValueError(
            f"reward {spec!r} is a reward model: it has no rules, and the audit does not try it."
        )
    style = style or style_of(function)
    if style == "trl":
        load_reward(spec)  # refuses a signature that TRL cannot call
    found = {name: declared(function, name, None) for name in (*DECLARATIONS, "kind")}
    columns = reward_columns(function) if style == "trl" else []
    return found | {"name": reward_name(function), "columns": columns}


def score_in_worker(rows: list[dict], texts: list[str]) -> list[float | None] | str:
    """Score completions with the reward that the environment names; the text of its error where it raises."""
    style, _, function = _function_of_worker()
    try:
        return score_completions(function, style or style_of(function), rows, texts)
    except Exception as error:  # after an error in the pool's own hands a new worker would start
        return f"{type(error).__name__}: {error}"[:500]


score_in_worker.warm_up = _function_of_worker
