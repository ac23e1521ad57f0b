"""Files of a run that are whole or absent."""

import json
from pathlib import Path
from typing import Any


def write_whole(path: Path, text: str) -> None:
    """Written aside and renamed: a file that exists is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


def write_json(path: Path, value: Any) -> None:
    """`write_whole` of indented JSON."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
