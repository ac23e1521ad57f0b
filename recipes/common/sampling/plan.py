"""The plan of a run: its batch, the memory of each process, problems, warnings, and the command that starts it."""

import shlex
from argparse import Namespace
from typing import Any

from trl import ModelConfig

from recipes.common.checks.launch import Launch, read_launch
from recipes.common.data.recipe import load_recipe
from recipes.common.sampling import rules
from recipes.common.sampling.memory import Memory, RunSettings, plan_memory, settings_of
from recipes.common.sampling.sizes import ModelSizes, read_model
from recipes.common.utils.power import expected_to_change, power_line, rows_needed


def plan(options: Namespace, overrides: list[str]) -> bool:
    """Print the plan of a run by the options of scripts/plan.py, and return whether it can work."""
    args = load_recipe(options.config, overrides, rows=False).args
    launch, model = (
        read_launch(options.launch, options.num_processes),
        read_model(ModelConfig(**args.model)),
    )
    on_cpu = args.training["use_cpu"] or launch.use_cpu
    where = f"world size {launch.processes}, on {'the CPU' if on_cpu else 'a GPU each'}"
    print(f"Plan of {options.config} with {options.launch}: {launch.engine}, {where}")
    problems, warnings = plan_sizes(
        args.training, model, launch, options.gpu_memory_gib, options.prompt_tokens
    )
    problems += rules.check_launch(launch, on_cpu)
    for title, texts in (("Problems", problems), ("Warnings", warnings)):
        if texts:
            print("\n".join([f"  {title}", *(f"    - {text}" for text in texts)]))
    expected = expected_to_change(str(options.config), args.model["model_name_or_path"])
    rows = args.recipe.num_eval_rows
    print(
        f"  {power_line(rows, *expected, options.power) if rows else 'No held-out rows: nothing will show a gain'}"
    )
    if options.effect:
        needed = f"{rows_needed(options.effect, expected[0], options.power)} held-out rows"
        print(f"    a change of {100 * options.effect:g} points takes {needed} (--num_eval_rows)")
    words = ["accelerate", "launch", "--config_file", str(options.launch)]
    words += (
        [] if options.num_processes is None else ["--num_processes", str(options.num_processes)]
    )
    words += [str(options.config.parent / "train.py"), "--config", str(options.config), *overrides]
    command = ("DS_ACCELERATOR=cpu " if launch.zero and on_cpu else "") + shlex.join(words)
    print("  It cannot work as it is." if problems else f"  Launch\n    {command}")
    return not problems


def plan_sizes(
    training: dict[str, Any],
    model: ModelSizes,
    launch: Launch,
    gib: float | None,
    prompt_tokens: int,
) -> tuple[list[str], list[str]]:
    """Print batch and memory, and return problems and warnings; a batch that does not divide has no memory."""
    problems = rules.check_sizes(training, launch.processes)
    if problems:
        return problems, []
    run = settings_of(training, launch, prompt_tokens)
    memory = plan_memory(model, run, launch)
    group, accumulation = training["num_generations"], training["gradient_accumulation_steps"]
    generated, learned = (
        rows * launch.processes for rows in (run.rows_generated, run.micro_batch * accumulation)
    )
    print(
        f"  A generation makes {generated} completions ({generated // group} prompts x {group}), "
        f"{run.rows_generated} on each process.\n"
        f"  An optimizer step learns from {learned} completions ({learned / group:g} prompts x {group}): "
        f"{launch.processes} processes x {accumulation} micro batches of {run.micro_batch}.\n"
        + memory_report(memory, model, run)
    )
    if rules.shares_gpu(training):
        share = training["vllm_gpu_memory_utilization"]
        print(
            f"    vLLM takes {share:.0%} of each GPU besides; --gpu_memory_gib says whether both fit"
        )
    problems = rules.check_model(training, model, launch) + rules.check_fit(training, memory, gib)
    return problems, rules.warnings(training, model, run, launch)


def memory_report(memory: Memory, model: ModelSizes, run: RunSettings) -> str:
    """A line for each part that is not 0, and for each moment."""
    lines = [
        f"  Memory of one process in GiB: {model.parameters:,} parameters, {model.trainable:,} trained; prompts of "
        f"{run.prompt_tokens} tokens (--prompt_tokens), completions of {run.completion_tokens}"
    ]
    lines += [
        f"    {name:<22}{size / rules.GIB:>9.2f}" for name, size in memory.parts.items() if size
    ]
    peaks = {name: "  <- the peak" for name, size in memory.moments.items() if size == memory.peak}
    lines += [
        f"    = {n:<20}{size / rules.GIB:>9.2f}{peaks.get(n, '')}"
        for n, size in memory.moments.items()
    ]
    return "\n".join(lines)
