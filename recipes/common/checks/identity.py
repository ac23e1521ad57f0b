"""Which run it is: settings, engine, and digests of rows, code, files and the model at step 0.

*Not covered*: what a reward's file imports, and a model that is not on this disk yet. Comments and
layout of a reward's file do not count.
"""

import ast
import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from recipes.common.settings import RecipeArguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine
from recipes.common.utils.machine import package_versions
from rewards import reward_name

# What a later start may change without making it another run.
NOT_COMPARED = {"disable_tqdm", "dry_run", "fresh", "num_completions_to_print", "output_dir"}
NOT_COMPARED |= {"extend", "push_to_hub", "report_to", "resume_from_checkpoint", "save_total_limit"}
NOT_COMPARED |= {"digests", "versions"}  # compared by themselves
NOT_COMPARED |= {"accept_changed", "accepted", "resumed_from"}
# What a resume may change: not what is learnt from a row, but when a run ends for want of it.
CHANGEABLE = {"max_reward_error_rate", "reward_timeout_s"}
CODE = "the code of "
READING = ("*.jinja", "tokenizer*", "generation_config.json", "special_tokens_map.json")
READING += ("added_tokens.json", "vocab.*", "merges.txt")
SAMPLE = 1 << 22  # bytes from the middle of a file of weights; training changes every part of it


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """What makes it another run: `differences({"seed": 0}, {"seed": 1}) == {"seed": "was 0, now
    1"}`.
    """
    names = sorted((old.keys() | new.keys()) - NOT_COMPARED)
    pairs = {name: (old.get(name), new.get(name)) for name in names}
    found = {n: f"was {was!r}, now {now!r}" for n, (was, now) in pairs.items() if was != now}
    was, now = old.get("digests") or {}, new.get("digests") or {}
    for name in sorted(now):
        if name not in was:
            found[name] = "it is not in the record"
        elif None not in (was[name], now[name]) and was[name] != now[name]:
            found[name] = "changed: restore what it was"
    return found


def identity_of(
    code: Iterable[Callable],
    train_rows: list[dict],
    eval_rows: list[dict],
    model: Path | None,
    files: Iterable[str] = (),
) -> dict[str, Any]:
    """What makes a run this run besides its settings; of a stream, its first rows.

    `code` are rewards, tools and environments; `model` is the folder of the model at step 0, None
    for one that is not on this disk; `files` are those that rewards and templates read.
    """
    digests = {
        "training rows": _digest(map(_line, train_rows)),
        "held-out rows": _digest(map(_line, eval_rows)),
        "model": _weights_digest(model) if model else None,
        "tokenizer, chat template and generation config": _reading_digest(model) if model else None,
        **{f"{CODE}{reward_name(each)!r}": _source_digest(each) for each in code},
        **{f"the file {file!r}": _digest([Path(file).read_bytes()]) for file in files},
    }
    return {
        "engine": asked_engine(),
        "rows_held_out": len(eval_rows),
        "versions": package_versions(),
        "digests": digests,
    }


def files_read(recipe: RecipeArguments, training: GRPOConfig) -> list[str]:
    """The files that the settings name: parameters of rewards, and the chat template."""
    values = [value for given in (recipe.reward_kwargs or {}).values() for value in given.values()]
    named = [*values, training.chat_template_path]
    return [value for value in named if isinstance(value, str) and os.path.isfile(value)]


def _digest(texts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def _line(row: dict) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _source_digest(function: Callable) -> str | None:
    """Of its file, without comments and layout; None for C code or an interactive session."""
    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        is_partial = isinstance(function, functools.partial)
        function = function.func if is_partial else function.__wrapped__
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    try:
        file = inspect.getsourcefile(function if is_plain else type(function))
        return _digest([ast.dump(ast.parse(Path(file).read_text(encoding="utf-8")))])
    except (OSError, TypeError, SyntaxError):
        return None


def _weights_digest(folder: Path) -> str:
    """Of the configuration, and of the name, the size and the middle of each file of weights."""
    pieces = []
    for file in sorted(
        [*folder.glob("config.json"), *folder.glob("*.safetensors"), *folder.glob("*.bin")]
    ):
        size = file.stat().st_size
        with file.open("rb") as content:
            content.seek(max(0, (size - SAMPLE) // 2))
            pieces += [f"{file.name} {size}", content.read(SAMPLE)]
    return _digest(pieces)


def _reading_digest(folder: Path) -> str:
    """Of the files by which prompts and completions become tokens and text."""
    files = sorted({file for pattern in READING for file in folder.glob(pattern)})
    return _digest(part for file in files for part in (file.name, file.read_bytes()))
