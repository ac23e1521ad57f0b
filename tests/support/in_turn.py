"""Several runs in one launch: `accelerate launch in_turn.py LOG train.py ... --then ...`.

Four fifths of the time of a short launch are imports. Here each rank imports once and forks for
every run, which has its own engine and process group. What a run prints on rank 0 goes to its LOG.
"""

import os
import runpy
import socket
import sys

THEN = "--then"


def meet_at_own_port(number: int) -> None:
    """Let the ranks meet in a store of their own: the launcher's has addresses of the last run."""
    from torch.distributed import TCPStore

    launcher = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    if os.environ["RANK"] == "0":
        with socket.socket() as free:
            free.bind(("", 0))
            launcher.set(f"port of run {number}", str(free.getsockname()[1]))
    os.environ["MASTER_PORT"] = launcher.get(f"port of run {number}").decode()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"


def run_script(number: int, log: str, words: list[str]) -> None:
    if "MASTER_ADDR" in os.environ:
        meet_at_own_port(number)
    if os.environ.get("RANK", "0") == "0":
        out = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def main() -> None:
    sys.path.insert(0, os.getcwd())
    import matplotlib.pyplot  # noqa: F401
    import peft  # noqa: F401
    import reasoning_gym  # noqa: F401

    import recipes.common.checks.preflight
    import recipes.common.run  # noqa: F401

    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        import deepspeed  # noqa: F401

    words, number = sys.argv[1:], 0
    while words:
        end = words.index(THEN) if THEN in words else len(words)
        child = os.fork()
        if not child:
            return run_script(number, words[0], words[1:end])
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise SystemExit(f"{words[:end]} ended with {status}")
        words, number = words[end + 1 :], number + 1


if __name__ == "__main__":
    main()
