"""What `scripts/gpu_check.py` launches on a box, and what each of the launches has to show.

What is demanded was fixed before the first run on a GPU: the engine in force is the one of the launch file; gradient
norms are finite and not all 0; and in float32 the first step of every engine samples the completions of the reference's
first step, with its gradient norm to 1 %. Later steps may part, since GPU kernels need not add up in the same order:
how many agree is told. The reference is one process, or DDP where there are several.
"""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from recipes.common.record import versions

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "recipes/arithmetic/quickstart.yaml"
ENGINES = {  # launch file: what must be in force
    "single_gpu": {"distributed_type": "NO"},
    "ddp": {"distributed_type": "MULTI_GPU"},
    "zero2": {"distributed_type": "DEEPSPEED", "zero_stage": 2},
    "zero3": {"distributed_type": "DEEPSPEED", "zero_stage": 3},
    "fsdp2": {"distributed_type": "FSDP", "fsdp_version": 2},
}
FULL = ["--use_peft", "false", "--learning_rate", "1e-5"]
KINDS = {"full": FULL, "lora": []}
FLOAT32 = ["--dtype", "float32", "--bf16", "false"]
PROMPTS, GENERATIONS, STEPS = 4, 4, 3
# Few and short steps; a reward that is never the same for a group, so that every step has a gradient.
SHORT = ["--max_steps", str(STEPS), "--num_train_rows", "64", "--num_eval_rows", "0", "--save_strategy", "no"]
SHORT += ["--reward_funcs", "random", "--num_generations", str(GENERATIONS), "--max_completion_length", "24"]
NORM_TOLERANCE = 0.01


class CheckFailed(Exception):
    """What was launched ended, but not with what it has to show."""


@dataclass(frozen=True)
class Box:
    """Where the checks run: "cuda" or "cpu", processes a launch, the model, and the folder for what they leave."""

    device: str
    num_processes: int
    model: str
    folder: Path

    @property
    def reference(self) -> str:
        return "single_gpu" if self.num_processes == 1 else "ddp"


@dataclass(frozen=True)
class Check:
    """A command, and the function that says from its output what came out of it (or raises CheckFailed).

    `not_run` is the reason where this box cannot run it; `alone` keeps others from running beside it, `limit_s` from
    never getting their turn; `compared_with` is the name of the launch whose steps it has to take.
    """

    name: str
    words: list[str] = field(default_factory=list)
    judge: Callable[[str], str] = str
    not_run: str = ""
    alone: bool = False
    limit_s: float = math.inf
    compared_with: str = ""


def all_checks(box: Box) -> list[Check]:
    """Every check in the order of the table; a launch stands behind the one it is compared with."""
    engines = sorted(ENGINES, key=lambda name: name != box.reference)
    return [
        _script_check("sandbox", ["check_sandbox.py", "--programs", "50"], judge_sandbox),
        _script_check("attention", ["check_attention.py", box.model, "--device", box.device], judge_attention),
        quickstart(box),
        *(engine_check(box, launch, kind) for launch in engines for kind in KINDS),
        *(precision_check(box, kind) for kind in KINDS),
        flash_check(box),
    ]


def engine_check(box: Box, launch: str, kind: str) -> Check:
    """Three steps in float32 under one launch file, held to the reference's."""
    name = f"{launch}_{kind}"
    reason = "needs a GPU: without one accelerate would run something else" if launch == "fsdp2" else ""
    if reason and box.device == "cpu":
        return Check(name, not_run=reason)
    processes = 1 if launch == "single_gpu" else box.num_processes
    wanted = {**ENGINES[launch], "world_size": processes, "device": box.device, "mixed_precision": "no"}
    if launch == "ddp" and box.device == "cpu":
        wanted["distributed_type"] = "MULTI_CPU" if processes > 1 else "NO"
    batch = ["--per_device_train_batch_size", str(PROMPTS * GENERATIONS // processes)]
    words = _launch(box, launch, name, processes, [*SHORT, *FLOAT32, *KINDS[kind], *batch])
    # One process samples other completions than several do.
    other = f"{box.reference}_{kind}" if launch not in (box.reference, "single_gpu") else ""
    reference = box.folder / other if other else None
    judge = lambda printed: judge_launch(box.folder / name, wanted, reference)  # noqa: E731
    return Check(name, words, judge, compared_with=other)


def precision_check(box: Box, kind: str) -> Check:
    """Three steps in bf16: autocast over float32 weights (full), bf16 weights (LoRA)."""
    dtype = ["--dtype", "float32" if kind == "full" else "bfloat16", "--bf16", "true"]
    return _bf16_check(box, f"bf16_{kind}", [*dtype, *KINDS[kind]])


def flash_check(box: Box) -> Check:
    """Three steps in bf16 with flash attention, where the box has it."""
    name = "flash_attention_2_lora"
    if box.device == "cpu" or find_spec("flash_attn") is None:
        missing = "needs a GPU" if box.device == "cpu" else "the package flash_attn is not installed"
        return Check(name, not_run=missing)
    return _bf16_check(box, name, ["--attn_implementation", "flash_attention_2"])


def _bf16_check(box: Box, name: str, arguments: list[str]) -> Check:
    batch = ["--per_device_train_batch_size", str(PROMPTS * GENERATIONS)]
    words = _launch(box, "single_gpu", name, 1, [*SHORT, *arguments, *batch])
    wanted = {"distributed_type": "NO", "device": box.device, "mixed_precision": "bf16"}
    return Check(name, words, lambda printed: judge_launch(box.folder / name, wanted, None))


def quickstart(box: Box) -> Check:
    """The quickstart as shipped, whole, with nothing beside it: its minutes are told."""
    words = _launch(box, "single_gpu", "quickstart", 1, [])
    judge = lambda printed: judge_quickstart(box.folder / "quickstart")  # noqa: E731
    return Check("quickstart", words, judge, alone=True, limit_s=240 if box.device == "cuda" else math.inf)


def facts(box: Box) -> dict[str, Any]:
    """Versions, commit and hardware; of a GPU its memory, driver and compute capability (one line each)."""
    asked = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap", "--format=csv,noheader"]
    found = shutil.which("nvidia-smi") if box.device == "cuda" else None
    lines = subprocess.run(asked, capture_output=True, text=True).stdout.splitlines() if found else []
    known = versions()
    del known["command"]  # the script's own is told as it was given
    return {"gpus": lines, "model": box.model, "num_processes": box.num_processes, **known}


def _launch(box: Box, launch: str, name: str, processes: int, arguments: list[str]) -> list[str]:
    file = ["--config_file", f"accelerate_configs/{launch}.yaml", "--num_processes", str(processes)]
    if launch != "single_gpu":
        file += ["--main_process_port", "0"]  # one that is free: launches run beside each other
    recipe = ["recipes/arithmetic/train.py", "--config", CONFIG, "--model_name_or_path", box.model]
    recipe += ["--output_dir", str(box.folder / name), *(["--use_cpu", "true"] if box.device == "cpu" else [])]
    return [sys.executable, "-m", "accelerate.commands.launch", "--quiet", *file, *recipe, *arguments]


def _script_check(name: str, words: list[str], judge: Callable[[str], str]) -> Check:
    words = [sys.executable, str(ROOT / "scripts" / words[0]), *words[1:]]
    return Check(name, words, judge, alone=True, limit_s=90)


def judge_sandbox(printed: str) -> str:
    """The isolation in force and the speed."""
    kept = [line for line in printed.splitlines() if line.startswith(("in force: ", "speed: "))]
    return "; ".join(line.partition(": ")[2] for line in kept)


def judge_attention(printed: str) -> str:
    """A few words on each implementation."""
    return "; ".join(line for line in printed.splitlines() if " error " in line or " not run: " in line)


def judge_quickstart(folder: Path) -> str:
    """Accuracy before and after, and minutes.

    Raises:
        CheckFailed: the model did not get better at giving right answers (lenient).
    """
    summary = _read(folder / "summary.json")
    before, after = (summary[stage]["lenient"]["share"] for stage in ("before", "after"))
    text = f"lenient {100 * before:.1f} -> {100 * after:.1f} % in {summary['minutes']:.1f} min"
    if after <= before:
        raise CheckFailed(f"no gain: {text}")
    return text


def judge_launch(folder: Path, wanted: dict, reference: Path | None) -> str:
    """The engine in force and the agreement with the reference's steps, in words.

    Raises:
        CheckFailed: see the module.
    """
    in_force = _read(folder / "summary.json")["engine"]
    wrong = [f"{name} is {in_force.get(name)!r}, not {value!r}" for name, value in wanted.items() if
             in_force.get(name) != value]  # fmt: skip
    if wrong:
        raise CheckFailed("in force: " + ", ".join(wrong))
    norms = gradient_norms(folder)
    if len(norms) != STEPS or not all(map(math.isfinite, norms)) or not any(norms):
        raise CheckFailed(f"gradient norms {norms}: {STEPS} are expected, finite and not all 0")
    said = f"gradient norms {', '.join(f'{norm:.3g}' for norm in norms)}"
    return f"{said}; {agreement(folder, reference)}" if reference else said


def agreement(folder: Path, reference: Path) -> str:
    """How many steps sample the completions that the reference's do, in words.

    Raises:
        CheckFailed: the first does not, or has another gradient norm.
    """
    if not (reference / "summary.json").is_file():
        raise CheckFailed(f"there is nothing to compare with: {reference.name} is not there")
    mine, theirs = completions(folder), completions(reference)
    same = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b), len(mine))
    norm, expected = gradient_norms(folder)[0], gradient_norms(reference)[0]
    if not same:
        raise CheckFailed(f"the first step samples other completions than {reference.name}'s")
    if abs(norm - expected) > NORM_TOLERANCE * expected:
        raise CheckFailed(f"the first gradient norm is {norm:.4g}, {reference.name}'s is {expected:.4g}")
    return f"{same} of {len(mine)} steps as {reference.name}"


def completions(folder: Path) -> list[list[str]]:
    """The texts of each step."""
    frames = [pd.read_parquet(file) for file in sorted((folder / "completions").glob("*.parquet"))]
    return [frame["completion"].map(str).tolist() for frame in frames]


def gradient_norms(folder: Path) -> list[float]:
    """One a step."""
    return [entry["grad_norm"] for entry in _read(folder / "trainer_state.json")["log_history"] if "grad_norm" in entry]


def _read(path: Path) -> dict:
    if not path.is_file():
        raise CheckFailed(f"it left no {path.name}")
    return json.loads(path.read_text(encoding="utf-8"))
