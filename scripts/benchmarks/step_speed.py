"""Time a step of stock `trl.GRPOTrainer` next to ours on rows of the quickstart, and its memory.

    python scripts/benchmarks/step_speed.py               # two processes; stock in one as well
    python scripts/benchmarks/step_speed.py --shape long  # 8 completions of 64 for 800 tokens
    python scripts/benchmarks/step_speed.py --shape gsm8k --model_name_or_path FOLDER --max_steps 1

The arms take turns in separate processes. Each makes two steps with completions of full length; the
last step is timed. Prints medians of the main process; takes any argument of a run.
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
from typing import Any

CONFIG = Path("recipes/arithmetic/quickstart.yaml")
SETTINGS = """--max_steps 2 --skip_zero_advantages false --log_completions false --num_eval_rows 0
    --eval_strategy no --save_strategy no""".split()
EXAMPLE = ["--example", "Calculate 25 + 7."]
LONG = [*EXAMPLE, "25 + 7 = 32 and " * 66, "--max_completion_length", "64"]
# 16 completions of 120 tokens for two prompts of 230, as with GSM8K and a worked example.
GSM8K = [*EXAMPLE, "25 + 7 = 32 and " * 16, "--max_completion_length", "120"]
# Of a shape: tokens of a completion, settings.
SHAPES = {"quickstart": (28, []), "long": (64, LONG), "gsm8k": (120, GSM8K)}
ARMS = {  # trainer, launch file, micro batches: a step of a shape has the same completions in all
    "quickstart": [("stock", "single_gpu", 4), ("stock", "cpu_2proc", 2), ("ours", "cpu_2proc", 2)],
    "long": [("stock", "cpu", 1), ("ours", "cpu", 1)],
    "gsm8k": [("stock", "cpu", 2), ("ours", "cpu", 2)],
}


def measure(trainer_name: str, shape: str, words: list[str]) -> None:
    """Train two steps in this process; the main process prints the figures of the second step.

    They are seconds of the step and of its update, and the peak memory. For this the recipe's
    trainer is replaced by one that notes the time, and `train_and_save` by `train`.
    """
    import trl

    from recipes.common.data.recipe import import_recipe

    recipe, times = import_recipe(CONFIG), {}

    class Timed(recipe.GRPOTrainer if trainer_name == "ours" else trl.GRPOTrainer):
        def _generate_single_turn(self, *args, **kwargs):
            """Generate the completions of a step."""
            times["start"] = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            times["generated"] = time.perf_counter()
            return result

    def train(trainer: Any, run: Any, metric: Any) -> None:
        """Train, in place of `train_and_save`; `times` are those of the last step."""
        trainer.train()
        end = time.perf_counter()
        figures = {"step": end - times["start"], "update": end - times["generated"]}
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


def compare(shape: str, rounds: int) -> None:
    """Launch each arm of a shape in turn, and print the medians."""
    figures = {arm: [] for arm in ARMS[shape]}
    for arm in rounds * ARMS[shape]:
        trainer_name, launch_file, micro_batches = arm
        command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
        command += [f"--config_file=accelerate_configs/{launch_file}.yaml", __file__]
        command += [*sys.argv[1:], "--trainer", trainer_name]
        command += [f"--gradient_accumulation_steps={micro_batches}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures[arm] += [json.loads(line) for line in done.stdout.splitlines() if '"GiB"' in line]
        print(arm, figures[arm][-1], flush=True)
    for key in ("step", "update", "GiB"):
        medians = {arm: statistics.median(run[key] for run in figures[arm]) for arm in figures}
        for arm, median in medians.items():
            ratio = median / medians[ARMS[shape][-1]]  # the last arm is our trainer
            print(f"{key:<7} {arm[0]} {arm[1]:<11} {median:6.2f}  / ours {ratio:.2f}")


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trainer", help=argparse.SUPPRESS)  # of a process that it launches
    options, words = parser.parse_known_args()
    if options.trainer:
        measure(options.trainer, options.shape, words)
    else:
        compare(options.shape, options.rounds)


if __name__ == "__main__":
    main()
