"""The identity of a run besides its settings: engine, rows, rewards, and the model at step 0, as digests.

*Not covered*: what a reward's file imports, what a reward reads besides the files in `reward_kwargs`, and a model that
is not on this disk yet (its digest is None, which equals any). Comments and layout of a reward's file do not count.
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

from huggingface_hub import try_to_load_from_cache

from recipes.common.training.engine import asked_engine
from recipes.common.utils.machine import package_versions
from rewards import reward_name

VERSIONS = "versions"  # the one entry that may change: then a resume is noted not to be exact
HELD_OUT = "number of held-out rows"
PIECES, PIECE = 64, 1 << 16  # of a file of weights; training changes every part of it
# What to do about each entry that differs.
REMEDIES = {
    "engine": "start it with the launch file of before",
    "training rows": "restore the data of before (and the library that makes the rows)",
    "held-out rows": "restore the data of before (and the library that makes the rows)",
    "rewards": "restore the file of the reward",
    "files of rewards": "restore it; reward_kwargs names it",
    "tools": "restore the files of the tools, of the environments and of the chat template",
    "model": "restore the model that the run started from",
}


def identity_of(
    rewards: list[Callable],
    train_rows: list[dict],
    eval_rows: list[dict],
    model: str,
    revision: str | None,
    chat_template_path: str | None = None,
    tools: Iterable[Callable] = (),
    reward_kwargs: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The content of identity.json; of streamed data `train_rows` are the first rows."""
    values = [value for kwargs in (reward_kwargs or {}).values() for value in kwargs.values()]
    files = [Path(value) for value in values if isinstance(value, str) and os.path.isfile(value)]
    template = Path(chat_template_path).read_bytes() if chat_template_path else ""
    return {
        "engine": asked_engine(),
        "training rows": _digest(
            json.dumps(row, sort_keys=True, default=str) for row in train_rows
        ),
        "held-out rows": _digest(json.dumps(row, sort_keys=True, default=str) for row in eval_rows),
        HELD_OUT: len(eval_rows),
        "rewards": {reward_name(reward): _source_digest(reward) for reward in rewards},
        "files of rewards": {str(file): _digest([file.read_bytes()]) for file in files},
        "tools": _digest([*(_source_digest(tool) or "" for tool in tools), template]),
        "model": _model_digest(model_folder(model, revision)),
        VERSIONS: package_versions(),
    }


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Describe what makes it another run, each with its remedy; None in either equals anything."""
    found = []
    for name, remedy in REMEDIES.items():
        was, now = old.get(name), new.get(name)
        if name in (
            "rewards",
            "files of rewards",
        ):  # by name: a reward may write a file, such as a cache, of its own
            was, now = was or {}, now or {}
            names = sorted(
                n
                for n in was.keys() & now.keys()
                if None not in (was[n], now[n]) and was[n] != now[n]
            )
            kind = "the code of reward" if name == "rewards" else "the file"
            found += [f"{kind} {n!r} changed: {remedy}" for n in names]
        elif None not in (was, now) and was != now:
            shown = f"was {was}, now {now}" if name == "engine" else "changed"
            found.append(f"{name} {shown}: {remedy}")
    return found


def version_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Name the packages of another version: `["torch 2.8.0 -> 2.9.0"]`."""
    was, now = old.get(VERSIONS) or {}, new[VERSIONS]
    return [
        f"{name} {was[name]} -> {now.get(name)}"
        for name in sorted(was)
        if was[name] != now.get(name)
    ]


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """The folder of a local model, or of a model of the Hub in the cache; None for one that is not on this disk."""
    if Path(model).is_dir():
        return Path(model)
    try:
        cached = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # not the form of a Hub id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _digest(texts: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()[:16]


def _source_digest(reward: Callable) -> str | None:
    while isinstance(reward, functools.partial) or hasattr(reward, "__wrapped__"):
        reward = reward.func if isinstance(reward, functools.partial) else reward.__wrapped__
    try:
        file = inspect.getsourcefile(
            reward if inspect.isroutine(reward) or inspect.isclass(reward) else type(reward)
        )
        return _digest([ast.dump(ast.parse(Path(file).read_text(encoding="utf-8")))])
    except (OSError, TypeError, SyntaxError):  # C code, or made in an interactive session
        return None


def _model_digest(folder: Path | None) -> str | None:
    if folder is None:
        return None
    files = sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("*.bin")])
    return _digest(piece for file in files if file.is_file() for piece in _pieces(file))


def _pieces(file: Path) -> Iterable[bytes]:
    """The name and size of a file and, evenly spread, up to 4 MiB of it."""
    size = file.stat().st_size
    yield f"{file.name} {size}".encode()
    with file.open("rb") as content:
        for start in sorted({size * i // PIECES for i in range(PIECES)}):
            content.seek(start)
            yield content.read(PIECE)
