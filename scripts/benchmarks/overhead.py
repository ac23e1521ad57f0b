"""Measure the cost of our own code: its share of a training step. step_speed.py has the whole step.

    python scripts/benchmarks/overhead.py                # the quickstart, 12 steps
    python scripts/benchmarks/overhead.py --steps 3

The first step is dropped (it warms up). "Our own code" is the scoring of the completions, with the
rewards themselves, and every callback of ours.
"""

import argparse
import functools
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

OVERRIDES = {"num_eval_rows": 0, "eval_strategy": "no", "save_strategy": "no"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    quickstart = Path("recipes/arithmetic/quickstart.yaml")
    parser.add_argument("--config", type=Path, default=quickstart)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    from recipes.common.utils.machine import versions

    steps = measure(options.config, options.steps)
    shares = [ours / whole for ours, whole in steps]
    figures = {
        "steps": len(steps),
        "our share of a step, median": statistics.median(shares),
        "our share of a step, largest": max(shares),
        "our milliseconds a step, median": 1000 * statistics.median(ours for ours, _ in steps),
        "step seconds, median": statistics.median(whole for _, whole in steps),
    }
    for name, value in figures.items():
        print(f"{name:<34}{value}")
    if options.output:
        options.output.write_text(json.dumps({**figures, **versions()}, indent=2) + "\n")


def measure(config: Path, steps: int) -> list[tuple[float, float]]:
    """Train; seconds of our own code and of all in each step after the first."""
    import trl
    from transformers import TrainerCallback

    from recipes.common.data.recipe import import_recipe
    from recipes.common.run import start, train_and_save
    from recipes.common.trainer import GRPOTrainer

    spent, marks = [0.0], []

    class Mark(TrainerCallback):
        def on_train_begin(self, *args, **kwargs) -> None:
            for name in ("score", "observe"):
                time_calls(trainer, name, spent)
            for callback in trainer.callback_handler.callbacks:
                if type(callback).__module__.startswith("recipes."):
                    for name in [name for name in dir(callback) if name.startswith("on_")]:
                        time_calls(callback, name, spent)

        def on_step_begin(self, *args, **kwargs) -> None:
            marks.append((spent[0], time.perf_counter()))

        on_train_end = on_step_begin

    recipe = import_recipe(config)
    with tempfile.TemporaryDirectory() as folder:
        settings = {**OVERRIDES, "max_steps": steps, "output_dir": f"{folder}/run"}
        words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        sys.argv = [str(config.parent / "train.py"), "--config", str(config), *words]
        run = start(recipe.RecipeArguments, recipe.load_rows, recipe.reference_completion)
        trainer = GRPOTrainer(
            model=run.model.model_name_or_path,
            reward_funcs=run.rewards,
            args=run.training,
            train_dataset=run.train_rows,
            peft_config=trl.get_peft_config(run.model),
        )
        trainer.add_callback(Mark())
        train_and_save(trainer, run, recipe.metric)
    found = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(marks)]
    return found[1:]


def time_calls(owner: object, name: str, spent: list[float]) -> None:
    """Add the seconds of each call of a method; on an accelerator after its work is done."""
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
            spent[0] += time.perf_counter() - started

    setattr(owner, name, timed)


if __name__ == "__main__":
    main()
