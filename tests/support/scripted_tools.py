"""A trainer whose model writes tool calls from a script; `accelerate launch` of this file takes
MODEL and FOLDER.

On two ranks it trains two steps and evaluates three rows in batches of two, and each rank writes
what it saw.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import trl
from datasets import Dataset
from support.launching import ROOT
from support.scored_by_place import TINY, generations
from transformers import AutoTokenizer

from recipes.calculator.train import metric, to_row
from recipes.common.evaluation.evaluate import evaluate
from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.tools import load_environment, read_calls
from rewards import load_reward

CALCULATOR = str(ROOT / "recipes/calculator/calculator.py:Calculator")
ROWS = [to_row(2, [("+", 3)]), to_row(4, [("*", 5)])]
QUESTIONS = [row["prompt"][-1]["content"] for row in ROWS]


def call(expression: str, name: str = "calculate") -> str:
    arguments = f'{{"expression": "{expression}"}}'
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


# By question and place in its group: the first turn. The second repeats the tool's answer in a tag.
FIRST = [
    [call("2 + 3"), call("9 * 9"), call("7", "unknown"), "<answer>5</answer>"],
    [call("4 * 5"), call("4 *"), "<tool_call>{", "no"],
]
KINDS = [["call", "text"], ["call", "text"], ["failed call", "text"], ["text"]]
KINDS += [["call", "text"], ["failed call", "text"], ["broken call"], ["text"]]
ENVIRONMENT = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
CORRECT = [2.0, 0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 0.0]


def scripted(kind: type[trl.GRPOTrainer]) -> type[trl.GRPOTrainer]:
    class Scripted(kind):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            seen: Counter = Counter()
            replies = [_reply(self._tokenizer.decode(ids), seen) for ids in prompt_ids]
            return [self._tokenizer(reply + "<|end|>")["input_ids"] for reply in replies], None

    return Scripted


def _reply(text: str, seen: Counter) -> str:
    _, tool, answer = text.rpartition("<|im_start|>tool")
    if tool:
        return f"<answer>{answer.partition('<|end|>')[0].strip()}</answer>"
    number = next(i for i, question in enumerate(QUESTIONS) if question in text)
    seen[number] += 1
    return FIRST[number][(seen[number] - 1) % 4]


CORRECTNESS = ("gsm8k_correctness",)


def make_trainer(
    model, folder, kind=GRPOTrainer, rewards=CORRECTNESS, rows=ROWS, environment=None, **settings
) -> trl.GRPOTrainer:
    """The scripted trainer on two rows with the calculator; `settings` are those of GRPOConfig."""
    if environment is None and "environment_factory" not in settings:
        environment = load_environment(CALCULATOR)
    args = GRPOConfig(output_dir=str(folder), **{**TINY, "max_completion_length": 400, **settings})
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", truncation_side="left")
    template = (ROOT / "recipes/calculator/chat_template.jinja").read_text()
    tokenizer.chat_template = template.replace("<|im_end|>", "<|end|>")  # the tiny model's
    read_calls(tokenizer)
    rewards = rewards and [load_reward(one) if isinstance(one, str) else one for one in rewards]
    parts = {"processing_class": tokenizer, "environment_factory": environment}
    return scripted(kind)(str(model), rewards, args, Dataset.from_list(rows), **parts)


def evaluated(trainer: trl.GRPOTrainer) -> list[dict]:
    return evaluate(trainer, [dict(row) for row in [*ROWS, ROWS[0]]], metric)


def main(model: Path, folder: Path) -> None:
    settings = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 2, "max_steps": 2}
    trainer = make_trainer(model, folder, **settings)
    before = evaluated(trainer)
    trainer.train()
    seen = {"evaluated": before, "logged": generations(trainer)}
    seen["ranks"] = trainer.accelerator.num_processes
    (folder / f"seen_{os.environ['RANK']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
