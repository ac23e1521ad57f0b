"""The model, from its files alone: it is whole, reads the rows, and has room for them."""

import json
import math
import re
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError, safe_open

from rewards.text import completion_text

MEASURED_ROWS = 200  # whose prompts are counted in tokens
TEMPLATE_S = 10  # for them; an ordinary template takes a hundredth
EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|wte|word_embeddings|embed_in)\.weight$")
OF_THE_TRAINER = ("rng_state", "optimizer.pt", "scheduler.pt", "scaler.pt")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """The folder of a model, local or in the Hub's cache; None where it is not on this disk."""
    if Path(model).is_dir():
        return Path(model)
    try:
        cached = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # not the form of a Hub id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def unreadable(folder: Path) -> str | None:
    """Name the first file of a model or a checkpoint that is damaged or cut short, and say why.

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
                return f"{file.name} is no whole archive of torch"
        except (OSError, ValueError, SafetensorError) as error:
            return f"{file.name} cannot be read ({type(error).__name__}: {error})"
    return None


def check_model(
    model: dict[str, Any],
    training: dict[str, Any],
    rows: list[dict],
) -> list[str]:
    """Find what keeps a model that is on this disk from loading or from reading the rows."""
    name = model.get("model_name_or_path")
    if not name:
        return ["model_name_or_path is missing: give a Hub id or the path of a checkpoint."]
    return _check("model_name_or_path", name, model, training, rows)


def check_reward_model(name: str, training: dict[str, Any], rows: list[dict]) -> list[str]:
    """Find the same of a reward model, and a head that TRL would make anew, at random."""
    problems = _check("the reward model", name, {}, training, rows)
    folder = model_folder(name)
    if problems or folder is None:
        return problems
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kinds = config.get("architectures")
    if not kinds or any("SequenceClassification" in kind for kind in kinds):
        return []
    return [
        f"the reward model {name!r} is a {', '.join(kinds)}: its scores would come from a random "
        "head. Give a model for sequence classification."
    ]


def _check(
    setting: str,
    name: str,
    model: dict[str, Any],
    training: dict[str, Any],
    rows: list[dict],
) -> list[str]:
    folder = model_folder(name, model.get("model_revision"))
    if folder is None:
        problem = _absent(name)
        return [f"{setting} {name!r} {problem}"] if problem else []
    if problem := _files_problem(folder):
        return [f"{setting} {name!r}: {problem}. Give the folder of a whole checkpoint."]
    problem = _reading_problem(folder, training, rows)
    if problem is None and setting == "model_name_or_path":
        from recipes.common.checks.building import check_building

        return check_building(folder, model, training)
    return [f"{setting} {name!r}: {problem}"] if problem else []


def _absent(name: str) -> str | None:
    """Tell a mistyped path from a Hub id that cannot be reached."""
    above = Path(name).parent
    starts_as_path = name.startswith((".", "/", "~", "models/"))
    is_path = starts_as_path or name.count("/") > 1 or name.endswith("/")
    if is_path or (str(above) != "." and above.is_dir()):
        there = sorted(path.name for path in above.glob("*/"))[:8] if above.is_dir() else []
        beside = f" There are {there}." if there else ""
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        return f"is not a folder.{beside}{hint}"
    if constants.HF_HUB_OFFLINE:
        return (
            "is not a folder, and as a Hub id it is not in the cache, while the Hub is offline "
            "(HF_HUB_OFFLINE=1): correct the path, or unset HF_HUB_OFFLINE to load it."
        )
    return None


def _files_problem(folder: Path) -> str | None:
    if not (folder / "config.json").is_file():
        if (folder / "adapter_config.json").is_file():
            return "it is a LoRA adapter; merge it into its base model"
        return "it has no config.json"
    if problem := unreadable(folder):
        return problem
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict) or not config.get("model_type"):
        return "its config.json has no model_type"
    if not any((folder / file).is_file() for file in TOKENIZERS):
        return "it has no tokenizer (tokenizer.json)"
    return _weights_problem(folder, config.get("num_hidden_layers"))


def _weights_problem(folder: Path, layers: Any) -> str | None:
    """Read the names of the weights: there are none, a file is missing, or they lack a layer."""
    files = {*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")}
    for index in folder.glob("*.index.json"):
        content = json.loads(index.read_text(encoding="utf-8"))
        parts = content.get("weight_map") if isinstance(content, dict) else None
        if not isinstance(parts, dict):
            return f"{index.name} has no weight_map"
        files |= {folder / part for part in parts.values()}
    if not files:
        return "there are no weights (no model*.safetensors, no pytorch_model*.bin)"
    if missing := sorted(file.name for file in files if not file.is_file()):
        return f"{', '.join(missing)} is missing"
    names: list[str] = []
    largest = 0.0
    for file in (each for each in files if each.suffix == ".safetensors"):
        with safe_open(file, "pt") as weights:
            own = list(weights.keys())
            names += own
            for name in own:
                size = _size_at_the_ends(weights, name)
                if math.isnan(size):
                    return f"its weights are no numbers (the first: {name} in {file.name})"
                largest = max(largest, size)
    if names and largest == 0.0:
        return "its weights are all 0, as of a copy that was cut short"
    found = [re.search(r"\.(?:layers|h)\.(\d+)\.", name) for name in names]
    numbers = {int(match[1]) for match in found if match}
    missing = sorted(set(range(layers)) - numbers) if isinstance(layers, int) and numbers else []
    if missing:
        return f"its weights lack {len(missing)} of {layers} layers (the first: {missing[0]})"
    return None


def _size_at_the_ends(weights: Any, name: str) -> float:
    """The largest size in the first and the last row: NaN there is what a diverged run leaves."""
    part = weights.get_slice(name)
    shape = part.get_shape()
    if 0 in shape:
        return 0.0
    is_short = len(shape) < 2
    ends = [weights.get_tensor(name)] if is_short else [part[:1], part[shape[0] - 1 :]]
    sizes = [end.float().abs().max().item() for end in ends]
    return math.nan if any(map(math.isnan, sizes)) else max(sizes)


def embedded_tokens(folder: Path) -> int | None:
    """The rows of the input embedding in a folder's safetensors; None where there are none."""
    for file in folder.glob("model*.safetensors"):
        with safe_open(file, "pt") as weights:
            own = [name for name in list(weights.keys()) if EMBEDDING.search(name)]
            if own:
                return weights.get_slice(own[0]).get_shape()[0]
    return None


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
    model: dict[str, Any],
    training: dict[str, Any],
    rows: list[dict],
    reference: Callable[[dict], Any],
) -> list[str]:
    """Say that no reference completion of the first rows fits into `max_completion_length`.

    A right completion may be shorter than its reference, so it is no refusal.
    """
    from recipes.common.training.rollout import load_tokenizer

    folder = model_folder(model["model_name_or_path"], model.get("model_revision"))
    known = [given for row in rows[:MEASURED_ROWS] if (given := reference(row)) is not None]
    asked = training["max_completion_length"]
    if folder is None or not known or not asked:
        return []
    tokenizer = load_tokenizer(folder, None, bool(training["trust_remote_code"]))
    texts = [completion_text(given) for given in known]
    shortest = min(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))
    if shortest < asked:  # one more token ends it
        return []
    return [
        f"no reference completion fits: max_completion_length is {asked}, and the shortest of the "
        f"first {len(known)} rows has {shortest} tokens and an end. Set it to more, or expect that "
        "completions are cut before they answer"
    ]


def _reading_problem(folder: Path, training: dict[str, Any], rows: list[dict]) -> str | None:
    """Tokenize the rows' prompts as the run will."""
    from transformers import AutoConfig

    from recipes.common.training.rollout import load_tokenizer

    remote, template = bool(training.get("trust_remote_code")), training.get("chat_template_path")
    if template and not Path(template).is_file():  # reported by check_tool_use
        template = None
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
        tokenizer = load_tokenizer(folder, None, remote, template)
    except Exception as error:  # whatever a damaged file makes of it
        words = " ".join(str(error).split())[:300]
        return f"its config or tokenizer cannot be read: {type(error).__name__}: {words}"
    if tokenizer.eos_token_id is None and tokenizer.pad_token_id is None:
        return (
            "its tokenizer has neither an end token nor a pad token; set eos_token in "
            "tokenizer_config.json."
        )
    largest, rows_of_it = max(tokenizer.get_vocab().values()), embedded_tokens(folder)
    if rows_of_it is not None and largest >= rows_of_it:
        return (
            f"its tokenizer has tokens up to {largest}, and its embedding {rows_of_it} rows: save "
            "the tokenizer that belongs to it, or resize the embedding."
        )
    tools, problem = _tools(tokenizer, training)
    if problem:
        return problem
    prompts = [row["prompt"] for row in rows[:MEASURED_ROWS] if row.get("prompt")]
    chats = [prompt for prompt in prompts if isinstance(prompt, list)]
    if tokenizer.chat_template is None and chats:
        return (
            "its tokenizer has no chat template, and the prompts are chat messages: give a chat "
            "model, or rows whose prompts are text."
        )
    texts = []
    kwargs = {"tools": tools or None, **(training.get("chat_template_kwargs") or {})}
    kwargs |= {"tokenize": False, "add_generation_prompt": True}
    try:
        with limited(TEMPLATE_S):
            for prompt in prompts:
                is_chat = isinstance(prompt, list)
                texts.append(tokenizer.apply_chat_template(prompt, **kwargs) if is_chat else prompt)
    except Exception as error:  # a template raises what it likes
        name = type(error).__name__
        return f"its chat template does not take the messages of the rows: {name}: {error}."
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        question = prompt[-1]["content"] if isinstance(prompt, list) else ""
        if isinstance(question, str) and "".join(question.split()) not in "".join(text.split()):
            return (
                f"its chat template leaves out the question of row {number}: {question[:80]!r} "
                "is not in what it writes. Correct the template, or give one by chat_template_path."
            )
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    longest = max(map(len, ids), default=0)
    asked = training["max_completion_length"] or 0
    room = getattr(config, "max_position_embeddings", None)
    if isinstance(room, int) and longest + asked > room:
        return (
            f"its context has {room} tokens; the longest prompt of the first {len(texts)} rows has "
            f"{longest}, and max_completion_length is {asked}: set it to at most "
            f"{max(room - longest, 0)}, or shorten the prompts."
        )
    return None


def _tools(tokenizer: Any, training: dict[str, Any]) -> tuple[list[Callable], str | None]:
    """The tools that a prompt describes, and why the chat template cannot."""
    if not (training.get("tools") or training.get("environment_factory")):
        return [], None
    from recipes.common.checks.callables import check_tool_template, tools_of

    try:
        tools = tools_of(training)
        problems = check_tool_template(tokenizer, tools)
    except Exception:  # reported by check_tool_use
        return [], None
    return tools, problems[0] if problems else None
