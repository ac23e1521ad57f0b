"""What our own code costs: its share of a training step, and the step beside a bare `GRPOTrainer`'s.

    python scripts/benchmarks/overhead.py                        # quickstart, 4 pairs of 6 steps, 10 minutes on 2 cores
    python scripts/benchmarks/overhead.py --pairs 1 --steps 2

Both arms train the same rows from the same seed, so that step i of one generates what step i of the
other does; they take turns, so that a machine whose speed drifts slows both. The first step of each run
is dropped (it warms up). "Our own code" is every callback of ours and the whole of `_calculate_rewards`,
TRL's part of it included; what TRL itself does to log (its completion tables) is in both arms. The recipe
arm includes the LM-head hook of `recipes/common/tools/machine.py`, which makes it faster on a CPU: what our code
costs is the share, not the ratio.
"""

import argparse
import functools
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path

CONFIG = "recipes/arithmetic/quickstart.yaml"


def make_trainer(arm: str, recipe, config: str, folder: str, steps: int):
    """The trainer that a recipe builds, or TRL's own with the same arguments, and its run."""
    import trl

    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.preflight import preflight
    from recipes.common.before.resume import open_run_folder
    from recipes.common.trainer import GRPOTrainer
    from rewards import load_rewards

    options = ["--config", config, "--output_dir", folder, "--max_steps", str(steps), "--num_eval_rows", "0"]
    args = parse_arguments(recipe.RecipeArguments, [*options, "--save_strategy", "no", "--num_train_rows", "500"])
    train_rows, eval_rows = recipe.load_rows(args.recipe, args.training["seed"])
    rewards = load_rewards(args.recipe.reward_funcs, args.recipe.reward_kwargs)
    run = preflight(args, train_rows, eval_rows, rewards, recipe.reference_completion)
    if arm == "recipe":
        open_run_folder(run)  # what the report at the end of a run reads
    trainer_type = trl.GRPOTrainer if arm == "bare" else GRPOTrainer
    trainer = trainer_type(
        model=run.model.model_name_or_path,
        reward_funcs=rewards,
        args=run.training,
        train_dataset=train_rows,
        peft_config=trl.get_peft_config(run.model),
    )
    return trainer, run


def count_our_seconds(spent: list[float]) -> None:
    """Make the scoring of a batch and every callback of ours add their seconds to `spent[0]`."""
    from transformers import TrainerCallback

    from recipes.common.during import callbacks
    from recipes.common.trainer import GRPOTrainer

    ours = [c for c in vars(callbacks).values() if isinstance(c, type) and issubclass(c, TrainerCallback)]
    for owner in (GRPOTrainer, *(c for c in ours if c is not TrainerCallback)):
        for name in [n for n in vars(owner) if n == "_calculate_rewards" or n.startswith("on_")]:
            setattr(owner, name, _timed(vars(owner)[name], spent))


def _timed(function, spent: list[float]):
    @functools.wraps(function)
    def timed(*args, **kwargs):
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[0] += time.perf_counter() - started

    return timed


def train(arm: str, recipe, config: str, steps: int, spent: list[float]) -> tuple[list[float], list[float]]:
    """Seconds of each step after the first, and the seconds of our own code in it (0 in the bare arm)."""
    from transformers import TrainerCallback

    from recipes.common.run import train_and_save

    marks: list[tuple[float, float]] = []

    class Mark(TrainerCallback):
        def on_step_begin(self, *args, **kwargs) -> None:
            marks.append((time.perf_counter(), spent[0]))

        def on_train_end(self, *args, **kwargs) -> None:
            marks.append((time.perf_counter(), spent[0]))

    with tempfile.TemporaryDirectory() as folder:
        trainer, run = make_trainer(arm, recipe, config, folder, steps)
        trainer.add_callback(Mark())
        if arm == "bare":
            trainer.train()
        else:
            train_and_save(trainer, run, None, None, recipe.metric)
    walls, ours = zip(*((b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(marks)), strict=True)
    return list(walls[1:]), list(ours[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="steps a run; the first is dropped")
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    args = parser.parse_args()
    from recipes.common.before.recipe import import_recipe
    from recipes.common.tools.machine import versions

    recipe, spent = import_recipe(Path(args.config)), [0.0]
    count_our_seconds(spent)
    seconds = {"recipe": [], "bare": []}
    ours = []
    for pair in range(args.pairs):
        for arm in ("recipe", "bare") if pair % 2 == 0 else ("bare", "recipe"):
            walls, own = train(arm, recipe, args.config, args.steps, spent)
            seconds[arm] += walls
            ours += own if arm == "recipe" else []
    shares = [own / wall for own, wall in zip(ours, seconds["recipe"], strict=True)]
    ratios = [a / b for a, b in zip(seconds["recipe"], seconds["bare"], strict=True)]
    figures = {
        "steps": len(shares),
        "our share of a step, median": statistics.median(shares),
        "our share of a step, largest": max(shares),
        "our milliseconds a step, median": 1000 * statistics.median(ours),
        "step seconds, median": statistics.median(seconds["recipe"]),
        "wall time recipe / bare, median of pairs": statistics.median(ratios),
        "wall time recipe / bare, least and largest": [min(ratios), max(ratios)],
    }
    for name, value in figures.items():
        print(f"{name:<42}{value}")
    if args.output:
        args.output.write_text(json.dumps({**figures, **versions()}, indent=2) + "\n")


if __name__ == "__main__":
    main()
