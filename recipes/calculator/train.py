"""Multi-step arithmetic with a calculator: the model calls a tool, reads its result and answers.

    python scripts/warm_start.py --config recipes/calculator/smollm2-135m.yaml --rows 272 --steps 16
    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/calculator/train.py --config recipes/calculator/smollm2-135m.yaml \\
        --model_name_or_path runs/calculator-warm-start

The environment (`environment_factory` in the YAML) is calculator.py; its reward is the last one of
the run. The chat template that shows the tool to the model is chat_template.jinja. Expected
numbers: README.md.
"""

import random
from collections.abc import Iterator

from recipes.calculator.calculator import text_of, value_of
from recipes.common.data.split import split_distinct
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards.answer import is_final_answer
from rewards.gsm8k import score_gsm8k

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = "Use the calculator. Answer: <answer>number</answer>"
WORDS = {"+": "add {}", "-": "subtract {}", "*": "multiply by {}"}


class RecipeArguments(CommonArguments):
    """Rows are generated; `num_train_rows` is 2 000 by default."""

    unused = ("dataset_name", "dataset_path")


def to_row(first: int, steps: list[tuple[str, int]]) -> dict:
    """Make a row of a start number and its steps: question, expression and answer.

    Example: 47 and the steps `[("+", 38), ("*", 6)]` give the question "Take 47, add 38, multiply
    by 6.", the expression `(47 + 38) * 6` and the answer "510".
    """
    expression, ends_in_sum = str(first), False
    for sign, number in steps:  # a sum needs parentheses before *
        if sign == "*" and ends_in_sum:
            expression = f"({expression})"
        expression, ends_in_sum = f"{expression} {sign} {number}", sign != "*"
    asked = ", ".join(WORDS[sign].format(number) for sign, number in steps)
    question = f"Take {first}, {asked}."
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": question},
        ],
        "task": "calculator",
        "expression": expression,
        "answer": text_of(value_of(expression)),
    }


def reference_completion(row: dict) -> list[dict]:
    """A right completion, as chat messages: the call of the calculator, its result, the answer."""
    call = {"name": "calculate", "arguments": {"expression": row["expression"]}}
    return [
        {
            "role": "assistant",
            "content": "",  # a turn that calls a tool has no text
            "tool_calls": [{"type": "function", "function": call}],
        },
        {"role": "tool", "name": "calculate", "content": row["answer"]},
        {"role": "assistant", "content": f"<answer>{row['answer']}</answer>"},
    ]


def questions(seed: int) -> Iterator[dict]:
    """Yield random questions of two or three steps, endlessly."""
    drawn = random.Random(seed)
    while True:
        signs = [drawn.choice("+-*") for _ in range(drawn.randint(2, 3))]
        first = drawn.randint(2, 99)
        row = to_row(first, [(sign, drawn.randint(2, 9 if sign == "*" else 99)) for sign in signs])
        # split_distinct tells items apart by their question.
        yield {"question": row["prompt"][-1]["content"], "row": row}


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Load distinct questions; the text of a question decides whether it is held out."""
    sides = split_distinct(questions(seed), args.num_train_rows or 2000, args.num_eval_rows)
    train, held_out = (Dataset.from_list([item["row"] for item in side]) for side in sides)
    return train, held_out


def metric(row: dict, completion: str) -> dict[str, bool]:
    """strict: the right answer in the tag; lenient: the right final answer, format ignored."""
    right = (score_gsm8k(completion, row["answer"]) or 0.0) > 0.0
    return {"strict": right, "lenient": is_final_answer(completion, row["answer"])}


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
