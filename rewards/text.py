"""Finds the parts of a completion: thoughts, tags, boxes, fenced programs and denials.

Every function takes linear time and raises on no string.
"""

import re
from typing import NamedTuple


class Place(NamedTuple):
    """A tag or a box in a text: where it starts and ends, and where its inside does."""

    start: int
    inside: int
    inside_end: int
    end: int


def completion_text(completion: str | list[dict]) -> str:
    """The text of a completion in either of TRL's forms: a string, or a list of chat messages.

    Only the assistant's messages count: the output of a tool is not the model's answer.

    Example: `completion_text([{"role": "tool", "content": "5"}, {"content": "hi"}]) == "hi"`
    """
    if isinstance(completion, str):
        return completion
    said = [message for message in completion if message.get("role") in ("assistant", None)]
    return "".join(message.get("content") or "" for message in said)


def question_of(prompt: str | list[dict]) -> str:
    """The question of a prompt: a plain text, or the text of the last message, without images.

    Example: `question_of([{"content": "Be brief."}, {"content": "9 + 9 ="}]) == "9 + 9 ="`
    """
    if isinstance(prompt, str):
        return prompt
    content = (prompt[-1].get("content") if prompt else "") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content)  # images have no text


def after_thinking(text: str) -> str:
    """The text without its thoughts: from the last `</think>` up to a `<think>` that stays open.

    Example: `after_thinking("<think>17?</think>It is 18.") == "It is 18."`
    """
    return text.rpartition("</think>")[2].partition("<think>")[0]


# End tokens of chat models. They appear as text where generation does not stop at them.
_END_TOKEN = r"<\|(?:end|im_end|eot|eom|return)[a-z_]{0,9}\|>|</s>|<eos>|<end_of_turn>"


def answer_part(text: str, thoughts: bool = False) -> str:
    """The text that may hold the answer: up to an end token, and without thoughts by default.

    Example: `answer_part("<think>17?</think>It is 18.<|im_end|>19") == "It is 18."`
    """
    text = re.split(_END_TOKEN, text, maxsplit=1)[0]
    return text if thoughts else after_thinking(text)


# The start of another problem or turn: a model that does not stop invents one and answers it.
_RUN_ON = re.compile(
    rf"{_END_TOKEN}|<\|[a-z_]+\|>|\[/?INST\]"
    r"|(?:\n|(?<=[.!?}$\])0-9] ))[ \t*#]{0,6}"
    r"(?:(?:Question|Problem|Exercise|Example|Human|User|Instruction|Input|Q)\b"
    r"[ \t]{0,3}[0-9]{0,4}[ \t*]{0,3}:|Problem [0-9]{1,4}[ \t*]{0,3}\n)",
    re.IGNORECASE,
)


def before_next_problem(text: str) -> str:
    """The text up to the first question, turn or end token after its first digit.

    Example: `before_next_problem("It is 7.\\nQ: 2 + 2\\nA: 4") == "It is 7."`
    """
    digit = re.search("[0-9]", text)
    end = _RUN_ON.search(text, digit.end()) if digit else None
    return text[: end.start()] if end else text


_FENCED = re.compile(r"```(?:(?!output|text|latex)[A-Za-z_+]+|[^`]*\bprint\()[^`]*(?:```|\Z)")


def without_programs(text: str) -> str:
    """The text without fenced programs, whose numbers are not answers; fenced output stays.

    Example: `without_programs("```python\\nprint(9 * 2)\\n``` 18") == " 18"`
    """
    return _FENCED.sub("", text)


def find_tag(text: str, tag: str) -> Place | None:
    """The place of the last complete `<tag>...</tag>`, an empty one only where all are empty.

    None where there is none. An empty tag mentions the format and does not take back an answer.

    Example: `find_tag("<answer>4</answer>", "answer") == (0, 8, 9, 18)`
    """
    empty, end = None, len(text)
    while True:
        end = text.rfind(f"</{tag}>", 0, end)
        start = text.rfind(f"<{tag}>", 0, max(end, 0))
        if start < 0:
            return empty
        inside, inside_end = start + len(tag) + 2, text.find(f"</{tag}>", start)
        place = Place(start, inside, inside_end, inside_end + len(tag) + 3)
        if text[inside:inside_end].strip():
            return place
        empty, end = empty or place, start


def inside_of(text: str, place: Place) -> str:
    """The stripped text inside a place; if that holds a box, the content of its last box."""
    inside = text[place.inside : place.inside_end].strip()
    return last_boxed(inside) or inside


def tagged_answer(text: str) -> str | None:
    """The text of the last `<answer>` tag or of a box in it; None if it is missing or denied.

    Example: `tagged_answer("So <answer> 5 </answer>") == "5"`
    """
    place = find_tag(text, "answer")
    is_answer = place is not None and not is_denied(text, place.start, place.end)
    return inside_of(text, place) if is_answer else None


_BRACE = re.compile(
    r"(?P<open>\{)|(?P<close>\})"
    r"|\\+(?:(?:boxed|fbox)\s*(?P<box>\{)|boxed\s+(?P<bare>[^\s${}\\]+)|(?P<escaped>[{}]))"
)
# Text allowed between boxes that make one answer. Each alternative starts with another character.
_BETWEEN = re.compile(r"(?:[\s$,;&}]|\\(?:[(),;]|q?quad|text\{)|and|or)*")
_MAX_BETWEEN = 60  # characters
_MAX_JOINED = 20  # more boxes side by side are a list of candidates
_INNER = re.compile(r"\\+(?:boxed|fbox)\s*\{")  # of a box inside a box the braces stay


def find_boxes(text: str) -> list[Place]:
    r"""All complete boxes (`\boxed{}`, `\fbox{}` or `\boxed 5`) that are not inside another box."""
    boxes: list[Place] = []
    opened: list[re.Match | None] = []
    for match in _BRACE.finditer(text) if "box" in text else ():
        kind = match.lastgroup
        if kind in ("open", "box"):
            opened.append(match if kind == "box" else None)
        elif kind == "bare":
            boxes.append(Place(match.start(), match.start("bare"), match.end(), match.end()))
        elif kind == "close" and opened and (box := opened.pop()):
            while boxes and boxes[-1].start > box.start():
                boxes.pop()
            boxes.append(Place(*box.span(), *match.span()))
    return boxes


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete box, or None where there is none.

    Example: `last_boxed(r"\boxed{1} then \boxed{\frac{1}{2}}") == r"\frac{1}{2}"`
    """
    boxes = find_boxes(text)
    return text[boxes[-1].inside : boxes[-1].inside_end].strip() if boxes else None


def boxed_answer(text: str, adjacent: bool = False) -> str | None:
    r"""The answer in the last box; None where there is no box, or the words around it deny it.

    Boxes joined by a comma, "and" or "or" are one answer, without order. With `adjacent`, boxes
    side by side are too: a gold holds several values there, while a completion may repeat one.

    Example: `boxed_answer(r"\boxed{-2} and \boxed{1}") == "-2 or 1"`; `boxed_answer("5") is None`
    """
    boxes = find_boxes(text)
    if not boxes or is_denied(text, boxes[-1].start, boxes[-1].end):
        return None
    joined = [boxes.pop()]
    while boxes and len(joined) <= _MAX_JOINED:
        between = text[boxes[-1].end : joined[-1].start]
        is_one = len(between) <= _MAX_BETWEEN and _BETWEEN.fullmatch(between)
        if not is_one or not (adjacent or re.search("[,;&]|and|or", between)):
            break
        joined.append(boxes.pop())
    contents = [_INNER.sub("{", text[box.inside : box.inside_end]).strip() for box in joined[::-1]]
    contents = list(dict.fromkeys(filter(None, contents)))
    return " or ".join(contents) if len(contents) <= _MAX_JOINED else ""


def gold_answer(gold: str) -> str:
    r"""The answer in a gold: bare, between dollar signs, boxed, or in the last box of a solution.

    Example: `gold_answer(r"So $x = \boxed{3}$.") == "3"`; `gold_answer("$5$ miles") == "5 miles"`
    """
    boxed = boxed_answer(gold, adjacent=True)
    return without_dollars(gold if boxed is None else boxed)


def without_dollars(text: str) -> str:
    """The text without the dollar signs around mathematics; with an odd number, one is money."""
    plain, signs = re.subn(r"(?<!\\)\$", "", text)
    return text if signs % 2 else plain


_DENIES = re.compile(
    r"(?:\b(?:not|never|neither|nor|either|cannot|wrong|incorrect|false|doubt|anything but|far from"
    r"|different from|than|no longer|at least|at most)|n['’]t\b|≠|!=|\\neq?(?![a-z]))"
    # Words that may stand between the denial and the answer.
    r"(?:[\s:*$({\"'~=]|<answer>|\\boxed|\b(?:an?|the|my|our|this|it|that|to|is|was|be|have|has"
    r"|think|believe|say|final|correct|right|answer|result|number|exactly|actually)\b)*\Z",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"[ \t*$)}\]\"'.,?]{0,6}(?:\\text\{|</answer>)?\s?(?:[^.!?\n0-9]{0,60}\bbut\s)?"
    # "is wrong", "Wait, no, that's not right"
    r"(?:(?:[a-z]{1,9}[,.!]?\s){0,4}(?:which|that|this|it)(?:\s|(?=['’]s)))?(?:(?:is|was|['’]s)\s)?"
    r"(?:wrong|incorrect|false|not (?:correct|right|true|(?:the|my|our) (?:[a-z]+ )?answer))\b"
    r"|\W{0,3}\?",
    re.IGNORECASE,
)
_MAX_DENIAL = 70


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether the words right before `start` or after `end` say that this is not the answer.

    Example: `is_denied("It is not 5", 10, 11)`; `is_denied("5 is wrong", 0, 1)`
    """
    before = text[max(start - _MAX_DENIAL, 0) : start]
    return _DENIES.search(before) is not None or _DENIED.match(text, end) is not None
