"""Is model-written code isolated here? Tries every door from inside a confined program.

    python scripts/check_sandbox.py
    python scripts/check_sandbox.py --isolation sealed

Prints the isolation in force, kernel and Landlock version, and what became of each probe. How many
programs a second run: scripts/benchmarks/sandbox_speed.py. Exit status: 0 when every probe was
refused, 1 when one came through or no isolation holds.
"""

import os
import platform

from command import make_parser


def run(isolation: str | None) -> int:
    """Start and probe; the exit status."""
    from rewards.sandbox import Sandbox, SandboxError, landlock
    from rewards.sandbox.self_test import probe

    kernel = f"kernel {platform.release()} on {platform.machine()}"
    print(f"{kernel}, Landlock ABI {landlock.abi()}, user {os.getuid()}")
    sandbox = Sandbox(isolation=isolation)
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
    return 0 if set(results.values()) == {"ok"} else 1


def main() -> None:
    parser = make_parser(__doc__)
    isolations = ["landlock", "sealed", "unsafe"]
    parser.add_argument("--isolation", choices=isolations, help="default: the best that holds")
    raise SystemExit(run(parser.parse_args().isolation))


if __name__ == "__main__":
    main()
