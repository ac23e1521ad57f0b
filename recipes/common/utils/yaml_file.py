"""Read a YAML file of settings: a mapping without repeated names."""

import json
from pathlib import Path
from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """A loader that refuses repeated names; PyYAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        scalars = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({name for name in scalars if scalars.count(name) > 1 and name != "<<"})
        if twice:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"{', '.join(twice)} is given twice (line {line} and after)")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings; ValueError if the file cannot be read or does not hold a mapping."""
    try:
        with path.open("rb") as file:  # YAML finds the encoding itself
            config = yaml.load(file, UniqueKeys)
        json.dumps(config, default=str)  # raises if an alias contains itself
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a YAML mapping of names to values.")
    return config
