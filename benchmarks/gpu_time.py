"""What a GPU says of its time: how busy nvidia-smi finds it, and the kernels that torch's profiler has seen."""

import contextlib
import json
import math
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NO_GPU = "not run: no GPU"


@contextlib.contextmanager
def gpu_busy(gpu: str | None, every_ms: int = 200) -> Iterator[dict[str, Any]]:
    """Sample a GPU, named by its UUID, meanwhile.

    Yields:
        A dict that holds afterwards `share` (0.0 to 1.0) and how many `samples`, or None and the `reason`.
    """
    found: dict[str, Any] = {"share": None, "samples": 0, "reason": NO_GPU}
    command = ["nvidia-smi", f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    process = None
    if gpu is not None:
        try:
            process = subprocess.Popen([*command, "-lms", str(every_ms)], stdout=subprocess.PIPE, text=True)
        except OSError as error:
            found["reason"] = f"nvidia-smi cannot be run: {error}"
    try:
        yield found
    finally:
        if process is not None:
            process.terminate()
            found |= busy_share(process.communicate()[0])


def busy_share(text: str) -> dict[str, Any]:
    """Example: `busy_share("40\\n60\\n") == {"share": 0.5, "samples": 2, "reason": None}`"""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    percent = [int(line) for line in lines if line.isdigit()]
    if not percent:
        return {"share": None, "samples": 0, "reason": f"nvidia-smi gave no sample but {lines[:1]}"}
    return {"share": statistics.mean(percent) / 100, "samples": len(percent), "reason": None}


@contextlib.contextmanager
def kernels_traced(trace: Path) -> Iterator[None]:
    """Record every kernel meanwhile, into a Chrome trace."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:  # operators on the CPU would slow it down more
        yield
    profiler.export_chrome_trace(str(trace))


def read_kernels(trace: Path) -> list[tuple[str, float, float]]:
    """Name, start and end in seconds of each kernel of a Chrome trace, whose times are microseconds."""
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return [(event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in kernels]


def covered(intervals: list[tuple[float, float]]) -> float:
    """The length that intervals cover together.

    Example: `covered([(0, 2), (5, 6), (1, 3)]) == 4`
    """
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def kernel_figures(kernels: list[tuple[str, float, float]], wall: float, untimed_wall: float) -> dict[str, Any]:
    """Seconds in which a kernel ran, by both wall times (seconds, of as many steps), and the ten that take most."""
    seconds, calls = Counter(), Counter(name for name, _, _ in kernels)
    for name, start, end in kernels:
        seconds[name] += end - start
    busy = covered([(start, end) for _, start, end in kernels])
    return {
        "seconds": busy,
        "share": busy / wall,
        "share_of_untimed": busy / untimed_wall,
        "top": [{"name": name, "seconds": s, "calls": calls[name]} for name, s in seconds.most_common(10)],
    }
