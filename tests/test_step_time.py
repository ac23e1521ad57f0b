"""Where a step's time goes: every second in one part, generation cycles whole, and variants that fail alone."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from dense_reward import letter_share
from launching import DENSE_REWARD, ROOT, TINY
from tiny_model import build_tiny_model

from benchmarks import gpu_time, step_recorder, step_time, step_variants
from benchmarks.step_recorder import PARTS, Stopwatch
from benchmarks.step_time import measure
from recipes.common import preflight
from recipes.common.arguments import parse_arguments
from recipes.common.batch_checks import check_batch
from recipes.common.recipe_file import load_recipe

QUICKSTART = ROOT / "recipes/arithmetic/quickstart.yaml"
SHIPPED = ROOT / "benchmarks/step_variants.yaml"
GPU_RUN = ROOT / "recipes/gsm8k/smollm2-135m-gpu.yaml"
OFF = ["busy_share", "kernels", "peak_allocated_bytes", "peak_reserved_bytes"]


class Clock:
    """Stands still unless it is told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


def takes_50_ms(prompts, completions, **kwargs) -> list[float]:
    """A reward during which the clock of the tests goes on."""
    CLOCK.now += 0.05
    return letter_share(prompts, completions, **kwargs)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    CLOCK.now = 0.0
    monkeypatch.setattr(step_recorder, "perf_counter", CLOCK)
    return CLOCK


def overrides(model: Path, **values) -> list[str]:
    """What makes the quickstart tiny, as words."""
    tiny = {name: value for name, value in TINY.items() if name not in ("num_eval_rows", "save_steps")}
    reward = {"reward_funcs": [DENSE_REWARD], "num_train_rows": 40, "bf16": False, "max_completion_length": 4}
    return step_time.to_words({**tiny, "model_name_or_path": str(model), **reward, **values})


@pytest.fixture(scope="module", autouse=True)
def few_threads(one_thread: None) -> Iterator[None]:
    """Preflight would take all cores, for a model that has no use for them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(preflight, "use_all_cores", lambda training: None)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def found(model: Path) -> dict:
    """Figures of a run that generates in every second step."""
    return measure(QUICKSTART, overrides(model, steps_per_generation=2), drop=1, steps=3, profile_steps=2)


def steps_of(found: dict, stretch: str) -> list[dict]:
    return [step for step in found["every_step"] if step["stretch"] == stretch]


# Parts


def test_each_second_counts_in_the_innermost_part_alone(clock):
    watch = Stopwatch(lambda: None)
    clock.now += 1
    with watch.part("data"):
        clock.now += 2
        with watch.part("generation"):
            clock.now += 4
        clock.now += 8
        with watch.part("rewards"):
            clock.now += 16
    clock.now += 32
    watch.charge()
    expected = {"rest": 33, "data": 10, "generation": 4, "rewards": 16}
    assert watch.seconds == {**dict.fromkeys(PARTS, 0.0), **expected}


def test_log_probabilities_inside_the_loss_are_its_forward_pass(clock):
    watch = Stopwatch(lambda: None)
    with watch.part("log-probabilities"):
        clock.now += 1
    with watch.part("forward"), watch.part("log-probabilities"):
        clock.now += 2
    assert (watch.seconds["log-probabilities"], watch.seconds["forward"]) == (1, 2)


def test_a_part_that_raises_is_over(clock):
    watch = Stopwatch(lambda: None)
    with pytest.raises(ValueError, match="no"), watch.part("rewards"):
        clock.now += 1
        raise ValueError("no")
    clock.now += 2
    watch.charge()
    assert (watch.seconds["rewards"], watch.seconds["rest"]) == (1, 2)


def test_what_is_charged_after_a_step_is_none_of_its_seconds(clock):
    watch = Stopwatch(lambda: None)
    with watch.part("callbacks and logging"):
        clock.now += 1
        taken = watch.take()
        clock.now += 2
    assert (sum(taken.values()), taken["callbacks and logging"]) == (1, 1)
    assert watch.seconds["callbacks and logging"] == 2


def test_the_gpu_is_waited_for_at_both_ends_of_a_part():
    waits = []
    with Stopwatch(lambda: waits.append("start or end")).part("forward"):
        waits.append("work")
    assert waits == ["start or end", "work", "start or end"]


@pytest.mark.slow
def test_the_parts_of_a_step_add_up_to_its_wall_time(found):
    timed = steps_of(found, "timed")
    assert len(timed) == 4
    for step in timed:
        assert sum(step["parts"].values()) == pytest.approx(step["seconds"], abs=1e-3)
        assert list(step["parts"]) == list(PARTS)


@pytest.mark.slow
def test_the_printed_parts_add_up_to_the_mean_wall_time(found):
    seconds = found["seconds_a_step"]
    assert sum(seconds["parts"].values()) == pytest.approx(seconds["mean"], abs=1e-3)
    assert all(seconds["parts"][part] > 0 for part in PARTS)


@pytest.mark.slow
def test_every_part_is_taken_from_the_methods_that_do_it(found):
    generating, other = steps_of(found, "timed")[:2]
    for part in ("data", "forward", "backward", "optimizer", "callbacks and logging"):
        assert generating["parts"][part] > 0 and other["parts"][part] > 0
    assert generating["parts"]["rewards"] > 0 and generating["parts"]["log-probabilities"] > 0
    assert other["parts"]["rewards"] == other["parts"]["log-probabilities"] == 0.0


@pytest.mark.slow
def test_what_a_reward_takes_is_in_rewards_and_nowhere_else(model, clock):
    words = overrides(model, reward_funcs=["test_step_time:takes_50_ms"])
    found = measure(QUICKSTART, words, drop=1, steps=2, profile_steps=0)
    expected = {**dict.fromkeys(PARTS, 0.0), "rewards": 0.05}
    assert found["seconds_a_step"]["parts"] == pytest.approx(expected, abs=1e-9)
    assert found["seconds_a_step"]["median_without_timers"] == pytest.approx(0.05)
    assert found["completions_a_second"] == pytest.approx(8 / 0.05)


# Stretches and cycles


@pytest.mark.slow
def test_generation_happens_once_in_a_cycle(found):
    assert found["steps"] == {"cycle": 2, "dropped": 2, "untimed": 4, "timed": 4, "profiled": 0}
    assert [step["parts"]["generation"] > 0 for step in steps_of(found, "timed")] == [True, False, True, False]
    assert [step["completions"] for step in found["every_step"]] == [16, 0] * 5


@pytest.mark.slow
def test_steps_without_timers_have_no_parts(found):
    stretches = [step["stretch"] for step in found["every_step"]]
    assert stretches == ["dropped"] * 2 + ["untimed"] * 4 + ["timed"] * 4
    assert [step["parts"] is None for step in found["every_step"]] == [True] * 6 + [False] * 4


@pytest.mark.slow
def test_rates_are_of_the_steps_without_timers(found):
    untimed = steps_of(found, "untimed")
    wall = sum(step["seconds"] for step in untimed)
    assert found["completions_a_second"] == pytest.approx(32 / wall)
    assert found["completion_tokens_a_second"] == pytest.approx(sum(step["tokens"] for step in untimed) / wall)
    assert 1 <= found["tokens_a_completion"] <= 4


def test_stretches_are_rounded_up_to_whole_cycles():
    lengths = step_time.stretch_lengths(period=4, drop=2, steps=8, profile_steps=1)
    assert lengths == {"dropped": 4, "untimed": 8, "timed": 8, "profiled": 4}
    assert step_time.stretch_lengths(1, 2, 3, 0) == {"dropped": 2, "untimed": 3, "timed": 3, "profiled": 0}


def test_the_median_is_over_cycles_and_hides_no_generation():
    seconds = [9.0, 1.0, 7.0, 1.0, 99.0, 1.0]
    steps = [step_recorder.Step("timed", s, 0, 0, None) for s in seconds]
    assert step_time.median_of_cycles(steps, 2) == 5.0
    assert step_time.median_of_cycles(steps[:3], 1) == 7.0


# GPU


def test_kernels_that_overlap_count_once():
    assert gpu_time.covered([(0, 2), (1, 3), (5, 6)]) == 4
    assert gpu_time.covered([(4, 5), (0, 10), (2, 3)]) == 10  # inside another, and out of order
    assert gpu_time.covered([(0, 1), (1, 2)]) == 2
    assert gpu_time.covered([]) == 0


def test_kernel_time_is_read_from_the_kernels_of_a_trace_alone(tmp_path):
    kernel = {"cat": "kernel", "ph": "X"}
    events = [
        {**kernel, "name": "multiply", "ts": 1_000_000, "dur": 2_000_000},
        {**kernel, "name": "multiply", "ts": 2_000_000, "dur": 2_000_000},  # on another stream
        {**kernel, "name": "add", "ts": 6_000_000, "dur": 1_000_000},
        {"cat": "gpu_memcpy", "name": "copy", "ts": 7_000_000, "dur": 1_000_000},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 9_000_000},
        {"name": "process_name", "ph": "M"},
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    figures = gpu_time.kernel_figures(gpu_time.read_kernels(tmp_path / "trace.json"), wall=8.0, untimed_wall=5.0)
    assert figures == {
        "seconds": 4.0,
        "share": 0.5,
        "share_of_untimed": 0.8,
        "top": [{"name": "multiply", "seconds": 4.0, "calls": 2}, {"name": "add", "seconds": 1.0, "calls": 1}],
    }


def test_the_ten_kernels_that_take_most_are_named():
    kernels = [(f"k{i}", 0.0, float(i)) for i in range(12)]
    top = gpu_time.kernel_figures(kernels, 12.0, 12.0)["top"]
    assert [kernel["name"] for kernel in top] == [f"k{i}" for i in range(11, 1, -1)]


def busy_by(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> dict:
    """What is found where `nvidia-smi` is a shell script."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho $* > {folder}/asked\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    with gpu_time.gpu_busy("GPU-1") as found:
        time.sleep(1.0)
    return found


def test_the_busy_share_is_the_mean_of_what_nvidia_smi_samples(tmp_path, monkeypatch):
    found = busy_by(tmp_path, monkeypatch, "echo 40; echo 80; exec sleep 60")
    assert found == {"share": 0.6, "samples": 2, "reason": None}
    assert "--id=GPU-1 --query-gpu=utilization.gpu" in (tmp_path / "asked").read_text()


def test_a_gpu_that_does_not_say_has_no_busy_share_but_a_reason(tmp_path, monkeypatch):
    found = busy_by(tmp_path, monkeypatch, "echo [N/A]; exec sleep 60")
    assert found == {"share": None, "samples": 0, "reason": "nvidia-smi gave no sample but ['[N/A]']"}


def test_without_nvidia_smi_the_reason_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with gpu_time.gpu_busy("GPU-1") as found:
        pass
    assert found["share"] is None and "nvidia-smi cannot be run" in found["reason"]


@pytest.mark.slow
def test_on_a_cpu_what_only_a_gpu_has_is_null_and_said_to_be_not_run(found):
    assert found["gpu"] == dict.fromkeys(OFF)
    assert found["not_run"] == dict.fromkeys(OFF, "not run: no GPU")
    assert found["planned_peak_bytes"] > 0
    printed = step_time.report(found)
    assert all(f"{name}: not run: no GPU" in printed for name in OFF)
    assert "2 steps dropped, 4 without timers, 4 with, 0 profiled; a generation every 2 of them" in printed


def trainer_on_a_gpu() -> SimpleNamespace:
    """As much of a trainer as a recorder needs; each batch takes a second to load."""

    def get_batch_samples():
        CLOCK.now += 1.0

    def generate(prompts):
        return [[1, 2]] * len(prompts), [[3, 4, 5]] * len(prompts)

    names = [name for _, name, _ in step_recorder.places(MagicMock())]
    trainer = SimpleNamespace(**{name: lambda: None for name in names})
    trainer.get_batch_samples, trainer._generate, trainer.add_callback = get_batch_samples, generate, lambda end: None
    for owner in ("optimizer", "lr_scheduler", "model_wrapped", "callback_handler"):
        setattr(trainer, owner, SimpleNamespace(step=int, zero_grad=int, call_event=int))
    trainer.accelerator = SimpleNamespace(device=SimpleNamespace(type="cuda"), backward=int)
    return trainer


@pytest.fixture
def on_a_gpu(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> step_recorder.Recorder:
    """A recorder that has been through all stretches, a step each, of a GPU that the CPU plays."""
    torch_cuda = {"synchronize": lambda: None, "get_device_properties": lambda gpu: SimpleNamespace(uuid="7")}
    torch_cuda |= {"max_memory_allocated": lambda: 5 * 2**30, "max_memory_reserved": lambda: 6 * 2**30}
    for name, function in torch_cuda.items():
        monkeypatch.setattr(torch.cuda, name, function)

    @contextlib.contextmanager
    def half_of_the_step(trace):
        yield
        kernel = {"cat": "kernel", "name": "multiply", "ts": 0, "dur": 500_000}
        trace.write_text(json.dumps({"traceEvents": [kernel]}))

    @contextlib.contextmanager
    def busy(gpu):
        yield {"share": 0.25, "samples": 5, "reason": None, "gpu": gpu}

    monkeypatch.setattr(step_recorder, "kernels_traced", half_of_the_step)
    monkeypatch.setattr(step_recorder, "gpu_busy", busy)
    trainer, lengths = trainer_on_a_gpu(), {"dropped": 1, "untimed": 1, "timed": 1, "profiled": 1}
    recorder = step_recorder.Recorder(trainer, lengths, tmp_path / "trace.json")
    for _ in range(4):
        trainer.get_batch_samples()
        trainer._generate(["a", "b"])
    recorder.cut()
    return recorder


def test_a_gpu_has_its_busy_share_kernel_time_and_peak_memory(on_a_gpu):
    values, reasons = step_time.gpu_figures(on_a_gpu)
    assert [step.stretch for step in on_a_gpu.steps] == ["dropped", "untimed", "timed", "profiled"]
    assert on_a_gpu.busy["gpu"] == "GPU-7" and reasons == {}
    assert (values["busy_share"], values["peak_allocated_bytes"], values["peak_reserved_bytes"]) == (
        0.25,
        5 * 2**30,
        6 * 2**30,
    )
    assert (values["kernels"]["share"], values["kernels"]["share_of_untimed"]) == (0.5, 0.5)


def test_a_trace_without_kernels_is_no_kernel_time_but_a_reason(on_a_gpu):
    on_a_gpu.trace.write_text('{"traceEvents": []}')
    values, reasons = step_time.gpu_figures(on_a_gpu)
    assert values["kernels"] is None and reasons == {"kernels": "the profiler recorded no kernel"}


def test_figures_of_a_gpu_are_printed(on_a_gpu):
    gpu, reasons = step_time.gpu_figures(on_a_gpu)
    known = {"config": "a.yaml", "overrides": [], "hardware": "1 x GPU", "steps": {"cycle": 1, **on_a_gpu.lengths}}
    known |= {"gpu": gpu, "planned_peak_bytes": None, "not_run": {**reasons, "planned_peak_bytes": "eager"}}
    printed = step_time.report({**known, **step_time.step_figures(on_a_gpu.steps, 1)})
    assert "5.00 allocated, 6.00 reserved on the GPU, - planned" in printed and "planned_peak_bytes: eager" in printed
    assert "25.0%" in printed and "0.500 s        1 x  multiply" in printed


def test_the_loading_of_batches_is_data_and_a_trainer_gets_its_methods_back(on_a_gpu):
    timed = on_a_gpu.steps[2]
    assert timed.parts == {**dict.fromkeys(PARTS, 0.0), "data": 1.0}
    assert (timed.completions, timed.tokens, on_a_gpu.longest_prompt) == (2, 6, 2)
    assert on_a_gpu.trainer.optimizer.step is int and on_a_gpu.trainer.accelerator.backward is int


# Variants


def options_for(folder: Path, variants: dict, **values) -> argparse.Namespace:
    """The options of a command that measures `variants`."""
    (folder / "variants.yaml").write_text(json.dumps(variants))
    given = {"config": QUICKSTART, "variants": folder / "variants.yaml", "only": None, "output": None}
    return argparse.Namespace(**{**given, "drop": 0, "steps": 1, "profile_steps": 0, "time_limit_s": 300.0, **values})


@pytest.mark.slow
def test_a_variant_that_fails_says_why_and_the_others_still_run(model, tmp_path):
    variants = {
        "no_such_model": {"model_name_or_path": "./nowhere"},
        "late": {"time_limit_s": 0.5},
        "as_shipped": {},
    }
    options = options_for(tmp_path, variants, output=tmp_path / "time.json")
    rows = step_variants.run_variants(options, overrides(model))
    assert [row["variant"] for row in rows] == ["no_such_model", "late", "as_shipped"]
    assert rows[0]["failed"] == "- model_name_or_path './nowhere' is no folder."
    assert rows[1]["failed"] == "took more than 0.5 s"
    assert rows[2]["failed"] is None and rows[2]["figures"]["completions_a_second"] > 0
    assert json.loads((tmp_path / "time.json").read_text()) == rows


def row(variant: str, rate: float | None) -> dict:
    """A row of a variant that made `rate` completions a second, or failed."""
    gpu = {"busy_share": 0.75, "kernels": {"share": 0.5}, "peak_allocated_bytes": 3 * 2**29}
    figures = {"seconds_a_step": {"median_without_timers": 2.0}, "completions_a_second": rate}
    figures |= {"tokens_a_completion": 30.0, "gpu": gpu}
    failed = "ImportError: no flash_attn" if rate is None else None
    return {"variant": variant, "figures": None if failed else figures, "failed": failed}


def test_the_table_of_variants_has_a_row_each_and_the_ratio_to_the_first_that_ran():
    lines = step_variants.variants_table([row("flash", None), row("shipped", 8.0), row("batch", 20.0)]).splitlines()
    assert lines[1].split(maxsplit=1) == ["flash", "failed: ImportError: no flash_attn"]
    assert lines[2].split() == ["shipped", "2.000", "8.00", "30.0", "50.0%", "75.0%", "1.50", "1.00"]
    assert lines[3].split() == ["batch", "2.000", "20.00", "30.0", "50.0%", "75.0%", "1.50", "2.50"]
    assert len(lines) == 4


def test_an_unknown_argument_of_a_variant_is_named_before_anything_runs(model, tmp_path, monkeypatch):
    monkeypatch.setattr(step_variants, "run_variant", lambda *args: pytest.fail("a variant was run"))
    options = options_for(tmp_path, {"shipped": {}, "typo": {"attn_implementatio": "sdpa"}})
    with pytest.raises(SystemExit) as stopped:
        step_variants.run_variants(options, overrides(model))
    said = "typo: unknown argument '--attn_implementatio=sdpa' in the command line; did you mean 'attn_implementation'?"
    assert said in str(stopped.value) and "shipped" not in str(stopped.value)


GIVEN_WRONGLY = [("max_steps", 3, "cannot be given"), ("seed", None, "has no value"), ("seed", "x", "cannot be read")]


@pytest.mark.parametrize("name, value, said", [*GIVEN_WRONGLY, ("time_limit_s", 0, "must be more than 0")])
def test_a_variant_cannot_give_what_the_benchmark_sets_or_no_recipe_takes(model, tmp_path, name, value, said):
    options = options_for(tmp_path, {"right": {}, "wrong": {name: value}})
    with pytest.raises(SystemExit, match=f"wrong: .*{said}") as stopped:
        step_variants.run_variants(options, overrides(model))
    assert "right:" not in str(stopped.value)


@pytest.mark.parametrize("text", ["", "- a", "shipped:", "shipped: sdpa", "a/b: {}", "{"])
def test_a_file_that_holds_no_variants_is_refused(tmp_path, text):
    (tmp_path / "variants.yaml").write_text(text)
    with pytest.raises(SystemExit, match=r"error: .*variants\.yaml"):
        step_variants.read_variants(tmp_path / "variants.yaml", None)


def test_only_the_variants_that_are_asked_for_run(tmp_path):
    (tmp_path / "variants.yaml").write_text("a: {}\nb: {seed: 1}\nc: {}\n")
    assert step_variants.read_variants(tmp_path / "variants.yaml", ["c", "b"]) == {"b": {"seed": 1}, "c": {}}
    with pytest.raises(SystemExit, match=r"--only d: .* has a, b, c\."):
        step_variants.read_variants(tmp_path / "variants.yaml", ["d"])


def test_arguments_become_the_words_of_a_command_line():
    values = {"bf16": True, "beta": 0.0, "dtype": "float32", "reward_funcs": ["a", "b"], "model_init_kwargs": {"x": 1}}
    words = ["--bf16=true", "--beta=0.0", "--dtype=float32", "--reward_funcs", "a", "b", '--model_init_kwargs={"x": 1}']
    assert step_time.to_words(values) == words


def test_the_last_error_of_a_log_is_its_exception():
    log = "Traceback (most recent call last):\ntorch.OutOfMemoryError: no room\n[W1] a warning at exit\n"
    assert step_variants.last_error(log) == "torch.OutOfMemoryError: no room"
    assert step_variants.last_error("1 problem:\n  - it does not divide\n\n") == "- it does not divide"
    assert step_variants.last_error("\n") == "it printed nothing"


def test_what_ran_too_long_leaves_nothing_running(tmp_path):
    started = time.monotonic()
    assert not step_variants.run_within(["sh", "-c", "sleep 60 & echo $!; wait"], 0.5, tmp_path / "log")
    assert time.monotonic() - started < 10
    child, until = Path("/proc", (tmp_path / "log").read_text().strip(), "stat"), time.monotonic() + 5
    while is_running(child) and time.monotonic() < until:  # SIGKILL may take a moment
        time.sleep(0.05)
    assert not is_running(child)


def is_running(stat: Path) -> bool:
    """Whether the process of /proc/PID/stat is more than a zombie."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_shipped_variants_are_arguments_of_the_recipe():
    variants = step_variants.read_variants(SHIPPED, None)
    assert next(iter(variants)) == "shipped" and variants["shipped"] == {}
    step_variants.check_variants(GPU_RUN, [], variants, SHIPPED)


@pytest.mark.parametrize("name", step_variants.read_variants(SHIPPED, None))
def test_the_batch_of_a_shipped_variant_divides(name):
    values = step_variants.arguments_of(step_variants.read_variants(SHIPPED, None)[name])
    words = step_time.recipe_words(GPU_RUN, step_time.to_words({**step_time.FIXED, **values}))
    problems = []
    check_batch(parse_arguments(load_recipe(GPU_RUN).RecipeArguments, words).training, 1, None, problems)
    assert problems == []


# Command line


def test_help_does_not_wait_for_torch():
    code = "import sys, benchmarks.step_time; print({'torch', 'trl'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "set()\n"


def test_more_than_one_process_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SystemExit, match="start it with python"):
        step_time.run(argparse.Namespace(), [])
