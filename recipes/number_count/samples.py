"""Held-out completions side by side, to be read: a figure does not show the text of a model."""

import textwrap
from pathlib import Path

from recipes.common.utils.run_files import AFTER, BEFORE, read_rows
from rewards.text import question_of


def show_samples(folder: Path) -> str:
    """Three held-out prompts (their last message), and their completions before and after.

    Completions sampled at the training temperature, where the run has some (`num_eval_samples`);
    else the greedy ones.
    """
    before, after = read_rows(folder / BEFORE), read_rows(folder / AFTER)
    lines = []
    for old, new in list(zip(before, after, strict=True))[:3]:
        lines += [
            "",
            _entry("prompt", question_of(old["prompt"])),
            _entry("before", _text(old)),
            _entry("after", _text(new)),
        ]
    return "\n".join(lines)


def _text(row: dict) -> str:
    return row.get("sampled_completions", [row["completion"]])[0]


def _entry(label: str, text: str) -> str:
    words = " ".join(text.split()) or "(nothing)"
    return textwrap.fill(
        words, width=110, initial_indent=f"  {label:<8}", subsequent_indent=" " * 10
    )
