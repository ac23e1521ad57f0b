"""Names that the tests of a task need: functions of the program, and modules that are used without
an import.

    names_of(["assert area(2) == math.pi * 4"])         # Names(program=('area',),
    modules=('math',))
    names_of(["assert sum(10, 15) == 6"])               # Names(program=('sum',), modules=())

Promises: tests are compiled here, once for all programs of a task, and never run; their asserts are
in force whatever the flags of this Python.

What is not covered: a function that is called like a built-in that the tests use too; the task then
names it itself, as `entry_point`.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Sequence
from types import CodeType
from typing import NamedTuple


class Names(NamedTuple):
    program: tuple[str, ...]
    modules: tuple[str, ...]


def names_of(
    tests: Sequence[str], setup: str = "", entry_point: str | Sequence[str] | None = None
) -> Names:
    """The names to ask the program for, and modules to import; `SyntaxError` for bad tests."""
    given = (entry_point,) if isinstance(entry_point, str) else tuple(entry_point or ())
    return _names_of(tuple(tests), setup, given)


@functools.lru_cache(maxsize=4096)
def _names_of(tests: tuple[str, ...], setup: str, given: tuple[str, ...]) -> Names:
    trees = [ast.parse(text) for text in (setup, *tests)]
    bound = {name for tree in trees for name in _bound(tree)}
    called = _called(trees)
    names = dict.fromkeys(
        node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)
    )
    free = [name for name in names if name not in bound and name not in given]
    modules = tuple(name for name in free if name in sys.stdlib_module_names and name not in called)
    unknown = tuple(name for name in free if not hasattr(builtins, name) and name not in modules)
    return Names(given or unknown or _called_in_all(trees[1:], bound), modules)


@functools.lru_cache(maxsize=4096)
def compiled(text: str, name: str) -> CodeType:
    """Code of a setup or test, as the checker runs it; else `SyntaxError` or `ValueError`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts:
            raise ValueError(f"an assert of a tuple is always true (line {node.lineno})")
    return compile(text, name, "exec", dont_inherit=True, optimize=0)


def _called(trees: list[ast.Module]) -> list[str]:
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.func.id for call in calls if isinstance(call.func, ast.Name)]


def _called_in_all(tests: list[ast.Module], bound: set[str]) -> tuple[str, ...]:
    """For a program that is called like a built-in: the first that every test calls."""
    everywhere = [
        name
        for name in _called(tests)
        if name not in bound and all(name in _called([t]) for t in tests)
    ]
    return tuple(everywhere[:1])


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the code itself gives a meaning, in whatever scope."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names
