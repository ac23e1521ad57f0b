"""Time a step of stock `trl.GRPOTrainer` next to ours on rows of the quickstart, and its memory.

    python scripts/benchmarks/step_speed.py --gradient_accumulation_steps 2   # two processes
    python scripts/benchmarks/step_speed.py --launch single_gpu               # one of two threads
    python scripts/benchmarks/step_speed.py --launch cpu --shape long

The arms take turns, each run in processes of its own, so that the peak of memory is its own. A run
makes two steps of completions of full length; the second is timed. `long` has 8 completions of 64
tokens for a prompt of about 800. Prints medians of the main process; takes any argument of a run.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONFIG = Path("recipes/arithmetic/quickstart.yaml")
SETTINGS = ["--max_steps", "2", "--skip_zero_advantages", "false", "--log_completions", "false"]
SETTINGS += ["--num_eval_rows", "0", "--eval_strategy", "no", "--save_strategy", "no"]
LONG = ["--example", "Calculate 25 + 7.", "25 + 7 = 32 and " * 66]
LONG += ["--max_completion_length", "64", "--gradient_accumulation_steps", "1"]
SHAPES = {"quickstart": (28, []), "long": (64, LONG)}  # tokens of a completion, settings


def measure(arm: str, shape: str, words: list[str]) -> None:
    """Train two steps as one of the processes; the main one prints the figures of the second."""
    import trl

    from recipes.common.data.recipe import import_recipe

    recipe, marks = import_recipe(CONFIG), {}

    class Timed(recipe.GRPOTrainer if arm == "ours" else trl.GRPOTrainer):
        def _generate_single_turn(self, *args, **kwargs):
            marks["start"] = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            marks["generated"] = time.perf_counter()
            return result

    def train(trainer, run, metric):
        trainer.train()
        step, update = (time.perf_counter() - marks[name] for name in ("start", "generated"))
        figures = {"generation": step - update, "update": update, "step": step}
        figures["GiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if trainer.accelerator.is_main_process:
            print(json.dumps(figures), flush=True)

    recipe.GRPOTrainer, recipe.train_and_save = Timed, train
    tokens, more = SHAPES[shape]
    sys.argv = [f"{CONFIG.parent}/train.py", "--config", str(CONFIG), *SETTINGS, *more, *words]
    sys.argv += ["--generation_kwargs", json.dumps({"min_new_tokens": tokens})]
    with tempfile.TemporaryDirectory() as folder:
        sys.argv += ["--output_dir", f"{folder}/run"]
        recipe.main()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--launch", default="cpu_2proc", help="a file of accelerate_configs/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--arm", choices=("stock", "ours"), help=argparse.SUPPRESS)
    options, more = parser.parse_known_args()
    if options.arm:
        return measure(options.arm, options.shape, more)
    launch = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    launch += [f"--config_file=accelerate_configs/{options.launch}.yaml", __file__, *sys.argv[1:]]
    found = {"stock": [], "ours": []}
    for _ in range(options.rounds):
        for arm, runs in found.items():
            done = subprocess.run([*launch, "--arm", arm], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{arm}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
            lines = [line for line in done.stdout.splitlines() if line.startswith('{"')]
            runs.append(json.loads(lines[-1]))
            print(arm, lines[-1], flush=True)
    for name in found["ours"][0]:
        stock, ours = (statistics.median(run[name] for run in runs) for runs in found.values())
        print(f"{name:<11} stock {stock:6.2f}   ours {ours:6.2f}   stock / ours {stock / ours:.2f}")


if __name__ == "__main__":
    main()
