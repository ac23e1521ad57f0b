"""Read tests without running them: which functions the program must define, and which modules the
tests use without an import.

    names_of(["assert area(2) == math.pi * 4"], "", None)   # program ('area',), modules ('math',)
    names_of(["assert sum(10, 15) == 6"], "", None)         # program ('sum',), modules ()

Promises: tests are compiled here, once for all programs of a task, and never run. Their asserts are
kept even under `python -O`.

What is not covered: a function of the program that has the name of a built-in which the tests also
use. The task must then give its name as `entry_point`.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Sequence
from itertools import chain
from types import CodeType
from typing import NamedTuple

RAISES = ("raises", "assertRaises")  # in pytest and in unittest


class Names(NamedTuple):
    """`errors`: exceptions that the tests catch and the program must define."""

    program: tuple[str, ...]
    modules: tuple[str, ...]
    errors: tuple[str, ...] = ()


def names_of(tests: Sequence[str], setup: str, entry_point: str | Sequence[str] | None) -> Names:
    """The names that the program must define, and modules to import; may raise as `_uses`."""
    named = (entry_point,) if isinstance(entry_point, str) else tuple(entry_point or ())
    return _names_of(tuple(tests), setup, named)


@functools.lru_cache(maxsize=4096)
def _names_of(tests: tuple[str, ...], setup: str, named: tuple[str, ...]) -> Names:
    """`names_of`, kept for all programs of a task; `named` are the functions the task names.

    A name that the tests use and do not bind is a module's (`math`, if it is not called), a
    built-in, or the program's.
    """
    uses = [_uses(text) for text in (setup, *tests)]
    bound = set(chain.from_iterable(use.bound for use in uses))
    called = set(chain.from_iterable(use.called for use in uses))
    caught = set(chain.from_iterable(use.caught for use in uses))
    names = dict.fromkeys(chain.from_iterable(use.names for use in uses))
    free = [name for name in names if name not in bound and name not in named]
    modules = tuple(name for name in free if name in sys.stdlib_module_names and name not in called)
    unknown = [name for name in free if not hasattr(builtins, name) and name not in modules]
    errors = tuple(name for name in unknown if name in caught)
    functions = tuple(name for name in unknown if name not in caught)
    if not functions:  # then the first name that every test calls, though a built-in has it, as sum
        of_tests = [use.called for use in uses[1:]]
        in_all = [name for name in chain(*of_tests) if all(name in calls for calls in of_tests)]
        functions = tuple(name for name in in_all if name not in bound)[:1]
    return Names(named or functions, modules, errors)


class _Uses(NamedTuple):
    """Names in a text, in the order of its tree: all names, and those that it binds (defines or
    assigns, in any scope), calls, or names as an exception to catch.
    """

    names: dict[str, None]
    bound: set[str]
    called: dict[str, None]
    caught: set[str]


def _uses(text: str) -> _Uses:
    """The names in a text of Python; may raise `SyntaxError` or `ValueError`.

    Example: `_uses("with pytest.raises(Low): f(x := 1)").caught == {"Low"}`; `bound` is {"x"}
    """
    uses = _Uses({}, set(), {}, set())
    for node in ast.walk(ast.parse(text)):
        exceptions: list[ast.expr] = []
        match node:
            case ast.Name(ctx=ast.Load()):
                uses.names[node.id] = None
            case ast.Name():
                uses.names[node.id] = None
                uses.bound.add(node.id)
            case ast.Call(func=ast.Name()):
                uses.called[node.func.id] = None
            case ast.Call(func=ast.Attribute()) if node.func.attr in RAISES:
                exceptions = node.args[:1]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                uses.bound.add(node.name)
            case ast.arg():
                uses.bound.add(node.arg)
            case ast.Assert(test=ast.Tuple(elts=[_, *_])):
                raise ValueError(f"an assert of a tuple is always true (line {node.lineno})")
            case ast.alias():
                uses.bound.add((node.asname or node.name).partition(".")[0])
            case ast.ExceptHandler():
                exceptions = [node.type] if node.type else []
                uses.bound.update([node.name] if node.name else [])
        inside = (name for kind in exceptions for name in ast.walk(kind))
        uses.caught.update(name.id for name in inside if isinstance(name, ast.Name))
    compiled(text, "<test>")  # refuses `return f(1)` and `await f(1)`, which `ast.parse` takes
    return uses


@functools.lru_cache(maxsize=4096)
def compiled(text: str, name: str) -> CodeType:
    """Compile a setup or test for the checker; may raise `SyntaxError` or `ValueError`."""
    return compile(text, name, "exec", dont_inherit=True, optimize=0)
