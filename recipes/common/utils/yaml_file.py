"""A YAML file of settings: a mapping in which a name stands once."""

import json
from pathlib import Path
from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """PyYAML takes the last of several equal names without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        scalars = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = sorted({name for name in scalars if scalars.count(name) > 1 and name != "<<"})
        if twice:
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f"{', '.join(twice)} is given twice (line {line} and after)")
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read settings; ValueError for a file that cannot be read, or that holds something else."""
    try:
        with path.open("rb") as file:  # YAML finds the encoding itself
            config = yaml.load(file, UniqueKeys)
        json.dumps(config, default=str)  # an alias to what it stands in has no end
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} must hold a YAML mapping of names to values.")
    return config
