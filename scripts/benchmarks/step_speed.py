"""Time a step of stock `trl.GRPOTrainer` next to ours on rows of the quickstart, and its memory.

    python scripts/benchmarks/step_speed.py               # two processes; stock in one as well
    python scripts/benchmarks/step_speed.py --shape long  # 8 completions of 64 for 800 tokens

The arms take turns, each in processes of its own, which make two steps of completions of full
length; the second is timed. Prints medians of the main process; takes any argument of a run.
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
LONG = ["--example", "Calculate 25 + 7.", "25 + 7 = 32 and " * 66, "--max_completion_length", "64"]
SHAPES = {"quickstart": [28, []], "long": [64, LONG]}  # tokens of a completion, settings
# Trainer, launch file, micro batches: a step has the same completions in every arm of a shape.
QUICKSTART = [("stock", "single_gpu", 4), ("stock", "cpu_2proc", 2), ("ours", "cpu_2proc", 2)]
ARMS = {"quickstart": QUICKSTART, "long": [("stock", "cpu", 1), ("ours", "cpu", 1)]}


def measure(which: str, shape: str, words: list[str]) -> None:
    """Train two steps as one of the processes; the main one prints the figures of the second."""
    import trl

    from recipes.common.data.recipe import import_recipe

    recipe, marks = import_recipe(CONFIG), {}

    class Timed(recipe.GRPOTrainer if which == "ours" else trl.GRPOTrainer):
        def _generate_single_turn(self, *args, **kwargs):
            marks["start"] = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            marks["generated"] = time.perf_counter()
            return result

    def train(trainer, run, metric):
        trainer.train()
        step, update = (time.perf_counter() - marks[name] for name in ("start", "generated"))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        if trainer.accelerator.is_main_process:
            print(json.dumps({"step": step, "update": update, "GiB": memory}), flush=True)

    recipe.GRPOTrainer, recipe.train_and_save = Timed, train
    tokens, more = SHAPES[shape]
    sys.argv = [f"{CONFIG.parent}/train.py", "--config", str(CONFIG), *SETTINGS, *more, *words]
    sys.argv += ["--generation_kwargs", json.dumps({"min_new_tokens": tokens})]
    with tempfile.TemporaryDirectory() as folder:
        sys.argv += ["--output_dir", f"{folder}/run"]
        recipe.main()


formatter = argparse.RawDescriptionHelpFormatter
parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
parser.add_argument("--shape", choices=SHAPES, default="quickstart")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--trainer", help=argparse.SUPPRESS)
options, words = parser.parse_known_args()
if options.trainer:
    sys.exit(measure(options.trainer, options.shape, words))
found = {arm: [] for arm in ARMS[options.shape]}
for arm in options.rounds * ARMS[options.shape]:
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    command += [f"--config_file=accelerate_configs/{arm[1]}.yaml", __file__, *sys.argv[1:]]
    command += ["--trainer", arm[0], f"--gradient_accumulation_steps={arm[2]}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found[arm] += [json.loads(line) for line in done.stdout.splitlines() if '"GiB"' in line]
    print(arm, found[arm][-1], flush=True)
for key in ("step", "update", "GiB"):
    medians = [statistics.median(run[key] for run in runs) for runs in found.values()]
    for arm, median in zip(found, medians, strict=True):
        print(f"{key:<7} {' '.join(arm[:2]):<17} {median:6.2f}  / ours {median / medians[-1]:.2f}")
