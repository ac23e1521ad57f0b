r"""GRPO on your own questions with one answer each, in `\boxed{}` or tags; needs only a YAML.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \
        recipes/math/train.py --config recipes/math/local_file.yaml --dataset_path FILE

Rows come from `dataset_path` (file or folder) or `dataset_name` (Hub); `question_column` and
`answer_column` name the columns. Results: README.md in this folder.
"""

from dataclasses import dataclass

from recipes.common.data.questions import (
    QuestionArguments,
    gold_of,
    load_questions,
    setting,
    worked_example,
)
from recipes.common.evaluation.metrics import answer_metric, boxed_metric
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards.boxed_math import gold_problem
from rewards.latex.number import number_of

from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = "Reason step by step, and put the final answer in \\boxed{}."


@dataclass
class RecipeArguments(QuestionArguments):
    """`reference` shows the answer format that `system_prompt` asks for."""

    reference: str = setting(
        "\\boxed{{answer}}",
        "A right completion, {answer} in its place; the metrics read its box or tags.",
    )


def to_row(item: dict, args: RecipeArguments) -> dict:
    """Convert a question to a row; system prompt and worked example come first, if any."""
    system_prompt = SYSTEM_PROMPT if args.system_prompt is None else args.system_prompt
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    answer = gold_of(item["answer"])
    return {
        "prompt": [
            *system,
            *worked_example(args.example),
            {"role": "user", "content": item["question"]},
        ],
        "task": "math",
        "answer": answer,
        "reference": args.reference.replace("{answer}", answer),
    }


def reference_completion(row: dict) -> str:
    """The row's own answer in the asked format."""
    return row["reference"]


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Load training and held-out rows, drawn by `seed`; check that each gold can be compared."""

    def check(gold: str) -> str | None:
        """Say why a gold answer cannot be used; None if its own reference completion is right."""
        own = args.reference.replace("{answer}", gold)
        is_boxed = "\\boxed" in own
        if is_boxed and (problem := gold_problem(gold)):
            return f"{gold[:80]!r} cannot be compared with an answer: {problem}"
        if not is_boxed and number_of(gold) is None:  # tags hold numbers only
            return (
                f"{gold[:80]!r} is not a number; ask for it in a box "
                "(reference: '\\boxed{{answer}}') and use boxed_math"
            )
        if metric({"answer": gold, "reference": own}, own)["strict"]:
            return None
        return f"{gold[:80]!r} is not right in its own reference completion, {own[:80]!r}"

    if check("17"):  # any number: where it is not right, no gold can be
        raise ValueError(
            f"reference is {args.reference!r}; it must be a right completion with {{answer}} in "
            "its place, in a box or in tags: \\boxed{{answer}}, or "
            "<reasoning></reasoning><answer>{answer}</answer>."
        )
    splits = load_questions(args, seed, check)
    train, test = (Dataset.from_list([to_row(item, args) for item in items]) for items in splits)
    return train, test


def metric(row: dict, completion: str) -> dict[str, bool]:
    """`boxed_metric` if the reference completion has a box, else `answer_metric` (tags)."""
    return (boxed_metric if "\\boxed" in row["reference"] else answer_metric)(row, completion)


metric.scorers = boxed_metric.scorers


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
