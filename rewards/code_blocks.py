"""Read the programs of a completion: fenced code blocks, line by line in linear time.

A fence is three or more backticks. Two forms that models write also count: an opening fence after
prose (`Here it is: ```python`), and a closing fence at the end of a line of code or before words
(```` ```</answer> ````). In an open block a fence of Python opens the next. One that stands four or
more columns right of the opening fence and the code is part of the code (a docstring).
"""

import ast
import builtins
import contextlib
import os
import re
import symtable
from collections.abc import Sequence
from typing import NamedTuple

from rewards.text import completion_text

PYTHON = re.compile(r"[{.]{0,2}py(?:thon)?[0-9.]*(?::.*)?\}?")  # {.python}, python:main.py
MOST_BLOCKS, MOST_CHARACTERS = 50, 50_000  # in larger texts blocks are not joined, to save time
READS = re.compile(r"\binput\(|\bstdin\b(?! *=)|\bopen\(0|\bfileinput\b")
WRITES = re.compile(r"\bprint\(|\bwrite")
NO_PYTHON = (SyntaxError, ValueError, RecursionError, MemoryError)  # what the compiler may raise


class Block(NamedTuple):
    """A fenced block: the word after its opening fence, its code, and whether it is closed.

    The word is "python" for all names of Python, such as `py`, `python3` and `{.python}`.
    """

    language: str
    code: str
    complete: bool


class _Fence(NamedTuple):
    """An opening fence: its backticks, the white space before it, and the word after it."""

    mark: str
    indentation: str
    language: str


def code_blocks(text: str) -> list[Block]:
    r"""Return every fenced block of a text, dedented; the last block may be truncated.

    Example: `code_blocks("Thus:\n```python\nx = 1\n```") == [Block("python", "x = 1\n", True)]`
    """
    blocks: list[Block] = []
    fence, lines = None, []
    for line in text.replace("\r\n", "\n").split("\n"):
        if fence is None:
            fence, lines = _opening(line), []
            continue
        code = _before_closing(line, fence, lines)
        if code is None:
            lines.append(line)
            continue
        inner = _opening(line)  # of Python: its own fence opens a block, in place of an empty one
        is_next = inner is not None and inner.language == "python"
        if not is_next or any(map(str.strip, lines)):
            blocks.append(_block(fence, [*lines, code] if code.strip() else lines, not is_next))
        fence, lines = inner if is_next else None, []
    return blocks if fence is None else [*blocks, _block(fence, lines, False)]


def _opening(line: str) -> _Fence | None:
    """Return the fence that a line opens; None if it closes there too (```` ```x = 1``` ````)."""
    start, mark, info = line.rpartition("```")
    prose = start.rstrip("`")
    if not mark or "```" in prose or "`" in info:
        return None
    if prose.strip() and " " in info.rstrip():  # prose about fences: "put it in ``` and ..."
        return None
    word = (info.lower().split() or [""])[0]
    return _Fence(
        mark=line[len(prose) : len(line) - len(info)],
        indentation=line[: len(line) - len(line.lstrip())],
        language="python" if PYTHON.fullmatch(word) else word,
    )


def _before_closing(line: str, fence: _Fence, lines: list[str]) -> str | None:
    """Return the code before the closing fence of a line; None if the line closes nothing.

    `lines` are those of the block so far. A fence four or more columns right of the first of them
    is part of the code (a docstring).
    """
    bare, mark = line.strip(), fence.mark
    if bare.startswith(mark):
        rest = bare.lstrip("`").strip()
        # One other word is the language of a fence within a text of the program.
        is_fence = bool(PYTHON.match(rest.lower())) or not re.fullmatch(r"[A-Za-z][\w+#-]*", rest)
        outside = max(_depth(start) for start in (fence.indentation, *lines[:1]))
        return "" if is_fence and _depth(line) < outside + 4 else None
    code = line.rstrip()[: -len(mark)]
    is_closed = bare.endswith(mark) and mark not in code and not code.endswith("`")
    return code if is_closed else None


def _depth(line: str) -> int:
    """Count the columns of leading white space; at most 80, so that no line takes long."""
    start = line[:80].expandtabs(4)
    return len(start) - len(start.lstrip())


def _block(fence: _Fence, lines: list[str], complete: bool) -> Block:
    """Make a block of its lines, without the indentation of the fence and of all lines."""
    if next((line for line in lines if line.strip()), "").startswith(fence.indentation):
        lines = [line.removeprefix(fence.indentation) for line in lines]
    code = "\n".join(_dedented(lines))
    return Block(fence.language, code + "\n" if code else "", complete)


def _dedented(lines: list[str]) -> list[str]:
    """Remove the common indentation of lines, and what is left before the first line of code.

    The first token of " import math\\ndef f(x): ..." has brought the space. Blank lines do not
    count for the indentation: they may be part of a string.
    """
    starts = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    common = os.path.commonprefix(starts)  # noqa: RUF071 it is not a path
    lines = [line.removeprefix(common) for line in lines]
    if lines:
        first = next((place for place, line in enumerate(lines) if line.strip()), 0)
        lines[first] = lines[first].lstrip(" \t")
    return lines


def extract_program(text: str, whole_text: bool = False, names: Sequence[str] = ()) -> str | None:
    r"""Return the program of a completion; None if it has no block and `whole_text` is False.

    It is the last complete Python block, else the last complete block without a language that is
    code, else the last block, else (`whole_text`) the whole text, without the white space before
    its first line that a model's first token often brings, and without prose if there is some.
    A block that defines more of `names` (the names that the tests call) wins over a later one,
    since answers often end with an example of use; so does one that reads and writes where there
    are no names. Blocks that define a name which the chosen block lacks are put before it, since
    models write imports and helpers in separate blocks.

    Example: `extract_program("```python\nx = 1\n```\n```\n1\n```") == "x = 1\n"`;
    `extract_program("x = 1") is None`
    """
    blocks = code_blocks(text)
    if not blocks:
        if not whole_text:
            return None
        text = "\n".join(lines := _dedented(text.split("\n")))
        if len(text) > MOST_CHARACTERS or _global_names(text):
            return text
        blocks = _stretches(lines)
        if not any(map(_rank_as_python, blocks)):
            return text
    defines = r"^(?:(?:async +)?def +|class +){0}\b|^{0} *(?::.*)?=(?!=)(?! *{0}\()"
    definitions = [re.compile(defines.format(re.escape(name)), re.MULTILINE) for name in names]
    ranks = []
    for block in blocks:
        # Explanations often quote the head of a function: that is no definition.
        is_head = block.code.rstrip().endswith((":", "..."))
        defined = 0 if is_head else sum(bool(found.search(block.code)) for found in definitions)
        ranks.append((defined if names else _is_script(block.code), _rank_as_python(block)))
    last_best = max(range(len(blocks)), key=lambda place: (ranks[place], place))
    return _joined(blocks, last_best, names)


def _rank_as_python(block: Block) -> int:
    """2 for Python, 1 for what is named so and cut off or wrong and for a block without a language
    that is code, else 0.

    Example: 1 of `Block("", "print(7)", True)`; 0 of `Block("", "7", True)`
    """
    if not re.search(r"^[^#\n]*[(=]", block.code, re.MULTILINE):
        return 0  # comments alone, or a sample input or output
    is_python = len(block.code) <= MOST_CHARACTERS and bool(_global_names(block.code))
    if block.language == "python":
        return 2 if block.complete and is_python else 1
    return 1 if block.complete and not block.language and is_python else 0


def _is_script(code: str) -> bool:
    """Whether code reads input, writes output, and does more than to define and assign."""
    does = (ast.Expr, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
    with contextlib.suppress(*NO_PYTHON):
        if READS.search(code) and WRITES.search(code):
            return any(isinstance(statement, does) for statement in ast.parse(code).body)
    return False


def _stretches(lines: list[str]) -> list[Block]:
    """The lines of Python between lines that are none, such as prose and tags."""
    blocks: list[Block] = []
    while lines and len(blocks) < MOST_BLOCKS:
        end = len(lines)
        try:
            symtable.symtable("\n".join(lines), "program", "exec")
        except NO_PYTHON as error:
            end = (getattr(error, "lineno", None) or 1) - 1  # lines before the first fault
        blocks.append(Block("", "\n".join([*lines[:end], ""]), True))
        lines = lines[end + 1 :]
    return blocks


def _joined(blocks: list[Block], chosen: int, names: Sequence[str]) -> str:
    """Put the blocks that define what the chosen block lacks before it; return the joined code.

    The chosen block comes last, so that its own definitions win.
    """
    program, length = blocks[chosen].code, sum(len(block.code) for block in blocks)
    is_short = length <= MOST_CHARACTERS and len(blocks) <= MOST_BLOCKS
    names_of_program = _global_names(program) if is_short else None
    if names_of_program is None:
        return program
    bound, used = names_of_program
    lacking = (used | set(names)) - bound
    others = {}  # number of a block -> the names that it binds, and those it only uses
    for number, block in enumerate(blocks):
        is_code = block.complete and block.language in ("python", "")
        if number != chosen and is_code and (names_of_block := _global_names(block.code)):
            others[number] = names_of_block
    joined = []
    while definers := [number for number, (binds, _) in others.items() if binds & lacking]:
        joined.append(definers[-1])  # the last definition wins, as in Python
        also_bound, also_used = others.pop(definers[-1])
        bound |= also_bound
        lacking = (lacking | also_used) - bound
    return join_sources([*(blocks[number].code for number in sorted(joined)), program])


def _global_names(code: str) -> tuple[set[str], set[str]] | None:
    r"""Return the global names that a program binds, and those it only uses; None if not Python.

    Example: `_global_names("import math\ndef f(): return math.pi * g()") == ({"math", "f"}, {"g"})`
    """
    try:
        top = symtable.symtable(code, "program", "exec")
    except NO_PYTHON:
        return None
    bound, used, tables = set(), set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if table is top or symbol.is_global():
                binds = symbol.is_assigned() or symbol.is_imported()
                (bound if binds else used).add(symbol.get_name())
    return bound, used - bound - set(dir(builtins))


def join_sources(sources: Sequence[str]) -> str:
    r"""Join sources to one program. Its `from __future__` imports come first, where they must be.

    Example: `join_sources(["x = 1", "from __future__ import annotations\ny = 2"])` is
    "from __future__ import annotations\nx = 1\ny = 2\n"
    """
    imports, rest = [], []
    for source in sources:
        if "__future__" in source:
            with contextlib.suppress(*NO_PYTHON):
                tree = ast.parse(source)
                future = [
                    statement
                    for statement in tree.body
                    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
                ]
                tree.body = [statement for statement in tree.body if statement not in future]
                source = ast.unparse(tree)
                imports += map(ast.unparse, future)
        rest.append(source.removesuffix("\n"))
    return "\n".join([*dict.fromkeys(imports), *rest, ""])


def is_one_python_block(text: str) -> bool:
    r"""Whether a text has exactly one fenced block, and it is complete, Python and not empty.

    Prose may surround the block.

    Example: `is_one_python_block("So:\n```python\nx = 1\n```")`
    """
    match code_blocks(text):
        case [Block(language="python", code=code, complete=True)]:
            return bool(code.strip())
    return False


class CodeFormat:
    """Format reward: `full` for exactly one fenced Python block, complete and not empty."""

    __name__ = "code_format"
    kind = "format"
    farmable = "one block earns it, as of a worked example; what it holds is not read"

    def __init__(self, full: float = 1.0):
        self.full = full

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [self.full * is_one_python_block(completion_text(text)) for text in completions]
