"""Read tests without running them: which functions the program must define, and which modules the
tests use without an import.

    names_of(["assert area(2) == math.pi * 4"])     # Names(program=('area',), modules=('math',))
    names_of(["assert sum(10, 15) == 6"])           # Names(program=('sum',), modules=())

Promises: tests are compiled here, once for all programs of a task, and never run. Their asserts are
kept even under `python -O`.

What is not covered: a function of the program that has the name of a built-in which the tests also
use. The task must then give its name as `entry_point`.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from types import CodeType
from typing import NamedTuple

RAISES = ("raises", "assertRaises")  # in pytest and in unittest


class Names(NamedTuple):
    """`errors`: exceptions that the tests catch and the program must define."""

    program: tuple[str, ...]
    modules: tuple[str, ...]
    errors: tuple[str, ...] = ()


def names_of(
    tests: Sequence[str], setup: str = "", entry_point: str | Sequence[str] | None = None
) -> Names:
    """The names that the program must define, and modules to import; may raise `SyntaxError`."""
    named = (entry_point,) if isinstance(entry_point, str) else tuple(entry_point or ())
    return _names_of(tuple(tests), setup, named)


@functools.lru_cache(maxsize=4096)
def _names_of(tests: tuple[str, ...], setup: str, named: tuple[str, ...]) -> Names:
    trees = [ast.parse(text) for text in (setup, *tests)]
    bound = {name for tree in trees for name in _bound(tree)}
    called = _called(trees)
    names = dict.fromkeys(
        node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)
    )
    free = [name for name in names if name not in bound and name not in named]
    modules = tuple(name for name in free if name in sys.stdlib_module_names and name not in called)
    unknown = [name for name in free if not hasattr(builtins, name) and name not in modules]
    caught = {name for tree in trees for name in _caught(tree)}
    errors = tuple(name for name in unknown if name in caught)
    functions = tuple(name for name in unknown if name not in caught)
    return Names(named or functions or _called_in_all(trees[1:], bound), modules, errors)


@functools.lru_cache(maxsize=4096)
def compiled(text: str, name: str) -> CodeType:
    """Compile a setup or test for the checker; may raise `SyntaxError` or `ValueError`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            raise ValueError(f"an assert of a tuple is always true (line {node.lineno})")
    return compile(text, name, "exec", dont_inherit=True, optimize=0)


def _caught(tree: ast.Module) -> Iterator[str]:
    """Names of exceptions: after `except`, or first in a call of `raises` or `assertRaises`."""
    for node in ast.walk(tree):
        kinds = []
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            kinds = [node.type]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in RAISES:
            kinds = node.args[:1]
        for kind in kinds:
            yield from (name.id for name in ast.walk(kind) if isinstance(name, ast.Name))


def _called(trees: list[ast.Module]) -> list[str]:
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]


def _called_in_all(tests: list[ast.Module], bound: set[str]) -> tuple[str, ...]:
    """The first name that every test calls, for a function with the name of a built-in."""
    called = [dict.fromkeys(_called([test])) for test in tests]
    for name in chain(*called):
        if name not in bound and all(name in in_test for in_test in called):
            return (name,)
    return ()


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the code itself defines or assigns, in any scope."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                names.add(node.id)
            case ast.arg():
                names.add(node.arg)
            case ast.alias():
                names.add((node.asname or node.name).partition(".")[0])
            case ast.ExceptHandler(name=str()):
                names.add(node.name)
    return names
