"""GRPO on programming tasks (MBPP or your own): the reward runs the tests in a sandbox.

    python scripts/prepare_code.py mbpp --out data/mbpp
    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/code/train.py --config recipes/code/qwen2.5-coder-1.5b-lora.yaml

`dataset_path` is a folder that scripts/prepare_code.py wrote. Numbers: README.md.
"""

from dataclasses import dataclass

from recipes.common.data.split import draw
from recipes.common.data.questions import setting, worked_example
from recipes.common.evaluation.metrics import code_metric
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from recipes.code.tasks import prompt_of, read_tasks

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = (
    "Solve the task in Python. Answer with one ```python block that defines what the tests call."
)


@dataclass
class RecipeArguments(CommonArguments):
    system_prompt: str = setting(SYSTEM_PROMPT, "The system message.")
    user_prompt: str = setting("{task}", "The user's message; the task's text replaces {task}.")
    answer_start: str = setting("", "Every answer begins with it: the model goes on from there.")


def to_row(task: dict, args: RecipeArguments) -> dict:
    """Convert a prepared task to a row; its tests become columns for the rewards."""
    system = {"role": "system", "content": args.system_prompt}
    question = {"role": "user", "content": prompt_of(task, args.user_prompt)}
    prompt = [system, *worked_example(args.example), question]
    if args.answer_start:
        prompt.append({"role": "assistant", "content": args.answer_start})
    columns = {name: value for name, value in task.items() if name != "prompt"}
    return {"prompt": prompt, "task": "code", **columns}


def reference_completion(row: dict) -> str | None:
    """The row's own solution in the asked format; None if the row has no solution."""
    return f"```python\n{row['solution']}\n```" if row["solution"] else None


def metric(row: dict, completion: str) -> dict[str, bool]:
    """`code_metric`, and again as `new tests` for templates that training never sees."""
    scores = code_metric(row, completion)
    if row["name"].startswith("new/") and "tests" in scores:
        scores["new tests"] = scores["tests"]
    return scores


metric.scorers = {"tests": ["code_tests"], "new tests": ["code_tests"]}


def rows_of_split(args: RecipeArguments, split: str, count: int | None, seed: int) -> Dataset:
    """The rows of `<dataset_path>/<split>.jsonl`: `count` of them drawn by `seed`; None: all."""
    rows = [to_row(task, args) for task in read_tasks(args.dataset_path, split)]
    return draw(Dataset.from_list(rows), count, seed)


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset | None]:
    """Training rows of train.jsonl, evaluation rows of test.jsonl (none with num_eval_rows 0)."""
    train = rows_of_split(args, "train", args.num_train_rows, seed)
    test = rows_of_split(args, "test", args.num_eval_rows, seed) if args.num_eval_rows else None
    return train, test


def main() -> None:
    run = start(RecipeArguments, load_rows, reference_completion)  # or exits, listing every problem
    trainer = GRPOTrainer(
        model=run.model.model_name_or_path,
        reward_funcs=run.rewards,
        args=run.training,
        train_dataset=run.train_rows,
        eval_dataset=run.validation_rows,
        peft_config=get_peft_config(run.model),
        quantization_config=get_quantization_config(run.model),
    )
    train_and_save(trainer, run, metric)  # evaluate, train, evaluate again, write the report


if __name__ == "__main__":
    main()
