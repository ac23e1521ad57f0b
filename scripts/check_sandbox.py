"""Is model-written code isolated here? Tries every door from inside a confined program, and
measures the speed.

    python scripts/check_sandbox.py
    python scripts/check_sandbox.py --isolation sealed --programs 0

Prints the isolation in force, kernel and Landlock version, what became of each probe, and programs
a second. Exit status: 0 when every probe was refused, 1 when one came through or no isolation
holds.
"""

import argparse
import os
import platform
import time

PROGRAM = "def area(w, h): return sum(h for _ in range(w))"
TESTS = ["assert area(3, 4) == 12", "assert area(0, 4) == 0", "assert area(5, 5) == 25"]


def run(isolation: str | None, workers: int | None, programs: int) -> int:
    """Start, probe, measure; the exit status."""
    from rewards.sandbox import Sandbox, SandboxError, landlock
    from rewards.sandbox.self_test import probe

    kernel = f"kernel {platform.release()} on {platform.machine()}"
    print(f"{kernel}, Landlock ABI {landlock.abi()}, user {os.getuid()}")
    sandbox = Sandbox(workers=workers, isolation=isolation)
    try:
        sandbox.start()
    except (SandboxError, OSError) as error:
        print(f"REFUSED: {error}")
        return 1
    with sandbox:
        print(f"in force: {sandbox.describe()}")
        results = probe(lambda job: sandbox.run_batch([job])[0])
        for name, result in results.items():
            print(f"  ok    {name}" if result == "ok" else f"  MISS  {name}: {result}")
        if programs:
            print(speeds(sandbox, programs))
    return 0 if set(results.values()) == {"ok"} else 1


def speeds(sandbox: "Sandbox", programs: int) -> str:  # noqa: F821
    """Programs a second, for both kinds of tests, in words."""
    from rewards.sandbox import Asserts, Stdio

    rates = []
    for job in (Asserts(PROGRAM, TESTS), Stdio("print(int(input()) * 2)", [("2", "4")])):
        sandbox.run_batch([job] * sandbox.workers)
        started = time.monotonic()
        outcomes = sandbox.run_batch([job] * programs)
        rates.append(f"{programs / (time.monotonic() - started):.0f}")
        if {outcome.status for outcome in outcomes} != {"pass"}:
            return f"  MISS programs that are right did not pass: {outcomes[0]}"
    return f"speed: {rates[0]} programs a second with asserts, {rates[1]} with stdin and stdout"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    isolations = ["landlock", "sealed", "unsafe"]
    parser.add_argument("--isolation", choices=isolations, help="default: the best that holds")
    parser.add_argument("--workers", type=int, help="default: the cores this process may use")
    parser.add_argument("--programs", type=int, default=100, help="to time; 0 for none; 100")
    options = parser.parse_args()
    if options.programs < 0 or (options.workers is not None and options.workers < 1):
        parser.error("--programs is at least 0 and --workers at least 1")
    raise SystemExit(run(options.isolation, options.workers, options.programs))


if __name__ == "__main__":
    main()
