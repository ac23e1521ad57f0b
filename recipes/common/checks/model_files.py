"""The model, from its files alone: it is whole, reads the rows, and has room for them.

Each function raises ValueError for the first problem, in words that follow the model's name.
"""

import json
import math
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, try_to_load_from_cache
from jinja2 import TemplateError
from safetensors import SafetensorError, safe_open

from rewards.text import completion_text

MEASURED_ROWS = 200  # whose prompts are counted in tokens
TEMPLATE_S = 10  # for them; an ordinary template takes a hundredth
OF_THE_TRAINER = ("rng_state", "optimizer.pt", "scheduler.pt", "scaler.pt")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
Shapes = dict[str, list[int]]  # of the weights of a model, by their names


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """The folder of a model, local or in the Hub's cache; None where it is not on this disk."""
    if Path(model).is_dir():
        return Path(model)
    try:
        cached = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # not the form of a Hub id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def check_absent(name: str) -> None:
    """Tell a mistyped path from a Hub id that cannot be reached."""
    above = Path(name).parent
    starts_as_path = name.startswith((".", "/", "~", "models/"))
    is_path = starts_as_path or name.count("/") > 1 or name.endswith("/")
    if is_path or (str(above) != "." and above.is_dir()):
        there = sorted(path.name for path in above.glob("*/"))[:8] if above.is_dir() else []
        beside = f" There are {there}." if there else ""
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        raise ValueError(f"it is not a folder.{beside}{hint}")
    if constants.HF_HUB_OFFLINE:
        raise ValueError(
            "it is not a folder, and as a Hub id it is not in the cache, while the Hub is offline "
            "(HF_HUB_OFFLINE=1): correct the path, or unset HF_HUB_OFFLINE to load it."
        )


# --------------------------------------------------------------------------- whole


def check_readable(folder: Path) -> None:
    """No file of a model or a checkpoint is damaged or cut short.

    JSON is read, of weights in safetensors the header, of the trainer's archives the table at the
    end.
    """
    for file in sorted(folder.iterdir()):
        try:
            if file.suffix == ".json":
                json.loads(file.read_text(encoding="utf-8"))
            elif file.suffix == ".safetensors":
                with safe_open(file, "pt"):
                    pass
            elif file.name.startswith(OF_THE_TRAINER) and not zipfile.is_zipfile(file):
                raise ValueError("it is no whole archive of torch")
        except (OSError, ValueError, SafetensorError) as error:
            words = f"{file.name} cannot be read ({type(error).__name__}: {error})"
            raise ValueError(words) from error


def check_files(folder: Path) -> Shapes:
    """The shapes of a whole model's weights in safetensors; none of a model with others."""
    try:
        if not (folder / "config.json").is_file():
            if (folder / "adapter_config.json").is_file():
                raise ValueError("it is a LoRA adapter; merge it into its base model")
            raise ValueError("it has no config.json")
        check_readable(folder)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict) or not config.get("model_type"):
            raise ValueError("its config.json has no model_type")
        if not any((folder / file).is_file() for file in TOKENIZERS):
            raise ValueError("it has no tokenizer (tokenizer.json)")
        return _shapes(folder)
    except ValueError as problem:
        raise ValueError(f"{problem}. Give the folder of a whole checkpoint.") from problem


def _shapes(folder: Path) -> Shapes:
    files = {*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")}
    for index in folder.glob("*.index.json"):
        content = json.loads(index.read_text(encoding="utf-8"))
        parts = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(parts, dict):
            raise ValueError(f"{index.name} has no weight_map")
        files |= {folder / part for part in parts.values()}
    if not files:
        raise ValueError("there are no weights (no model*.safetensors, no pytorch_model*.bin)")
    if missing := sorted(file.name for file in files if not file.is_file()):
        raise ValueError(f"{', '.join(missing)} is missing")
    shapes, sizes = {}, []
    for file in (each for each in files if each.suffix == ".safetensors"):
        with safe_open(file, "pt") as weights:
            for name in list(weights.keys()):
                part = weights.get_slice(name)
                shapes[name] = shape = part.get_shape()
                if 0 in shape:
                    continue
                # The first and the last row: NaN there is what a diverged run leaves.
                has_rows = len(shape) > 1
                ends = [part[:1], part[shape[0] - 1 :]] if has_rows else [weights.get_tensor(name)]
                sizes += [end.float().abs().max().item() for end in ends]
                if math.isnan(sum(sizes[-2:])):
                    raise ValueError(
                        f"its weights are no numbers (the first: {name} in {file.name})"
                    )
    if sizes and max(sizes) == 0.0:
        raise ValueError("its weights are all 0, as of a copy that was cut short")
    return shapes


# --------------------------------------------------------------------------- reading


def check_reading(
    folder: Path, training: dict[str, Any], rows: list[dict], tools: list[Callable]
) -> Any:
    """Tokenize the rows' prompts as the run will, and return the tokenizer."""
    from transformers import AutoConfig

    from recipes.common.training.completion import load_tokenizer
    from recipes.common.training.tools import check_tool_template

    remote, template = bool(training.get("trust_remote_code")), training.get("chat_template_path")
    if template and not Path(template).is_file():  # reported by check_settings
        template = None
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
        tokenizer = load_tokenizer(folder, None, remote, template)
    except Exception as error:  # whatever a damaged file makes of it
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise ValueError(f"its config or tokenizer cannot be read: {words}") from error
    if tokenizer.eos_token_id is None and tokenizer.pad_token_id is None:
        raise ValueError(
            "its tokenizer has neither an end token nor a pad token; set eos_token in "
            "tokenizer_config.json."
        )
    largest = max(tokenizer.get_vocab().values())
    known = getattr(config.get_text_config(), "vocab_size", None)
    if known is not None and largest >= known:
        raise ValueError(
            f"its tokenizer has tokens up to {largest}, and its embedding {known} rows: save the "
            "tokenizer that belongs to it, or resize the embedding."
        )
    if tools:
        try:
            check_tool_template(tokenizer)
        except TemplateError as error:
            raise ValueError(f"its chat template refuses a call of a tool: {error}.") from error
    prompts = [row["prompt"] for row in rows[:MEASURED_ROWS] if row.get("prompt")]
    if tokenizer.chat_template is None and any(isinstance(prompt, list) for prompt in prompts):
        raise ValueError(
            "its tokenizer has no chat template, and the prompts are chat messages: give a chat "
            "model, or rows whose prompts are text."
        )
    texts = _written(tokenizer, prompts, tools, training.get("chat_template_kwargs") or {})
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    longest = max(map(len, ids), default=0)
    asked = training["max_completion_length"] or 0
    room = getattr(config, "max_position_embeddings", None)
    if isinstance(room, int) and longest + asked > room:
        raise ValueError(
            f"its context has {room} tokens; the longest prompt of the first {len(texts)} rows has "
            f"{longest}, and max_completion_length is {asked}: set it to at most "
            f"{max(room - longest, 0)}, or shorten the prompts."
        )
    return tokenizer


def _written(
    tokenizer: Any, prompts: list, tools: list[Callable], kwargs: dict[str, Any]
) -> list[str]:
    """The prompts as the chat template writes them, with their questions."""
    kwargs = {"tools": tools or None, "tokenize": False, "add_generation_prompt": True, **kwargs}
    texts = []
    try:
        with limited(TEMPLATE_S):
            for prompt in prompts:
                is_chat = isinstance(prompt, list)
                texts.append(tokenizer.apply_chat_template(prompt, **kwargs) if is_chat else prompt)
    except Exception as error:  # a template raises what it likes
        words = f"{type(error).__name__}: {error}"
        raise ValueError(
            f"its chat template does not take the messages of the rows: {words}."
        ) from error
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        question = prompt[-1]["content"] if isinstance(prompt, list) else ""
        if isinstance(question, str) and "".join(question.split()) not in "".join(text.split()):
            raise ValueError(
                f"its chat template leaves out the question of row {number}: {question[:80]!r} "
                "is not in what it writes. Correct the template, or give one by chat_template_path."
            )
    return texts


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in Python code that takes longer; in the main thread alone."""

    def stop(*arguments: Any) -> None:
        raise TimeoutError(f"it is not done after {seconds:g} s")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def length_notes(
    tokenizer: Any, asked: int | None, rows: list[dict], reference: Callable[[dict], Any]
) -> list[str]:
    """Say that no reference completion of the first rows fits into `max_completion_length`.

    A right completion may be shorter than its reference, so it is no refusal.
    """
    known = [given for row in rows[:MEASURED_ROWS] if (given := reference(row)) is not None]
    if not known or not asked:
        return []
    texts = [completion_text(given) for given in known]
    shortest = min(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
    if shortest < asked:  # one more token ends it
        return []
    return [
        f"no reference completion fits: max_completion_length is {asked}, and the shortest of the "
        f"first {len(known)} rows has {shortest} tokens and an end. Set it to more, or expect that "
        "completions are cut before they answer"
    ]
