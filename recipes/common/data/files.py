"""Read the rows of files and folders, in the layouts that data sets have, by split."""

import csv
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset, load_from_disk
from datasets.data_files import DataFilesDict, EmptyDatasetError, get_data_patterns

from recipes.common.data.split import CHATS, Values, value_at
from rewards.rows import lines_of, parse_line

KINDS = [".jsonl", ".json", ".csv", ".tsv", ".parquet"]
Columns = tuple[str, str]  # of the question and of the answer


def splits_of_path(path: Path, columns: Columns, config: str | None = None) -> dict[str, Values]:
    """The splits of a file or a folder by name; a split may have several files.

    `config` names a subfolder, where a folder in the Hub's layout has several configurations.
    """
    if not path.exists():
        raise ValueError(f"dataset_path: there is no file or folder {path}.")
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        saved = load_from_disk(str(path))  # written by `save_to_disk`
        return rows_by_split(str(path), saved if isinstance(saved, dict) else {"train": saved})
    if path.is_dir():
        splits = files_by_split(path / config if config and (path / config).is_dir() else path)
    else:
        splits = {"train": [path]} if path.suffix in KINDS else {}
        if not path.is_file():  # reading a pipe would wait for a writer
            raise ValueError(f"dataset_path: {path} is no ordinary file; it needs rows.")
    if not splits:
        raise ValueError(
            f"dataset_path: {path} is not a {', '.join(KINDS)} file, nor a folder that holds some "
            "(a sheet of Excel can be saved as CSV UTF-8)."
        )
    return {
        name: chain.from_iterable(values_of(file, columns) for file in files)
        for name, files in splits.items()
    }


def files_by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of rows in a folder by split, by the rules of `datasets` for names and subfolders.

    ValueError if a split is in several subfolders: these are configurations.
    """
    try:
        patterns = get_data_patterns(str(folder.resolve()))
    except EmptyDatasetError:
        return {}
    found = DataFilesDict.from_patterns(patterns, str(folder.resolve()), allowed_extensions=KINDS)
    if not any(found.values()):  # a subfolder eval without rows hides train.jsonl from `datasets`
        files = sorted(file for file in folder.iterdir() if file.suffix in KINDS)
        return {file.stem: [file] for file in files}
    for files in found.values():
        inside = [Path(file).relative_to(folder.resolve()).parts for file in files]
        configs = sorted({parts[0] for parts in inside if len(parts) > 1})
        if len(configs) > 1:
            raise ValueError(
                f"dataset_path: {folder} holds rows in {', '.join(configs)}: choose one by "
                "dataset_config, or give its path."
            )
    return {str(split): [Path(file) for file in files] for split, files in found.items() if files}


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


def values_of(file: Path, columns: Columns) -> Iterator[tuple[str, Any]]:
    """The rows of a file with their places; a JSON row is a line of text."""
    if file.suffix in (".jsonl", ".json"):
        yield from json_values(file, columns)
        return
    rows = parquet_rows(file) if file.suffix == ".parquet" else table_rows(file, columns[1])
    try:
        for number, row in enumerate(rows, start=1):
            yield f"{file}, row {number}", row
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: save it as CSV UTF-8 ({error.reason}).") from error
    except (ValueError, OSError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read: {str(error).strip()}") from error


def parquet_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet file."""
    from pyarrow.parquet import ParquetFile

    for batch in ParquetFile(file).iter_batches():
        yield from batch.to_pylist()


def table_rows(file: Path, answer_column: str) -> Iterator[dict[str, str]]:
    """The rows of a table as text, so that 007 is not 7; its separator is that of the first line.

    Between semicolons an answer 24,5 is refused: nobody can tell whether it is one number or two.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        header = lines.readline()
        lines.seek(0)
        separator = max(",;\t", key=header.count)
        rows = csv.DictReader(lines, delimiter=separator, strict=True)
        for row in rows:
            if None in row:
                raise ValueError(
                    f"line {rows.line_num} has more than the {len(rows.fieldnames)} values of the "
                    'first line; put a text with separators in quotes ("...").'
                )
            answer = str(value_at(row, answer_column))
            if separator == ";" and re.fullmatch(r"\s*-?\d+,\d+\s*", answer):
                raise ValueError(
                    f"line {rows.line_num} has the answer {answer.strip()}, with a comma; write a "
                    "decimal point, and no mark of thousands"
                )
            yield row


def json_values(file: Path, columns: Columns) -> Values:
    """The lines of a JSON Lines file, the items of a list, or of the one list in an object."""
    lines = list(lines_of(file))
    try:
        whole = parse_line("\n".join(line for _, line in lines))
    except ValueError:
        return lines  # one object a line
    if not isinstance(whole, dict):
        return lines
    lists = {name: rows for name, rows in whole.items() if isinstance(rows, list) and rows}
    is_row = any(value_at(whole, name) is not ... for name in (*columns, *CHATS))
    if is_row or not lists:
        return [(f"{file}, line 1", whole)]
    if len(lists) > 1:
        raise ValueError(
            f"{file} holds one object with the lists {', '.join(lists)}: save each list as a file "
            "of its own."
        )
    (rows,) = lists.values()  # {"data": [{...}, {...}]}
    return [(f"{file}, item {number}", row) for number, row in enumerate(rows, start=1)]
