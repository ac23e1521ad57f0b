"""The boundary to foreign code: how the trainer, evaluation, preflight and `watch` call rewards and
metrics, which users write.

- Foreign code gets copies of its arguments. What it changes there, nobody else sees.
- It draws random numbers from a seed of its own, made from what it is called with, so a resumed run
  repeats them. The random states of Python, NumPy and torch are restored after the call.
- A process that it forks ends where the call ends.
- What it returns and logs is checked; what it raises is named with file and line (`describe`).
"""

import asyncio
import copy
import inspect
import numbers
import os
import random
import re
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewards.contract import (
    Reward,
    answer_of,
    at_once,
    named_parameters,
    read_scores,
    reward_of,
    total,
)
from rewards.text import completion_text

# Arguments of a reward that are not copied: an environment lives on between the calls.
NOT_COPIED = ("environments", "log_extra", "log_metric")
NOT_PASSED = ("prompt", "completion", "completion_ids")  # columns that TRL does not pass on
_PIECE = re.compile(r"\s+|\S{1,4}")
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_CALLERS = tuple(
    str(Path(__file__).parents[1] / name)
    for name in (
        "rewards/boundary.py",
        "rewards/contract.py",
        "recipes/common",
    )
)  # the functions that call foreign code


@contextmanager
def contained(*key: Any) -> Iterator[None]:
    """Run foreign code inside the block: restore the random states, and end a forked process.

    Inside the block random numbers are seeded by `key`, so equal calls draw equal numbers.

    Example: `with contained(completions): scores = reward(completions=completions)`
    """
    states = _random_states()
    seed = zlib.crc32(repr(key).encode(errors="surrogatepass"))
    random.seed(seed)
    if "numpy" in states:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in states:
        sys.modules["torch"].default_generator.manual_seed(seed)
    try:
        with forks_end():
            yield
    finally:
        _restore(states)


@contextmanager
def forks_end() -> Iterator[None]:
    """End a process that the block forks where the block ends: it would do the work twice."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


def _random_states() -> dict[str, Any]:
    """The random states of Python and, where they are loaded, of NumPy and torch."""
    states: dict[str, Any] = {"python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state()
    return states


def _restore(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])
    if "torch" in states:
        sys.modules["torch"].set_rng_state(states["torch"])
    if "cuda" in states:
        sys.modules["torch"].cuda.set_rng_state(states["cuda"])


def describe(error: BaseException) -> str:
    """Name an exception with the last line of the user's code that it came from.

    Example: `"KeyError: 'gold' (my_reward.py, line 7)"`
    """
    places = [
        f" ({Path(frame.filename).name}, line {frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_STANDARD_LIBRARY, *_CALLERS))
        and "site-packages" not in frame.filename
    ]
    try:
        text = str(error)[:500]
    except Exception:  # an exception of a user's code may have no text
        text = ""
    return f"{type(error).__name__}: {text}{places[-1] if places else ''}"


# --- Rewards


@dataclass
class Answer:
    """What a reward returned and logged: a score, list of steps or None for each completion."""

    scores: list
    columns: dict[str, list] = field(default_factory=dict)  # logged with log_extra
    metrics: list[tuple[str, float]] = field(default_factory=list)  # logged with log_metric

    def outcomes(self, reward: Reward) -> list[str | None]:
        """The outcome that the reward logged for each completion (see `rows.score_rows`)."""
        return self.columns.get(f"outcome/{reward.name}", [None] * len(self.scores))


async def ask(
    reward: Reward,
    arguments: dict[str, Any],
    call: Callable[..., Any | Awaitable] | None = None,
) -> Answer:
    """Call a reward with copies of TRL's arguments; return its checked scores and what it logged.

    `call` (default: the reward) is called instead, such as the reward with a time limit. Rewards
    that are not async are contained here, and nothing is awaited. The caller contains async ones,
    which may run together.

    Raises whatever the reward raises, and ValueError if TRL could not use what it returned or
    logged.
    """
    completions, answer = arguments["completions"], Answer([])

    def log_extra(column: str, values: list) -> None:
        answer.columns.setdefault(column, []).extend(values)

    def log_metric(name: str, value: float) -> None:
        value = value.item() if hasattr(value, "item") else value
        if not isinstance(value, numbers.Real):
            raise ValueError(f"it logged the metric {name!r} as {value!r:.80}; allowed: a number")
        answer.metrics.append((name, float(value)))

    own = {**copied(arguments), "log_extra": log_extra, "log_metric": log_metric}
    step = getattr(arguments.get("trainer_state"), "global_step", 0)
    # An async reward may run on another thread than its `contained` block: it ends its forks here.
    with forks_end() if reward.is_async else contained(reward.name, step, completions):
        returned = await answer_of(call or reward, **own)
    answer.scores = read_scores(reward, returned, completions)
    for column, values in answer.columns.items():
        if len(values) != len(completions):
            raise ValueError(
                f"it logged {len(values)} values of the column {column!r} for {len(completions)} "
                "completions"
            )
        answer.columns[column] = _of_one_type(values)
    wrong = [word for word in answer.outcomes(reward) if not isinstance(word, str | None)]
    if wrong:
        raise ValueError(f"it logged outcomes that are no text: {wrong!r:.80}")
    return answer


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Copy the arguments of a reward, each row's values apart; environments are not copied."""
    copies: dict[str, Any] = {}
    for name, values in arguments.items():
        if name == "trainer_state":
            copies[name] = copy.copy(values)
            copies[name].log_history = [dict(entry) for entry in values.log_history]
        elif name in NOT_COPIED:
            copies[name] = values
        else:
            copies[name] = values and [copy.deepcopy(value) for value in values]
    return copies


def _of_one_type(values: list) -> list:
    """Numbers and None as they are, else texts: a column of TRL's parquet file has one type."""
    values = [value.item() if hasattr(value, "item") else value for value in values]
    if all(value is None or isinstance(value, int | float) for value in values):
        return values
    return [value if value is None else str(value) for value in values]


def score(
    reward: Callable,
    rows: list[dict],
    texts: list[str | list[dict]],
    token_ids: list[list[int]] | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[list[float | None], list[str | None]]:
    """Score one completion (text or messages) per row outside training, as the trainer would.

    Returns the scores (of a step reward the sum of the steps) and for each row the failure that the
    reward logged, or None. Columns and metrics that it logs are dropped. `trainer_state` is the
    state before step 1. A reward that takes `completion_ids` gets `token_ids`, or else
    `stand_in_ids`. An async reward runs on `loop`, which another thread runs, or on a new one.

    Raises what the reward raises, and ValueError if TRL could not use what it returned.
    """
    from transformers import TrainerState  # importing a recipe stays light

    reward = reward_of(reward)
    prompts, completions = [row["prompt"] for row in rows], list(texts)
    for place, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        if isinstance(text, str) and not isinstance(prompt, str):  # in the form of its prompt
            completions[place] = [{"role": "assistant", "content": text}]
    if token_ids is None:
        takes_ids = "completion_ids" in named_parameters(reward)
        token_ids = [stand_in_ids(completion_text(text)) if takes_ids else [] for text in texts]
    question = ask(
        reward,
        {
            "prompts": prompts,
            "completions": completions,
            "completion_ids": token_ids,
            "trainer_state": TrainerState(max_steps=1, epoch=0.0, num_train_epochs=1),
            **{name: [row.get(name) for row in rows] for name in rows[0] if name not in NOT_PASSED},
        },
    )
    if reward.is_async:
        with contained(reward.name, completions):
            if loop is None:
                answer = asyncio.run(question)
            else:
                answer = asyncio.run_coroutine_threadsafe(question, loop).result()
    else:
        answer = at_once(question)
    is_step = reward.kind == "step"
    scores = [total(steps) for steps in answer.scores] if is_step else answer.scores
    failures = [
        outcome.partition(": ")[2] if outcome and outcome.startswith(("error", "wrong")) else None
        for outcome in answer.outcomes(reward)
    ]
    return scores, failures


def stand_in_ids(text: str) -> list[int]:
    """Token ids without a tokenizer: equal pieces of up to four characters have equal ids."""
    return [zlib.crc32(piece.encode(errors="surrogatepass")) for piece in _PIECE.findall(text)]


# --- Metrics


def measure(metric: Callable, row: dict, text: str) -> dict[str, bool]:
    """Call `metric(row, text)` and check that it returns a mapping of names to True or False.

    Raises what the metric raises, and ValueError if it returned anything else.
    """
    with contained(text):
        returned = metric(copy.deepcopy(row), text)
    if inspect.iscoroutine(returned):
        returned.close()
    allowed = "allowed: a mapping of names to True or False"
    if not isinstance(returned, dict):
        raise ValueError(f"it returned {returned!r:.80}; {allowed}")
    outcomes = {}
    for name, value in returned.items():
        outcomes[name] = value.item() if hasattr(value, "item") else value
        if not (isinstance(name, str) and isinstance(outcomes[name], bool)):
            raise ValueError(f"it returned {name!r}: {value!r:.80}; {allowed}")
    return outcomes
