"""Grade-school maths: GSM8K questions answered as `<reasoning>...</reasoning><answer>...</answer>`.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/gsm8k/train.py --config recipes/gsm8k/qwen2.5-1.5b-lora.yaml

Rows: openai/gsm8k on the Hub, or `--dataset_path` with a file or a folder. Expected numbers:
README.md.
"""

import re

from recipes.common.data.questions import QuestionArguments as RecipeArguments
from recipes.common.data.questions import gold_of, load_questions, worked_example
from recipes.common.evaluation.metrics import answer_metric as metric
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards.latex.number import number_of

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
your step by step reasoning
</reasoning>
<answer>
the final number
</answer>"""
CALCULATION = re.compile(r"<<[^<>]*>>")  # GSM8K's marks for a calculator: <<48/2=24>>


def to_row(item: dict, example: list[str], system_prompt: str | None = None) -> dict:
    """Convert a GSM8K item to a row; `example` is [question, completion] or empty."""
    system_prompt = SYSTEM_PROMPT if system_prompt is None else system_prompt
    return {
        "prompt": [
            {"role": "system", "content": system_prompt},
            *worked_example(example),
            {"role": "user", "content": item["question"]},
        ],
        "task": "gsm8k",
        "answer": gold_of(item["answer"]),  # the number after `####` at the end of the solution
        "solution": CALCULATION.sub("", item["answer"].rpartition("####")[0]).strip(),
    }


def reference_completion(row: dict) -> str:
    """The row's own solution, if it has one, and its answer in the asked format."""
    reasoning = f"{row['solution']}\n" if row["solution"] else ""
    return f"<reasoning>\n{reasoning}</reasoning>\n<answer>\n{row['answer']}\n</answer>"


def check_gold(gold: str) -> str | None:
    """Say why a gold cannot be used; None if it can."""
    if number_of(gold) is not None:
        return None
    return f"{gold[:80]!r} is not a number; use recipes/math and boxed_math"


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Load training and held-out rows, drawn by `seed`."""
    splits = load_questions(args, seed, check_gold, hub=("openai/gsm8k", "main"))
    train, held_out = (
        Dataset.from_list([to_row(item, args.example, args.system_prompt) for item in items])
        for items in splits
    )
    return train, held_out


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
