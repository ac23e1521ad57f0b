"""Plan a run before GPUs are rented: does the batch divide, does it fit, what is known to go wrong? No GPU needed.

    python scripts/plan.py --config recipes/gsm8k/qwen2.5-1.5b-full.yaml --launch accelerate_configs/zero2.yaml \\
        --num_processes 4 --gpu_memory_gib 80 --prompt_tokens 200

Prints prompts and completions of a step, the memory of each process by part (from the model's config.json alone),
warnings with their remedies, the smallest change that the held-out rows show (and by `--effect 0.05 --power 0.8` how
many rows show 5 points), and the launch command. Any argument of the recipe can be overridden; no rows are read. Exit
status: 0 when it can work, 1 when it cannot (it does not divide, does not fit, or would run something
else), 2 for arguments that cannot be used.
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=formatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--launch", required=True, type=Path, help="a launch file of accelerate")
    parser.add_argument(
        "--num_processes", type=int, help="all processes together; default that of the launch file"
    )
    parser.add_argument("--gpu_memory_gib", type=float, help="memory of a GPU: does it fit?")
    parser.add_argument(
        "--prompt_tokens", type=int, default=256, help="of the longest prompt; default 256"
    )
    parser.add_argument(
        "--effect", type=float, help="how many held-out rows show this change? 0.05: 5 points"
    )
    parser.add_argument(
        "--power", type=float, default=0.8, help="with what chance they are to show it; default 0.8"
    )
    options, overrides = parser.parse_known_args()
    for name in ("effect", "power"):
        value = getattr(options, name)
        if value is not None and not 0 < value < 1:
            parser.error(f"--{name} is {value}; it must be between 0 and 1")
    for name in ("num_processes", "gpu_memory_gib", "prompt_tokens"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} is {value}; it must be more than 0")
    from recipes.common.sampling.plan import plan

    try:
        raise SystemExit(0 if plan(options, overrides) else 1)
    except ValueError as problem:  # a message for the user
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2) from problem


if __name__ == "__main__":
    main()
