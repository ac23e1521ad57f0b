"""Several tasks in one run, each scored by its own rewards: maths in \\boxed{}, programs, and number counting.

    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/math_code/train.py --config recipes/math_code/smollm2-135m.yaml

`sources` in the YAML says which data sets are mixed and with what weights, `reward_tasks` which reward
scores which task. Expected numbers: see README.md beside this file.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reasoning_gym
from datasets import Dataset, interleave_datasets, load_dataset
from trl import get_peft_config, get_quantization_config

from recipes.common.before import arguments
from recipes.common.before.arguments import parse_arguments
from recipes.common.before.only_rows import only_rows_if_asked
from recipes.common.before.preflight import preflight
from recipes.common.before.resume import open_run_folder
from recipes.common.before.splits import is_held_out
from recipes.common.evaluation.metrics import code_metric
from recipes.common.run import train_and_save
from recipes.common.trainer import GRPOTrainer
from rewards import load_rewards, load_step_rewards
from rewards.boxed_math import boxed_answer, judge
from rewards.code_tasks import read_tasks
from rewards.number_count import score_number_count

SYSTEM_PROMPT = {
    "math": "Put the final answer in \\boxed{}.",
    "code": "Solve the task in Python. Answer with one ```python block that defines what the tests call.",
    "number_count": "",
}
EXAMPLE = ["25 + 7 =", "25 + 7 = \\boxed{32}"]
CODE_EXAMPLE = ["Write a function double(x).", "```python\ndef double(x):\n    return 2 * x\n```"]
INSTRUCTION = "Continue this passage in English, with names, dates and figures:"
TASKS = "data/mbpp"
PASSAGES = Path(__file__).parent.with_name("number_count") / "passages.jsonl"


@dataclass
class RecipeArguments(arguments.RecipeArguments):
    """`sources` takes the place of `dataset_name` and `dataset_path`."""

    sources: dict | str | None = field(
        default=None,
        metadata={"help": "{name: {weight: 1.0, path: FILE_OR_FOLDER}}; names: sums, gsm8k, passages, mbpp."},
    )
    example: list[str] = field(default_factory=lambda: EXAMPLE, metadata={"help": "A sum and its completion."})


def to_row(task: str, question: str, worked: Sequence[str] = (), **judged: Any) -> dict:
    """A question as a row of a task, behind a worked example if there is one; `judged` is what its rewards need."""
    shown = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), worked, strict=False)]
    system = {"role": "system", "content": SYSTEM_PROMPT[task]}
    return {"prompt": [system, *shown, {"role": "user", "content": question}], "task": task, **judged}


def reference_completion(row: dict) -> str | None:
    """The row's own answer in the asked format; None for a programming task without a solution."""
    if row["task"] == "code":
        return f"```python\n{row['solution']}\n```" if row["solution"] else None
    return "In 1 of 2, 3 of 4, and 5." if row["task"] == "number_count" else f"\\boxed{{{row['answer']}}}"


def metric(row: dict, completion: str) -> dict[str, bool]:
    """math: the right answer in the box, if it could be judged; code: all tests pass; five numbers: the full reward."""
    if row["task"] == "code":
        return {f"code {name}": passed for name, passed in code_metric(row, completion).items()}
    if row["task"] == "number_count":
        return {"five numbers": score_number_count(completion) == 1.0}
    right = judge(row["answer"], boxed_answer(completion) or "")
    return {} if right is None else {"math": right}


def sums(path: None, seed: int, example: list[str]) -> Iterable[tuple[dict, bool]]:
    """Sums and differences of two numbers: rows, and whether each is held out."""
    settings = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    for item in reasoning_gym.create_dataset("chain_sum", **settings, seed=seed * 5000, size=5000):
        question = item["question"].rpartition(": ")[2]
        yield to_row("math", question, example, answer=item["answer"]), is_held_out(question, one_in=8)


def gsm8k(path: str | None, seed: int, example: list[str]) -> Iterable[tuple[dict, bool]]:
    """GSM8K from a folder with train.jsonl and test.jsonl, or from the Hub; its test rows are held out."""
    for split in ("train", "test"):
        if path:
            items = map(json.loads, Path(path, f"{split}.jsonl").read_text(encoding="utf-8").splitlines())
        else:
            items = load_dataset("openai/gsm8k", "main", split=split)
        for item in items:
            gold = item["answer"].split("####")[1].strip()
            yield to_row("math", item["question"], example, answer=gold), split == "test"


def mbpp(path: str | None, seed: int, example: list[str]) -> Iterable[tuple[dict, bool]]:
    """Programming tasks from a folder that scripts/prepare_code.py wrote; its test rows are held out."""
    for split in ("train", "test"):
        for task in read_tasks(path or TASKS, split):
            yield to_row("code", task.pop("prompt"), CODE_EXAMPLE, **task), split == "test"


def passages(path: str | None, seed: int, example: list[str]) -> Iterable[tuple[dict, bool]]:
    """The first words of English passages, to be continued: a JSON Lines file with a `text` a line."""
    for line in Path(path or PASSAGES).read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["text"]
        beginning = " ".join(text.split()[:25])
        yield to_row("number_count", f"{INSTRUCTION}\n\n{beginning}"), is_held_out(text, one_in=4)


OPTIONS = {"weight", "path"}
SOURCES = {"sums": sums, "gsm8k": gsm8k, "passages": passages, "mbpp": mbpp}


def load_source(name: str, path: str | None, seed: int, example: list[str]) -> tuple[Dataset, Dataset]:
    """Distinct training and held-out rows of one source, shuffled by `seed`."""
    rows = {False: {}, True: {}}
    for row, held_out in SOURCES[name](path, seed, example):
        rows[held_out][row["prompt"][-1]["content"]] = row
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


@only_rows_if_asked
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
    step_named = args.recipe.step_reward_funcs, args.recipe.step_reward_kwargs, args.recipe.step_reward_tasks
    step_rewards = args.attempt(load_step_rewards, *step_named)
    run = preflight(args, train_rows, eval_rows, rewards, reference_completion, step_rewards)
    checkpoint = open_run_folder(run)
    trainer = GRPOTrainer(
        model=run.model.model_name_or_path,
        reward_funcs=rewards,
        step_reward_funcs=step_rewards,
        step_reward_weights=run.recipe.step_reward_weights,
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
