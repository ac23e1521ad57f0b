"""Copy a finished run as a kill during its second save leaves it: `cut_short.py FINISHED COPY`."""

import os
import shutil
import sys
import time
from pathlib import Path

FORGOTTEN = (
    "summary.json",
    "trainer_state.json",
    "evaluation/after.jsonl",
    "checkpoint-4/trainer_state.json",
)
FORGOTTEN += ("completions/completions_00003.parquet", "completions/completions_00004.parquet")


def main() -> None:
    finished, copy = map(Path, sys.argv[1:])
    if os.environ["RANK"] == "0":
        whole = shutil.copytree(finished, copy.with_suffix(".partial"))
        for file in [*(whole / name for name in FORGOTTEN), *whole.glob("*model.safetensors")]:
            file.unlink()
        whole.rename(copy)
    while not copy.exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main()
