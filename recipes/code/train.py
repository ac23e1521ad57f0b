"""Programs rewarded by running their tests: MBPP, or tasks of one's own, in an isolated sandbox.

    python scripts/prepare_code.py mbpp --out data/mbpp
    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/code/train.py --config recipes/code/qwen2.5-coder-1.5b-lora.yaml

`dataset_path` is a folder that scripts/prepare_code.py wrote: train.jsonl and test.jsonl. Evaluation is on the
latter. Expected numbers: see README.md beside this file.
"""

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

from recipes.common.before.arguments import RecipeArguments, parse_arguments
from recipes.common.before.only_rows import only_rows_if_asked
from recipes.common.before.preflight import preflight
from recipes.common.before.resume import open_run_folder
from recipes.common.evaluation.metrics import code_metric as metric
from recipes.common.run import train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards import load_rewards, load_step_rewards
from rewards.code_tasks import read_tasks

SYSTEM_PROMPT = "Solve the task in Python. Answer with one ```python block that defines what the tests call."


def to_row(task: dict, example: list[str]) -> dict:
    """A prepared task as a row; what judges its programs goes along for the rewards."""
    worked = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), example, strict=False)]
    user = {"role": "user", "content": task["prompt"]}
    return {
        "prompt": [{"role": "system", "content": SYSTEM_PROMPT}, *worked, user],
        "task": "code",
        **{name: value for name, value in task.items() if name != "prompt"},
    }


def reference_completion(row: dict) -> str | None:
    """The row's own solution in the asked format; None for a row that has none."""
    return f"```python\n{row['solution']}\n```" if row["solution"] else None


def load_split(args: RecipeArguments, split: str, count: int | None, seed: int) -> Dataset:
    """`count` rows of a split (all when None), drawn by `seed`."""
    if args.dataset_path is None:
        raise ValueError("dataset_path is missing: give a folder that scripts/prepare_code.py wrote.")
    rows = Dataset.from_list([to_row(task, args.example) for task in read_tasks(args.dataset_path, split)])
    return rows if count is None else rows.shuffle(seed=seed).select(range(min(count, len(rows))))


@only_rows_if_asked
def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows of train.jsonl, evaluation rows of test.jsonl."""
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
