"""Measure the cost of our own code: its share of a training step, and the step next to a bare `GRPOTrainer`'s.

    python scripts/benchmarks/overhead.py                        # quickstart, 4 pairs of 6 steps, 10 minutes on 2 cores
    python scripts/benchmarks/overhead.py --pairs 1 --steps 2

Both arms train the same rows from the same seed, so that step i of one generates what step i of the other does; they
take turns, so that a machine whose speed drifts slows both. The first step of each run is dropped (it warms up). "Our
own code" is every callback of ours and the whole of `_calculate_rewards`, TRL's part of it included; what TRL itself
does to log (its completion tables) is in both arms. The recipe arm includes the LM-head hook of
`recipes/common/utils/machine.py`, which makes it faster on a CPU: what our code costs is the share, not the ratio.
"""

import argparse
import functools
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

CONFIG = Path("recipes/arithmetic/quickstart.yaml")


def build(config: Path, overrides: list[str], folder: Path, bare: bool = False):
    """The recipe, its run in `folder`, and the trainer that it builds (`bare`: TRL's own with the same arguments)."""
    import trl

    from recipes.common.data.recipe import import_recipe
    from recipes.common.run import start
    from recipes.common.trainer import GRPOTrainer

    recipe, argv = import_recipe(config), sys.argv
    words = ["--config", str(config), "--output_dir", str(folder / "run"), "--num_eval_rows", "0"]
    words += ["--eval_strategy", "no"]
    sys.argv = [
        str(config.parent / "train.py"),
        *words,
        "--save_strategy",
        "no",
        "--num_train_rows",
        "500",
        *overrides,
    ]
    try:
        run = start(recipe.RecipeArguments, recipe.load_rows, recipe.reference_completion)
    finally:
        sys.argv = argv
    trainer = (trl.GRPOTrainer if bare else GRPOTrainer)(
        model=run.model.model_name_or_path,
        reward_funcs=run.rewards,
        args=run.training,
        train_dataset=run.train_rows,
        peft_config=trl.get_peft_config(run.model),
    )
    return recipe, run, trainer


def time_calls(owner: object, name: str, spent: Counter, part: str) -> None:
    """Add the seconds of each call of a method to `spent[part]`; on an accelerator after its work is done."""
    import torch

    method = getattr(owner, name)

    @functools.wraps(method)
    def timed(*args, **kwargs):
        started = time.perf_counter()
        try:
            return method(*args, **kwargs)
        finally:
            if torch.accelerator.is_available():
                torch.accelerator.synchronize()
            spent[part] += time.perf_counter() - started

    setattr(owner, name, timed)


def watch_steps(trainer, spent: Counter, on_begin=lambda: None) -> list[dict[str, float]]:
    """A list that fills with the seconds of each step after the first: of the whole `step`, and of each part spent."""
    from transformers import TrainerCallback

    marks, steps = [], []

    class Mark(TrainerCallback):
        def on_train_begin(self, *args, **kwargs) -> None:
            on_begin()

        def on_step_begin(self, *args, **kwargs) -> None:
            marks.append({**spent, "step": time.perf_counter()})

        def on_train_end(self, *args, **kwargs) -> None:
            self.on_step_begin()
            of_each = [
                {part: b[part] - a.get(part, 0.0) for part in b}
                for a, b in itertools.pairwise(marks)
            ]
            steps.extend(of_each[1:])

    trainer.add_callback(Mark())
    return steps


def train(config: Path, overrides: list[str], bare: bool) -> list[dict[str, float]]:
    """Seconds of each step after the first, whole and of our own code in it (0 in the bare arm)."""
    from recipes.common.run import train_and_save

    def time_ours() -> None:
        time_calls(trainer, "_calculate_rewards", spent, "ours")
        for callback in trainer.callback_handler.callbacks:
            if type(callback).__module__.startswith("recipes."):
                for name in [name for name in dir(callback) if name.startswith("on_")]:
                    time_calls(callback, name, spent, "ours")

    spent = Counter(ours=0.0)
    with tempfile.TemporaryDirectory() as folder:
        recipe, run, trainer = build(config, overrides, Path(folder), bare)
        steps = watch_steps(trainer, spent, on_begin=(lambda: None) if bare else time_ours)
        trainer.train() if bare else train_and_save(trainer, run, recipe.metric)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="steps a run; the first is dropped")
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    from recipes.common.utils.machine import versions

    ours, bare = [], []
    for pair in range(options.pairs):
        for is_bare in (False, True) if pair % 2 == 0 else (True, False):
            steps = train(options.config, ["--max_steps", str(options.steps)], is_bare)
            (bare if is_bare else ours).extend(steps)
    shares = [step["ours"] / step["step"] for step in ours]
    ratios = [a["step"] / b["step"] for a, b in zip(ours, bare, strict=True)]
    figures = {
        "steps": len(shares),
        "our share of a step, median": statistics.median(shares),
        "our share of a step, largest": max(shares),
        "our milliseconds a step, median": 1000 * statistics.median(step["ours"] for step in ours),
        "step seconds, median": statistics.median(step["step"] for step in ours),
        "wall time recipe / bare, median of pairs": statistics.median(ratios),
        "wall time recipe / bare, least and largest": [min(ratios), max(ratios)],
    }
    for name, value in figures.items():
        print(f"{name:<42}{value}")
    if options.output:
        options.output.write_text(json.dumps({**figures, **versions()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
