"""What one rank of two sees: `accelerate launch tests/support/two_ranks.py MODEL FOLDER`; it ends
in RewardErrors.

Three groups of four: the second spans the ranks, and a verifier fails on one of its rows on rank 1.
"""

import json
import os
import sys
import time
from pathlib import Path

from support.scored_by_place import as_async, generations, give, make_trainer

from recipes.common.training.guard import RewardErrors
from rewards import load_reward
from rewards.contract import route

RANK = int(os.environ["RANK"])
TASKS = ["math", "math", "words"]
# By place on this rank: rank 0 holds six rows of math; rank 1 the last two of math, then four of
# words.
RIGHT = [[1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [None, 1.0]][RANK]
ALIKE = [[1.0, 0.0, 0.0, 0.0, 0.5, 0.5], [0.5] * 6][RANK]  # rank 1 has no group with spread
BONUS = [[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [5.0, 0.1, 0.2, 0.3, 0.4, 0.5]][RANK]


BATCH = {"per_device_train_batch_size": 6}


def main(model: Path, folder: Path) -> None:
    said = ["graded", "timeout", "graded", "graded"]
    spoken = as_async(give("spoken", [1.0, 0.0, 0.0, 1.0], outcomes=said))
    rewards = [
        route(give("right", RIGHT), ("math",)),
        route(spoken, ("words",)),
        give("bonus", BONUS, "shaping"),
    ]
    gates = {"reward_gates": {"bonus": ["right", "spoken"]}}
    trainer = make_trainer(model, folder, rewards, TASKS, gates, **BATCH)
    trainer.train()
    texts = [["1", "2"], ["2", "3"]][RANK]
    moved, apart = skipped(model, folder)
    seen = {
        "world size": trainer.accelerator.num_processes,
        "logged": generations(trainer)[0],
        "advantages": list(trainer._logs["advantages"]),
        "bonus": list(trainer._logs["rewards"]["bonus"]),
        "agreement": load_reward("majority")(prompts=["one", "one"], completions=texts),
        "moved": moved,
        "apart": apart,
    }
    (folder / f"seen_{RANK}.json").write_text(json.dumps(seen))
    strict = {"max_reward_error_rate": 0.0}
    try:
        make_trainer(model, folder, rewards, TASKS, strict, **BATCH).train()
    except RewardErrors as error:
        (folder / f"raised_{RANK}.txt").write_text(str(error))
        time.sleep(2)  # the launcher kills the other rank when one has ended
        raise


def skipped(model: Path, folder: Path) -> tuple[float, float]:
    """The largest change of a weight in a step, and the largest that skipping completions makes."""
    ends = []
    for skip in (False, True):
        config = {"optim": "sgd", "learning_rate": 1.0, "skip_zero_advantages": skip, **BATCH}
        rewards = [give("alike", ALIKE)]
        trainer = make_trainer(model, folder / f"skip-{skip}", rewards, TASKS, {}, **config)
        start = [weight.detach().clone() for weight in trainer.model.parameters()]
        trainer.train()
        trained = trainer.accelerator.unwrap_model(trainer.model)
        ends.append([weight.detach() for weight in trained.parameters()])
    moved, apart = zip(start, ends[0], strict=True), zip(*ends, strict=True)
    return tuple(max((a - b).abs().max().item() for a, b in pairs) for pairs in (moved, apart))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
