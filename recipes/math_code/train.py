"""Several tasks in one run, each scored by its own rewards: maths in \\boxed{}, programs, and
number counting.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/math_code/train.py --config recipes/math_code/smollm2-135m-code.yaml

`sources` in the YAML names the data sets and their weights. `reward_tasks` says which reward scores
which task. Expected numbers: see README.md in this folder.
"""

from dataclasses import dataclass

from recipes.common.data.questions import setting, worked_example
from recipes.common.evaluation.metrics import boxed_metric, code_metric
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from recipes.math_code.sources import SOURCES, check_sources, mix
from rewards.number_count import score_number_count

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = {
    "math": "Put the final answer in \\boxed{}.",
    "code": "Solve the task in Python. Answer with one ```python block that defines what the tests "
    "call.",
    "number_count": "",
}
# The example works the sum out before the box; if the box comes at once, the model guesses.
EXAMPLE = ["25 + 7 =", "25 + 7 = 32, so the answer is \\boxed{32}."]
CODE_EXAMPLE = ["Write a function double(x).", "```python\ndef double(x):\n    return 2 * x\n```"]


@dataclass
class RecipeArguments(CommonArguments):
    """`sources` takes the place of `dataset_name` and `dataset_path`."""

    unused = ("dataset_name", "dataset_path")
    sources: dict | str | None = setting(
        None, "{name: {weight: 1.0, path: FILE_OR_FOLDER}} of sums, gsm8k, passages, programs."
    )
    example: list[str] = setting(EXAMPLE, "A sum and its completion.")


def to_row(item: dict, example: list[str]) -> dict:
    """Convert an item of a source to a row, with a worked example of its task in the prompt."""
    task, question = item["task"], {"role": "user", "content": item["question"]}
    shown = {"math": example, "code": CODE_EXAMPLE, "number_count": []}[task]
    system = {"role": "system", "content": SYSTEM_PROMPT[task]}
    columns = {name: value for name, value in item.items() if name != "question"}
    return {"prompt": [system, *worked_example(shown), question], **columns}


def reference_completion(row: dict) -> str | None:
    """The row's own answer in the asked format; None for a programming task without a solution."""
    if row["task"] == "code":
        return f"```python\n{row['solution']}\n```" if row["solution"] else None
    if row["task"] == "number_count":
        return "In 1 of 2, 3 of 4, and 5."
    return f"\\boxed{{{row['answer']}}}"


def metric(row: dict, completion: str) -> dict[str, bool]:
    """`boxed_metric` for maths, `code_metric` for programs; the task is part of each name."""
    if row["task"] == "number_count":  # five numbers earn the full reward
        return {"five numbers": score_number_count(completion) == 1.0}
    if row["task"] == "code":
        scores = code_metric(row, completion)
    else:
        scores = boxed_metric(row, completion, refuses=True)
    return {f"{row['task']} {name}": value for name, value in scores.items()}


metric.scorers = {
    "math strict": ["boxed_math"],
    "math lenient": ["boxed_math"],
    "code tests": ["code_tests"],
    "five numbers": ["number_count"],
}


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Distinct training and held-out rows of all sources, mixed by their weights."""
    check_sources(args.sources)
    sides: dict[str, list[Dataset]] = {"train": [], "held out": []}  # a data set of each source
    for name, source in args.sources.items():
        rows = {"train": {}, "held out": {}}  # question -> row, so that rows are distinct
        for item, is_held_out in SOURCES[name](source.get("path"), seed):
            side = "held out" if is_held_out else "train"
            rows[side][item["question"]] = to_row(item, args.example)
        for side, by_question in rows.items():
            sides[side].append(Dataset.from_list(list(by_question.values())).shuffle(seed=seed))
    weights = [float(source.get("weight", 1.0)) for source in args.sources.values()]
    evaluated = mix(sides["held out"], weights, args.num_eval_rows, seed)
    return mix(sides["train"], weights, args.num_train_rows, seed), evaluated


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
