"""Before and after a run: is it still English? Perplexity under the model it started from, and distinct n-grams.

    python scripts/fluency.py runs/number-count-hack runs/number-count-cure

Judges the sampled held-out texts of each run folder (`num_eval_samples`), or the greedy ones where none
were sampled. The perplexity of the untrained model's own samples is the mark to compare with.
"""

import argparse
import json
from pathlib import Path


def texts_of(rows: list[dict]) -> tuple[list, list[str]]:
    """Prompts and texts: every sampled completion, else every greedy one."""
    pairs = [(row["prompt"], text) for row in rows for text in row.get("sampled_completions", [row["completion"]])]
    prompts, texts = zip(*pairs, strict=True)
    return list(prompts), list(texts)


def measure(folder: Path) -> list[dict]:
    """One line of figures each for before and after."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from recipes.common.evaluation.fluency import distinct_n, perplexity
    from recipes.common.tools.folder import read_rows
    from rewards.fluency import word_share

    config = json.loads((folder / "run_config.json").read_text())
    name, revision = config["model_name_or_path"], {"revision": config["model_revision"]}
    model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32, **revision).eval()
    tokenizer = AutoTokenizer.from_pretrained(name, **revision)
    lines = []
    for when in ("before", "after"):
        rows = read_rows(folder / "evaluation" / f"{when}.jsonl")
        prompts, texts = texts_of(rows)
        names = rows[0]["rewards"]
        paid = {name: [row["rewards"][name] for row in rows if row["rewards"][name] is not None] for name in names}
        lines.append(
            {
                "run": folder.name,
                "": when,
                "texts": len(texts),
                **{
                    f"{reward} (greedy)": round(sum(amounts) / max(1, len(amounts)), 3)
                    for reward, amounts in paid.items()
                },
                "perplexity": round(perplexity(model, tokenizer, prompts, texts, config["chat_template_kwargs"]), 2),
                "words %": round(100 * word_share(" ".join(texts)), 1),
                "distinct-1": round(distinct_n(texts, 1), 3),
                "distinct-2": round(distinct_n(texts, 2), 3),
                "distinct-2 within": round(distinct_n(texts, 2, within=True), 3),
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished")
    options = parser.parse_args()
    for folder in options.runs:
        for needed in ("run_config.json", "evaluation/before.jsonl", "evaluation/after.jsonl"):
            if not (folder / needed).is_file():
                parser.error(f"{folder} has no {needed}: is it a finished run that evaluated?")
    from recipes.common.tools.tables import format_table

    for folder in options.runs:
        print(format_table(measure(folder)), flush=True)


if __name__ == "__main__":
    main()
