"""Time a step of stock `trl.GRPOTrainer` next to ours on the same rows, and the memory of each.

    python scripts/benchmarks/step_speed.py --shape quickstart            # two processes, 5 rounds
    python scripts/benchmarks/step_speed.py --shape long --processes 1

The arms take turns, each run in a process of its own, so that peak memory is its own. A run makes
two steps; the second is timed. Completions have their full length in both arms. Shapes: the
quickstart's (a step of 32 completions of 28 tokens), and one prompt of 800 tokens with 8
completions of 64. Prints medians; seconds are of the slowest rank, memory is of all together.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

MODEL = "models/SmolLM2-135M-Instruct"
LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj", "down_proj"]}
# Completions of a step, of a micro batch, tokens of each, and words that a prompt is made of.
SHAPES = {"quickstart": (32, 8, 28, 0), "long": (8, 8, 64, 800)}
FIGURES = ("step", "generation", "update", "GiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="quickstart")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="float32", help="bfloat16, float32")
    parser.add_argument("--arm", choices=("stock", "ours"), help="make one run of this arm")
    options = parser.parse_args()
    if options.arm:
        return measure(options)
    found = {"stock": [], "ours": []}
    launch = f"accelerate_configs/{'cpu_2proc' if options.processes == 2 else 'cpu'}.yaml"
    words = [sys.executable, "-m", "accelerate.commands.launch", f"--config_file={launch}"]
    for _ in range(options.rounds):
        for arm, runs in found.items():
            done = subprocess.run(
                [*words, __file__, *sys.argv[1:], "--arm", arm], capture_output=True, text=True
            )
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            if done.returncode or not lines:
                sys.exit(f"{arm}: {done.stderr[-2000:]}")
            runs.append(json.loads(lines[-1]))
            print(arm, lines[-1], flush=True)
    for name in FIGURES:
        stock, ours = (statistics.median(run[name] for run in runs) for runs in found.values())
        print(f"{name:<12} stock {stock:7.2f}   ours {ours:7.2f}   stock / ours {stock / ours:.2f}")


def measure(options: argparse.Namespace) -> None:
    """Make one run and print its figures on the first rank."""
    import resource
    import tempfile

    import trl
    from accelerate.utils import gather_object
    from datasets import Dataset
    from peft import LoraConfig

    from recipes.common.trainer import GRPOConfig, GRPOTrainer
    from recipes.common.utils.machine import make_head_input_contiguous

    of_step, of_batch, tokens, words = SHAPES[options.shape]
    prompts = prompts_of(words)
    base, config = (
        (trl.GRPOTrainer, trl.GRPOConfig) if options.arm == "stock" else (GRPOTrainer, GRPOConfig)
    )
    spent = {"generation": 0.0}

    class Timed(base):
        def _generate_single_turn(self, *args, **kwargs):
            start = time.perf_counter()
            result = super()._generate_single_turn(*args, **kwargs)
            spent["generation"] = time.perf_counter() - start
            return result

        def training_step(self, *args, **kwargs):
            if self._step % self.args.gradient_accumulation_steps == 0:
                spent["start"] = time.perf_counter()
            result = super().training_step(*args, **kwargs)
            spent["step"] = time.perf_counter() - spent["start"]
            return result

    def varied(completions, **kwargs):
        return [float(i % 2) for i, _ in enumerate(completions)]

    with tempfile.TemporaryDirectory() as folder:
        args = config(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            max_steps=2,
            num_generations=8,
            per_device_train_batch_size=of_batch,
            gradient_accumulation_steps=of_step // of_batch // options.processes,
            max_completion_length=tokens,
            generation_kwargs={"min_new_tokens": tokens},
            model_init_kwargs={"dtype": options.dtype},
            **({"share_prompts": True} if options.arm == "ours" else {}),
        )
        rows = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
        trainer = Timed(
            MODEL, varied, args=args, train_dataset=rows, peft_config=LoraConfig(**LORA)
        )
        if options.arm == "ours":  # as `train_and_save` does
            make_head_input_contiguous(trainer.accelerator.unwrap_model(trainer.model))
        trainer.train()
    gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    ranks = gather_object([(spent["step"], spent["generation"], gib)])
    step, generation, _ = (max(of) for of in zip(*ranks, strict=True))
    figures = (step, generation, step - generation, sum(rank[2] for rank in ranks))
    if trainer.accelerator.is_main_process:
        print(json.dumps(dict(zip(FIGURES, figures, strict=True))), flush=True)


def prompts_of(words: int) -> list:
    """Sums of the quickstart, or one prompt of about so many tokens."""
    if words:
        return ["Sum: " + "one and " * (words // 2)] * 8
    from recipes.arithmetic.train import EXAMPLE

    turns = [{"role": "system", "content": ""}]
    turns += [
        {"role": role, "content": text}
        for role, text in zip(("user", "assistant"), EXAMPLE, strict=True)
    ]
    return [[*turns, {"role": "user", "content": f"{i + 10} + {i} ="}] for i in range(40)]


if __name__ == "__main__":
    main()
