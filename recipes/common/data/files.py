"""Read the rows of files and folders, in the layouts that data sets have, by split."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset, load_from_disk
from datasets.exceptions import DatasetsError

from recipes.common.data.split import CHATS, LONGEST, Values
from rewards.rows import lines_of, parse_line

KINDS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
# Files about a data set, which hold no rows.
NO_ROWS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")
SPLITS = {"train", "test", "validation", "valid", "val", "dev", "eval"}
PART = re.compile(r"(.+)-\d{5}-of-\d{5}")  # a split in several files, as the Hub names them


def splits_of_path(
    path: Path, columns: tuple[str, str], config: str | None = None
) -> dict[str, Values]:
    """The splits of a file or a folder by name; a split may have several files.

    `config` names a subfolder, where a folder in the Hub's layout has several configurations.
    """
    if not path.exists():
        raise ValueError(f"dataset_path: there is no file or folder {path}.")
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        saved = load_from_disk(str(path))  # written by `save_to_disk`
        return rows_by_split(str(path), saved if isinstance(saved, dict) else {"train": saved})
    splits: dict[str, list[Path]] = {}
    for file in files_of_folder(path, config) if path.is_dir() else [path]:
        if file.suffix in KINDS:
            if not file.is_file():
                raise ValueError(f"dataset_path: {file} is no ordinary file; it needs rows.")
            part = PART.fullmatch(file.stem)
            name = part[1] if part else file.stem
            if name not in SPLITS and file.parent.name in SPLITS:  # train/0000.parquet
                name = file.parent.name
            splits.setdefault(name, []).append(file)
    if not splits:
        kinds = ", ".join(KINDS)
        raise ValueError(
            f"dataset_path: {path} is not a {kinds} file, nor a folder that holds some."
        )
    return {
        name: chain.from_iterable(values_of(file, columns) for file in files)
        for name, files in splits.items()
    }


def files_of_folder(folder: Path, config: str | None) -> list[Path]:
    """The files of rows in a folder, or in its subfolders where only these hold some.

    In the Hub's layout a subfolder is `data`, a configuration, or a split.
    """
    if config and (folder / config).is_dir():
        return files_of_folder(folder / config, None)
    entries = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    files = [path for path in entries if path.suffix in KINDS and path.name not in NO_ROWS]
    holding = [
        path
        for path in entries
        if any(file.suffix in KINDS for file in chain(path.glob("*"), path.glob("*/*")))
    ]
    if files or not holding:
        return files
    names = [path.name for path in holding]
    if len(holding) > 1 and not SPLITS.issuperset(names):
        raise ValueError(
            f"dataset_path: {folder} holds rows in {', '.join(names)}: choose one by "
            "dataset_config, or give its path."
        )
    return [file for path in holding for file in files_of_folder(path, None)]


def splits_of_hub(name: str, config: str | None) -> dict[str, Values]:
    """The splits of a data set on the Hub, by name."""
    return rows_by_split(name, load_dataset(name, config))


def rows_by_split(source: str, splits: dict[str, Dataset]) -> dict[str, Values]:
    """The rows of loaded splits, each with its place."""
    return {
        split: (
            (f"{source}, {split}, row {number}", row) for number, row in enumerate(rows, start=1)
        )
        for split, rows in splits.items()
    }


def values_of(file: Path, columns: tuple[str, str]) -> Iterator[tuple[str, Any]]:
    """The rows of a file with their places; a JSON row is a line of text."""
    kind, options = file.suffix[1:], {}
    if kind in ("jsonl", "json"):
        yield from json_values(file, columns)
        return
    if kind in ("csv", "tsv"):
        with file.open(encoding="utf-8-sig", errors="replace") as lines:
            header = lines.readline(LONGEST)
        usual = "\t" if kind == "tsv" else ","
        fitting = [
            separator
            for separator in (usual, ",", ";", "\t")
            if {*columns} <= {name.strip('" \n') for name in header.split(separator)}
        ]
        # pandas would read 007 as 7 and NA as missing.
        options = {"converters": dict.fromkeys(columns, str), "keep_default_na": False}
        options["sep"] = fitting[0] if fitting else usual
        kind = "csv"
    try:  # a stream writes no cache
        rows = load_dataset(kind, data_files=str(file), split="train", streaming=True, **options)
        for number, row in enumerate(rows, start=1):
            yield f"{file}, row {number}", row
    except (ValueError, OSError, DatasetsError) as error:
        raise ValueError(f"{file} cannot be read as {kind}: {error}") from error


def json_values(file: Path, columns: tuple[str, str]) -> Values:
    """The lines of a JSON Lines file, the items of a list, or of the one list in an object."""
    lines = list(lines_of(file))
    try:
        whole = parse_line("\n".join(line for _, line in lines))
    except ValueError:
        return lines  # one object a line
    if not isinstance(whole, dict):
        return lines
    lists = {name: rows for name, rows in whole.items() if isinstance(rows, list) and rows}
    if {*columns, *CHATS} & whole.keys() or not lists:
        return [(f"{file}, line 1", whole)]
    if len(lists) > 1:
        raise ValueError(
            f"{file} holds one object with the lists {', '.join(lists)}: save each list as a file "
            "of its own."
        )
    (rows,) = lists.values()  # {"data": [{...}, {...}]}
    return [(f"{file}, item {number}", row) for number, row in enumerate(rows, start=1)]
