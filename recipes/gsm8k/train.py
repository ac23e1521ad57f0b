"""Grade-school maths: GSM8K questions answered as `<reasoning>...</reasoning><answer>...</answer>`.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/gsm8k/train.py --config recipes/gsm8k/qwen2.5-1.5b-lora.yaml

The rows come from openai/gsm8k on the Hub, or from a folder with train.jsonl and test.jsonl
(`--dataset_path FOLDER`). Evaluation is on test rows. Expected numbers: see README.md beside this file.
"""

from pathlib import Path

from datasets import Dataset, load_dataset
from trl import get_peft_config, get_quantization_config

from recipes.common.before.arguments import RecipeArguments, parse_arguments
from recipes.common.before.only_rows import only_rows_if_asked
from recipes.common.before.preflight import preflight
from recipes.common.before.resume import open_run_folder
from recipes.common.evaluation.metrics import answer_metric as metric
from recipes.common.run import train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards import load_rewards, load_step_rewards

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
your step by step reasoning
</reasoning>
<answer>
the final number
</answer>"""


def to_row(item: dict, example: list[str]) -> dict:
    """One GSM8K item as a row, behind a worked example if there is one; its gold number stands behind `####`."""
    worked = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), example, strict=False)]
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM_PROMPT},
            *worked,
            {"role": "user", "content": item["question"]},
        ],
        "task": "gsm8k",
        "answer": item["answer"].split("####")[1].strip(),
    }


def reference_completion(row: dict) -> str:
    """The row's own answer in the asked format."""
    return f"<reasoning>\n</reasoning>\n<answer>\n{row['answer']}\n</answer>"


def load_split(args: RecipeArguments, split: str, count: int | None, seed: int) -> Dataset:
    """`count` rows of a split (all when None), drawn by `seed`."""
    if args.dataset_path is None:
        items = load_dataset(args.dataset_name or "openai/gsm8k", "main", split=split)
    else:
        file = Path(args.dataset_path, f"{split}.jsonl")
        if not file.is_file():
            raise ValueError(f"dataset_path {args.dataset_path!r} has no {file.name}.")
        items = load_dataset("json", data_files=str(file), split="train")
    rows = items.map(to_row, fn_kwargs={"example": args.example}, remove_columns=items.column_names)
    return rows if count is None else rows.shuffle(seed=seed).select(range(min(count, len(rows))))


@only_rows_if_asked
def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows of the train split, evaluation rows of the test split."""
    return load_split(args, "train", args.num_train_rows, seed), load_split(args, "test", args.num_eval_rows, seed)


def main() -> None:
    args = parse_arguments(RecipeArguments)
    train_rows, eval_rows = args.attempt(load_rows, args.recipe, args.training["seed"]) or (None, None)
    rewards = args.attempt(load_rewards, args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks)
    step_named = args.recipe.step_reward_funcs, args.recipe.step_reward_kwargs, args.recipe.step_reward_tasks
    step_rewards = args.attempt(load_step_rewards, *step_named)
    run = preflight(args, train_rows, eval_rows, rewards, reference_completion, step_rewards)
    checkpoint = open_run_folder(run)
    trainer = GRPOTrainer(
        model=run.model.model_name_or_path,
        reward_funcs=rewards,
        step_reward_funcs=step_rewards,
        step_reward_weights=run.recipe.step_reward_weights,
        reward_gates=run.recipe.reward_gates,
        max_reward_error_rate=run.recipe.max_reward_error_rate,
        reward_timeout_s=run.recipe.reward_timeout_s,
        args=run.training,
        train_dataset=train_rows,
        peft_config=get_peft_config(run.model),
        quantization_config=get_quantization_config(run.model),
    )
    train_and_save(trainer, run, checkpoint, eval_rows, metric)


if __name__ == "__main__":
    main()
