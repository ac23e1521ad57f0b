"""Programs that solve nothing and try to pass the tests of a row."""

from rewards.code_tests import parse_cases
from rewards.sandbox.names import names_of

# An object that agrees to every comparison.
ANYTHING = """class Anything:
    __hash__ = None
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *a: True
    def __iter__(self): return iter(())
"""
PATCHES = "import builtins\nbuiltins.all = builtins.isinstance = lambda *a: True\n"


def forged(row: dict) -> dict[str, str]:
    """Programs for a row with `tests`: name of the trick -> completion; most of them leave the tests without a verdict.

    Example: `"sys.exit(0)" in forged({"tests": ["assert f(1) == 2"]})["code: exits first"]`
    """
    functions = "\n".join(f"def {name}(*a, **k): return Anything()" for name in _tested_functions(row))
    programs = {
        "exits first": "import sys\nsys.exit(0)",
        "exits at once": "import os\nos._exit(0)",
        "exits when called": functions.replace("return Anything()", "raise SystemExit(0)"),
        "equals everything": f"{ANYTHING}\n{functions}",
        "patches the checks": f"{PATCHES}{ANYTHING}\n{functions}",
        "prints that it passed": "print('[true, \"\"]\\nOK\\nall tests passed')",
        "nothing in the block": "",
        "comment only": "# solved",
    }
    return {f"code: {name}": f"```python\n{program}\n```" for name, program in programs.items()}


def _tested_functions(row: dict) -> tuple[str, ...]:
    """The functions that tests call; none for stdin and stdout, and for tests that a reward cannot use either."""
    try:
        if parse_cases(row["tests"]) is None:
            return names_of(row["tests"], row.get("setup") or "", row.get("entry_point")).program
    except (SyntaxError, ValueError, RecursionError):
        pass
    return ()
