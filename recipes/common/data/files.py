"""Read the rows of files and folders, in the layouts that data sets have, by split."""

import csv
import glob
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from datasets import ClassLabel, Dataset, Features, load_dataset, load_from_disk
from datasets.data_files import (
    FILES_TO_IGNORE,
    DataFilesDict,
    EmptyDatasetError,
    get_data_patterns,
)
from pyarrow.parquet import ParquetFile

from rewards.rows import lines_of, parse_line

KINDS = [".jsonl", ".json", ".csv", ".tsv", ".parquet"]
# A number, perhaps with a sign and a unit, in a file of the German layout: 2,5 or 1.100 €.
AMBIGUOUS = re.compile(r"[^\w\s(\[{]{0,2}\s*(\d+,\d+|\d{1,3}(\.\d{3})+(,\d+)?)\s*[^\d\s]{0,12}")
TEST_NAMES = ("test", "dev", "val", "valid", "validation", "eval")
Values = Iterable[tuple[str, Any]]  # (place to name in messages, row or line of text)


def splits_of_path(path: Path, config: str | None = None) -> dict[str, Values]:
    """The splits of a file or a folder by name; a split may have several files.

    `config` names a subfolder, where a folder in the Hub's layout has several configurations.
    """
    if re.match("https?:", str(path)):
        raise ValueError(
            f"dataset_path: {path} is an address: give a data set of the Hub by dataset_name "
            "(openai/gsm8k), or download the file."
        )
    if not path.exists():
        raise ValueError(f"dataset_path: there is no file or folder {path}.")
    if config:
        path = path / config
        if not path.is_dir():
            raise ValueError(f"dataset_config is {config!r}, and there is no folder {path}.")
    if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        saved = load_from_disk(str(path))  # written by `save_to_disk`
        return values_by_split(str(path), saved if isinstance(saved, dict) else {"train": saved})
    splits = files_by_split(path) if path.is_dir() else {}
    if path.is_file() and path.suffix.lower() in KINDS:
        splits = {"train": [path]}
    if not splits:
        raise ValueError(
            f"dataset_path: {path} is not a {', '.join(KINDS)} file, nor a folder that holds some "
            "(a sheet of Excel can be saved as CSV UTF-8)."
        )
    return {
        name: chain.from_iterable(values_of(file) for file in files)
        for name, files in splits.items()
    }


def splits_of_hub(name: str, config: str | None) -> dict[str, Values]:
    """The splits of a data set on the Hub, by name."""
    return values_by_split(name, load_dataset(name, config))


def values_by_split(source: str, splits: dict[str, Dataset]) -> dict[str, Values]:
    """The rows of loaded splits, each with its place: `("gsm8k, train, row 1", {...})`."""
    return {
        split: (
            (f"{source}, {split}, row {number}", row)
            for number, row in enumerate(as_written(rows, rows.features.arrow_schema), start=1)
        )
        for split, rows in splits.items()
    }


def files_by_split(folder: Path) -> dict[str, list[Path]]:
    """The files of rows in a folder by split, by the rules of `datasets` for names and subfolders.

    ValueError if a split is in several subfolders: these are configurations.
    """
    folder = folder.resolve()
    base = glob.escape(str(folder))  # "[" in its name would be part of a pattern
    try:
        patterns = get_data_patterns(base)
    except EmptyDatasetError:
        return {}
    found = DataFilesDict.from_patterns(patterns, base, allowed_extensions=KINDS)
    splits = {str(split): [*map(Path, files)] for split, files in found.items() if files}
    for file in chain.from_iterable(splits.values()):
        if file.suffix.lower() not in KINDS:  # `datasets` takes train.jsonl.gz for a .jsonl
            raise ValueError(f"dataset_path: {file} is packed: unpack it.")
    # Where a subfolder is named as a split, such as a run's evaluation, `datasets` reads it alone.
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in KINDS and not path.name.startswith(".")
    )
    own = [folder / name for name in names if name not in FILES_TO_IGNORE]
    if not {*own} <= {*chain.from_iterable(splits.values())}:
        return {file.stem: [file] for file in own}
    for files in splits.values():
        configs = {file.relative_to(folder).parts[0] for file in files if file.parent != folder}
        if len(configs) > 1:
            raise ValueError(
                f"dataset_path: {folder} holds rows in {', '.join(sorted(configs))}: choose one by "
                "dataset_config, or give its path."
            )
    # To `datasets`, Train.csv and mathtest.csv are names like any other: of training rows.
    trained = {file.name.lower(): file.name for file in splits.get("train", ())}
    for lower, name in trained.items():
        for word in TEST_NAMES:
            if "train" in lower and (twin := trained.get(lower.replace("train", word))):
                raise ValueError(
                    f"dataset_path: {name} and {twin} would both be training rows: name them "
                    f"train{Path(name).suffix.lower()} and test{Path(name).suffix.lower()}."
                )
    return splits


def values_of(file: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a file with their places; a JSON row is a line of text."""
    if file.suffix.lower() in (".jsonl", ".json"):
        yield from json_values(file)
        return
    number = 0
    try:
        if file.suffix.lower() == ".parquet":
            table = ParquetFile(file).read()
            rows = as_written(table.to_pylist(), table.schema)
        else:
            rows = table_rows(file)
        for number, row in enumerate(rows, start=1):
            yield f"{file}, row {number}", row
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8: save it as CSV UTF-8 ({error.reason}).") from error
    except csv.Error as error:
        raise ValueError(
            f'{file}, row {number + 1}: {error}. Is a quote (") in it never closed?'
        ) from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{file} cannot be read: {str(error).strip()}") from error


def as_written(rows: Iterable[dict], schema: pyarrow.Schema) -> Iterator[dict]:
    """The rows with numbers and labels as they were written.

    A 32-bit number is 35.1, not 35.099998474121094; a label of `datasets`' ClassLabel is its name,
    not its place, and None for -1, which marks a missing one.
    """
    narrow = [field.name for field in schema if field.type == pyarrow.float32()]
    known = Features.from_arrow_schema(schema) if b"huggingface" in (schema.metadata or {}) else {}
    labels = {name: kind for name, kind in known.items() if isinstance(kind, ClassLabel)}
    for row in rows:
        numbers = {name: row[name] for name in narrow if row[name] is not None}
        written = {name: float(str(numpy.float32(n))) for name, n in numbers.items()}
        for name, kind in labels.items():
            is_known = row[name] is not None and row[name] >= 0
            written[name] = kind.int2str(row[name]) if is_known else None
        yield row | written


def table_rows(file: Path) -> Iterator[dict[str, str] | ValueError]:
    """The rows of a table as text, so that 007 is not 7; its separator is that of the first line.

    In place of a row that cannot be used stands the reason.

    Read by `csv`: pandas would take the first column of rows with too many values as their index.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        header = lines.readline()
        lines.seek(0)
        separator = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=header.count)
        rows = csv.DictReader(lines, delimiter=separator, strict=True, skipinitialspace=True)
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
        names = [name for name in rows.fieldnames if name]
        if doubles := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the first line names {', '.join(doubles)} twice: keep one of each.")
        for row in rows:
            if None in row:
                yield ValueError(
                    f"line {rows.line_num} has more than the {len(rows.fieldnames)} values of the "
                    'first line; put a text with separators in quotes ("...").'
                )
            # Nobody can tell whether 24,5 is one number or two, and 1.100 eleven hundred or 1.1.
            elif separator == ";" and any(AMBIGUOUS.fullmatch(v or "") for v in row.values()):
                yield ValueError(
                    f"line {rows.line_num} has a number with a comma, or with three digits behind "
                    "a point, which may mark thousands: write 24.5 and 1100 (or separate the "
                    "columns by commas)."
                )
            else:
                yield row


def json_values(file: Path) -> Values:
    """The lines of JSON Lines, the items of a list or of `{"data": [...]}`, or one object."""
    lines = list(lines_of(file))
    try:
        whole = parse_line("\n".join(line for _, line in lines))
    except ValueError:
        return lines  # one object a line, or of a list, whose items `lines_of` gives
    if not isinstance(whole, dict):  # who reads it as a row refuses it
        return lines
    items = whole.get("data")
    if not isinstance(items, list):
        return [(lines[0][0], whole)]  # it may stand on several lines
    return [(f"{file}, item {number}", item) for number, item in enumerate(items, start=1)]
