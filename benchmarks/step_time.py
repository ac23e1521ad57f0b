"""Where a training step's time goes, on a GPU or a CPU, for any recipe YAML.

    python benchmarks/step_time.py --config recipes/gsm8k/smollm2-135m.yaml --steps 8 --output time.json
    python benchmarks/step_time.py --config recipes/gsm8k/smollm2-135m.yaml --per_device_train_batch_size 64

One training of the recipe, by one process, in four stretches: steps that are dropped (they warm up), steps without any
timer (they give step time, completions a second and GPU busy share), as many with timers (they give the parts), and
on a GPU steps under torch.profiler (they give the kernels). Other arguments go to the recipe. It trains on 500 rows
unless --num_train_rows says otherwise, and neither evaluates, saves, tracks nor pushes: that is not in the figures.

- A step is an optimizer step, from its first batch to the next one's. With steps_per_generation or num_iterations only
  some steps generate, and a median over steps would hide it. So each stretch is rounded up to whole generation cycles,
  parts are means over all its steps (they add up to the mean wall time), and the median is over cycles: seconds of a
  cycle divided by its steps. Where each step generates a cycle is a step.
- Each second counts in one part, the innermost: rewards are not in data though `_prepare_inputs` calls them. Parts:
  data (loading, and what is left of `_prepare_inputs`: padding, advantages), generation (`_generate`), rewards
  (`_calculate_rewards`), log-probabilities (of the old policy and the reference), forward (`compute_loss`), backward,
  optimizer (clipping, step, scheduler, zero_grad), callbacks and logging, and rest, which is whatever is left.
- On a GPU a timer waits for it at both ends, or a part would be charged with kernels that an earlier one started. That
  costs little beside steps of a second, and what it costs is printed: wall time with timers / without. The two come
  from different rows, one after the other: tokens a completion of both are printed beside it, and on a machine that is
  busy with other work it says nothing.
- GPU busy share: the mean of nvidia-smi's utilization every 200 ms, over the steps without timers. It says that some
  kernel ran, not that the GPU had enough to do.
- Kernel time: the seconds in which at least one kernel ran (overlapping ones count once; copies are none), by the wall
  time of the same steps. The profiler slows the launching of kernels down, so this share is rather low where launching
  is what limits; beside it stand the same seconds by the wall time of the steps without timers.
- Peak memory is the process's until the profiler starts, beside what `scripts/plan.py` plans for the longest prompt.

Several settings beside each other: benchmarks/step_variants.py.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu_time import NO_GPU, kernel_figures, read_kernels
from benchmarks.step_recorder import PARTS, Recorded, Recorder, Step

if TYPE_CHECKING:  # imported where they are used, so that --help answers at once
    from recipes.common.arguments import Arguments
    from recipes.common.preflight import Run
    from recipes.common.trainer import GRPOTrainer

FIXED = {"save_strategy": "no", "num_eval_rows": 0, "report_to": "none", "push_to_hub": False}
TAKEN = {*FIXED, "config", "max_steps", "output_dir"}
REMEDY = "how long and where it trains follows from --steps, and it neither evaluates, saves, tracks nor pushes."
GIB = 2**30
GPU_FIGURES = ("busy_share", "kernels", "peak_allocated_bytes", "peak_reserved_bytes")


def make_trainer(config: Path, overrides: list[str], folder: str) -> tuple[Arguments, Run, GRPOTrainer, Callable]:
    """The trainer that the recipe would make, with the arguments, the run and the recipe's metric.

    Raises:
        SystemExit: preflight found a problem.
    """
    from trl import get_peft_config, get_quantization_config

    from recipes.common.arguments import parse_arguments
    from recipes.common.preflight import preflight
    from recipes.common.recipe_file import load_recipe
    from recipes.common.trainer import GRPOTrainer
    from rewards import load_rewards, load_step_rewards

    recipe = load_recipe(config)
    words = recipe_words(config, [*overrides, *to_words({**FIXED, "output_dir": folder})])
    args = parse_arguments(recipe.RecipeArguments, words)
    asked = args.recipe
    train_rows, _ = args.attempt(recipe.load_rows, asked, args.training["seed"]) or (None, None)
    rewards = args.attempt(load_rewards, asked.reward_funcs, asked.reward_kwargs, asked.reward_tasks)
    step_named = asked.step_reward_funcs, asked.step_reward_kwargs, asked.step_reward_tasks
    step_rewards = args.attempt(load_step_rewards, *step_named)
    run = preflight(args, train_rows, None, rewards, recipe.reference_completion, step_rewards)
    trainer = GRPOTrainer(
        model=run.model.model_name_or_path,
        reward_funcs=rewards,
        step_reward_funcs=step_rewards,
        step_reward_weights=run.recipe.step_reward_weights,
        reward_gates=run.recipe.reward_gates,
        max_reward_error_rate=run.recipe.max_reward_error_rate,
        reward_timeout_s=run.recipe.reward_timeout_s,
        args=run.training,
        train_dataset=train_rows,
        peft_config=get_peft_config(run.model),
        quantization_config=get_quantization_config(run.model),
    )
    return args, run, trainer, recipe.metric


def to_words(values: dict[str, Any]) -> list[str]:
    """Arguments as a command line has them.

    Example: `to_words({"bf16": True, "example": ["q", "a"]}) == ["--bf16=true", "--example", "q", "a"]`
    """
    words = []
    for name, value in values.items():
        if isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        else:
            words.append(f"--{name}={value if isinstance(value, str) else json.dumps(value)}")
    return words


def recipe_words(config: Path, overrides: list[str]) -> list[str]:
    """The command line of the recipe."""
    return ["--config", str(config), "--num_train_rows", "500", *overrides]


def stretch_lengths(period: int, drop: int, steps: int, profile_steps: int) -> dict[str, int]:
    """Steps of each stretch, rounded up to whole generation cycles of `period` steps.

    Example: `stretch_lengths(4, 2, 6, 0)` is `{"dropped": 4, "untimed": 8, "timed": 8, "profiled": 0}`
    """
    asked = {"dropped": drop, "untimed": steps, "timed": steps, "profiled": profile_steps}
    return {stretch: -(-count // period) * period for stretch, count in asked.items()}


def measure(config: Path, overrides: list[str], drop: int, steps: int, profile_steps: int) -> dict[str, Any]:
    """Train, and return the figures as plain data: seconds, bytes, shares from 0 to 1; what was not run is None."""
    from recipes.common.batch_checks import generation_period
    from recipes.common.lifecycle import train_and_save

    with tempfile.TemporaryDirectory() as folder:
        args, run, trainer, metric = make_trainer(config, overrides, folder)
        training, on_gpu = run.training, trainer.accelerator.device.type == "cuda"
        period = generation_period(
            training.gradient_accumulation_steps, training.steps_per_generation, training.num_iterations
        )
        lengths = stretch_lengths(period, drop, steps, profile_steps if on_gpu else 0)
        training.max_steps = sum(lengths.values())
        recorder = Recorder(trainer, lengths, Path(folder, "trace.json"))
        with contextlib.closing(recorder.stretches), contextlib.suppress(Recorded):
            train_and_save(trainer, run, None, None, metric)
        return figures(config, overrides, period, recorder, args)


def figures(config: Path, overrides: list[str], period: int, recorder: Recorder, args: Arguments) -> dict[str, Any]:
    """Everything that is known of a training that was recorded."""
    from recipes.common.record import versions

    planned, reason = planned_peak(args, recorder.longest_prompt)
    gpu, reasons = gpu_figures(recorder)
    return {
        "config": str(config),
        "overrides": overrides,
        "steps": {"cycle": period, **recorder.lengths},
        **step_figures(recorder.steps, period),
        "gpu": gpu,
        "planned_peak_bytes": planned,
        "not_run": {**reasons, **({"planned_peak_bytes": reason} if reason else {})},
        "every_step": [dataclasses.asdict(step) for step in recorder.steps],
        **versions(),
    }


def step_figures(steps: list[Step], period: int) -> dict[str, Any]:
    """Seconds a step, by part and whole, and the rates of the steps without timers."""
    timed = [step for step in steps if step.stretch == "timed"]
    untimed = [step for step in steps if step.stretch == "untimed"]
    with_timers, without = median_of_cycles(timed, period), median_of_cycles(untimed, period)
    wall = sum(step.seconds for step in untimed)
    return {
        "seconds_a_step": {
            "parts": {part: statistics.mean(step.parts[part] for step in timed) for part in PARTS},
            "mean": statistics.mean(step.seconds for step in timed),
            "median": with_timers,
            "median_without_timers": without,
            "with_timers_by_without": with_timers / without,
        },
        "completions_a_second": sum(step.completions for step in untimed) / wall,
        "completion_tokens_a_second": sum(step.tokens for step in untimed) / wall,
        "tokens_a_completion": tokens_a_completion(untimed),
        "tokens_a_completion_with_timers": tokens_a_completion(timed),
    }


def median_of_cycles(steps: list[Step], period: int) -> float:
    """The median over generation cycles of `period` steps, of the seconds of a step."""
    cycles = [steps[i : i + period] for i in range(0, len(steps), period)]
    return statistics.median(sum(step.seconds for step in cycle) / period for cycle in cycles)


def tokens_a_completion(steps: list[Step]) -> float:
    """The mean, up to and with the end token."""
    return sum(step.tokens for step in steps) / sum(step.completions for step in steps)


def gpu_figures(recorder: Recorder) -> tuple[dict[str, Any], dict[str, str]]:
    """What only a GPU has, and of what has no value why."""
    if not recorder.on_gpu:
        return dict.fromkeys(GPU_FIGURES), dict.fromkeys(GPU_FIGURES, NO_GPU)
    values, reasons = {"busy_share": recorder.busy["share"], "kernels": None, **recorder.peak}, {}
    if values["busy_share"] is None:
        reasons["busy_share"] = recorder.busy["reason"]
    kernels = read_kernels(recorder.trace) if recorder.lengths["profiled"] else []
    if kernels:
        walls = {name: [s.seconds for s in recorder.steps if s.stretch == name] for name in ("profiled", "untimed")}
        profiled = walls["profiled"]
        values["kernels"] = kernel_figures(kernels, sum(profiled), statistics.mean(walls["untimed"]) * len(profiled))
    else:
        asked = recorder.lengths["profiled"]
        reasons["kernels"] = "the profiler recorded no kernel" if asked else "not run: --profile_steps is 0"
    return values, reasons


def planned_peak(args: Arguments, prompt_tokens: int) -> tuple[int | None, str | None]:
    """Bytes that one process is planned to need with prompts so long, or why it cannot be planned."""
    from trl import ModelConfig

    from recipes.common.plan_inputs import Launch, read_model
    from recipes.common.planning import plan_memory, settings_of

    launch = Launch("one process", 1, "NO")
    try:
        model = read_model(ModelConfig(**args.model))
    except ValueError as problem:
        return None, str(problem)
    return plan_memory(model, settings_of(args.training, launch, prompt_tokens), launch).peak, None


# Tables


def report(found: dict[str, Any]) -> str:
    """The table of one training."""
    seconds, steps, gpu = found["seconds_a_step"], found["steps"], found["gpu"]
    lines = [
        f"{' '.join([found['config'], *found['overrides']])} on {found['hardware']}",
        f"{steps['dropped']} steps dropped, {steps['untimed']} without timers, {steps['timed']} with, "
        f"{steps['profiled']} profiled; a generation every {steps['cycle']} of them",
        f"  {'part':<28}{'s a step':>9}{'share':>9}",
    ]
    lines += [f"  {part:<28}{s:>9.3f}{s / seconds['mean']:>9.1%}" for part, s in seconds["parts"].items()]
    lines += [
        f"  {'= wall, mean':<28}{seconds['mean']:>9.3f}",
        f"  {'wall, median of cycles':<28}{seconds['median']:>9.3f}",
        f"  {'the same without timers':<28}{seconds['median_without_timers']:>9.3f}   with / without "
        f"{seconds['with_timers_by_without']:.3f} (at {found['tokens_a_completion_with_timers']:.1f} and "
        f"{found['tokens_a_completion']:.1f} tokens a completion)",
        f"  {'completions a second':<28}{found['completions_a_second']:>9.2f}",
        f"  {'completion tokens a second':<28}{found['completion_tokens_a_second']:>9.1f}",
        f"  {'tokens a completion':<28}{found['tokens_a_completion']:>9.1f}",
        f"  {'peak memory, GiB':<28}{in_gib(gpu['peak_allocated_bytes'])} allocated, "
        f"{in_gib(gpu['peak_reserved_bytes']).strip()} reserved on the GPU, "
        f"{in_gib(found['planned_peak_bytes']).strip()} planned",
        f"  {'GPU busy share':<28}{percent(gpu['busy_share'])}",
        *kernel_lines(gpu["kernels"]),
        *(f"  {name}: {reason}" for name, reason in found["not_run"].items()),
    ]
    return "\n".join(lines)


def kernel_lines(kernels: dict[str, Any] | None) -> list[str]:
    """Share of the wall time, and a line for each of the kernels that take most."""
    if kernels is None:
        return [f"  {'kernel time / wall time':<28}{'-':>9}"]
    beside = f"   ({kernels['share_of_untimed']:.1%} of the wall time without profiler and timers)"
    lines = [f"  {'kernel time / wall time':<28}{percent(kernels['share'])}{beside}"]
    return lines + [f"    {k['seconds']:>8.3f} s {k['calls']:>8} x  {k['name'][:90]}" for k in kernels["top"]]


def in_gib(size: int | None) -> str:
    """`in_gib(3 * 2**29) == "     1.50"`"""
    return f"{'-' if size is None else f'{size / GIB:.2f}':>9}"


def percent(share: float | None) -> str:
    """`percent(0.5) == "    50.0%"`"""
    return f"{'-' if share is None else f'{share:.1%}':>9}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--output", type=Path, help="also write the figures as JSON")
    add_lengths(parser)
    options, overrides = parser.parse_known_args()
    check_lengths(parser, options)
    run(options, overrides)


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """The options that say how long to measure."""
    parser.add_argument("--steps", type=int, default=8, help="steps without timers, and as many with; default 8")
    parser.add_argument("--drop", type=int, default=2, help="steps that warm up; default 2")
    parser.add_argument("--profile_steps", type=int, default=1, help="steps under the profiler, on a GPU; default 1")


def check_lengths(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse lengths that measure nothing."""
    for name, least in (("steps", 1), ("drop", 0), ("profile_steps", 0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} is {getattr(options, name)}; it must be at least {least}")


def run(options: argparse.Namespace, overrides: list[str]) -> None:
    """Measure and print.

    Raises:
        SystemExit: arguments that cannot be used, or more than one process.
    """
    from recipes.common.files import write_json
    from recipes.common.repeats import check_given

    check_given(overrides, TAKEN, REMEDY)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise SystemExit("error: this measures one process; start it with python, not with accelerate launch.")
    found = measure(options.config, overrides, options.drop, options.steps, options.profile_steps)
    if options.output:
        write_json(options.output, found)
    print("\n" + report(found))


if __name__ == "__main__":
    main()
