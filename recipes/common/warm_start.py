"""A warm start: supervised training on reference completions before GRPO.

The model then samples some right answers that GRPO can reinforce. DeepSeekMath (section 4.2) starts
GRPO from an instruction-tuned model, DeepSeek-R1 (2.3.1) from cold-start data.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers.utils import get_json_schema
from trl import ModelConfig, SFTConfig, SFTTrainer, get_peft_config

from recipes.common.data.overlap import (
    QUESTIONS,
    check_questions,
    question_digest,
    warm_start_questions,
)
from recipes.common.data.recipe import Recipe, load_recipe
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.evaluation.scores import compare, comparison_table
from recipes.common.sampling.idle import idle_trainer
from recipes.common.training.completion import load_tokenizer, small_logits
from recipes.common.training.config import add_model_arguments
from recipes.common.training.tools import tools_of
from recipes.common.utils import run_files as files
from recipes.common.utils.machine import versions

LEARNING_RATE = {True: 5e-4, False: 2e-5}  # by use_peft: LoRA, all weights
AS_THE_RUN = (
    "seed", "bf16", "gradient_checkpointing", "trust_remote_code", "model_init_kwargs",
)  # fmt: skip


def warm_start(
    config: Path,
    overrides: list[str],
    rows: int,
    steps: int,
    learning_rate: float | None,
    output_dir: Path | None,
) -> None:
    """Train on `rows` reference completions for `steps` steps; evaluate before and after.

    The checkpoint goes to `output_dir` (default: the recipe's with `-warm-start`), with LoRA
    merged. It lists its questions: a GRPO run from it leaves them out. Raises ValueError with all
    problems, one a line.
    """
    if learning_rate is not None and not 0 < learning_rate <= 10:
        raise ValueError(f"--learning_rate is {learning_rate}; it must be above 0, and at most 10.")
    recipe = load_recipe(config, overrides)
    model, uses_lora = recipe.args.model["model_name_or_path"], recipe.args.model["use_peft"]
    folder = output_dir or Path(f"{recipe.args.training['output_dir']}-warm-start")
    if folder.exists():
        raise ValueError(f"{folder} exists. Remove it, or give another --output_dir.")
    # The folder gets its name at the end: a folder without PARTIAL in its name is complete.
    partial = folder.with_name(folder.name + files.PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    examples = reference_examples(recipe, rows)
    trained_on = [{"task": None, "prompt": example["prompt"]} for example in examples]
    if problems := check_questions(trained_on, list(recipe.eval_rows or []), model):
        raise ValueError("\n".join(problems))
    started = time.monotonic()
    before = evaluate_held_out(recipe, model)
    trainer = train(recipe, examples, steps, learning_rate or LEARNING_RATE[uses_lora], partial)
    trained = trainer.model.merge_and_unload() if uses_lora else trainer.model
    trained.save_pretrained(partial)
    trainer.processing_class.save_pretrained(partial)
    after = evaluate_held_out(recipe, str(partial))
    minutes = (time.monotonic() - started) / 60
    table = (
        f"{folder}: {steps} supervised steps on {rows} reference completions, {minutes:.1f} minutes"
    )
    if before:
        files.write_rows(partial / files.BEFORE, before)
        files.write_rows(partial / files.AFTER, after)
        table += f"\n{comparison_table(**compare(before, after))}"
    files.write_whole(partial / files.TABLE, table + "\n")
    record = {
        "config": str(config),
        "overrides": overrides,
        "model": model,
        "rows": rows,
        "steps": steps,
        "minutes": minutes,
        "versions": versions(),
        QUESTIONS: sorted(
            warm_start_questions(model) | {question_digest(one["prompt"]) for one in examples}
        ),
    }
    files.write_json(partial / files.WARM_START, record)
    partial.rename(folder)
    print(f"\n{table}\nTrain from it: --model_name_or_path {folder}")


def evaluate_held_out(recipe: Recipe, model: str) -> list[dict[str, Any]]:
    """Evaluate a model on the held-out rows; an empty list if the recipe has no such rows."""
    if not recipe.eval_rows:
        return []
    samples, rows = recipe.args.recipe.num_eval_samples, recipe.eval_rows.to_list()
    return evaluate(idle_trainer(recipe, model), rows, recipe.module.metric, samples, model)


def reference_examples(recipe: Recipe, count: int) -> list[dict]:
    """Draw `count` training rows with a reference completion, in the format of TRL's SFT."""
    schemas = [get_json_schema(tool) for tool in tools_of(recipe.args.training)]
    columns = {"tools": json.dumps(schemas)} if schemas else {}
    if template_kwargs := recipe.args.training["chat_template_kwargs"]:
        columns["chat_template_kwargs"] = template_kwargs
    examples = []
    for row in recipe.train_rows.shuffle(seed=recipe.args.training["seed"]):
        prompt, completion = row["prompt"], recipe.module.reference_completion(row)
        if completion is None:
            continue
        if isinstance(prompt, list) and prompt[-1]["role"] == "assistant":
            raise ValueError("the prompts begin the answer; leave answer_start out for SFT.")
        if isinstance(prompt, list) and isinstance(completion, str):
            completion = [{"role": "assistant", "content": completion}]
        examples.append({"prompt": prompt, "completion": completion, **columns})
        if len(examples) == count:
            return examples
    raise ValueError(f"--rows is {count}; {len(examples)} rows have a reference completion.")


def train(
    recipe: Recipe, examples: list[dict], steps: int, learning_rate: float, folder: Path
) -> SFTTrainer:
    """Train with TRL's SFTTrainer; no loss on prompts and on what tools return.

    `examples` are those of `reference_examples`; nothing is saved in `folder` but by the caller.
    """
    training, model = recipe.args.training, ModelConfig(**recipe.args.model)
    args = SFTConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,  # half of a step's 16 rows: less memory
        gradient_accumulation_steps=2,
        learning_rate=learning_rate,
        completion_only_loss=True,
        assistant_only_loss="tools" in examples[0],
        max_length=None,  # nothing is cut
        logging_steps=1,
        disable_tqdm=True,
        save_strategy="no",
        report_to="none",
        use_cpu=training["use_cpu"] or not torch.accelerator.is_available(),
        **{name: training[name] for name in AS_THE_RUN if training.get(name) is not None},
    )
    args._n_gpu = min(args.n_gpu, 1)  # one process takes one device, as in a run
    add_model_arguments(args, model)
    trainer = SFTTrainer(
        model=model.model_name_or_path,
        args=args,
        train_dataset=Dataset.from_list(examples),
        processing_class=load_tokenizer(
            model.model_name_or_path,
            model.model_revision,
            args.trust_remote_code,
            training["chat_template_path"],
        ),
        peft_config=get_peft_config(model),
    )
    with small_logits(trainer.accelerator.device):
        trainer.train()
    return trainer
