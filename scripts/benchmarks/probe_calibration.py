"""Does the probe foresee what a short training brings? Probe and train a dozen small tasks, and compare.

    python scripts/benchmarks/probe_calibration.py --json results/probe_calibration.json
    python scripts/benchmarks/probe_calibration.py --only sums products --max_steps 20

Each configuration is recipes/arithmetic/quickstart.yaml with another task of reasoning-gym, some of them warm-started
first. It is probed (scripts/probe.py), then trained for --max_steps; the gain is that of lenient accuracy on held-out
rows. What is done already, in --folder, is not done again, and the result is written after each configuration.

The result: the useful groups that the probe expects of a step against the gain, with Spearman's rank correlation, and
the verdict *will learn the task* against whether the gain is shown (McNemar p < 0.05 on the paired rows).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path("recipes/arithmetic/quickstart.yaml")
LAUNCH = ["--config_file", "accelerate_configs/single_gpu.yaml"]
SIZES = {
    "dtype": "float32",
    "bf16": "false",
    "num_train_rows": 600,
    "num_eval_rows": 48,
    "num_validation_rows": 0,
    "eval_strategy": "no",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,  # two prompts a step, eight completions each
    "per_device_eval_batch_size": 48,
    "save_steps": 1000,
}
WARM_START = {"rows": 256, "steps": 16}


def task(name: str, tokens: int, question: str = "", steps: str = "", answer: str = "", **parameters: int) -> tuple:
    """reasoning-gym's data set and its parameters, a worked example (None: the recipe's), and tokens."""
    example = [question, f"<reasoning>{steps}</reasoning><answer>{answer}</answer>"] if question else None
    return name, parameters, example, tokens


SUM = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
SHORT = {"min_digits": 1, "max_digits": 1}
FEW_ANIMALS = {"min_animals": 1, "max_animals": 2, "min_instances": 1, "max_instances": 4}
PRODUCT = "Solve the following multiplication: 7 * 12. Give only the result as your final answer."
GCD = "Find the Greatest Common Divisor (GCD) of these numbers: 12, 18. Give only the GCD as your final answer."
LETTERS = 'How many times does the letter "e" appear in the text: "the green sea"?'
LEGS = "Your task is to count how many legs there are in total when given a list of animals.\n\n"
LEGS += "Now, how many legs are there in total if you have 2 dogs, 3 birds?\n"
BACKWARD = "Spell this word backward (example: sun -> nus): tree"
FLIPS = "What is the probability of getting exactly 1 heads in 2 fair coin flips?"
THREE, FOUR = "8 + 5 = 13, 13 - 4 = 9", "8 + 5 = 13, 13 - 4 = 9, 9 + 2 = 11"
TASKS = {
    "sums": task("chain_sum", 28, **SUM),
    "sums of three-digit numbers": task("chain_sum", 36, **SUM | {"min_digits": 3, "max_digits": 3}),
    "sums of three terms": task("chain_sum", 40, "8 + 5 - 4 =", THREE, "9", min_terms=3, max_terms=3, **SHORT),
    "sums of four terms": task("chain_sum", 52, "8 + 5 - 4 + 2 =", FOUR, "11", min_terms=4, max_terms=4, **SHORT),
    "products": task("products", 32, PRODUCT, "7 * 12 = 84", "84", **SUM),
    "gcd": task("gcd", 40, GCD, "12 = 2 * 6, 18 = 3 * 6", "6", min_numbers=2, max_numbers=2, max_value=40),
    "letter_counting": task("letter_counting", 40, LETTERS, "the: 1, green: 2, sea: 1", "4", min_words=1, max_words=3),
    "leg_counting": task("leg_counting", 36, LEGS, "2 * 4 + 3 * 2 = 14", "14", **FEW_ANIMALS),
    "spell_backward": task("spell_backward", 32, BACKWARD, "t r e e", "eert", min_word_len=3, max_word_len=4),
    "coin_flip": task("coin_flip", 40, FLIPS, "2 / 4 = 0.5", "0.5", min_trials=2, max_trials=20),
}
WARM = ("sums", "sums of three terms", "products", "letter_counting")
CONFIGURATIONS = [(task, False) for task in TASKS] + [(task, True) for task in WARM]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), help="tasks; default all")
    parser.add_argument("--max_steps", type=int, default=10, help="of each training; default 10")
    parser.add_argument("--prompts", type=int, default=8, help="of each probe, with 8 completions each; default 8")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/probe-calibration"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: FOLDER/calibration.json")
    options, overrides = parser.parse_known_args()
    sys.path.insert(0, str(ROOT))
    lines = []
    for task, warm in CONFIGURATIONS:
        if task not in options.only:
            continue
        try:
            lines.append(measure(task, warm, options, overrides))
        except (RuntimeError, ValueError, SystemExit) as problem:  # its messages stand above; the others go on
            print(f"error: {task}, warm start {warm}: left out: {problem}", file=sys.stderr)
            continue
        publish(lines, options, overrides)


def measure(task: str, warm: bool, options: argparse.Namespace, overrides: list[str]) -> dict[str, Any]:
    """Probe and train one configuration, or read what was left of it; return the figures of both."""
    from recipes.common.many_runs.runs import change_over_seeds, train
    from recipes.common.tools.folder import SUMMARY, read_evaluation, read_json

    name, parameters, example, tokens = TASKS[task]
    folder = options.folder / f"{task.replace(' ', '-')}{'-warm' * warm}-seed{options.seed}"
    settings = {**SIZES, "dataset_name": name, "dataset_kwargs": json.dumps(parameters), "seed": options.seed}
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    words += ["--max_completion_length", str(tokens), *(["--example", *example] if example else []), *overrides]
    if warm:
        sizes = [word for key, value in WARM_START.items() for word in (f"--{key}", str(value))]
        run_script("warm_start.py", folder / "start", "warm_start.json", [*sizes, "--output_dir"], words)
        words += ["--model_name_or_path", str(folder / "start")]
    prompts = ["--prompts", str(options.prompts), "--output"]
    run_script("probe.py", folder / "probe", "figures.json", prompts, words)
    probe = read_json(folder / "probe" / "figures.json")
    run = train(CONFIG, LAUNCH, folder / "run", [*words, "--max_steps", str(options.max_steps)])
    before, after = ([[row["metrics"]["lenient"] for row in rows]] for rows in read_evaluation(run))
    change, summary, (figures,) = change_over_seeds(before, after), read_json(run / SUMMARY), probe["tasks"].values()
    verifier = next(line for line in figures["rewards"].values() if line["kind"] == "verifier")
    return {
        "task": task + ", warm start" * warm,
        "verdict": probe["verdict"].partition(":")[0],
        "useful_a_step": probe["useful_a_step"],
        "hit_rate": verifier["hit_rate"],
        "verifier_spread": None if verifier["zero_spread"] is None else 1.0 - verifier["zero_spread"],
        "n": len(before[0]),
        "before": sum(before[0]) / len(before[0]),
        "after": sum(after[0]) / len(after[0]),
        "change": change["mean"],
        "interval": change["interval"],
        "p": change["p"][0],
        **{key: summary[key] for key in ("minutes", "hardware")},
        "commit": (summary["commit"] or "unknown")[:7],
    }


def run_script(script: str, folder: Path, left: str, last: list[str], words: list[str]) -> None:
    """Run a script of ours into `folder`, unless that is done; RuntimeError where it does not leave what it should."""
    if not (folder / left).is_file():
        command = [sys.executable, str(ROOT / "scripts" / script), "--config", str(CONFIG), *last, str(folder), *words]
        print(f"\n== {folder}", flush=True)
        subprocess.run(command, check=False)  # the probe's status is its verdict
    if not (folder / left).is_file():
        raise RuntimeError(f"scripts/{script} left no {folder / left}: remove {folder} and start again")


def publish(lines: list[dict[str, Any]], options: argparse.Namespace, overrides: list[str]) -> None:
    """Print and write the table, the rank correlations and the two-by-two table, as an entry of the ledger."""
    from recipes.common.tools.folder import read_json, write_json
    from recipes.common.tools.tables import format_table, percent, points

    found = compared(lines)
    rows = [
        {
            "configuration": line["task"],
            "verdict of the probe": line["verdict"],
            "right answers sampled": percent(line["hit_rate"]),
            "useful groups a step": f"{line['useful_a_step']:.2f}",
            "groups with verifier spread": percent(line["verifier_spread"], 0),
            "lenient": f"{percent(line['before'])} → {percent(line['after'])}",
            "change (95 %)": points(line["change"], line["interval"]),
            "McNemar p": f"{line['p']:.2g}",
            "minutes": f"{line['minutes']:.1f}",
        }
        for line in lines
    ]
    output = options.json or options.folder / "calibration.json"
    words = ["python scripts/benchmarks/probe_calibration.py", f"--max_steps {options.max_steps}"]
    words += [f"--prompts {options.prompts}", f"--seed {options.seed}", *overrides]
    entry = {
        "title": "the probe against a short training",
        "command": " ".join(words),
        **{key: ", ".join(dict.fromkeys(line[key] for line in lines)) for key in ("commit", "hardware")},
        "seeds": [options.seed],
        "remark": sentences(found, options.max_steps, lines[0]["n"]),
        "columns": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
        "figures": lines,
        **found,
    }
    write_json(output, read_json(output, {}) | entry)  # words added to it by hand stay
    print(f"\n{format_table(rows)}\n{entry['remark']}\nSaved {output}", flush=True)


def compared(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Correlate two forecasts with the gain (None below three, or where all are alike); count verdicts by outcome."""
    from scipy.stats import spearmanr

    correlations = {}
    for key in ("useful_a_step", "verifier_spread"):
        pairs = [(line[key], line["change"]) for line in lines if line[key] is not None]
        alike = len(pairs) < 3 or any(len(set(values)) < 2 for values in zip(*pairs, strict=True))
        rho, p = (None, None) if alike else map(float, spearmanr(*zip(*pairs, strict=True)))
        correlations[key] = {"n": len(pairs), "rho": rho, "p": p}
    table = {}
    for verdict in ("will learn the task", "will learn the format only", "will not learn"):
        gained = [line["change"] > 0 and line["p"] < 0.05 for line in lines if line["verdict"] == verdict]
        table[verdict] = {"gain shown": sum(gained), "no gain shown": len(gained) - sum(gained)}
    return {"spearman": correlations, "outcomes": table}


def sentences(found: dict[str, Any], steps: int, n: int) -> str:
    """The correlations and the two-by-two table in words."""
    names = {"useful_a_step": "useful groups a step", "verifier_spread": "the share of groups with verifier spread"}
    ranks = [
        f"{names[key]} {value['rho']:+.2f} (p {value['p']:.2g}, {value['n']} configurations)"
        for key, value in found["spearman"].items()
        if value["rho"] is not None
    ]
    task, *others = found["outcomes"].values()
    rest = {key: sum(of[key] for of in others) for key in task}
    return (
        f"Lenient accuracy, {steps} steps of 16 completions, {n} held-out rows. Spearman with the gain: "
        f"{'; '.join(ranks) or 'not defined'}. *Will learn the task*: {task['gain shown']} with a gain shown, "
        f"{task['no gain shown']} without; other verdicts: {rest['gain shown']} with, {rest['no gain shown']} without."
    )


if __name__ == "__main__":
    main()
