"""Word problems that a laptop can learn: one or two calculations, and GSM8K's short questions.

    python scripts/warm_start.py --config recipes/word_problems/smollm2-135m.yaml \\
        --rows 512 --steps 48
    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/word_problems/train.py --config recipes/word_problems/smollm2-135m.yaml \\
        --model_name_or_path runs/word-problems-warm-start

Held-out rows: half from the templates of training with other numbers, half from templates that
training never sees, and, with `--dataset_path FOLDER_OF_GSM8K`, up to `num_gsm8k_rows` test
questions of GSM8K with at most two calculations, as transfer. Expected numbers: README.md.
"""

import itertools
from dataclasses import dataclass, field

from recipes.common.data.questions import read_questions, worked_example
from recipes.common.data.split import draw, split_distinct
from recipes.common.evaluation.metrics import answer_metric
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from recipes.word_problems.templates import NEW, TRAINED, word_problems

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
your step by step reasoning
</reasoning>
<answer>
the final number
</answer>"""


@dataclass
class RecipeArguments(CommonArguments):
    """`dataset_path` is a folder with GSM8K's test.jsonl, for the rows of transfer alone."""

    unused = ("dataset_name",)
    num_gsm8k_rows: int = field(
        default=100, metadata={"help": "GSM8K test questions with at most two calculations."}
    )


def to_row(item: dict, example: list[str], source: str) -> dict:
    """Make an item in GSM8K's columns a row; `source` says which metrics it counts for."""
    system, question = (
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": item["question"]},
    )
    steps, _, answer = item["answer"].rpartition("####")
    prompt = [system, *worked_example(example), question]
    return {
        "prompt": prompt,
        "task": "gsm8k",
        "answer": answer.strip(),
        "steps": steps.strip(),
        "source": source,
    }


def reference_completion(row: dict) -> str:
    """The row's own steps and answer in the asked format."""
    return f"<reasoning>\n{row['steps']}\n</reasoning>\n<answer>\n{row['answer']}\n</answer>"


def distinct(
    templates: list[tuple[str, ...]], seed: int, train: int, held_out: int
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


def gsm8k_rows(args: RecipeArguments, seed: int) -> list[dict]:
    """GSM8K's test questions of at most two calculations, marked there as `<<3*4=12>>`."""
    if args.dataset_path is None:
        return []
    items = read_questions(args.dataset_path, "test")
    short = Dataset.from_list([item for item in items if item["answer"].count("<<") <= 2])
    return [to_row(item, args.example, "gsm8k") for item in draw(short, args.num_gsm8k_rows, seed)]


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows; held-out rows: half old templates, half new ones, then GSM8K's."""
    new = args.num_eval_rows // 2
    count = args.num_train_rows or 2000
    train, trained = distinct(TRAINED, seed, count, args.num_eval_rows - new)
    _, unseen = distinct(NEW, seed, 0, new)
    rows = [to_row(item, args.example, "trained") for item in train]
    held_out = [to_row(item, args.example, "trained") for item in trained]
    held_out += [to_row(item, args.example, "new") for item in unseen]
    return Dataset.from_list(rows), Dataset.from_list(held_out + gsm8k_rows(args, seed))


def metric(row: dict, completion: str) -> dict[str, bool]:
    """`answer_metric`; new templates also apart, and GSM8K's questions only apart."""
    scores = answer_metric(row, completion)
    lenient = scores["lenient"]
    if row["source"] == "gsm8k":
        return {"gsm8k lenient": lenient}
    return {**scores, "new lenient": lenient} if row["source"] == "new" else scores


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
