"""What one rank of two makes of steps: `accelerate launch tests/support/steps_on_two_ranks.py MODEL
FOLDER`.

Three groups of four; the second spans the ranks, and its failed row is on rank 1.
"""

import json
import os
import sys
from pathlib import Path

import torch
from support.scored_by_place import give, give_steps, make_trainer

WRITTEN = ["aaaa", "bbb", "cccccc", "d", "ee", "ffff", "g", "hh", "iiiii", "jjj", "", "ll"]
RIGHT = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
STEPS = [
    *([(2, 1.0), (4, -1.0)], [(3, 1.0)], [], [(1, -1.0)]),
    *([(1, 1.0), (2, 0.5)], [(4, -1.0)], None, [(2, 3.0)]),
    *([(5, 1.0)], [(1, 2.0), (3, 1.0)], [], [(2, 1.0)]),
]


def writes(trainer, texts: list[str]) -> None:
    """Let the model write the first six tokens of these texts, each with an end behind it."""
    tokenizer = trainer.processing_class
    ids = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in texts]
    rows = torch.tensor([(row + [tokenizer.pad_token_id] * 6)[:6] for row in ids])
    trainer.model.generate = lambda input_ids, **kwargs: torch.cat([input_ids, rows], dim=1)


def advantages(model: Path, folder: Path, first: int, last: int) -> dict:
    """Token advantages and logs of the process with the completions from `first` to `last`."""
    here = slice(first, last)
    rewards = [give("right", RIGHT[here]), give_steps("third", STEPS[here])]
    batch = {"per_device_train_batch_size": last - first, "max_completion_length": 6}
    trainer = make_trainer(model, folder, rewards, ["a", "b", "c"], {}, **batch)
    writes(trainer, WRITTEN[here])
    output = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    metrics = {
        name: values[-1] for name, values in trainer._metrics["train"].items() if "step" in name
    }
    logged = list(trainer._logs["advantages"])
    return {"advantages": output["advantages"].tolist(), "logged": logged, "metrics": metrics}


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    seen = advantages(Path(sys.argv[1]), Path(sys.argv[2]), 6 * rank, 6 * rank + 6)
    Path(sys.argv[2], f"seen_{rank}.json").write_text(json.dumps(seen))
