"""Parse arguments and report errors for all scripts; imports nothing that loads slowly."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def make_parser(text: str) -> argparse.ArgumentParser:
    """Make a parser whose help is `text`; no abbreviations, which could be a recipe's arguments."""
    with suppress(OSError):  # the file below the stream may have been replaced
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may not know every letter
    formatter = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=formatter, allow_abbrev=False)


@contextmanager
def refusals() -> Iterator[None]:
    """Print a ValueError or OSError as one message for the user and exit with status 2.

    A reader that closes the pipe early, as `| head` does, is no error.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except (ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        raise SystemExit(2) from problem


def at_least(least: int) -> Callable[[str], int]:
    """Argument type: a whole number that is at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is too small; at least {least}")
        return value

    return number


def is_taken(folder: Path) -> bool:
    """Whether something stands at this path, other than an empty folder."""
    is_empty = folder.is_dir() and not any(folder.iterdir())
    return folder.exists() and not is_empty
