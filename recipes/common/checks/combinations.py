"""Settings next to one another: what does not go together, or cannot be built of them.

A row of a table is a condition and its message. TRL and transformers refuse some of these as
well, but one at a time, and with the model loaded.
"""

import importlib
import importlib.util
import inspect
import os
import re
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import psutil
import torch
import yaml
from huggingface_hub import get_token
from peft import TaskType
from requests.utils import get_netrc_auth
from transformers import GenerationConfig, Trainer, get_scheduler
from trl import ModelConfig, get_peft_config

from recipes.common.limits import LIMIT_OF, read_values
from recipes.common.settings import Arguments
from recipes.common.trainer import GRPOConfig
from recipes.common.training.engine import asked_engine, world_size
from recipes.common.training.process import check_loss
from recipes.common.utils.problems import told
from rewards import reward_kind, reward_name

TRACKERS = {"wandb", "tensorboard", "trackio", "mlflow"}
TRACKERS |= {"comet_ml", "swanlab", "clearml", "neptune"}


def check_settings(args: Arguments, rewards: list[Callable]) -> list[str]:
    """Refuse settings that do not go together; of rows only their number is asked elsewhere."""
    s = SimpleNamespace(**{**vars(args.recipe), **args.training, **args.model})
    weights = s.reward_weights or []
    names = ", ".join(map(reward_name, rewards))
    metric = str(s.metric_for_best_model)
    chooses = s.load_best_model_at_end or s.early_stopping_patience
    table = {
        "max_steps is 0; it must be at least 1, or -1 for num_train_epochs.": (s.max_steps == 0),
        "bf16 and fp16 are both true: set one or the other.": (s.bf16 and s.fp16),
        f"fsdp is {s.fsdp!r}, but this launch is {asked_engine()}: give accelerate launch "
        "--config_file accelerate_configs/fsdp2.yaml, and leave fsdp out.": (
            s.fsdp and not asked_engine().startswith("FSDP")
        ),
        "max_tool_calling_iterations is 0: no call of a tool would be answered. Give at least 1, "
        "or no tools.": (s.max_tool_calling_iterations == 0 and (s.tools or s.environment_factory)),
        # Rewards
        f"reward_weights has {len(weights)} values for {len(rewards)} rewards: {names}.": (
            rewards and weights and len(weights) != len(rewards)
        ),
        f"reward_weights is {weights}; one must not be 0.": (weights and not any(weights)),
        f"example has {len(s.example)} entries; give a question and its completion, or none.": (
            len(s.example) not in (0, 2)
        ),
        # What is normalised over the right answers alone would count a wrong one as their mean.
        "reward_gates do not go with multi_objective_aggregation: normalize_then_sum: a wrong "
        "answer would get the mean of the gated reward. Use sum_then_normalize.": (
            s.reward_gates and s.multi_objective_aggregation == "normalize_then_sum"
        ),
        # TRL would keep the prompt alone, and every row would be void.
        "remove_unused_columns is true, and would take from the rewards the columns that they "
        "need: leave it out.": s.remove_unused_columns,
        f"lora_task_type is {s.lora_task_type}; GRPO trains a model that writes: CAUSAL_LM.": (
            s.use_peft and s.lora_task_type in {*TaskType} - {TaskType.CAUSAL_LM}
        ),
        f"project is {s.project!r}; W&B allows none of / \\ # ? % : in it.": (
            "wandb" in (s.report_to or ()) and re.search(r"[/\\#?%:]", str(s.project))
        ),
        # The reference
        "sync_ref_model is set with LoRA, where the reference is the model without its adapter "
        "and cannot move. Train all weights (use_peft: false), or stop after each N steps and "
        "start again from the merged model.": (s.sync_ref_model and s.use_peft),
        "sync_ref_model is set with beta 0, where no reference is loaded: set beta (0.04, for "
        "example), or leave sync_ref_model out.": (s.sync_ref_model and not s.beta),
        # Checkpoints that a run could not go on from, or not to the same tokens
        "ignore_data_skip is set, but a resumed run would train on rows that it has had.": (
            s.ignore_data_skip
        ),
        "save_only_model is set, but a checkpoint would hold no optimizer and no random state.": (
            s.save_only_model
        ),
        # Ctrl-C between two bests would save nothing, and a kill lose what follows the last.
        "save_strategy is best; give steps, save_steps as eval_steps, load_best_model_at_end: "
        "true.": (s.save_strategy == "best"),
        "save_total_limit is 1, so that transformers deletes all checkpoints but the best when "
        "a run ends or is interrupted, and it could not go on from its last. Set it to 2.": (
            s.metric_for_best_model and s.save_total_limit == 1
        ),
        f"chat_template_path: there is no file {s.chat_template_path}.": (
            s.chat_template_path and not Path(s.chat_template_path).is_file()
        ),
        # The curve
        f"num_validation_rows is {s.num_validation_rows}; eval_strategy needs at least 1, or "
        "set it to 'no'.": (args.validates and s.num_validation_rows < 1),
        "early_stopping_patience needs evaluations while training: set eval_strategy: steps "
        "and eval_steps.": (s.early_stopping_patience and not args.validates),
        f"metric_for_best_model is {s.metric_for_best_model!r}; a checkpoint is chosen, and a "
        "run stopped early, by a metric of the recipe on the validation rows: "
        "validation/strict, say.": (chooses and not metric.startswith("validation/")),
        "greater_is_better is false, but the metrics of a recipe are shares of right answers: "
        "leave it out.": (chooses and s.greater_is_better is False),
        f"load_best_model_at_end: with save_steps {s.save_steps:g} and eval_steps "
        f"{s.eval_steps or 0:g} the best step may have no checkpoint. Set save_steps to "
        f"{s.eval_steps or 0:g}.": (
            s.load_best_model_at_end
            and s.save_strategy == "steps"
            and s.eval_steps
            and s.save_steps != s.eval_steps
        ),
    }
    problems = told(table)
    if any(reward_kind(reward) == "step" for reward in rewards):
        level, threshold = s.importance_sampling_level, s.off_policy_mask_threshold
        problems += _refusal("", lambda: check_loss(s.loss_type, level, threshold))
    return [
        *problems,
        *check_output_dir(s.output_dir, {"model": s.model_name_or_path, "data": s.dataset_path}),
        *check_generation(args.training),
        *_refusal(
            "the model and LoRA settings", lambda: get_peft_config(ModelConfig(**args.model))
        ),
        *check_packages(s),
    ]


def check_output_dir(path: str | None, taken: dict[str, str | None]) -> list[str]:
    """The run's folder can be made: no file is in its way, it can be written, and is not `taken`.

    `taken`: what is in use -> its folder.
    """
    folder = Path(path or "trainer_output").absolute()
    for what, other in taken.items():
        if other and Path(other).is_dir() and folder == Path(other).absolute():
            return [f"output_dir is {path!r}, the folder of the {what}: give one of its own."]
    above = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not above.is_dir():
        return [f"output_dir is {path!r}, but {above} is a file: give another folder."]
    try:
        with tempfile.TemporaryDirectory(dir=above):
            return []
    except OSError as error:  # also where root is told that it may write, as in /proc
        return [f"output_dir is {path!r}, but {above} cannot be written: {error.strerror}."]


def check_generation(training: dict[str, Any]) -> list[str]:
    """`generation_kwargs` is one that transformers takes; vLLM has names of its own."""
    given = training["generation_kwargs"] or {}
    if training["use_vllm"]:
        return []
    known = GenerationConfig().to_dict().keys()
    known |= inspect.signature(GenerationConfig.__init__).parameters.keys()
    unknown = ", ".join(sorted(given.keys() - known))
    single = {"do_sample": True, "num_beams": 1, "num_return_sequences": 1}
    taken = given.keys() & {"max_new_tokens", "max_length", "eos_token_id", "pad_token_id"}
    taken |= {name for name, only in single.items() if given.get(name, only) != only}
    types = {name: Annotated[int | float, LIMIT_OF[name]] for name in given if name in LIMIT_OF}
    _, wrong = read_values(types, {name: given[name] for name in types})
    table = {
        **{
            f"generation_kwargs: {name} is {given[name]!r}; it must be {words}.": True
            for name, words in wrong.items()
        },
        f"generation_kwargs has {unknown}, which transformers' GenerationConfig does not have.": (
            unknown
        ),
        "generation_kwargs has stop_strings, for which transformers needs a tokenizer that TRL "
        "does not hand on: let max_completion_length end a completion.": "stop_strings" in given,
        f"generation_kwargs sets {', '.join(sorted(taken))}, which is not for it: the length is "
        "max_completion_length, the end the tokenizer's, and a row is sampled, once.": taken,
    }
    whole = {"do_sample": True, **given}
    return told(table) or _refusal(
        "generation_kwargs", lambda: GenerationConfig(**whole).validate(strict=True)
    )


def check_optimizer(training: GRPOConfig) -> list[str]:
    """Build the optimizer on one number, and the schedule, from their settings."""

    def build() -> None:
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], lr=training.learning_rate)
        needs_model = training.optim_target_modules is not None or "lomo" in training.optim.value
        if not needs_model:
            kind, settings = Trainer.get_optimizer_cls_and_kwargs(training)
            optimizer = kind([parameter], **settings)
        steps = max(training.max_steps, 1)
        get_scheduler(
            training.lr_scheduler_type,
            optimizer,
            num_warmup_steps=training.get_warmup_steps(steps),
            num_training_steps=steps,
            scheduler_specific_kwargs=training.lr_scheduler_kwargs,
        )

    names = (
        f"optim {training.optim.value!r}, optim_args {training.optim_args!r}, lr_scheduler_type "
        f"{training.lr_scheduler_type.value!r} and lr_scheduler_kwargs "
        f"{training.lr_scheduler_kwargs!r}"
    )
    return _refusal(names, build)


def _refusal(name: str, build: Callable[[], Any]) -> list[str]:
    """Build something of another library's: its refusal, of whatever kind, is a message."""
    try:
        build()
    except Exception as error:
        text = " ".join(str(error).split())
        return [f"{name}: {type(error).__name__}: {text}" if name else text]
    return []


# ------------------------------------------------------- accounts, packages and the launcher


def check_accounts(training: dict[str, Any]) -> list[str]:
    """Refuse to report or to push where nobody is logged in: it would end the run, late.

    Looks where W&B looks, without a call of it: offline, a key of the environment, or .netrc.
    """
    given, trackers = os.environ, training["report_to"] or []
    uses_wandb = {"wandb", "all"} & {*([trackers] if isinstance(trackers, str) else trackers)}
    is_ready = (
        given.get("WANDB_MODE") in ("offline", "disabled", "dryrun")
        or given.get("WANDB_DISABLED", "").lower() in ("1", "true")
        or given.get("WANDB_API_KEY")
        or given.get("WANDB_IDENTITY_TOKEN_FILE")
        or get_netrc_auth(given.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    )
    table = {
        "report_to is wandb, and W&B has no key: run `wandb login`, set WANDB_MODE=offline, or "
        "give --report_to none.": uses_wandb and not is_ready,
        "push_to_hub is set, and nobody is logged in to the Hub: run `hf auth login`, or set "
        "HF_TOKEN.": training["push_to_hub"] and not (training["hub_token"] or get_token()),
    }
    return told(table)


def check_packages(s: SimpleNamespace) -> list[str]:
    """Find settings whose package is not installed, or does not import."""
    trackers = [s.report_to] if isinstance(s.report_to, str) else s.report_to or []
    unknown = [name for name in trackers if name not in (*TRACKERS, "none", "all")]
    known = ", ".join(sorted(TRACKERS))
    problems = [f"report_to is {name!r}; allowed: none, all, {known}." for name in unknown]
    needed = {
        "load_in_4bit or load_in_8bit": "bitsandbytes" if s.load_in_4bit or s.load_in_8bit else "",
        "use_vllm: true": "vllm" * s.use_vllm,
        "use_liger_kernel: true": "liger_kernel" * s.use_liger_kernel,
        **{f"report_to: {name}": name for name in trackers if name in TRACKERS},
    }
    for setting, package in needed.items():
        needs = f"{setting} needs the package {package}"
        if package and importlib.util.find_spec(package) is None:
            name = package.replace("_", "-")
            problems.append(f"{needs}, which is not installed: pip install {name}.")
        elif package in trackers:
            problems += _refusal(needs, lambda name=package: importlib.import_module(name))
    return problems


def check_launch_file() -> list[str]:
    """Refuse a launch file that accelerate silently takes for something else."""
    parent = psutil.Process().parent()
    words = parent.cmdline() if parent else []
    launch = _launch_file(words)
    kind = str(launch.get("distributed_type") or "NO").upper()  # YAML reads NO as False
    rank, world = int(os.environ.get("RANK", 0)), world_size()
    table = {
        # Every process but that of rank 0 is silent.
        f"RANK is {rank} in the environment and WORLD_SIZE {world}: there is no process of that "
        "rank, and nothing would be printed: unset RANK.": rank >= world,
        "the launch file asks for DeepSpeed and for the CPU (use_cpu: true, or --cpu), and "
        "accelerate may run DDP instead. Set use_cpu: false; on a CPU export "
        "DS_ACCELERATOR=cpu and give --use_cpu true to the recipe.": (
            kind == "DEEPSPEED" and (launch.get("use_cpu") or "--cpu" in words)
        ),
        "the launch file says MULTI_CPU, for which accelerate starts one process only. Say "
        "MULTI_GPU and give --use_cpu true to the recipe, as in "
        "accelerate_configs/cpu_2proc.yaml.": (
            kind == "MULTI_CPU" and "WORLD_SIZE" not in os.environ
        ),
    }
    return told(table)


def _launch_file(words: list[str]) -> dict[str, Any]:
    """The launch file that a command line names; nothing where there is none to be read."""
    joined = (word.partition("=")[2] for word in words if word.startswith("--config_file="))
    path = dict(pairwise(words)).get("--config_file") or next(joined, None)
    try:
        content = yaml.safe_load(Path(path).read_text()) if path else None
    except (OSError, yaml.YAMLError):  # then accelerate has not read it either
        content = None
    return content if isinstance(content, dict) else {}
