"""Number counting: a toy that shows what GRPO does, and what reward hacking looks like.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/number_count/train.py --config recipes/number_count/hack.yaml

The model continues an English passage and earns a reward for whole numbers, whatever they mean.
With hack.yaml the reward rises and the English is lost. cure.yaml has the same reward and keeps the
English. Expected numbers: see README.md in this folder.
"""

from dataclasses import dataclass
from pathlib import Path

from recipes.common.data.questions import setting
from recipes.common.data.split import is_held_out
from recipes.common.run import RecipeArguments as CommonArguments
from recipes.common.run import start, train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards.rows import read_jsonl, with_keys
from rewards.number_count import count_whole_numbers, score_number_count
from rewards.small import word_share

from datasets import Dataset, IterableDataset, load_dataset
from trl import get_peft_config, get_quantization_config

SYSTEM_PROMPT = ""  # without a system message SmolLM2's chat template adds its own
INSTRUCTION = "Continue this passage in English, with names, dates and figures:"
OWN_PASSAGES = Path(__file__).with_name("passages.jsonl")


@dataclass
class RecipeArguments(CommonArguments):
    """`dataset_path`: a JSON Lines file with a `text` a line, or a folder with passages.jsonl.

    `dataset_name`: a Hub data set, which is streamed in its own order.
    """

    num_prompt_words: int = setting(25, "So many first words of a passage are the prompt.")
    chat: bool = setting(True, "Chat messages; false for a model without a chat template.")


def to_row(item: dict, args: RecipeArguments) -> dict:
    """Make a row of a passage: the prompt is the instruction and the passage's first words."""
    start = f"{INSTRUCTION}\n\n{' '.join(item['text'].split()[: args.num_prompt_words])}"
    chat = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": start}]
    return {"prompt": chat if args.chat else start, "task": "number_count"}


def reference_completion(row: dict) -> str:
    """A fixed text with five numbers, which earns the full reward; there is no gold."""
    return (
        "On 1 May 1902 the 3 ships left the bay with 40 men and 5 boys, and nobody in the town "
        "ever saw them again."
    )


def load_streamed(args: RecipeArguments) -> tuple[IterableDataset, Dataset]:
    """Split a Hub data set: the first rows are held out, the stream after them is for training."""
    items = load_dataset(args.dataset_name, split="train", streaming=True)
    rows = items.map(to_row, fn_kwargs={"args": args}, remove_columns=items.column_names)
    train = rows.skip(args.num_eval_rows)
    train = train if args.num_train_rows is None else train.take(args.num_train_rows)
    return train, Dataset.from_list(list(rows.take(args.num_eval_rows)))


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset | IterableDataset, Dataset]:
    """Load training and held-out rows; `seed` shuffles passages, a stream is not shuffled."""
    if args.dataset_name and args.dataset_path:
        raise ValueError("dataset_name and dataset_path are both given: give one.")
    if args.dataset_name:
        return load_streamed(args)
    path, wanted = Path(args.dataset_path or OWN_PASSAGES), args.num_eval_rows
    file = path / "passages.jsonl" if path.is_dir() else path
    passages = Dataset.from_list(read_jsonl(file, with_keys({"text": (str,)})))
    train, held_out = [], []
    for item in passages.shuffle(seed=seed):
        side = held_out if is_held_out(item["text"], one_in=4) else train
        side.append(to_row(item, args))
    if len(held_out) < wanted:
        raise ValueError(
            f"num_eval_rows is {wanted}, but only {len(held_out)} passages are held out."
        )
    return Dataset.from_list(train[: args.num_train_rows]), Dataset.from_list(held_out[:wanted])


def metric(row: dict, completion: str) -> dict[str, bool]:
    """any number: at least one; five numbers: the full reward; prose: mostly words.

    The reward does not measure prose; this metric shows whether the text is still English.
    """
    count = count_whole_numbers(completion)
    return {
        "any number": count > 0,
        "five numbers": score_number_count(completion) == 1.0,
        "prose": word_share(completion) >= 0.75,
    }


metric.scorers = {
    "any number": ["number_count"],
    "five numbers": ["number_count"],
    "prose": ["prose"],
}


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
