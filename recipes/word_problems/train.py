"""Word problems that a laptop can learn: one calculation, in words.

    accelerate launch --config_file accelerate_configs/cpu.yaml recipes/word_problems/train.py \\
        --config recipes/word_problems/smollm2-135m.yaml

Of the held-out rows half are made from the templates of training with other numbers and names, and
half from templates that training never sees. Expected numbers: README.md.
"""

import itertools
from dataclasses import dataclass

from recipes.common.data.questions import worked_example
from recipes.common.data.split import split_distinct
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from recipes.word_problems.templates import NEW, TRAINED, word_problems

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = ""  # on purpose: without it SmolLM2's chat template adds one of its own


@dataclass
class RecipeArguments(CommonArguments):
    unused = ("dataset_name", "dataset_path")


def to_row(item: dict, example: list[str], source: str) -> dict:
    """Make a problem a row; `source` says whether training sees its template."""
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM_PROMPT},
            *worked_example(example),
            {"role": "user", "content": item["question"]},
        ],
        "task": "gsm8k",
        "answer": item["answer"],
        "calculation": item["calculation"],
        "source": source,
    }


def reference_completion(row: dict) -> str:
    """The row's own calculation and answer in the asked format."""
    return f"<reasoning>{row['calculation']}</reasoning><answer>{row['answer']}</answer>"


def distinct(
    templates: list[tuple[str, str]], seed: int, train: int, held_out: int
) -> tuple[list[dict], list[dict]]:
    """Problems with different questions, so many of each side of the split."""
    # The draws never end by themselves.
    problems = itertools.islice(word_problems(templates, seed), 200 * (train + held_out))
    sides = split_distinct(problems, train, held_out)
    for items, count in zip(sides, (train, held_out), strict=True):
        if len(items) < count:
            raise ValueError(
                f"the templates give only {len(items)} of {count} distinct problems: ask for "
                "fewer rows."
            )
    return sides


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows; held-out rows: half old templates, half new ones."""
    new = args.num_eval_rows // 2
    count = args.num_train_rows or 2000
    train, trained = distinct(TRAINED, seed, count, args.num_eval_rows - new)
    _, unseen = distinct(NEW, seed, 0, new)
    held_out = [to_row(item, args.example, "trained") for item in trained]
    held_out += [to_row(item, args.example, "new") for item in unseen]
    train_rows = [to_row(item, args.example, "trained") for item in train]
    return Dataset.from_list(train_rows), Dataset.from_list(held_out)


def metric(row: dict, completion: str) -> dict[str, bool]:
    """`answer_metric`; of the new templates also apart."""
    scores = answer_metric(row, completion)
    return {**scores, "new lenient": scores["lenient"]} if row["source"] == "new" else scores


metric.scorers = answer_metric.scorers


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
