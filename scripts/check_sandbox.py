"""Is model-written code isolated here? Tries every door from inside a confined program.

    python scripts/check_sandbox.py

Prints the kernel and the result of each probe. Exit status: 0 when every probe was refused, 1 when
one came through. For speed (programs per second) see scripts/benchmarks/sandbox_speed.py.
"""

import os
import platform

from command import make_parser, refusals


def main() -> None:
    make_parser(__doc__).parse_args()
    from rewards.sandbox import Sandbox, SandboxError
    from rewards.sandbox.self_test import probe

    with refusals():
        print(f"kernel {platform.release()} on {platform.machine()}, user {os.getuid()}")
        sandbox = Sandbox()
        try:
            sandbox.start()
        except (SandboxError, OSError) as error:
            print(f"REFUSED: {error}")
            raise SystemExit(1) from error
        with sandbox:
            print(f"in force: {sandbox.describe()}")
            results = probe(lambda job: sandbox.run_batch([job])[0])
        for name, result in results.items():
            print(f"  ok    {name}" if result == "ok" else f"  MISS  {name}: {result}")
        raise SystemExit(set(results.values()) != {"ok"})


if __name__ == "__main__":
    main()
