"""How the scripts read their arguments and end, without anything that loads slowly."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def make_parser(text: str) -> argparse.ArgumentParser:
    """A parser whose help is the text of the script; what it does not know may be a recipe's."""
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=formatter, allow_abbrev=False)


@contextmanager
def refusals() -> Iterator[None]:
    """End with status 2 and the message of an error that is for the user."""
    try:
        yield
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2) from problem


def at_least(least: float) -> Callable[[str], float]:
    """A type of argument: a number of the kind of `least`, and not below it."""

    def number(text: str) -> float:
        value = type(least)(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is too small; at least {least:g}")
        return value

    return number


def new_folder(text: str) -> Path:
    """A type of argument: a folder that is not there yet, or empty."""
    folder = Path(text)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise argparse.ArgumentTypeError(f"{text} exists: name another folder, or remove it")
    return folder
