"""Arithmetic from reasoning-gym: start here. It learns in minutes on a laptop CPU.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/arithmetic/train.py --config recipes/arithmetic/quickstart.yaml

The model sees one worked example and a question such as `Calculate 58 + 26.`, and answers
`<reasoning>...</reasoning><answer>84</answer>`. Expected of the quickstart: correct in format from
6 % to 64 %, correct answers from 35 % to the same (five seeds).
"""

import json
import re
from dataclasses import dataclass

from recipes.common.data.questions import setting, worked_example
from recipes.common.data.split import split_distinct
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards.answer import is_final_answer, last_tag
from rewards.format import is_xml_format
from rewards.latex.number import number_of
from rewards.reasoning_gym import score_reasoning_gym
from rewards.text import answer_part

import reasoning_gym
from datasets import Dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = ""  # else SmolLM2's chat template adds its own, a quarter of every prompt
EXAMPLE = ["25 + 7 =", "<reasoning>25 + 7 = 32</reasoning><answer>32</answer>"]
# chain_sum puts this before every question; it is removed, since its tokens teach nothing.
PREAMBLE = "State the final answer to the following arithmetic problem: "


@dataclass
class RecipeArguments(CommonArguments):
    """`dataset_name` is a reasoning-gym data set; `dataset_kwargs` are its parameters."""

    unused = ("dataset_path",)
    dataset_name: str = "chain_sum"
    dataset_kwargs: dict | str | None = setting(None, "e.g. {min_terms: 2, max_terms: 2}")
    example: list[str] = setting(EXAMPLE, "A question and its completion.")


def to_row(item: dict, args: RecipeArguments) -> dict:
    """Convert a reasoning-gym item (question, answer, metadata) to a row.

    The reward `reasoning_gym` reads the column `entry`: the item and its data set as JSON.
    """
    entry = {"dataset": args.dataset_name, "parameters": args.dataset_kwargs or {}, **item}
    return {
        "prompt": [
            {"role": "system", "content": SYSTEM_PROMPT},
            *worked_example(args.example),
            {"role": "user", "content": item["question"].removeprefix(PREAMBLE)},
        ],
        "task": args.dataset_name,
        "answer": item["answer"],
        "entry": json.dumps(entry, default=str),  # str: metadata may hold a Fraction, never scored
    }


def partial_sums(question: str) -> str:
    """Write the steps of a sum from left to right; empty for a question that is not a sum.

    Example: `partial_sums("3 + 4 - 2 =") == "3 + 4 = 7, 7 - 2 = 5"`
    """
    # Such as "3 + 4 - 2 =" or "Calculate 3 + 4 - 2."
    if not re.fullmatch(r"(?:Calculate )?\d+(?: [+-] \d+)+(?: =|\.)", question):
        return ""
    total, *terms = re.findall(r"(?:[+-] )?\d+", question)
    steps = []
    for term in terms:
        result = int(total) + int(term.replace(" ", ""))
        steps.append(f"{total} {term} = {result}")
        total = result
    return ", ".join(steps)


def reference_completion(row: dict) -> str | None:
    """The row's own answer in the asked format, with the steps if the question is a sum.

    None for a row without a gold answer, where several answers are right for the verifier.
    """
    if row["answer"] is None:
        return None
    steps = partial_sums(row["prompt"][-1]["content"])
    return f"<reasoning>{steps}</reasoning><answer>{row['answer']}</answer>"


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Distinct training and held-out rows; both follow from `seed`."""
    name, parameters = args.dataset_name, args.dataset_kwargs or {}
    count, held_out = args.num_train_rows or 2000, args.num_eval_rows
    size = 100 * (count + held_out)  # if these draws give too few, the task has no more questions
    # The seed of item i is first + i; `first` does not depend on the number of training rows.
    first = seed * 100 * (2000 + held_out)
    try:
        items = reasoning_gym.create_dataset(name, **parameters, seed=first, size=size)
    except (TypeError, AssertionError) as error:
        raise ValueError(
            f"{name} does not take dataset_kwargs {parameters}: {error}. Give parameters of this "
            "data set."
        ) from error
    sides = split_distinct(items, count, held_out)  # training items, held-out items
    if len(sides[1]) < held_out:
        raise ValueError(
            f"{name} has only {len(sides[1])} distinct held-out questions in {size} draws; "
            f"num_eval_rows asks for {held_out}. Ask for fewer, or widen dataset_kwargs."
        )
    train, test = (Dataset.from_list([to_row(item, args) for item in side]) for side in sides)
    return train, test


def metric(row: dict, completion: str) -> dict[str, bool]:
    """strict: right and in the asked format; lenient: right, format ignored; format: as asked.

    Where the gold is no number, a fraction (its form may be the task) or None (several answers are
    right), lenient means a right answer in the tag, whatever is around the tag.
    """
    formatted = is_xml_format(completion)
    in_tag = last_tag(answer_part(completion))  # what a model only thinks is no answer
    right = score_reasoning_gym(in_tag, row["entry"]) == 1.0
    gold, lenient = row["answer"] or "", right
    if number_of(gold) is not None and not re.search("/|frac", gold):
        lenient = is_final_answer(completion, gold)
    return {"strict": formatted and right, "lenient": lenient, "format": formatted}


metric.scorers = {"strict": ["reasoning_gym"]}


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
