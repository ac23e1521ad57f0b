"""Several tasks in one run, each scored by its own rewards: maths answers in \\boxed{}, and number counting.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/math_code/train.py --config recipes/math_code/smollm2-135m.yaml

`sources` in the YAML says which data sets are mixed and with what weights, `reward_tasks` which reward
scores which task. Expected numbers: see README.md beside this file.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import reasoning_gym
from datasets import Dataset, interleave_datasets, load_dataset
from trl import get_peft_config, get_quantization_config

from recipes.common import arguments
from recipes.common.arguments import parse_arguments
from recipes.common.lifecycle import train_and_save
from recipes.common.preflight import preflight
from recipes.common.run_folder import open_run_folder
from recipes.common.splits import is_held_out
from recipes.common.trainer import GRPOTrainer
from rewards import load_rewards
from rewards.boxed_math import boxed_answer, judge
from rewards.number_count import score_number_count

SYSTEM_PROMPT = "Put the final answer in \\boxed{}."
EXAMPLE = ["25 + 7 =", "25 + 7 = \\boxed{32}"]
INSTRUCTION = "Continue this passage in English, with names, dates and figures:"
PASSAGES = Path(__file__).parent.with_name("number_count") / "passages.jsonl"


@dataclass
class RecipeArguments(arguments.RecipeArguments):
    """`sources` takes the place of `dataset_name` and `dataset_path`."""

    sources: dict | str | None = field(
        default=None, metadata={"help": "{name: {weight: 1.0, path: FILE_OR_FOLDER}}; names: sums, gsm8k, passages."}
    )
    example: list[str] = field(default_factory=lambda: EXAMPLE, metadata={"help": "A question and its completion."})


def to_row(question: str, answer: str | None, example: list[str]) -> dict:
    """A question with its answer as a row of task `math`; a passage, which has none, as one of `number_count`."""
    user = {"role": "user", "content": question}
    if answer is None:
        return {"prompt": [{"role": "system", "content": ""}, user], "task": "number_count", "answer": None}
    worked = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), example, strict=False)]
    return {"prompt": [{"role": "system", "content": SYSTEM_PROMPT}, *worked, user], "task": "math", "answer": answer}


def reference_completion(row: dict) -> str:
    """The row's own answer in the asked format."""
    return "In 1 of 2, 3 of 4, and 5." if row["task"] == "number_count" else f"\\boxed{{{row['answer']}}}"


def metric(row: dict, completion: str) -> dict[str, bool]:
    """math: the right answer in the box, if it could be judged; five numbers: enough for the full reward."""
    if row["task"] == "number_count":
        return {"five numbers": score_number_count(completion) == 1.0}
    right = judge(row["answer"], boxed_answer(completion) or "")
    return {} if right is None else {"math": right}


def sums(path: None, seed: int) -> Iterable[tuple[str, str, bool]]:
    """Sums and differences of two numbers: question, answer, held out or not."""
    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    for item in reasoning_gym.create_dataset("chain_sum", **settings, seed=seed * 5000, size=5000):
        question = item["question"].rpartition(": ")[2]
        yield question, item["answer"], is_held_out(question, one_in=8)


def gsm8k(path: str | None, seed: int) -> Iterable[tuple[str, str, bool]]:
    """GSM8K from a folder with train.jsonl and test.jsonl, or from the Hub; its test rows are held out."""
    for split in ("train", "test"):
        if path:
            items = map(json.loads, Path(path, f"{split}.jsonl").read_text(encoding="utf-8").splitlines())
        else:
            items = load_dataset("openai/gsm8k", "main", split=split)
        for item in items:
            yield item["question"], item["answer"].split("####")[1].strip(), split == "test"


def passages(path: str | None, seed: int) -> Iterable[tuple[str, None, bool]]:
    """The first words of English passages, to be continued: a JSON Lines file with a `text` a line."""
    for line in Path(path or PASSAGES).read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["text"]
        yield f"{INSTRUCTION}\n\n{' '.join(text.split()[:25])}", None, is_held_out(text, one_in=4)


OPTIONS = {"weight", "path"}
SOURCES = {"sums": sums, "gsm8k": gsm8k, "passages": passages}


def load_source(name: str, path: str | None, seed: int, example: list[str]) -> tuple[Dataset, Dataset]:
    """Distinct training and held-out rows of one source, shuffled by `seed`."""
    rows = {False: {}, True: {}}
    for question, answer, held_out in SOURCES[name](path, seed):
        rows[held_out][question] = to_row(question, answer, example)
    return tuple(Dataset.from_list(list(rows[held_out].values())).shuffle(seed=seed) for held_out in (False, True))


def mix(parts: Sequence[Dataset], weights: list[float], count: int | None, seed: int) -> Dataset:
    """Rows drawn from the parts by weight: `count` of them, or as many as there are until one part has no more.

    Raises:
        ValueError: there are fewer than `count`.
    """
    shares = [weight / sum(weights) for weight in weights]
    rows = interleave_datasets(list(parts), probabilities=shares, seed=seed, stopping_strategy="first_exhausted")
    if count is not None and len(rows) < count:
        raise ValueError(f"the sources hold {len(rows)} rows at these weights, and {count} were asked for.")
    return rows if count is None else rows.select(range(count))


def load_rows(args: RecipeArguments, seed: int) -> tuple[Dataset, Dataset]:
    """Training and held-out rows of all sources, mixed by their weights."""
    sources = args.sources or {}
    known = all(name in SOURCES and isinstance(of, dict) and of.keys() <= OPTIONS for name, of in sources.items())
    if not sources or not known or not all(of.get("weight", 1.0) > 0 for of in sources.values()):
        raise ValueError(
            f"sources is {sources!r}; give {{name: {{weight: 1.0, path: FILE}}}} with names of {', '.join(SOURCES)}."
        )
    weights = [float(of.get("weight", 1.0)) for of in sources.values()]
    splits = [load_source(name, of.get("path"), seed, args.example) for name, of in sources.items()]
    train, held_out = zip(*splits, strict=True)
    return mix(train, weights, args.num_train_rows, seed), mix(held_out, weights, args.num_eval_rows, seed)


def main() -> None:
    args = parse_arguments(RecipeArguments)
    train_rows, eval_rows = args.attempt(load_rows, args.recipe, args.training["seed"]) or (None, None)
    rewards = args.attempt(load_rewards, args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks)
    run = preflight(args, train_rows, eval_rows, rewards, reference_completion)
    checkpoint = open_run_folder(run)
    trainer = GRPOTrainer(
        model=run.model.model_name_or_path,
        reward_funcs=rewards,
        reward_gates=run.recipe.reward_gates,
        max_reward_error_rate=run.recipe.max_reward_error_rate,
        reward_timeout_s=run.recipe.reward_timeout_s,
        args=run.training,
        train_dataset=train_rows,
        peft_config=get_peft_config(run.model),
        quantization_config=get_quantization_config(run.model),
    )
    train_and_save(trainer, run, checkpoint, eval_rows, metric)


if __name__ == "__main__":
    main()
