"""Run model-written programs in isolation, against tests that they can neither see nor reach.

    from rewards.sandbox import Sandbox
    with Sandbox() as sandbox:
        sandbox.run_asserts("def f(x): return 2 * x", ["assert f(2) == 4"]).status      # 'pass'

The parts: `pool` (in the trainer) hands each program to a `zygote` (a small interpreter) through a
`slot`. The zygote forks a `worker`, which runs the program, and a `checker`, which holds the tests.
Both are put under `confinement` (user, limits, `seccomp`) first. The checker calls the program's
functions over a `link`, which carries values with their types and identities (`codec`, `kinds`).

Each file says what its part does not cover.
"""

from rewards.sandbox.jobs import Asserts, Outcome, Stdio
from rewards.sandbox.pool import Sandbox, SandboxError, shared_sandbox
from rewards.sandbox.slot import ZygoteDied

__all__ = ["Asserts", "Outcome", "Sandbox", "SandboxError", "Stdio", "ZygoteDied", "shared_sandbox"]
