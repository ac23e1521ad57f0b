"""Agreement of each checker with labelled answers, and the cost of a row.

    python scripts/benchmarks/checkers.py                            # the labels of this repository
    python scripts/benchmarks/checkers.py --pairs mine.jsonl --completions my_completions.jsonl

Label files are JSON lines. A pair has `gold`, `prediction` (an answer, or a text with its answer in
a box) and `label` (true when the prediction is right); a completion has `gold_answer`, `completion`
and `label`. A row that a checker cannot grade is a disagreement, never a false positive.

Every checker reads the file once before it is timed: imports do not count. The others are needed
only here: `pip install math-verify lm-eval`.
"""

import argparse
import logging
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LABELS = Path(__file__).parent / "labels"
# The later pairs were written after the checkers, each batch before its verdicts were seen.
PAIRS = [LABELS / "math_pairs.jsonl", LABELS / "math_pairs_later.jsonl"]
COMPLETIONS = [LABELS / "gsm8k_completions.jsonl"]
COLUMNS = "{:32}{:>22}{:>10}{:>10}{:>10}{:>10}{:>10}"


class Row(NamedTuple):
    gold: str
    text: str
    label: bool


def read(file: Path, gold: str, text: str) -> list[Row]:
    """The rows of a label file, or an exit that names file, line and what a line needs."""
    from rewards.jsonl import read_jsonl

    def accept(pair: dict) -> Row:
        is_pair = isinstance(pair, dict) and {gold, text} <= pair.keys()
        if not is_pair or not isinstance(pair.get("label"), bool):
            needed = f"a pair has {gold}, {text}, label (true or false)"
            raise ValueError(f"{needed}, not {str(pair)[:80]}")
        return Row(str(pair[gold]), str(pair[text]), pair["label"])

    try:
        return read_jsonl(file, accept)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from None


def is_boxed_math(row: Row) -> bool | None:
    """boxed_math: the box where there is one, else the whole text."""
    from rewards import boxed_math
    from rewards.text import boxed_answer

    boxed_math._read_gold.cache_clear()
    text = boxed_answer(row.text) or "" if re.search("boxed|fbox", row.text) else row.text
    return boxed_math.is_equivalent(row.gold, text)


def is_lenient(row: Row) -> bool:
    """gsm8k_correctness with `lenient`."""
    from rewards.answer import is_final_answer

    return is_final_answer(row.text, row.gold)


def _in_dollars(text: str) -> str:
    """Bare mathematics in dollars, which Math-Verify needs; with delimiters or words as it is."""
    words = re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", "", text)
    has_delimiters = re.search(r"\$|\\[\[(]|\\boxed", text) is not None
    return text if has_delimiters or len(re.findall("[A-Za-z]{2,}", words)) > 2 else f"${text}$"


def is_math_verify(row: Row) -> bool | None:
    """Math-Verify as its README calls it."""
    from math_verify import parse, verify

    gold = parse(_in_dollars(row.gold))
    return verify(gold, parse(_in_dollars(row.text))) if gold else None


def is_accuracy_reward(row: Row) -> bool | None:
    """TRL's accuracy_reward."""
    from trl.rewards import accuracy_reward

    completion = [{"role": "assistant", "content": row.text}]
    (reward,) = accuracy_reward([completion], [_in_dollars(row.gold)])
    return None if reward is None else reward == 1.0


def is_boxed_accuracy_reward(row: Row) -> bool | None:
    """The same, with a box around an answer that has none."""
    text = row.text if r"\boxed" in row.text else rf"\boxed{{{row.text}}}"
    return is_accuracy_reward(row._replace(text=text))


def is_hendrycks_equal(row: Row) -> bool:
    """lm-evaluation-harness's hendrycks_math."""
    from lm_eval.tasks.hendrycks_math.utils import is_equiv, last_boxed_only_string, remove_boxed

    boxed = last_boxed_only_string(row.text)
    try:
        answer = remove_boxed(boxed) if boxed else row.text
    except AssertionError:  # of a box that it finds and cannot open
        return False
    return bool(is_equiv(answer, row.gold))


def is_flexible_extract(row: Row) -> bool:
    """lm-evaluation-harness's gsm8k: its filter flexible-extract, then texts are compared."""
    found = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", row.text)
    last = found[-1][0] or found[-1][1] if found else "[invalid]"
    last, gold = (re.sub(r",|\$|\.$", "", text.strip()) for text in (last, row.gold))
    return last == gold


PAIR_CHECKERS = {
    "boxed_math (ours)": is_boxed_math,
    "Math-Verify": is_math_verify,
    "lm-eval hendrycks_math": is_hendrycks_equal,
    "TRL accuracy_reward, boxed": is_boxed_accuracy_reward,
}
COMPLETION_CHECKERS = {
    "gsm8k_correctness, lenient (ours)": is_lenient,
    "lm-eval flexible-extract": is_flexible_extract,
    "Math-Verify": is_math_verify,
    "TRL accuracy_reward": is_accuracy_reward,
}


def print_table(title: str, checkers: dict[str, Callable], rows: list[Row]) -> None:
    """Agreement with its Wilson interval, mistakes, and the microseconds of a row."""
    from recipes.common.utils.stats import wilson_interval

    print(f"\n{title}: {len(rows)} rows, {sum(row.label for row in rows)} of them right")
    names = ["false pos", "false neg", "ungraded", "mean us", "median us"]
    print(COLUMNS.format("checker", "agreement", *names))
    for name, check in checkers.items():
        try:
            verdicts = [check(row) for row in rows]
        except ImportError as error:
            print(f"{name:32} not run: {error}")
            continue
        seconds = []
        for row in rows:
            started = time.perf_counter()
            check(row)
            seconds.append(time.perf_counter() - started)
        count = Counter((verdict, row.label) for verdict, row in zip(verdicts, rows, strict=True))
        right = count[True, True] + count[False, False]
        low, high = wilson_interval(right, len(rows))
        mistakes = count[True, False], count[False, True], count[None, True] + count[None, False]
        times = [1e6 * statistics.mean(seconds), 1e6 * statistics.median(seconds)]
        agreement = f"{right / len(rows):.3f} ({low:.3f}-{high:.3f})"
        print(COLUMNS.format(name, agreement, *mistakes, *(f"{us:.1f}" for us in times)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--pairs", "--completions"):
        parser.add_argument(name, type=Path, nargs="+", default=[], metavar="FILE")
    args = parser.parse_args()
    if not args.pairs + args.completions:
        args.pairs, args.completions = PAIRS, COMPLETIONS
    logging.disable(logging.WARNING)  # Math-Verify warns of every row that it gives up on
    for file in args.pairs:
        print_table(f"Pairs of {file}", PAIR_CHECKERS, read(file, "gold", "prediction"))
    for file in args.completions:
        rows = read(file, "gold_answer", "completion")
        print_table(f"Completions of {file}", COMPLETION_CHECKERS, rows)


if __name__ == "__main__":
    main()
