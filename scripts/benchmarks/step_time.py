"""How the time of a training step splits into generation, rewards, loss, backward pass, and the rest.

    python scripts/benchmarks/step_time.py --config recipes/gsm8k/smollm2-135m.yaml --steps 6 --output step_time.json

Any argument of the recipe can be overridden. Measured from outside, around TRL's own methods: `_generate` and
`_calculate_rewards`; what else `_generate_and_score_completions` does, such as log-probabilities of the reference model
("preparation"); `compute_loss`; `accelerator.backward`. The rest is the optimizer and logging. The first step is
dropped (it warms up). On an accelerator each part waits for its work, which costs a little overlap.

*Not covered*: several processes, evaluation, saving. Under DeepSpeed the backward pass contains the optimizer's step.
"""

import argparse
import json
import statistics
import tempfile
from collections import Counter
from pathlib import Path

from overhead import CONFIG, build, time_calls, watch_steps

INSIDE = {
    "_generate": "generation",
    "_calculate_rewards": "rewards",
}  # of the preparation of a batch
PARTS = ("generation", "rewards", "preparation", "loss", "backward", "rest")


def split_steps(config: Path, overrides: list[str]) -> list[dict[str, float]]:
    """Seconds of each step after the first, by part; the parts add up to `step`."""
    spent = Counter(dict.fromkeys(PARTS, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        _, _, trainer = build(config, overrides, Path(folder))
        for method, part in INSIDE.items():
            time_calls(trainer, method, spent, part)
        time_calls(trainer, "_generate_and_score_completions", spent, "preparation")
        time_calls(trainer, "compute_loss", spent, "loss")
        time_calls(trainer.accelerator, "backward", spent, "backward")
        steps = watch_steps(trainer, spent)
        trainer.train()
    for step in steps:
        step["preparation"] -= step["generation"] + step["rewards"]
        step["rest"] = step["step"] - sum(step[part] for part in PARTS[:-1])
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help="a YAML of a recipe")
    parser.add_argument(
        "--steps", type=int, default=6, help="steps of the run, at least 2; the first is dropped"
    )
    parser.add_argument("--output", type=Path, help="also write seconds and shares as JSON")
    options, overrides = parser.parse_known_args()
    if options.steps < 2:
        parser.error(f"--steps is {options.steps}; at least 2: the first is dropped")
    from recipes.common.utils.machine import versions
    from recipes.common.utils.tables import format_table, percent

    steps = split_steps(options.config, [*overrides, "--max_steps", str(options.steps)])
    whole = sum(step["step"] for step in steps)
    parts, table = {}, []
    for part in (*PARTS, "step"):
        seconds = [step[part] for step in steps]
        median, share = statistics.median(seconds), sum(seconds) / whole
        parts[part] = {"median seconds": median, "share": share}
        table.append({"part": part, "median seconds": f"{median:.3f}", "share": percent(share)})
    print(f"{len(steps)} steps of {options.config}\n{format_table(table)}")
    if options.output:
        options.output.write_text(
            json.dumps({"steps": len(steps), "parts": parts, **versions()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
