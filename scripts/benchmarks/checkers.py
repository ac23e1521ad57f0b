"""Agreement of each checker with labelled answers, and the cost of a row.

    python scripts/benchmarks/checkers.py                                         # the label files of this repository
    python scripts/benchmarks/checkers.py --pairs my_pairs.jsonl --completions my_completions.jsonl

Label files are JSON lines. A pair has `gold`, `prediction` (an answer, or a text with its answer in a box) and
`label` (true when the prediction is right); a completion has `gold_answer`, `completion` and `label`.

Every checker reads the file once before it is timed: imports and the start of worker processes are not counted.
Ours compares a file of pairs in one call, as in training (the middle one of three is reported); its caches are emptied
before every call. A row that a checker cannot grade counts as a disagreement, never as a false positive.

The reward `boxed_math` wants a box. A prediction without one is put in a box for TRL's checker, and for ours is the
answer that its last statement gives (`stated_answer`), since many such files hold whole sentences.

The typical batch is what a step of GRPO sees: 64 prompts with 8 completions each, most of them plain numbers and
short fractions, some of them the same; it is timed as one call, labels aside.
"""

import argparse
import functools
import logging
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LABELS = Path(__file__).parent / "labels"
# The later pairs were written after the checkers, in four batches, each before the verdicts on it were seen.
PAIRS = [LABELS / "math_pairs.jsonl", LABELS / "math_pairs_later.jsonl"]
COMPLETIONS = LABELS / "gsm8k_completions.jsonl"
PROMPTS, GENERATIONS = 64, 8
HANGS_S = 2.0  # a row that takes longer is counted

Verdicts = list[bool | None]


class Row(NamedTuple):
    """A labelled answer: None in a verdict on it means that the checker cannot grade it."""

    gold: str
    text: str
    label: bool


def read(file: Path, gold: str, text: str) -> list[Row]:
    """The rows of a label file, or an exit that names the file, the line and the fields that a line needs."""
    from rewards.audit.any_reward import read_pairs

    try:
        pairs = read_pairs(file, (gold, text, "label"))
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from None
    return [Row(str(pair[gold]), str(pair[text]), pair["label"]) for pair in pairs]


# --------------------------------------------------------------------------- checkers


def box_or_text(text: str) -> str:
    """The answer in the last box; a text without any as it is."""
    from rewards.text import boxed_answer

    return boxed_answer(text) or "" if re.search(r"boxed|fbox", text) else text


def compare_boxed(rows: list[Row]) -> Verdicts:
    """boxed_math: the box where there is one, else the answer that the text states."""
    from rewards import boxed_math

    boxed_math._read_gold.cache_clear()
    return [boxed_math.is_equivalent(row.gold, box_or_text(row.text)) for row in rows]


def ask_math_verify(row: Row) -> bool | None:
    """Math-Verify alone, as its README calls it; bare mathematics is put in dollars, which it needs."""
    from math_verify import parse, verify

    gold = parse(_in_dollars(row.gold))
    return verify(gold, parse(_in_dollars(row.text))) if gold else None


def _in_dollars(text: str) -> str:
    """Bare mathematics in dollars; a text that has delimiters or sentences of its own as it is."""
    words = re.sub(r"\\[A-Za-z]+(?:\{[A-Za-z ]*\})?", "", text)
    is_ready = (
        any(sign in text for sign in ("$", r"\[", r"\(", r"\boxed"))
        or len(re.findall("[A-Za-z]{2,}", words)) > 2
    )
    return text if is_ready else f"${text}$"


def ask_accuracy_reward(row: Row, box: bool = False) -> bool | None:
    """TRL's accuracy_reward with dollars around a bare gold; with `box` also a box around an answer that has none."""
    from trl.rewards import accuracy_reward

    text = rf"\boxed{{{row.text}}}" if box and r"\boxed" not in row.text else row.text
    (reward,) = accuracy_reward([[{"role": "assistant", "content": text}]], [_in_dollars(row.gold)])
    return None if reward is None else reward == 1.0


def is_final(row: Row) -> bool:
    """The lenient gsm8k_correctness."""
    from rewards.answer import is_final_answer

    return is_final_answer(row.text, row.gold)


def is_last(row: Row) -> bool:
    """The last number anywhere in the text."""
    from rewards.latex.number import number_of

    numbers = re.findall(r"(?:(?<![\w).])-)?(?:\$-?)?[0-9.][0-9,.]*(?<=[0-9])(?:/[0-9]+)?", row.text)
    value = number_of(numbers[-1]) if numbers else None
    return value is not None and value == number_of(row.gold)


def score_of_reasoning_gym(row: Row) -> bool:
    """reasoning-gym's scorer of most data sets: right only with the full score, for the gold's own text."""
    from reasoning_gym.dataset import ProceduralDataset

    scored = ProceduralDataset.score_answer(None, box_or_text(row.text), {"answer": row.gold})
    return scored == 1.0


def is_hendrycks_equal(row: Row) -> bool:
    """lm-evaluation-harness's hendrycks_math: texts without their layout, of the last box or what the text states."""
    from lm_eval.tasks.hendrycks_math.utils import is_equiv

    return bool(is_equiv(box_or_text(row.text), row.gold))


_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")


def is_strict_match(row: Row) -> bool:
    """lm-evaluation-harness's strict-match filter for gsm8k: the first number behind ####."""
    found = _STRICT.search(row.text)
    return found is not None and _IGNORED.sub("", found[1].strip()) == _IGNORED.sub(
        "", row.gold.strip()
    )


# lm-evaluation-harness, gsm8k: the filter flexible-extract takes the last match, then compares texts.
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_IGNORED = re.compile(r",|\$|\.$")


def is_flexible_extract(row: Row) -> bool:
    """lm-evaluation-harness's flexible-extract filter and its exact match for gsm8k."""
    found = _FLEXIBLE.findall(row.text)
    last = next((part for part in found[-1] if part), "") if found else "[invalid]"
    return _IGNORED.sub("", last.strip()) == _IGNORED.sub("", row.gold.strip())


def each(check: Callable[[Row], bool | None]) -> Callable[[list[Row], list[float]], Verdicts]:
    """A checker of one row as a checker of many that notes the seconds of each."""

    def check_all(rows: list[Row], seconds: list[float]) -> Verdicts:
        verdicts = []
        for row in rows:
            started = time.perf_counter()
            verdicts.append(check(row))
            seconds.append(time.perf_counter() - started)
        return verdicts

    return check_all


def boxed_batch(rows: list[Row], seconds: list[float]) -> Verdicts:
    """Each row alone, for the median; then all in one call, the middle one of three, for the mean."""
    for row in rows:
        started = time.perf_counter()
        compare_boxed([row])
        seconds.append(time.perf_counter() - started)
    totals = []
    for _ in range(3):
        started = time.perf_counter()
        verdicts = compare_boxed(rows)
        totals.append(time.perf_counter() - started)
    seconds.append(statistics.median(totals))  # taken off again by `measure`
    return verdicts


PAIR_CHECKERS = {
    "boxed_math (ours)": boxed_batch,
    "Math-Verify": each(ask_math_verify),
    "reasoning-gym score_answer": each(score_of_reasoning_gym),
    "lm-eval hendrycks_math": each(is_hendrycks_equal),
    "TRL accuracy_reward, boxed": each(functools.partial(ask_accuracy_reward, box=True)),
}
COMPLETION_CHECKERS = {
    "gsm8k_correctness, lenient (ours)": each(is_final),
    "last number in the text": each(is_last),
    "lm-eval flexible-extract": each(is_flexible_extract),
    "lm-eval strict-match": each(is_strict_match),
    "reasoning-gym score_answer": each(score_of_reasoning_gym),
    "Math-Verify": each(ask_math_verify),
    "TRL accuracy_reward": each(ask_accuracy_reward),
}


# --------------------------------------------------------------------------- the table


def measure(check: Callable, rows: list[Row]) -> dict[str, float]:
    """Agreement with its Wilson interval, mistakes, slow rows and microseconds of one checker on the rows."""
    from recipes.common.utils.stats import wilson_interval

    check(rows, [])
    seconds: list[float] = []
    verdicts = check(rows, seconds)
    total = seconds.pop() if len(seconds) > len(rows) else sum(seconds)
    count = Counter((verdict, row.label) for verdict, row in zip(verdicts, rows, strict=True))
    return {
        "agreement": (right := count[True, True] + count[False, False]) / len(rows),
        "interval": wilson_interval(right, len(rows)),
        "false positives": count[True, False],
        "false negatives": count[False, True],
        "not gradable": count[None, True] + count[None, False],
        "mean us": 1e6 * total / len(rows),
        "median us": 1e6 * statistics.median(seconds),
        "over 2 s": sum(one > HANGS_S for one in seconds),
    }


def print_table(title: str, checkers: dict[str, Callable], rows: list[Row]) -> None:
    print(f"\n{title}: {len(rows)} rows, {sum(row.label for row in rows)} of them right")
    names = [
        "agreement",
        "false positives",
        "false negatives",
        "not gradable",
        "over 2 s",
        "mean us",
        "median us",
    ]
    print(f"{'checker':36}" + "".join(f"{name:>21}" for name in names))
    for checker, check in checkers.items():
        try:
            found = measure(check, rows)
        except ImportError as error:
            print(f"{checker:36} not run: {error}")
            continue
        low, high = found["interval"]
        cells = [
            f"{found['agreement']:.3f} ({low:.3f}-{high:.3f})",
            *(f"{found[name]:.0f}" for name in names[1:5]),
        ]
        print(
            f"{checker:36}"
            + "".join(f"{c:>21}" for c in [*cells, *(f"{found[name]:.1f}" for name in names[5:])])
        )


def typical_batch(rows: list[Row]) -> list[Row]:
    """64 golds, 8 answers each: 5 of 8 golds plain numbers, 2 fractions, 1 any; half of the answers are the gold's."""
    rng = random.Random(0)
    golds = [row.gold for row in rows]
    plain = [gold for gold in golds if re.fullmatch(r"-?\d{1,6}", gold)] or golds
    fractions = [
        gold for gold in golds if re.fullmatch(r"-?\\frac\{\d+\}\{\d+\}|-?\d+/\d+", gold)
    ] or golds
    batch = []
    for place in range(PROMPTS):
        gold = rng.choice(plain if place % 8 < 5 else fractions if place % 8 < 7 else golds)
        answers = [row.text for row in rows if row.gold == gold]
        others = [
            str(rng.randint(-20, 400)),
            rf"\frac{{{rng.randint(1, 30)}}}{{{rng.randint(2, 30)}}}",
            *answers,
        ]
        for _ in range(GENERATIONS):
            answer = gold if rng.random() < 0.5 else rng.choice(others)
            text = answer if r"\boxed" in answer else rf"\boxed{{{answer}}}"
            batch.append(
                Row(
                    gold,
                    f"Let us add up the parts of it, step by step. Then the answer is {text}.",
                    True,
                )
            )
    return batch


def print_batch(rows: list[Row]) -> None:
    batch = typical_batch(rows)
    print(
        f"\nTypical batch: {PROMPTS} prompts x {GENERATIONS} completions in one call, boxed_math end to end"
    )
    times = []
    for _ in range(4):
        started = time.perf_counter()
        compare_boxed(batch)
        times.append(1e6 * (time.perf_counter() - started) / len(batch))
    print(
        f"mean {statistics.mean(times[1:]):.1f} us a row (best {min(times[1:]):.1f}, worst {max(times[1:]):.1f} of 3)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--pairs", "--completions"):
        parser.add_argument(
            name,
            type=Path,
            nargs="+",
            default=[],
            metavar="FILE",
            help="default: of this repository",
        )
    args = parser.parse_args()
    if not args.pairs + args.completions:
        args.pairs, args.completions = PAIRS, [COMPLETIONS]
    pairs = {file: read(file, "gold", "prediction") for file in args.pairs}
    completions = {file: read(file, "gold_answer", "completion") for file in args.completions}
    logging.disable(logging.WARNING)  # Math-Verify warns of every row that it gives up on
    for file, rows in pairs.items():
        print_table(f"Pairs of {file}", PAIR_CHECKERS, rows)
    if pairs:
        print_batch([row for rows in pairs.values() for row in rows])
    for file, rows in completions.items():
        print_table(f"Completions of {file}", COMPLETION_CHECKERS, rows)


if __name__ == "__main__":
    main()
