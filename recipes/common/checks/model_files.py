"""The model, from its files alone: it is whole, reads the rows, and has room for them."""

import json
import re
from pathlib import Path
from typing import Any

from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError, safe_open

MEASURED_ROWS = 200  # whose prompts are counted in tokens


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """The folder of a model, local or in the Hub's cache; None where it is not on this disk."""
    if Path(model).is_dir():
        return Path(model)
    try:
        cached = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # not the form of a Hub id
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def check_model(model: dict[str, Any], training: dict[str, Any], rows: list[dict]) -> list[str]:
    """Find what keeps a model that is on this disk from loading or from reading the rows."""
    name = model.get("model_name_or_path")
    if not name:
        return ["model_name_or_path is missing: give a Hub id or the path of a checkpoint."]
    return _check("model_name_or_path", name, model.get("model_revision"), training, rows)


def check_reward_model(name: str, training: dict[str, Any], rows: list[dict]) -> list[str]:
    """Find the same of a reward model, and a head that TRL would make anew, at random."""
    if problems := _check("the reward model", name, None, training, rows):
        return problems
    folder = model_folder(name)
    kinds = (
        json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures")
        if folder
        else None
    )
    if not kinds or any("SequenceClassification" in kind for kind in kinds):
        return []
    return [
        f"the reward model {name!r} is a {', '.join(kinds)}: its scores would come from a random "
        "head. Give a model for sequence classification."
    ]


def _check(
    setting: str, name: str, revision: str | None, training: dict[str, Any], rows: list[dict]
) -> list[str]:
    folder = model_folder(name, revision)
    if folder is None:
        return _absent(setting, name)
    if problem := _files_problem(folder):
        return [f"{setting} {name!r}: {problem}. Give the folder of a whole checkpoint."]
    return [
        f"{setting} {name!r}: {problem}" for problem in _reading_problems(folder, training, rows)
    ]


def _absent(setting: str, name: str) -> list[str]:
    """Tell a mistyped path from a Hub id that cannot be reached."""
    above = Path(name).parent
    is_path = (
        name.startswith((".", "/", "~", "models/")) or name.count("/") > 1 or name.endswith("/")
    )
    if is_path or (str(above) != "." and above.is_dir()):
        hint = " Run `python scripts/prepare_model.py` first." if name.startswith("models/") else ""
        there = (
            sorted(path.name for path in above.iterdir() if path.is_dir())[:8]
            if above.is_dir()
            else []
        )
        return [
            f"{setting} {name!r} is not a folder.{f' There are {there}.' if there else ''}{hint}"
        ]
    if constants.HF_HUB_OFFLINE:
        return [
            f"{setting} {name!r} is not a folder, and as a Hub id it is not in the cache, while "
            "the Hub is offline (HF_HUB_OFFLINE=1): correct the path, or unset HF_HUB_OFFLINE to "
            "load it."
        ]
    return []


def _files_problem(folder: Path) -> str | None:
    if not (folder / "config.json").is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        return (
            "it is a LoRA adapter; merge it into its base model"
            if is_adapter
            else "it has no config.json"
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not config.get("model_type"):
            return "its config.json has no model_type"
    except (ValueError, AttributeError):
        return "its config.json is damaged"
    if not any(
        (folder / file).is_file()
        for file in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
    ):
        return "it has no tokenizer (tokenizer.json)"
    return _weights_problem(folder, config.get("num_hidden_layers"))


def _weights_problem(folder: Path, layers: Any) -> str | None:
    """Read the headers of the weights: none are there, one is cut short, or they lack a layer."""
    files = {*folder.glob("model*.safetensors"), *folder.glob("pytorch_model*.bin")}
    names: list[str] = []
    try:
        for index in folder.glob("*.index.json"):
            parts = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files |= {folder / part for part in parts}
        if not files:
            return "there are no weights (no model*.safetensors, no pytorch_model*.bin)"
        for file in files:
            if file.suffix == ".safetensors":
                with safe_open(file, "pt") as weights:
                    names += weights.keys()
            elif not file.is_file():
                return f"{file.name} is missing"
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its weights cannot be read ({type(error).__name__}: {error})"
    found = [re.search(r"\.(?:layers|h)\.(\d+)\.", name) for name in names]
    numbers = {int(match[1]) for match in found if match}
    missing = sorted(set(range(layers)) - numbers) if isinstance(layers, int) and numbers else []
    if missing:
        return f"its weights lack {len(missing)} of {layers} layers (the first: {missing[0]})"
    return None


def _reading_problems(folder: Path, training: dict[str, Any], rows: list[dict]) -> list[str]:
    """Tokenize the rows' prompts as the run will."""
    from transformers import AutoConfig, AutoTokenizer

    remote = bool(training.get("trust_remote_code"))
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=remote)
    except Exception as error:  # whatever a damaged file makes of it
        return [
            f"its config or tokenizer cannot be read: {type(error).__name__}: "
            f"{' '.join(str(error).split())[:300]}"
        ]
    if tokenizer.eos_token_id is None and tokenizer.pad_token_id is None:
        return [
            "its tokenizer has neither an end token nor a pad token; set eos_token in "
            "tokenizer_config.json."
        ]
    if training.get("chat_template_path") and Path(training["chat_template_path"]).is_file():
        tokenizer.chat_template = Path(training["chat_template_path"]).read_text(encoding="utf-8")
    tools = []
    if training.get("tools") or training.get("environment_factory"):
        from recipes.common.checks.callables import tools_of
        from recipes.common.training.rollout import check_tool_template

        try:
            tools = tools_of(training)
            problems = check_tool_template(tokenizer, tools)
        except Exception:  # reported by check_tool_use
            return []
        if problems:
            return problems
    prompts = [row["prompt"] for row in rows[:MEASURED_ROWS] if row.get("prompt")]
    if tokenizer.chat_template is None and any(isinstance(prompt, list) for prompt in prompts):
        return [
            "its tokenizer has no chat template, and the prompts are chat messages: give a chat "
            "model, or rows whose prompts are text."
        ]
    kwargs = {"tools": tools or None, **(training.get("chat_template_kwargs") or {})}
    try:
        texts = [
            prompt
            if isinstance(prompt, str)
            else tokenizer.apply_chat_template(
                prompt, tokenize=False, add_generation_prompt=True, **kwargs
            )
            for prompt in prompts
        ]
    except Exception as error:
        return [
            f"its chat template does not take the messages of the rows: {type(error).__name__}: "
            f"{error}."
        ]
    longest = (
        max(
            (len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]), default=0
        )
        if texts
        else 0
    )
    room, asked = (
        getattr(config, "max_position_embeddings", None),
        training["max_completion_length"] or 0,
    )
    if isinstance(room, int) and longest + asked > room:
        return [
            f"its context has {room} tokens; the longest prompt of the first {len(texts)} rows has "
            f"{longest}, and max_completion_length is {asked}: set it to at most "
            f"{max(room - longest, 0)}, or shorten the prompts."
        ]
    return []
