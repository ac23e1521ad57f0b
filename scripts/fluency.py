"""Before and after a run: is it still English? Perplexity under the model it started from, and distinct n-grams.

    python scripts/fluency.py runs/number-count-hack runs/number-count-cure

Measures the sampled held-out completions of each run folder (`num_eval_samples`), or the greedy ones where none were
sampled. The perplexity of the untrained model's own samples is the mark to compare with.
"""

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, finished")
    options = parser.parse_args()
    from recipes.common.evaluation.fluency import fluency_table
    from recipes.common.utils.tables import format_table

    for folder in options.runs:
        try:
            print(format_table(fluency_table(folder)), flush=True)
        except ValueError as problem:
            parser.error(str(problem))


if __name__ == "__main__":
    main()
