"""Reading the text of a completion: pure functions, linear in its length, that never raise on any string."""

import re

# How numbers are written, for all modules. Only ASCII digits are digits.
WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
# The same where a text of any length is searched: bounded, so that a long row of digits is read once.
SIZED = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,15})?|(?<![\w.])\.[0-9]{1,15}"
# Words and letters right behind a number that change its value: "18 thousand", "18 lakh", "18M" are not 18. A fourth
# or a fifth may count grades or coins ("18 third graders", "18 quarters"), so of those only the plural is here.
SCALE = (
    r"(?:[kKMB]|bn|mn|tn|mln|(?i:hundred|thousand|(?:[mbt]|quadr|quint|sext)[a-z]{0,4}illion|lakh|lac|crore|dozen|myriad"
    r"|grand|squared|cubed|factorial|hal(?:f|ves)|(?:hundred|thousand|[a-z]{1,6}illion)ths?"
    r"|(?:third|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|[a-z]{3,6}teen|[a-z]{3,6}tie)th)s)s?)(?![A-Za-z0-9])"
)
# Words that deny what stands right behind them, and what may stand between.
DENIALS = (
    r"not|never|neither|nor|nobody|no one|hardly|doubt|refuse|impossible|opposite of|by no means|in no way"
    r"|under no circumstances|cannot|[a-z]{2,7}n['’]t|anything but|far from|no longer|wrong|incorrect|false"
)
FILLERS = (
    r"(?:[\s:*$({\"'~=]|<answer>|\\boxed|(?:an?|the|my|our|this|it|that|to|is|was|be|as|have|has|had|equals?|think|believe|say|final|correct|right"
    r"|answer|result|value|number|total|exactly|actually|really|necessarily|simply|would|will|could|should|must)"
    r"(?![A-Za-z]))*\Z"
)
UNTRUE = r"(?:wrong|incorrect|false|not (?:correct|right|true|(?:the|my|our) (?:[a-z]+ )?answer))"
_DENIES = re.compile(
    rf"(?:(?<![A-Za-z])(?:{DENIALS})(?![A-Za-z])|≠|!=|\\neq?(?![a-z])){FILLERS}", re.IGNORECASE
)
_DENIED = re.compile(
    r"\W{0,3}\?\s*(?:no|nope|wrong|never)\b"
    rf"|[ \t*$)}}\]\"'.,]{{0,6}}(?:(?:which|that|this|it|but)\s){{0,2}}(?:is|was)\s(?:[a-z]+\s)?{UNTRUE}\b",
    re.IGNORECASE,
)


def completion_text(completion: str | list[dict]) -> str:
    """The text of a completion in either of TRL's forms: a plain string, or a list of chat messages.

    Only what the assistant says is an answer: a tool may say anything.

    Example: `completion_text([{"role": "tool", "content": "5"}, {"role": "assistant", "content": "hi"}]) == "hi"`
    """
    if isinstance(completion, str):
        return completion
    return "".join(
        message.get("content") or ""
        for message in completion
        if message.get("role") in ("assistant", None)
    )


def after_thinking(text: str) -> str:
    """The text without its thoughts in `<think>`: what follows the last `</think>`, or precedes a `<think>` left open.

    Example: `after_thinking("<think>17?</think>It is 18.") == "It is 18."`; `after_thinking("<think>It is 18.") == ""`
    """
    if "think>" not in text:
        return text
    return text.rpartition("</think>")[2].partition("<think>")[0]


def tag_text(text: str, tag: str) -> str | None:
    """The text inside the last complete `<tag>...</tag>`, stripped, or None where there is none.

    Example: `tag_text("<answer>4</answer> <answer> 5 </answer>", "answer") == "5"`
    """
    inside = tag_span(text, tag)
    return None if inside is None else text[slice(*inside)].strip()


def tagged_answer(text: str) -> str | None:
    """The text inside the last complete `<answer>` tag, or None where there is none or the words around it deny it.

    Example: `tagged_answer("So <answer> 5 </answer>") == "5"`; `tagged_answer("Not <answer>5</answer>") is None`
    """
    inside = tag_span(text, "answer")
    if inside is None or is_denied_around(
        text, inside[0] - len("<answer>"), inside[1] + len("</answer>")
    ):
        return None
    return text[slice(*inside)].strip()


def is_denied_around(text: str, start: int, end: int) -> bool:
    """Whether the words right before `start` or right behind `end` say that what stands between is not the answer.

    Example: `is_denied_around("It is not 5", 10, 11)`; `is_denied_around("5 is wrong", 0, 1)`
    """
    before = text[max(start - 70, 0) : start]
    return _DENIES.search(before) is not None or _DENIED.match(text, end) is not None


def tag_span(text: str, tag: str) -> tuple[int, int] | None:
    """Start and end of what stands inside the last complete `<tag>...</tag>`, or None where there is none.

    Example: `tag_span("<answer>4</answer>", "answer") == (8, 9)`
    """
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    if end < 0 or start < 0:
        return None
    return start + len(tag) + 2, text.find(f"</{tag}>", start)


# --- Boxes
_BRACE = re.compile(
    r"(?P<open>\{)|(?P<close>\})|\\+(?:(?:boxed|fbox)\s*(?P<box>\{)|boxed\s+(?P<bare>[^\s${}\\]+)|(?P<escaped>[{}]))"
)
# What may stand between two boxes that are one answer, "\boxed{-2} and \boxed{1}": each piece starts with another sign.
_BETWEEN = re.compile(r"(?:[\s$,;&}]|\\(?:[(),;]|q?quad|text\{)|and|or)*")
_JOINS = re.compile(r"[,;&]|and|or")
_MAX_BETWEEN = 60
MAX_JOINED = 20  # more boxes side by side are a list of candidates
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
    for box in reversed(boxes[-MAX_JOINED - 1 : -1]):
        if not _are_joined(text[box[3] : parts[0][0]][: _MAX_BETWEEN + 1], adjacent):
            break
        parts.insert(0, box)
    contents = list(
        dict.fromkeys(_INNER.sub("{", text[start:end]).strip() for _, start, end, _ in parts)
    )
    return " or ".join(filter(None, contents)) if len(contents) <= MAX_JOINED else ""


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
