"""Model-written programs, run isolated against tests that they can neither see nor reach.

    from rewards.sandbox import Sandbox
    with Sandbox() as sandbox:
        sandbox.run_asserts("def f(x): return 2 * x", ["assert f(2) == 4"]).status      # 'pass'

How it holds together: `pool` (trainer) hands each program to a `zygote` (a small interpreter)
through a `slot`; the zygote forks a `worker`, which runs the program, and a `checker`, which holds
the tests; both are put under `confinement` (user, limits, `seccomp`) first; the checker calls the
program over a `link`, by plain values (`codec`).

What is not covered: each file says so for its part.
"""

from rewards.sandbox.jobs import Asserts, Outcome, Stdio
from rewards.sandbox.pool import Sandbox, SandboxError, shared_sandbox
from rewards.sandbox.slot import ZygoteDied

__all__ = ["Asserts", "Outcome", "Sandbox", "SandboxError", "Stdio", "ZygoteDied", "shared_sandbox"]
