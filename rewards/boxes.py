r"""The answer that a text puts in `\boxed{}`. Linear in the length of the text, whatever its braces."""

import re

from rewards.parsing import is_denied_around

_BRACE = re.compile(
    r"(?P<open>\{)|(?P<close>\})|\\+(?:(?:boxed|fbox)\s*(?P<box>\{)|boxed\s+(?P<bare>[^\s${}\\]+)|(?P<escaped>[{}]))"
)
# What may stand between two boxes that are one answer, "\boxed{-2} and \boxed{1}": each piece starts with another sign.
_BETWEEN = re.compile(r"(?:[\s$,;&}]|\\(?:[(),;]|q?quad|text\{)|and|or)*")
_JOINS = re.compile(r"[,;&]|and|or")
_MAX_BETWEEN = 60
_INNER = re.compile(r"\\+(?:boxed|fbox)\s*\{")  # a box inside a box is read where it stands


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{}` (or `\fbox{}`, or `\boxed 5`), or None where there is none.

    Example: `last_boxed(r"\boxed{1} then \boxed{\frac{1}{2}}") == r"\frac{1}{2}"`
    """
    boxes = find_boxes(text)
    return text[slice(*boxes[-1][1:3])].strip() if boxes else None


def boxed_answer(text: str, adjacent: bool = False) -> str | None:
    r"""The answer in the last box; boxes joined by a comma, "and" or "or" are one answer in any order.

    None where there is no box, or the words around it deny it.

    With `adjacent` boxes are also joined by nothing: nobody writes a gold twice.

    Example: `boxed_answer(r"\boxed{-2} and \boxed{1}") == "-2 or 1"`; `boxed_answer("5") is None`
    """
    boxes = find_boxes(text)
    if not boxes or is_denied_around(text, boxes[-1][0], boxes[-1][3]):
        return None
    parts = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _are_joined(text[box[3] : parts[0][0]][: _MAX_BETWEEN + 1], adjacent):
            break
        parts.insert(0, box)
    contents = list(
        dict.fromkeys(_INNER.sub("{", text[start:end]).strip() for _, start, end, _ in parts)
    )
    return " or ".join(filter(None, contents)) if len(contents) <= 20 else ""


def _are_joined(between: str, adjacent: bool) -> bool:
    joins = adjacent or _JOINS.search(between) is not None
    return joins and len(between) <= _MAX_BETWEEN and _BETWEEN.fullmatch(between) is not None


def find_boxes(text: str) -> list[tuple[int, int, int, int]]:
    """Start, start and end of the content, and end of each complete box that is inside no other complete box."""
    found: list[tuple[int, int, int, int]] = []
    opened: list[tuple[int, int] | None] = []
    for match in _BRACE.finditer(text) if "box" in text else ():
        kind = match.lastgroup
        if kind in ("open", "box"):
            opened.append(None if kind == "open" else match.span())
        elif kind == "bare":
            found.append((match.start(), match.start("bare"), match.end(), match.end()))
        elif kind == "close" and opened:
            box = opened.pop()
            if box is not None:
                while found and found[-1][0] > box[0]:
                    found.pop()
                found.append((*box, *match.span()))
    return found
