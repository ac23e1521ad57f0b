"""Show held-out completions before and after training, since metrics do not show the text."""

import textwrap
from pathlib import Path

from recipes.common.utils.run_files import AFTER, BEFORE, read_rows
from rewards.text import question_of


def show_samples(folder: Path) -> str:
    """Format three held-out prompts (last message) with a completion before and after training.

    The completion is sampled at the training temperature if the run has samples
    (`num_eval_samples`), else it is greedy.
    """
    pairs = zip(read_rows(folder / BEFORE), read_rows(folder / AFTER), strict=True)
    lines = []
    for before, after in list(pairs)[:3]:
        texts = {"prompt": question_of(before["prompt"])}
        for label, row in {"before": before, "after": after}.items():
            texts[label] = row.get("sampled_completions", [row["completion"]])[0]
        lines.append("")
        for label, text in texts.items():
            words = f"{label:<8}{' '.join(text.split()) or '(nothing)'}"
            indents = {"initial_indent": "  ", "subsequent_indent": " " * 10}
            lines.append(textwrap.fill(words, width=110, **indents))
    return "\n".join(lines)
