"""Grade-school maths: GSM8K questions answered as `<reasoning>...</reasoning><answer>...</answer>`.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/gsm8k/train.py --config recipes/gsm8k/qwen2.5-1.5b-lora.yaml

Rows: openai/gsm8k on the Hub, or `--dataset_path FOLDER` with train.jsonl and test.jsonl. Expected numbers: README.md.
"""

from pathlib import Path

from recipes.common.before.rows import draw, read_gsm8k, worked_example
from recipes.common.evaluation.metrics import answer_metric as metric
from recipes.common.run import RecipeArguments, start, train_and_save
from recipes.common.trainer import GRPOTrainer

from datasets import Dataset, load_dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = """Respond in the following format:
<reasoning>
your step by step reasoning
</reasoning>
<answer>
the final number
</answer>"""


def to_row(item: dict, example: list[str]) -> dict:
    """Make a GSM8K item a row, with a worked example before it if there is one; its gold number follows `####`."""
    system, question = {"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": item["question"]}
    answer = item["answer"].split("####")[1].strip()
    return {"prompt": [system, *worked_example(example), question], "task": "gsm8k", "answer": answer}


def reference_completion(row: dict) -> str:
    """The row's own answer in the asked format."""
    return f"<reasoning>\n</reasoning>\n<answer>\n{row['answer']}\n</answer>"


def load_split(args: RecipeArguments, split: str, count: int | None, seed: int) -> Dataset:
    """Load a split and draw `count` of its rows (all when None)."""
    if args.dataset_name and args.dataset_path:
        raise ValueError("dataset_name and dataset_path are both given: give one.")
    file = Path(args.dataset_path, f"{split}.jsonl") if args.dataset_path else None
    hub = args.dataset_name or "openai/gsm8k"
    items = Dataset.from_list(read_gsm8k(file)) if file else load_dataset(hub, "main", split=split)
    return Dataset.from_list([to_row(item, args.example) for item in draw(items, count, seed)])  # no cache of old rows


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training rows of the train split, evaluation rows of the test split."""
    return load_split(args, "train", args.num_train_rows, seed), load_split(args, "test", args.num_eval_rows, seed)


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
