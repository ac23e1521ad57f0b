"""Read a YAML file of settings: a mapping without repeated names."""

from pathlib import Path
from typing import Any

import yaml

# Our largest file of settings has 3,000 bytes and 70 values.
MOST_BYTES = 2_000_000
MOST_VALUES = 100_000  # an alias counts wherever it stands: a few lines can mean billions
DEEPEST = 50


class UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """A loader that refuses repeated names; PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name in names and name != "<<":
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"{name} is given twice (line {line} and after)")
            names |= {name} - {None}
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)  # puts the content of `<<: *alias` in its place
        if len(node.value) > MOST_VALUES:
            raise yaml.YAMLError(f"a mapping has more than {MOST_VALUES:,} names")


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings; ValueError if the file cannot be read or does not hold a mapping."""
    try:
        if not path.is_file():  # opening a pipe would wait for a writer
            is_there = "it is not an ordinary file" if path.exists() else "there is no such file"
            raise ValueError(f"{is_there}; give a YAML file of settings")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(
                f"it has {path.stat().st_size:,} bytes, and a file of settings at most "
                f"{MOST_BYTES:,}; rows are given by dataset_path"
            )
        content = path.read_bytes()  # YAML finds the encoding itself
        depth = 0
        for event in yaml.parse(content, UniqueKeys):  # a loader may crash on deep nesting
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(f"it is nested deeper than {DEEPEST} levels")
        config = yaml.load(content, UniqueKeys)
        count_values(config, {})
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a YAML mapping of names to values.")
    return config


def count_values(value: Any, counts: dict[int, int], depth: int = 0) -> int:
    """Count a value and all values in it, an alias wherever it stands.

    `counts` keeps the count of each mapping and list by its id, so that each is walked once.
    ValueError above `MOST_VALUES`, and for an alias that contains itself.

    >>> count_values({"a": [1, 2]}, {})
    4
    """
    if depth > 2 * DEEPEST:
        raise ValueError("an alias contains itself")
    if not isinstance(value, dict | list | tuple):
        return 1
    if id(value) not in counts:
        inner = value.values() if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(count_values(each, counts, depth + 1) for each in inner)
    if counts[id(value)] > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} values, its aliases written out")
    return counts[id(value)]
