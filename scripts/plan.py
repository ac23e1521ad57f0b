"""Plan a run before GPUs are paid for: does the batch divide, does it fit, what is known to go wrong? No GPU needed.

    python scripts/plan.py --config recipes/gsm8k/qwen2.5-1.5b-full.yaml --launch accelerate_configs/zero2.yaml \\
        --num_processes 4 --gpu_memory_gib 80 --prompt_tokens 200

Prints prompts and completions of a step, the memory of each process by part (from the model's config.json alone),
warnings with their remedies, and the launch command. Any argument of the recipe can be overridden; no rows are
read. Exit status: 0 when it can work, 1 when it cannot (it does not divide, does not fit, or would run something
else), 2 for arguments that cannot be used.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from recipes.common.before.arguments import Arguments
    from recipes.common.before.launch import Launch
    from recipes.common.forecast.memory import Memory, RunSettings
    from recipes.common.forecast.sizes import ModelSizes

GIB = 2**30
PROMPT_TOKENS = 256


def plan(options: argparse.Namespace, overrides: list[str]) -> int:
    """Read everything, print the plan of one run and return the exit status."""
    from trl import ModelConfig

    from recipes.common.before.launch import read_launch
    from recipes.common.forecast.sizes import read_model

    args = read_arguments(options.config, overrides)
    launch = args.attempt(read_launch, options.launch, options.num_processes)
    model = args.attempt(lambda: read_model(ModelConfig(**args.model)))
    if args.problems:
        print("error: " + "\n".join(args.problems), file=sys.stderr)
        return 2
    return judge(options, overrides, args.training, model, launch)


def read_arguments(config: Path, overrides: list[str]) -> Arguments:
    """The recipe's arguments as it would read them itself."""
    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.recipe import import_recipe

    return parse_arguments(import_recipe(config).RecipeArguments, ["--config", str(config), *overrides])


def judge(
    options: argparse.Namespace, overrides: list[str], training: dict[str, Any], model: ModelSizes, launch: Launch
) -> int:
    """Print the plan of what was read and return the exit status."""
    from recipes.common.forecast import rules as plan_rules
    from recipes.common.forecast.memory import plan_memory, settings_of

    on_cpu = training["use_cpu"] or launch.use_cpu
    where = "the CPU" if on_cpu else "a GPU each"
    print(f"Plan of {options.config} with {options.launch}: {launch.engine}, world size {launch.processes}, on {where}")
    problems, found = plan_rules.batch_problems(training, launch), []
    if not problems:  # what does not divide has no memory
        run = settings_of(training, launch, options.prompt_tokens)
        memory = plan_memory(model, run, launch)
        print(batch_report(training, run, launch))
        print(memory_report(memory, model, run))
        if plan_rules.shares_gpu(training):
            share = training["vllm_gpu_memory_utilization"]
            print(f"    vLLM takes {share:.0%} of each GPU besides; --gpu_memory_gib says whether both fit")
        problems += plan_rules.model_problems(training, model, launch)
        problems += plan_rules.fit_problems(training, memory, options.gpu_memory_gib)
        found = plan_rules.warnings(training, model, run, launch)
    problems += plan_rules.launch_problems(launch, on_cpu)
    return conclude(problems, found, command(options, overrides, launch, on_cpu))


def batch_report(training: dict[str, Any], run: RunSettings, launch: Launch) -> str:
    """Prompts and completions of a generation and of an optimizer step."""
    group, accumulation = training["num_generations"], training["gradient_accumulation_steps"]
    generated = run.rows_generated * launch.processes
    learned = run.micro_batch * launch.processes * accumulation
    return (
        f"  A generation makes {generated} completions ({generated // group} prompts x {group}), "
        f"{run.rows_generated} on each process.\n"
        f"  An optimizer step learns from {learned} completions ({learned / group:g} prompts x {group}): "
        f"{launch.processes} processes x {accumulation} micro batches of {run.micro_batch}."
    )


def memory_report(memory: Memory, model: ModelSizes, run: RunSettings) -> str:
    """A line for each part that is not 0, and for each moment."""
    lines = [
        f"  Memory of one process in GiB: {model.parameters:,} parameters, {model.trainable:,} trained; prompts of "
        f"{run.prompt_tokens} tokens (--prompt_tokens), completions of {run.completion_tokens}"
    ]
    lines += [f"    {name:<22}{size / GIB:>9.2f}" for name, size in memory.parts.items() if size]
    lines += [
        f"    = {name:<20}{size / GIB:>9.2f}{'  <- the peak' if size == memory.peak else ''}"
        for name, size in memory.moments.items()
    ]
    return "\n".join(lines)


def command(options: argparse.Namespace, overrides: list[str], launch: Launch, on_cpu: bool) -> str:
    """The shell command that starts what was planned."""
    processes = [] if options.num_processes is None else ["--num_processes", str(options.num_processes)]
    words = ["accelerate", "launch", "--config_file", str(options.launch), *processes]
    words += [str(options.config.parent / "train.py"), "--config", str(options.config), *overrides]
    return ("DS_ACCELERATOR=cpu " if launch.zero and on_cpu else "") + shlex.join(words)


def conclude(problems: list[str], found: list[str], shell_command: str) -> int:
    """Print problems, warnings and the launch command; the exit status is 1 where there is a problem."""
    for title, texts in (("Problems", problems), ("Warnings", found)):
        if texts:
            print("\n".join([f"  {title}", *(f"    - {text}" for text in texts)]))
    print("  It cannot work as it is." if problems else f"  Launch\n    {shell_command}")
    return 1 if problems else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--launch", required=True, type=Path, help="a launch file of accelerate")
    parser.add_argument("--num_processes", type=int, help="all processes together; default that of the launch file")
    parser.add_argument("--gpu_memory_gib", type=float, help="memory of a GPU: does it fit?")
    parser.add_argument(
        "--prompt_tokens", type=int, default=PROMPT_TOKENS, help=f"of the longest prompt; default {PROMPT_TOKENS}"
    )
    options, overrides = parser.parse_known_args()
    for name in ("num_processes", "gpu_memory_gib", "prompt_tokens"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            parser.error(f"--{name} is {value}; it must be more than 0")
    raise SystemExit(plan(options, overrides))


if __name__ == "__main__":
    main()
