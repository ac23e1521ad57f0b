"""Import and call rewards of one's own in a child process, where one that ends its process or hangs costs nothing.

What they return is checked later, in the process of the run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

ROWS = 4
FORMS = (
    "",
    "{}",
    "<answer>{}</answer>",
    "<reasoning>\n</reasoning>\n<answer>\n{}\n</answer>",
    r"\boxed{{{}}}",
    "0" * 400,
)


def check_in_child(
    specs: Iterable[str], kwargs: dict[str, Any] | None, rows: list[dict], limit_s: float
) -> list[str]:
    """Name the rewards that end their process, or take more than `limit_s` to be imported or called.

    Each is called on the rows (`ROWS` are enough) with an empty completion, tricks, and `answer` in several formats.
    """
    problems = []
    few = json.dumps(rows, default=str)
    for spec in specs:
        words = [
            sys.executable,
            "-c",
            "from rewards.audit.child import main; main()",
            spec,
            json.dumps(kwargs or {}),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(word for word in sys.path if word),
        }
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        ) as child:
            try:
                output, _ = child.communicate(few, timeout=limit_s)
                failure = (
                    ""
                    if output.endswith("ended\n")
                    else f"ends the process (status {child.returncode})"
                )
            except subprocess.TimeoutExpired:
                child.kill()
                output, _ = child.communicate()
                failure = f"does not return within reward_timeout_s ({limit_s:g} s)"
        if failure:
            moment = "when it is called" if "imported\n" in output else "when it is imported"
            problems.append(f"reward {spec!r} {failure} {moment}: correct it.")
    return problems


def main() -> None:
    """Run in the child: anything that is raised is reported by the parent's own checks."""
    from rewards.audit.call import score
    from rewards.contract import reward_kind
    from rewards.loading import load_reward, short_name

    spec, kwargs = sys.argv[1], json.loads(sys.argv[2])
    sys.argv[1:] = []
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the reward prints is not for the parent
    try:
        mine = kwargs.get(spec, kwargs.get(short_name(spec), {}))
        reward = load_reward(spec, **mine)
        say.write("imported\n")
        rows = [row for row in json.load(sys.stdin) if row.get("prompt")]
        for form in (
            FORMS if rows and reward_kind(reward) != "model" else ()
        ):  # a call of a model may cost money
            score(reward, rows, [form.format(row.get("answer", "")) for row in rows])
    except Exception:
        pass
    say.write("ended\n")
