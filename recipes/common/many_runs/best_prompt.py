"""The control arm best-prompt: what the untrained model reaches by a better prompt instead of training.

Ten prompts are tried on rows of the training side: the recipe's own, and others with more worked examples (training
rows with their reference completions), each with and without an instruction. The best of them by the recipe's first
metric is evaluated once on the held-out rows.
"""

import time
from pathlib import Path
from typing import Any

from recipes.common.data.recipe import Recipe, load_recipe
from recipes.common.data.split import first_rows
from recipes.common.evaluation.scores import metric_names
from recipes.common.sampling.evaluate_model import evaluate_model
from recipes.common.utils.run_files import AFTER, BEFORE, PROMPTS, read_json, write_json, write_rows
from recipes.common.utils.tables import percent

VALIDATION_ROWS = 64
SHOTS = (None, 1, 2, 4, 8)  # worked examples; None keeps what the recipe shows
INSTRUCTION = "Think step by step, and answer in exactly the form of the examples."


def best_prompt(config: Path, words: list[str], folder: Path) -> Path:
    """Choose the prompt and evaluate with it, into `folder`; not again where that is done. `ValueError`: no chat."""
    if there := read_json(folder / PROMPTS):
        if there["overrides"] != words:
            raise ValueError(
                f"{folder} was made with {there['overrides']}, not {words}: remove it, or ask for the same."
            )
        return folder
    started, recipe = time.monotonic(), load_recipe(config, words)
    rows = first_rows(recipe.train_rows.shuffle(seed=recipe.args.training["seed"]))
    solved = [row for row in rows if recipe.module.reference_completion(row) is not None][
        : max(filter(None, SHOTS))
    ]
    validation = [row for row in rows if row not in solved][:VALIDATION_ROWS]
    held_out = recipe.eval_rows.to_list()
    if not held_out or any(isinstance(row["prompt"], str) for row in [*rows[:1], *held_out]):
        raise ValueError("the arm best-prompt needs held-out rows, and prompts of chat messages.")
    print(f"\n== {folder}: ten prompts on {len(validation)} training rows", flush=True)
    tried = {}
    for number, (shots, instructed) in enumerate(
        (n, asked) for asked in (False, True) for n in SHOTS
    ):
        evaluated = _evaluate(
            recipe, [prompted(recipe, row, solved, shots, instructed) for row in validation]
        )
        chosen_by = metric_names(evaluated)[0]
        share = sum(row["metrics"].get(chosen_by, False) for row in evaluated) / len(evaluated)
        tried[number] = {"examples": shots, "instruction": instructed, chosen_by: share}
        examples = "own" if shots is None else shots
        print(
            f"  examples: {examples}, instruction: {instructed}, {chosen_by} {percent(share)}",
            flush=True,
        )
    best = max(tried, key=lambda number: tried[number][chosen_by])  # of equals the first
    how = (tried[best]["examples"], tried[best]["instruction"])
    after = _evaluate(recipe, [prompted(recipe, row, solved, *how) for row in held_out])
    write_rows(folder / BEFORE, _evaluate(recipe, held_out))
    # The rows go by their own prompt, so that they pair with those of the other arms.
    write_rows(
        folder / AFTER,
        [{**done, "prompt": row["prompt"]} for done, row in zip(after, held_out, strict=True)],
    )
    record = {
        "overrides": words,
        "tried": list(tried.values()),
        "chosen": tried[best],
        "minutes": (time.monotonic() - started) / 60,
    }
    write_json(folder / PROMPTS, record)
    return folder


def prompted(
    recipe: Recipe, row: dict, solved: list[dict], shots: int | None, instructed: bool
) -> dict[str, Any]:
    """The row with the first `shots` of `solved` as worked examples, and the instruction in its system message."""
    messages = row["prompt"]
    system = [message for message in messages if message["role"] == "system"]
    shown = [message for message in messages[:-1] if message["role"] != "system"]
    if shots is not None:
        completions = [
            (of["prompt"][-1], recipe.module.reference_completion(of)) for of in solved[:shots]
        ]
        shown = [
            m
            for question, text in completions
            for m in (question, {"role": "assistant", "content": text})
        ]
    if instructed:
        text = "\n".join(filter(None, [*(message["content"] for message in system), INSTRUCTION]))
        system = [{"role": "system", "content": text}]
    return {**row, "prompt": [*system, *shown, messages[-1]]}


def _evaluate(recipe: Recipe, rows: list[dict]) -> list[dict[str, Any]]:
    args = recipe.args
    return evaluate_model(args.model["model_name_or_path"], rows, [], recipe.module.metric, args)
