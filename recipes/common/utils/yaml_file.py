"""Read a YAML file of settings: a mapping without repeated names and without aliases."""

import re
from pathlib import Path
from typing import Any

import yaml

MOST_BYTES = 2_000_000  # our largest file of settings has 3,000
DEEPEST = 50


class UniqueKeys(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """A loader that refuses repeated names; PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        """Make a dict of a mapping, as PyYAML does; YAMLError if a name stands twice in it."""
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    line = node.start_mark.line + 1
                    raise yaml.YAMLError(f"{key.value} is given twice (line {line} and after)")
                names.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_decimal(self, node: yaml.ScalarNode) -> int:
        """Make an int; YAMLError for `0100` and `1:30`, which YAML 1.1 reads as 64 and 90."""
        if not re.fullmatch("[-+]?(0|[1-9][0-9_]*)", node.value):
            raise yaml.YAMLError(
                f"{node.value} (line {node.start_mark.line + 1}) is not a decimal number: YAML "
                f"reads it as {self.construct_yaml_int(node)}; write that, or put a text in quotes"
            )
        return self.construct_yaml_int(node)


UniqueKeys.add_constructor("tag:yaml.org,2002:int", UniqueKeys.construct_decimal)
# YAML 1.1 takes 1e-6 for a text, also where no type of a setting turns it into a number.
UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings; ValueError if the file cannot be read or does not hold a mapping.

    An alias (`*name`) is refused: a few lines of them can mean billions of values.
    """
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
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"it has the alias *{event.anchor}; write the value out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError(f"it is nested deeper than {DEEPEST} levels")
        config = yaml.load(content, UniqueKeys)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        lines = content.decode(errors="replace").split("\n")[mark.line :] if mark else []
        shown = f" (that line: {lines[0]!r:.80})" if any(lines[:1]) else ""  # a tab is shown as \t
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}{shown}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a YAML mapping of names to values.")
    return config
