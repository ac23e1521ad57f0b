"""A training step's time under several settings: benchmarks/step_time.py for each, and one table.

    python benchmarks/step_variants.py --config recipes/gsm8k/smollm2-135m.yaml --steps 4 \\
        --variants benchmarks/step_variants.yaml --output time.json
    python benchmarks/step_variants.py --config recipes/gsm8k/smollm2-135m.yaml --variants FILE \\
        --only shipped batch_64 --dataset_path FOLDER

Each variant (name: {argument: value}, laid over the YAML) runs in a process of its own. A variant that fails or takes
longer than time_limit_s (which may stand among its arguments) has that in its row, and the others run. The ratio is of
completions a second, since a step may hold more of them, to the first variant that ran. With --output X.json that file
is rewritten after each variant, and each one's log and figures go to the folder X. Exit status: 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.gpu_time import NO_GPU
from benchmarks.step_time import REMEDY, TAKEN, add_lengths, check_lengths, in_gib, percent, recipe_words, to_words


def variants_table(rows: list[dict[str, Any]]) -> str:
    """A row a variant; the ratio is to the first that ran."""
    width = max(len(row["variant"]) for row in rows)
    heads = ("s a step", "compl./s", "tokens", "kernels", "GPU busy", "peak GiB", "ratio")
    lines = [" ".join([f"{'variant':<{width}}", *(f"{head:>9}" for head in heads)])]
    ran = [row["figures"] for row in rows if row["figures"]]
    for row in rows:
        cells = [f"failed: {row['failed']}"] if row["failed"] else variant_cells(row["figures"], ran[0])
        lines.append(" ".join([f"{row['variant']:<{width}}", *cells]))
    if ran and not any(found["gpu"]["peak_allocated_bytes"] for found in ran):
        lines.append(f"kernels, GPU busy and peak: {NO_GPU}")
    return "\n".join(lines)


def variant_cells(found: dict[str, Any], first: dict[str, Any]) -> list[str]:
    """What stands in a variant's row."""
    gpu, rate = found["gpu"], found["completions_a_second"]
    return [
        f"{found['seconds_a_step']['median_without_timers']:>9.3f}",
        f"{rate:>9.2f}",
        f"{found['tokens_a_completion']:>9.1f}",
        percent(gpu["kernels"] and gpu["kernels"]["share"]),
        percent(gpu["busy_share"]),
        in_gib(gpu["peak_allocated_bytes"]),
        f"{rate / first['completions_a_second']:>9.2f}",
    ]


def read_variants(path: Path, only: list[str] | None) -> dict[str, dict[str, Any]]:
    """Name -> arguments, of those named in `only` (all when None), in the order of the file.

    Raises:
        SystemExit: no such file or variant, or not what a file of variants holds.
    """
    try:
        variants = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise SystemExit(f"error: cannot read --variants {path}: {error}") from error
    if not isinstance(variants, dict) or not variants or any(not isinstance(v, dict) for v in variants.values()):
        raise SystemExit(f"error: {path} must map names of variants to {{argument: value}}; {{}} for no change.")
    odd = [name for name in variants if not re.fullmatch(r"[\w.+-]+", str(name))]
    if odd:
        raise SystemExit(f"error: {odd} in {path}: a variant is named with letters, digits and . _ + - alone.")
    unknown = sorted(set(only or []) - {*variants})
    if unknown:
        raise SystemExit(f"error: --only {' '.join(unknown)}: {path} has {', '.join(variants)}.")
    return {name: values for name, values in variants.items() if only is None or name in only}


def check_variants(config: Path, overrides: list[str], variants: dict[str, dict[str, Any]], path: Path) -> None:
    """Read the arguments of all variants before the first one runs.

    Raises:
        SystemExit: what is wrong with which, all of it.
    """
    from recipes.common.recipe_file import load_recipe

    recipe, wrong = load_recipe(config), []
    for name, values in variants.items():
        words = recipe_words(config, [*overrides, *to_words(arguments_of(values))])
        wrong += [f"{name}: {problem}" for problem in not_for_variants(values) or unreadable(recipe, words)]
    if wrong:
        raise SystemExit("\n".join([f"error: nothing was run, {path} has", *(f"  - {text}" for text in wrong)]))


def not_for_variants(values: dict[str, Any]) -> list[str]:
    """What of a variant no command line can say, or is not for it to say."""
    limit_s = values.get("time_limit_s", 1)
    wrong = [f"{name!r} cannot be given: {REMEDY}" for name in sorted(TAKEN & {*values})]
    wrong += [f"{name!r} has no value: leave it out." for name, value in values.items() if value is None]
    if isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or limit_s <= 0:
        wrong.append(f"time_limit_s is {limit_s!r}; it must be more than 0 seconds.")
    return wrong


def unreadable(recipe: ModuleType, words: list[str]) -> list[str]:
    """What is wrong with the arguments of a recipe as far as reading them tells."""
    from recipes.common.arguments import parse_arguments

    try:
        return parse_arguments(recipe.RecipeArguments, words).problems
    except SystemExit:  # a value of the wrong type, which has been printed
        return ["cannot be read, see above."]


def arguments_of(variant: dict[str, Any]) -> dict[str, Any]:
    """What of a variant goes to the recipe."""
    return {name: value for name, value in variant.items() if name != "time_limit_s"}


def run_variants(options: argparse.Namespace, overrides: list[str]) -> list[dict[str, Any]]:
    """Run one after the other; what is known is written to --output after each, and the rows are returned.

    Raises:
        SystemExit: an argument cannot be used; nothing was run.
    """
    from recipes.common.files import write_json

    variants = read_variants(options.variants, options.only)
    check_variants(options.config, overrides, variants, options.variants)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.output.with_suffix("") if options.output else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, values in variants.items():
            rows.append(run_variant(name, values, options, overrides, folder))
            print(variants_table(rows).splitlines()[len(rows)], flush=True)
            if options.output:
                write_json(options.output, rows)
    return rows


def run_variant(
    name: str, values: dict[str, Any], options: argparse.Namespace, overrides: list[str], folder: Path
) -> dict[str, Any]:
    """Run one in a process of its own, which leaves NAME.json and NAME.log in `folder`."""
    output, log = folder / f"{name}.json", folder / f"{name}.log"
    output.unlink(missing_ok=True)
    words = [
        sys.executable,
        str(Path(__file__).with_name("step_time.py").resolve()),
        "--config",
        str(options.config),
        "--output",
        str(output),
    ]
    for option in ("drop", "steps", "profile_steps"):
        words += [f"--{option}", str(getattr(options, option))]
    limit_s = values.get("time_limit_s", options.time_limit_s)
    in_time = run_within([*words, *overrides, *to_words(arguments_of(values))], limit_s, log)
    found = json.loads(output.read_text()) if in_time and output.is_file() else None
    failed = None if found else last_error(log.read_text()) if in_time else f"took more than {limit_s:g} s"
    return {"variant": name, "arguments": values, "figures": found, "failed": failed}


def run_within(words: list[str], limit_s: float, log: Path) -> bool:
    """Run to the end, whatever that is, or to the limit; nothing that it started is left running."""
    with log.open("w") as out:
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        process.wait(limit_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_error(text: str) -> str:
    """The line of the last exception in a log, or its last line.

    Example: `last_error("Traceback ...\\nValueError: no\\nSee the log.") == "ValueError: no"`
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error|[\w.]+(Error|Exception|Interrupt)):", line)]
    return (errors or lines or ["it printed nothing"])[-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--variants", required=True, type=Path, help="a YAML: name of a variant -> {argument: value}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these variants only")
    parser.add_argument("--time_limit_s", type=float, default=120.0, help="for each variant; default 120")
    parser.add_argument("--output", type=Path, help="also write the figures as JSON; logs go to a folder beside it")
    add_lengths(parser)
    options, overrides = parser.parse_known_args()
    check_lengths(parser, options)
    if options.time_limit_s <= 0:
        parser.error(f"--time_limit_s is {options.time_limit_s:g}; it must be more than 0")
    from recipes.common.repeats import check_given

    check_given(overrides, TAKEN, REMEDY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, so that nothing is left running
    rows = run_variants(options, overrides)
    print(f"\n{options.config}\n{variants_table(rows)}")
    raise SystemExit(int(any(row["failed"] for row in rows)))


if __name__ == "__main__":
    main()
