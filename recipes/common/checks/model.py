"""Checks of the model and its tokenizer, without loading weights into memory.

transformers and PEFT build the model on the meta device and report what is wrong. Our checks cover
what they accept: missing weights, unknown names for LoRA, a lost question, a short context.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import constants, try_to_load_from_cache
from huggingface_hub.utils import validate_repo_id
from jinja2 import TemplateError
from peft import inject_adapter_in_model
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.integrations import deepspeed
from transformers.utils import logging
from trl import ModelConfig, get_peft_config

from recipes.common.checks.memory import memory_note
from recipes.common.settings import Arguments
from recipes.common.training.completion import load_tokenizer, replaced
from recipes.common.training.tools import check_tool_template
from recipes.common.utils.run_files import read_json
from rewards.text import completion_text

ADAPTER = "adapter_config.json"
WHOLE_WEIGHTS = re.compile(r"(?!.*-of-\d).+\.(safetensors|bin|gguf)")  # not one file of several
MEASURED_ROWS = 200  # the 200 longest prompts are tokenized


def check_model(
    args: Arguments, rows: list[dict], reference_completion: Callable[[dict], Any]
) -> None:
    """Raise an error if the model would not load completely or could not read the rows.

    Adds notes: of answers that would be cut off, and of the memory that the model needs. For a
    model that is not on this disk yet, only its name is checked.
    """
    training, model = args.training, args.model
    name = model["model_name_or_path"]
    if name is None and args.is_refused("model_name_or_path"):
        return
    if not name:
        raise ValueError("model_name_or_path is missing: give a Hub id or a checkpoint's path.")
    folder = model_folder(name, model["model_revision"])
    if folder is None:
        return check_absent(name)
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        base = read_json(folder / ADAPTER, {}).get("base_model_name_or_path")
        raise ValueError(
            f"it is an adapter (LoRA) of {base}, not a model: merge it into that (merge_and_unload "
            "of PEFT), save model and tokenizer (save_pretrained), and give the merged folder."
        )
    remote, template = bool(training["trust_remote_code"]), training["chat_template_path"]
    config = AutoConfig.from_pretrained(folder, trust_remote_code=remote)
    tokenizer = load_tokenizer(folder, None, remote, template)
    if training["tools"] or training["environment_factory"]:
        check_tool_template(tokenizer)
    longest = check_prompts(tokenizer, config, training, rows)
    if rows and not args.problems:  # else the reference answers may be what is wrong
        args.notes += cut_note(tokenizer, training, rows, reference_completion)
        args.notes += turn_notes(tokenizer, folder, config, training, rows, reference_completion)
    is_quantized = getattr(config, "quantization_config", None) is not None  # other weight names
    if not is_quantized and not args.is_refused("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        built = build_without_weights(folder, config, training["model_init_kwargs"], model)
        args.notes += memory_note(built, {**training, **model}, longest)


def check_reward_model(name: str) -> None:
    """Raise ValueError for a reward model that is missing or would get a random head."""
    if (folder := model_folder(name)) is None:
        return check_absent(name)
    kinds = ", ".join(AutoConfig.from_pretrained(folder).architectures or ())
    if kinds and "SequenceClassification" not in kinds:
        raise ValueError(
            f"it is a {kinds}: its scores would come from a random head. Give a model for sequence "
            "classification."
        )


def model_folder(model: str, revision: str | None = None) -> Path | None:
    """The folder of a model, local or in the Hub's cache; None if it is not whole on this disk."""
    if Path(model).is_dir():
        return Path(model)
    try:
        cached = try_to_load_from_cache(model, "config.json", revision=revision)
    except ValueError:  # not the form of a Hub id
        return None
    if not isinstance(cached, str):  # not in the cache
        return None
    folder = Path(cached).parent
    # Of a download that was cut short weights are missing: loading the model goes on with it.
    if any(WHOLE_WEIGHTS.fullmatch(file.name) and file.is_file() for file in folder.iterdir()):
        return folder
    for index in folder.glob("*.index*.json"):
        parts = {*read_json(index, {}).get("weight_map", {}).values()}
        if parts and all((folder / part).is_file() for part in parts):
            return folder
    return None


def check_absent(name: str) -> None:
    """Raise ValueError for a model that is no folder and not in the cache, with what to do.

    It is a mistyped path, no valid Hub id, or a Hub id while the Hub is offline.
    """
    if name.startswith("models/") or ("/" in name and Path(name).parent.is_dir()):
        raise ValueError(
            "it is not a folder: correct the path. `python scripts/prepare_model.py` makes "
            "models/SmolLM2-135M-Instruct."
        )
    validate_repo_id(name)
    if constants.HF_HUB_OFFLINE:
        raise ValueError(
            "it is not a folder, and as a Hub id it is not in the cache, while the Hub is offline "
            "(HF_HUB_OFFLINE=1): correct the path, or unset HF_HUB_OFFLINE to load it."
        )


def check_prompts(tokenizer: Any, config: Any, training: dict[str, Any], rows: list[dict]) -> int:
    """Return the tokens of the longest prompt.

    `config` is the model's, `training` holds the settings of GRPOConfig. Raises ValueError if the
    tokenizer, its chat template or the context does not fit the rows.
    """
    kwargs = {"add_generation_prompt": True, **(training["chat_template_kwargs"] or {})}
    known = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    texts = []
    by_length = sorted(enumerate(rows), key=lambda one: -len(str(one[1].get("prompt"))))
    for number, row in by_length[:MEASURED_ROWS]:
        text, question = row.get("prompt") or "", ""
        if isinstance(text, list):
            question = text[-1]["content"]
            try:
                text = as_parts(text) if known is not tokenizer else text
                text = tokenizer.apply_chat_template(text, tokenize=False, **kwargs)
            except TemplateError as error:
                raise ValueError(
                    f"its chat template refuses the prompt: {error}. If it takes no system "
                    'message, leave that out by system_prompt: "" (recipes/math), or give another '
                    "template by chat_template_path."
                ) from error
        if isinstance(question, str) and "".join(question.split()) not in "".join(text.split()):
            raise ValueError(
                f"its chat template leaves out the question of row {number}: {question[:80]!r} "
                "is not in what it writes. Correct the template, or give one by chat_template_path."
            )
        texts.append(text)
    ids = known(texts, add_special_tokens=False)["input_ids"] if texts else []
    if known.eos_token_id is None:
        raise ValueError("its tokenizer has no eos_token, so that no answer would end: set it.")
    size = config.get_text_config().vocab_size
    largest = max([known.eos_token_id, *(token for row in ids for token in row)])
    if largest >= size:
        raise ValueError(
            f"its tokenizer writes the token {largest}, {known.decode([largest])!r}, and the model "
            f"has {size}: the tokenizer is of another model, or the model was not resized for it."
        )
    longest, prompt = max(zip(map(len, ids), texts, strict=True), default=(0, ""))
    room = getattr(config.get_text_config(), "max_position_embeddings", None)
    asked = training["max_completion_length"] or 0
    if isinstance(room, int) and longest + asked > room:
        fitting = f"set it to at most {room - longest}, or " if longest < room else ""
        raise ValueError(
            f"its context has {room} tokens; the longest prompt read has {longest} "
            f"({prompt.strip()[-80:]!r} is its end), and max_completion_length is "
            f"{asked}: {fitting}shorten the prompt, or take another model."
        )
    return longest


def as_parts(messages: list[dict]) -> list[dict]:
    """Messages with texts as lists of one part, as processors of models with images want them."""
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message["content"], str)
        else message
        for message in messages
    ]


def cut_note(
    tokenizer: Any,
    training: dict[str, Any],
    rows: list[dict],
    reference_completion: Callable[[dict], Any],
) -> list[str]:
    """Note that max_completion_length cuts off a tenth or more of the first reference answers."""
    limit = training["max_completion_length"]
    answers = [reference_completion(row) for row in rows[:MEASURED_ROWS]]
    texts = [completion_text(answer) for answer in answers if answer is not None]
    if not (limit and texts):
        return []
    known = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    lengths = [len(ids) for ids in known(texts, add_special_tokens=False)["input_ids"]]
    cut = sum(length >= limit for length in lengths)  # the end token needs room, too
    if 10 * cut < len(lengths):
        return []
    return [
        f"max_completion_length is {limit}, and {cut} of {len(lengths)} reference answers have as "
        f"many tokens or more (up to {max(lengths)}): raise it, or the model's are cut off as well"
    ]


def turn_notes(
    tokenizer: Any,
    folder: Path,
    config: Any,
    training: dict[str, Any],
    rows: list[dict],
    reference_completion: Callable[[dict], Any],
) -> list[str]:
    """Notes on a chat template that opens a thought, or ends a turn by what ends no completion.

    Raises ValueError if the tokenizer drops parts of the first reference answer in decoding.
    """
    known = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
    with_answer = ((row["prompt"], reference_completion(row)) for row in rows)
    prompt, answer = next((pair for pair in with_answer if pair[1]), (rows[0]["prompt"], ""))
    answer = completion_text(answer).strip()
    tokens = known(answer, add_special_tokens=False)["input_ids"]
    special = {token for token, text in known.added_tokens_decoder.items() if text.special}
    if dropped := [known.decode([token]) for token in tokens if token in special]:
        raise ValueError(
            f"its tokenizer reads {', '.join(dropped)} of the reference answer as special tokens, "
            "which no reward sees: ask for another format, or add them as usual tokens."
        )
    if isinstance(prompt, str) or prompt[-1]["role"] == "assistant":
        return []
    kwargs, notes = {"tokenize": False, **(training["chat_template_kwargs"] or {})}, []
    if tokenizer is not known:
        prompt = as_parts(prompt)
    opened = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, **kwargs)
    if opened.rstrip().endswith("<think>"):
        notes.append(
            "its chat template opens <think> in the prompt: an answer in a thought that never ends "
            "counts. chat_template_kwargs (enable_thinking: false) may leave it out; "
            "think_answer_format needs prefilled: true"
        )
    if not answer:
        return notes
    turn = [{"role": "assistant", "content": answer}]
    turn = turn if tokenizer is known else as_parts(turn)
    *_, end = tokenizer.apply_chat_template([*prompt, *turn], **kwargs).rpartition(answer)
    try:
        of_model = GenerationConfig.from_pretrained(folder).eos_token_id
    except OSError:  # without that file transformers takes the model's
        of_model = getattr(config.get_text_config(), "eos_token_id", None)
    ends = {known.eos_token_id, *(of_model if isinstance(of_model, list) else [of_model])}
    if end.strip() and not ends.intersection(known(end)["input_ids"]):
        notes.append(
            f"its chat template ends a turn by {end.strip()!r:.40}, which ends no completion: the "
            "model may write on to max_completion_length. Add the token to eos_token_id in its "
            "generation_config.json"
        )
    return notes


def build_without_weights(
    folder: Path, config: Any, init_kwargs: dict[str, Any] | None, model: dict[str, Any]
) -> PreTrainedModel:
    """Return the model of a checkpoint on the meta device, with its LoRA.

    `init_kwargs` are the run's model_init_kwargs, `model` the settings of ModelConfig. Raises
    ValueError if some weights would start at random, or if LoRA finds no target.
    """
    if not config.architectures:
        raise ValueError("its config.json names no architectures: TRL knows not what to build.")
    kind = getattr(transformers, config.architectures[0], AutoModelForCausalLM)  # as TRL does it
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # we report missing weights below
    logging.disable_progress_bar()
    try:
        # With the ZeRO-3 config set, transformers would partition the model and refuse device_map.
        with replaced(deepspeed, _hf_deepspeed_config_weak_ref=None):
            built, loaded = kind.from_pretrained(
                folder,
                config=config,
                device_map="meta",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **{"attn_implementation": model["attn_implementation"], **(init_kwargs or {})},
            )
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    for name, has, wanted in loaded["mismatched_keys"]:
        raise ValueError(f"{name} has the shape {list(has)}, by its config.json {list(wanted)}.")
    if missing := sorted(loaded["missing_keys"]):
        unknown = min(loaded["unexpected_keys"], default="none")
        raise ValueError(
            f"its weights lack {', '.join(missing[:3])}: {len(missing)} would start at random (the "
            f"first of a name that the model does not know: {unknown}). Give the whole checkpoint, "
            "saved without what wraps the model."
        )
    if model["use_peft"]:
        add_lora(built, model)
    return built


def add_lora(built: PreTrainedModel, model: dict[str, Any]) -> None:
    """Add the LoRA that the settings of ModelConfig ask for to a model on the meta device.

    Raises ValueError if one of several names finds nothing, with which PEFT is content.
    """
    modules = list(built.named_modules())
    parts = [f".{name}" for name, _ in [*modules, *built.named_parameters()]]
    for setting in ("lora_target_modules", "lora_modules_to_save", "lora_target_parameters"):
        names = model[setting] or []
        if setting == "lora_target_modules" and len(names) == 1:
            continue  # all-linear, or TRL makes it a regular expression of a whole name
        missing = [name for name in names if not any(part.endswith(f".{name}") for part in parts)]
        if missing:
            linear = {name.rpartition(".")[2] for name, m in modules if isinstance(m, nn.Linear)}
            raise ValueError(
                f"{setting}: nothing has the name {', '.join(missing)}: the model has "
                f"{', '.join(sorted(linear))}; or give all-linear."
            )
    config = get_peft_config(ModelConfig(**model))
    try:
        inject_adapter_in_model(config, built, low_cpu_mem_usage=True)
    except ValueError as error:
        raise ValueError(
            f"{error} One name alone is a regular expression of a whole name, '.*q_proj' say."
        ) from error
