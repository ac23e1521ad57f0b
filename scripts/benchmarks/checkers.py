"""Agreement of each checker with labelled answers, and the cost of a row.

    python scripts/benchmarks/checkers.py                            # the labels of this repository
    python scripts/benchmarks/checkers.py --pairs mine.jsonl --completions my_completions.jsonl

Label files are JSON lines. A pair has `gold`, `prediction` (an answer, or a text with its answer in
a box) and `label` (true when the prediction is right); a completion has `gold_answer`, `completion`
and `label`. A row that a checker cannot grade is a disagreement, never a false positive.

Every checker reads the file once before it is timed: imports do not count. Math-Verify is needed
only here: `pip install math-verify`.
"""

import argparse
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from recipes.common.utils.stats import wilson_interval
from rewards import boxed_math
from rewards.answer import is_final_answer, last_box

LABELS = Path(__file__).parent / "labels"
# The later pairs were written after the checkers, each batch before its verdicts were seen.
PAIRS = [LABELS / "math_pairs.jsonl", LABELS / "math_pairs_later.jsonl"]
COMPLETIONS = [LABELS / "gsm8k_completions.jsonl"]


def is_boxed_math(gold: str, text: str) -> bool | None:
    """boxed_math: the box where there is one, else the whole text."""
    boxed_math._read_gold.cache_clear()  # the time of a row includes reading its gold
    answer = last_box(text) or "" if re.search("boxed|fbox", text) else text
    return boxed_math.is_equivalent(gold, answer)


def is_lenient(gold: str, text: str) -> bool:
    """gsm8k_correctness with `lenient`."""
    return is_final_answer(text, gold)


def is_math_verify(gold: str, text: str) -> bool | None:
    """Math-Verify as its README calls it; None if it cannot read the gold."""
    from math_verify import parse, verify

    wanted = parse(_in_dollars(gold))
    return verify(wanted, parse(_in_dollars(text))) if wanted else None


def _in_dollars(text: str) -> str:
    """Put bare mathematics in dollars, as Math-Verify needs; not text with delimiters or words."""
    words = re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", "", text)
    has_delimiters = re.search(r"\$|\\[\[(]|\\boxed", text) is not None
    return text if has_delimiters or len(re.findall("[A-Za-z]{2,}", words)) > 2 else f"${text}$"


def is_flexible_extract(gold: str, text: str) -> bool:
    """lm-evaluation-harness's gsm8k: its filter flexible-extract, then texts are compared."""
    numbers = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", text)
    last = numbers[-1][0] or numbers[-1][1] if numbers else "[invalid]"
    last, wanted = (re.sub(r",|\$|\.$", "", side.strip()) for side in (last, gold))
    return last == wanted


PAIR_CHECKERS = {"boxed_math (ours)": is_boxed_math, "Math-Verify": is_math_verify}
COMPLETION_CHECKERS = {
    "gsm8k_correctness, lenient (ours)": is_lenient,
    "lm-eval flexible-extract": is_flexible_extract,
    "Math-Verify": is_math_verify,
}


def print_table(file: Path, gold: str, text: str, checkers: dict[str, Callable]) -> None:
    """Print per checker: agreement with Wilson interval, mistakes, and microseconds per row.

    `gold` and `text` name the columns of the gold answer and of what is checked against it.
    """
    rows = pd.read_json(file, lines=True, dtype=False)
    pairs = list(zip(rows[gold].astype(str), rows[text].astype(str), strict=True))
    table = {}
    for name, check in checkers.items():
        verdicts = pd.Series([check(*pair) for pair in pairs])  # True, False, None: not gradable
        started = time.perf_counter()  # after a first pass, so that imports do not count
        for pair in pairs:
            check(*pair)
        micros = 1e6 * (time.perf_counter() - started) / len(pairs)
        right = int((verdicts == rows["label"]).sum())
        low, high = wilson_interval(right, len(rows))
        table[name] = {
            "agreement": f"{right / len(rows):.3f} ({low:.3f}-{high:.3f})",
            "false pos": int(((verdicts == True) & ~rows["label"]).sum()),  # noqa: E712
            "false neg": int(((verdicts == False) & rows["label"]).sum()),  # noqa: E712
            "ungraded": int(verdicts.isna().sum()),
            "mean us": round(micros, 1),
        }
    print(f"\n{file}: {len(rows)} rows, {rows['label'].sum()} of them right")
    print(pd.DataFrame(table).T.to_string())


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--pairs", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--completions", type=Path, nargs="+", default=[], metavar="FILE")
    args = parser.parse_args()
    if not args.pairs + args.completions:
        args.pairs, args.completions = PAIRS, COMPLETIONS
    logging.disable(logging.WARNING)  # Math-Verify warns of every row that it gives up on
    for file in args.pairs:
        print_table(file, "gold", "prediction", PAIR_CHECKERS)
    for file in args.completions:
        print_table(file, "gold_answer", "completion", COMPLETION_CHECKERS)


if __name__ == "__main__":
    main()
