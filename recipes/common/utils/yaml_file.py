"""Read a YAML file of settings: a mapping without repeated names."""

import json
from pathlib import Path
from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """A loader that refuses repeated names; PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        names = set()
        for key, _ in node.value:
            if key.value in names and key.value != "<<":
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"{key.value} is given twice (line {line} and after)")
            if isinstance(key, yaml.ScalarNode):
                names.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings; ValueError if the file cannot be read or does not hold a mapping."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
            raise ValueError("it is not an ordinary file; give a YAML file of settings")
        config = yaml.load(path.read_bytes(), UniqueKeys)  # YAML finds the encoding itself
        json.dumps(config, default=str)  # raises if an alias contains itself
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a YAML mapping of names to values.")
    return config
