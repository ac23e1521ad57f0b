"""A recipe's trainer without training, for scripts: it completes and scores rows as a run does."""

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftConfig, PeftModel
from tqdm import tqdm
from trl import ModelConfig, get_peft_config, get_quantization_config
from trl.trainer.utils import create_model_from_path

from recipes.common.data.recipe import Recipe, with_columns
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.completion import Rollout, load_tokenizer
from recipes.common.training.config import add_model_arguments
from recipes.common.utils.machine import make_head_input_contiguous

# Nothing is trained, logged or saved. Reward failures do not stop a probe, which reports them.
SETTINGS_WITHOUT_TRAINING = {
    "output_dir": tempfile.gettempdir(),
    "report_to": "none",
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "push_to_hub": False,
    "log_completions": False,
    "log_completions_hub_repo": None,
    "lr_scheduler_type": "constant",
    "lr_scheduler_kwargs": None,
    "beta": 0.0,
    "sync_ref_model": False,
    "vllm_importance_sampling_correction": False,
    "gradient_accumulation_steps": 1,
    "generation_batch_size": None,
    "steps_per_generation": None,
    "num_iterations": 1,
    "max_reward_error_rate": 1.0,
}


def idle_trainer(recipe: Recipe, name: str | None = None) -> GRPOTrainer:
    """Make a recipe's trainer that only completes and scores rows; it takes no optimizer step.

    Its model is `name` (Hub id, checkpoint, run folder or adapter), or the recipe's if that is
    None. ValueError if the model cannot be loaded.
    """
    settings = {**recipe.args.training, **SETTINGS_WITHOUT_TRAINING}
    of_model = ModelConfig(**recipe.args.model)
    settings["use_cpu"] = settings["use_cpu"] or not torch.accelerator.is_available()
    # TRL wants whole groups in a batch; the YAML's batch may give them only on several processes.
    batch = settings["num_generations"]
    if settings["use_vllm"]:  # as many sequences at once as a run or an evaluation has
        sizes = settings["per_device_train_batch_size"], settings["per_device_eval_batch_size"]
        batch *= math.ceil(max(sizes) / batch)
    settings["per_device_train_batch_size"] = batch
    training = GRPOConfig(**settings)
    training._n_gpu = min(training.n_gpu, 1)  # TRL trains on no more in one process
    add_model_arguments(training, of_model)
    of_model.dtype = training.model_init_kwargs.get("dtype")  # instead of "fastest"
    model: Any = name or of_model.model_name_or_path
    try:
        tokenizer = load_tokenizer(model, of_model.model_revision, training.trust_remote_code)
        quantization = get_quantization_config(of_model)
        if Path(model, "adapter_config.json").is_file():
            init_kwargs = {"quantization_config": quantization, **training.model_init_kwargs}
            model = load_adapted(model, init_kwargs)
            training.model_init_kwargs = quantization = None
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=recipe.rewards,
            args=training,
            train_dataset=Dataset.from_list([{"prompt": "never trained on"}]),
            processing_class=tokenizer,
            quantization_config=quantization,
            # transformers takes no quantized model without an adapter; a new one changes nothing.
            peft_config=get_peft_config(of_model) if quantization else None,
        )
    except (OSError, TypeError, ValueError, RuntimeError, UserWarning) as error:
        wanted = "give a Hub id, a checkpoint or the folder of a finished run"
        raise ValueError(f"model {name or model} cannot be loaded: {wanted}. {error}") from error
    make_head_input_contiguous(trainer.model)
    if not of_model.use_peft:  # PEFT's generate bypasses accelerate's autocast, in a run as well
        trainer.model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
        trainer.model_wrapped = trainer.model
    trainer.model.eval()
    return trainer


def load_adapted(folder: str, init_kwargs: dict[str, Any]) -> PeftModel:
    """Load the model of an adapter's folder, of the class that TRL trains, with that adapter.

    PEFT's auto class takes another where a model has one for text alone (Qwen3.5): the weights of
    the adapter then have other names. Raises UserWarning if some are missing.
    """
    adapter = PeftConfig.from_pretrained(folder)
    init_kwargs = {**init_kwargs, "revision": adapter.revision}
    base = create_model_from_path(adapter.base_model_name_or_path, **init_kwargs)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Found missing adapter keys")
        return PeftModel.from_pretrained(base, folder)


def sample(
    trainer: GRPOTrainer, rows: list[dict], samples: int, batch_size: int
) -> list[list[Rollout]]:
    """Draw `samples` completions (a number) for each row; return a list of them for each row.

    Those of a row are generated next to each other, as equal prompts need no padding.
    """
    repeated = [row for row in rows for _ in range(samples)]
    drawn = []
    torch.manual_seed(trainer.args.seed)
    for start in tqdm(range(0, len(repeated), batch_size), desc="sampling", unit="batch"):
        drawn += trainer.complete(repeated[start : start + batch_size], do_sample=True)
    return [drawn[start : start + samples] for start in range(0, len(drawn), samples)]


def held_out_rows(recipe: Recipe) -> list[dict]:
    """The held-out rows. A recipe's `rows_of_split` reads no training split: HumanEval has none."""
    args, module = recipe.args, recipe.module
    seed, count = args.training["seed"], args.recipe.num_eval_rows
    if hasattr(module, "rows_of_split"):
        rows = module.rows_of_split(args.recipe, "test", count, seed)
    else:
        rows = module.load_rows(args.recipe, seed)[1]
    if not rows:
        raise ValueError("num_eval_rows is 0; there is nothing to evaluate.")
    return with_columns(rows, args.recipe.reward_columns or {}).to_list()
