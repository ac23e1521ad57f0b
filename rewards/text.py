"""Finds the parts of a completion: thoughts, tags, boxes, fenced programs, denials and corrections.

Every function takes linear time and raises on no string.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from rewards.latex.number import number_of


class Place(NamedTuple):
    """A tag or a box in a text: where it starts and ends, and where its inside does."""

    start: int
    inside: int
    inside_end: int
    end: int


def completion_text(completion: str | list[dict]) -> str:
    """The text of a completion in either of TRL's forms: a string, or a list of chat messages.

    Only the assistant's messages count, a line for each: the output of a tool is not the model's
    answer.

    Example: `completion_text([{"role": "tool", "content": "5"}, {"content": "hi"}]) == "hi"`
    """
    if isinstance(completion, str):
        return completion
    said = [message for message in completion if message.get("role") in ("assistant", None)]
    return "\n".join(message["content"] for message in said if message.get("content"))


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
    rf"{_END_TOKEN}|<\|[a-z_]+\|>|\n(?:user|assistant|human|model)[ \t]*\n"
    r"|(?:\n|(?<=[.!?}$\])0-9] ))[ \t*#]{0,6}(?:(?:new|next|another|similar)[ \t])?"
    r"(?:Question|Problem|Exercise|Example|Human|User|Instruction|Input|Q)\b"
    r"[ \t]{0,3}(?:[0-9]{0,4}[ \t*]{0,3}:|[0-9]{1,4}[ \t*]{0,3}\n)",
    re.IGNORECASE,
)


def before_next_problem(text: str, start: int | None = None) -> str:
    """The text up to the next question, turn or end token after `start` (None: its first digit).

    Example: `before_next_problem("It is 7.\\nQ: 2 + 2\\nA: 4") == "It is 7."`
    """
    if start is None:
        digit = re.search("[0-9]", text)
        start = digit.end() if digit else len(text)
    end = _RUN_ON.search(text, start)
    return text[: end.start()] if end else text


def without_programs(text: str) -> str:
    """The text without fenced programs, whose numbers are not answers; fenced output or data stays.

    Example: `without_programs("```python\\nprint(9 * 2)\\n``` 18") == " 18"`
    """
    return re.sub(r"```(?!output|[a-z]*text|mark|latex|json)[A-Za-z_+]+[^`]*(?:```|\Z)", "", text)


def find_tag(text: str, tag: str) -> Place | None:
    """The place of the last complete `<tag>...</tag>`, an empty one only where all are empty.

    None where there is none. An empty tag mentions the format and does not take back an answer.

    Example: `find_tag("<answer>4</answer>", "answer") == (0, 8, 9, 18)`
    """
    last = None
    for match in re.finditer(rf"<{tag}>([^<]*(?:<(?!/?{tag}>)[^<]*)*)</{tag}>", text):
        if last is None or match[1].strip() or not last[1].strip():
            last = match
    return Place(last.start(), *last.span(1), last.end()) if last else None


def inside_of(text: str, place: Place) -> str:
    """The stripped text inside a place; if that holds a box, the content of its last box."""
    inside = text[place.inside : place.inside_end].strip()
    return last_boxed(inside) or inside


_BRACE = re.compile(
    r"(?P<open>\{)|(?P<close>\})"
    # Only from the first backslash of a run: from each of them the search would be quadratic.
    r"|(?<!\\)\\+(?:(?:boxed|fbox)\s*(?P<box>\{)|boxed\s+(?P<bare>[^\s${}\\]+)|(?P<escaped>[{}]))"
)


def find_boxes(text: str) -> list[Place]:
    r"""All complete boxes (`\boxed{}`, `\fbox{}` or `\boxed 5`) that are not inside another box.

    Empty boxes are left out, unless there are no others.

    Example: `find_boxes(r"is \boxed{7}.") == [(3, 10, 11, 12)]`
    """
    if "box" not in text:
        return []
    boxes: list[Place] = []
    opened: list[re.Match | None] = []  # for each open brace that of a box, or None
    for match in _BRACE.finditer(text):
        kind = match.lastgroup
        if kind in ("open", "box"):
            opened.append(match if kind == "box" else None)
        elif kind == "bare":
            boxes.append(Place(match.start(), match.start("bare"), match.end(), match.end()))
        elif kind == "close" and opened and (box := opened.pop()):
            while boxes and boxes[-1].start > box.start():  # a box inside this one
                boxes.pop()
            boxes.append(Place(*box.span(), *match.span()))
    return [box for box in boxes if box.inside < box.inside_end] or boxes


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete box, or None where there is none.

    Example: `last_boxed(r"\boxed{1} then \boxed{\frac{1}{2}}") == r"\frac{1}{2}"`
    """
    boxes = find_boxes(text)
    return text[boxes[-1].inside : boxes[-1].inside_end].strip() if boxes else None


# Text between boxes that make one answer, such as "or $x =".
_NAMED = r"(?<![\w\\^{+*/-])([a-z](?:_\{?\d\}?)?)\s*=\s*"
_BETWEEN = re.compile(rf"(?:[\s$,;&}}，、；或和]|\\(?:[(),;]|q?quad|text\{{)|and|or)*(?:{_NAMED})?")
_MAX_BETWEEN = 60  # characters


def boxed_answer(text: str) -> str | None:
    r"""The answer in the last box; None where there is no box.

    Boxes joined by a comma, "and" or "or" are one answer, without order.

    Example: `boxed_answer(r"\boxed{-2} and \boxed{1}") == "-2 or 1"`; `boxed_answer("5") is None`
    """
    boxes = find_boxes(text)
    if not boxes:
        return None
    joined = [boxes.pop()]
    while boxes:
        between = text[boxes[-1].end : joined[-1].start]
        is_one = len(between) <= _MAX_BETWEEN and _BETWEEN.fullmatch(between)
        if not is_one or not re.search("[,;&，、；或和]|and|or", between):
            break
        joined.append(boxes.pop())
    contents, names = [], []
    for box in reversed(joined):
        inside = text[box.inside : box.inside_end]
        # A box in a box. Only from the first backslash of a run: else it would be quadratic.
        contents.append(re.sub(r"(?<!\\)\\+(?:boxed|fbox)\s*\{", "{", inside).strip())
        names += re.findall(rf"{_NAMED}\Z", text[max(box.start - 12, 0) : box.start])
    is_named = len(names) == len(joined) and len(set(names)) > 1  # `$x=\boxed{1}$, $y=\boxed{2}$`
    if is_named:
        contents = list(map("{} = {}".format, names, contents))
    is_list = is_named and "or" not in text[joined[-1].end : box.start]
    return (", " if is_list else " or ").join(dict.fromkeys(filter(None, contents)))


def gold_answer(gold: str) -> str:
    r"""The answer in a gold: bare, between dollar signs, boxed, or in the last box of a solution.

    Example: `gold_answer(r"So $x = \boxed{3}$.") == "3"`; `gold_answer("$5$ miles") == "5 miles"`
    """
    boxed = boxed_answer(gold)
    return without_dollars(gold if boxed is None else boxed)


def without_dollars(text: str) -> str:
    """The text without the dollar signs around mathematics; with an odd number, one is money."""
    plain, signs = re.subn(r"(?<!\\)\$", "", text)
    return text if signs % 2 else plain


# --- Denials
#
# A clause behind an answer is a verdict on it if all its words stand for
#
# - the answer: its number, "the answer", or "that",
# - right, wrong or not,
# - nothing of their own (_FILLERS, and adverbs in -ly).
#
# Any other word or number makes the clause one about something else: "That is not much". The last
# verdict counts: it denies the answer if its words for wrong and not are odd in number.

_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|either|cannot|wrong|incorrect|false|doubt|anything but|far from"
    r"|different from|than|no longer|at least|at most|mistake|trap)|n['’]t\b|≠|!=|\\neq?(?![a-z]))"
    # Words that may stand between the denial and the answer.
    r"(?:[\s*$({\"'’~=]|<answer>|\\boxed|\b(?:s|an?|the|my|our|this|it|that|to|is|was|be|have|has"
    r"|think|believe|say|guess|write|gives?|would|quite|really|final|correct|right|answer|result"
    r"|number|exactly|actually)\b)*(?::(?:[\s*$({\"'’~=]|<answer>|\\boxed)*)?\Z",
    re.IGNORECASE,
)
# These deny what is said in words, and not what stands in a tag or box.
_BOUND = re.compile(r"\b(?:at (?:least|most)|no (?:more|less|fewer) than)\b", re.IGNORECASE)
_CLAUSE_END = re.compile(
    r"[.,](?!\d)|[;:!?…\n—–()]|\b(?:but|because|since|for|so|and)\b|\Z", re.IGNORECASE
)
_PIECE = re.compile(r"</?[a-z]+>|\\[a-z]+|(\d[\d.,/]*\d|\d)|([a-z]+(?:['’][a-z]+)*)", re.IGNORECASE)
_ANSWER = {"answer", "result", "solution", "that", "this", "it", "which"}
_JUDGEMENTS = {"right": 0, "correct": 0, "true": 0, "wrong": 1, "incorrect": 1, "false": 1}
_NEGATIONS = {"not", "never", "cannot", "longer", "doubt"}
_FILLERS = set(
    "a about afraid again also am an are at be been being believe can could did do does final find "
    "had has have hm hmm i indeed is know look looks may might must my no now of oh ok okay our "
    "out problem question quite realise realize say see seem seems should sorry still the then "
    "think to turns wait was we well were will would yes".split()
)
_MAX_BEFORE, _MAX_BEHIND = 70, 1000  # characters


def is_denied(text: str, start: int, end: int, answer: str | None = None) -> bool:
    """Whether the words before `start` or behind `end` deny the answer that stands between them.

    `answer` is that answer without its tag or box; None where it stands in plain words.

    Example: `is_denied("It is not 5", 10, 11)`; `is_denied("5. No, 5 is wrong.", 0, 1)`
    """
    before = text[max(start - _MAX_BEFORE, 0) : start]
    if _BEFORE.search(before if answer is None else _BOUND.sub("", before)):
        return True
    if re.match(r"\W{0,3}\?", text[end : end + 4]):  # "18?"
        return True
    value = number_of(text[start:end] if answer is None else answer)
    # What stands behind the answer starts with a clause about it: "5" and " is wrong."
    subject = "it" if value is None else str(value)
    return end_of_denial(f"{subject} {text[end : end + _MAX_BEHIND]}", value) is not None


_ANOTHER_BEFORE = re.compile(
    r"([0-9][0-9.,]{0,20})[*$)]{0,3}(?:</answer>)?\s{1,3}(?:or|vs\.?)\s{1,3}[*$({]{0,4}\Z"
)
_ANOTHER_BEHIND = re.compile(
    r"[\s*$)}\]]{0,6},?\s?\(?(?:or|vs\.?|versus|alternatively,?)\s"
    r"(?:(?:maybe|perhaps|possibly|even|else)\s)?"
    r"[*$(]{0,3}(?:<answer>)?([0-9][0-9.,]{0,20}(?:[ \t]?\\?%|[ \t][a-z]{1,12})?)"
    # A condition, and what holds where it does not.
    r"|[ \t*$)}\],]{0,6}(?:if|unless)\b[^.\n]{1,100}\b(?:otherwise|else|in which case)\b"
    r"[^.\n]{0,60}[0-9]",
    re.IGNORECASE,
)


def is_one_of_several(text: str, start: int, end: int, value: Fraction | None) -> bool:
    """Whether another value is offered next to the answer between `start` and `end`.

    Such as "20 or 18", "18 (or 20)" and "18 if it rains, otherwise 20". `value` is the answer's;
    None where it is no number, so that no number can be compared with it.
    """
    before = _ANOTHER_BEFORE.search(text, max(start - 40, 0), start)
    for match in filter(None, (before, _ANOTHER_BEHIND.match(text, end))):
        if match[1] is None:  # a condition
            return True
        # With the word behind it and without: "18 or 1.5 dozen", "18 or 18 in all", "3/4 or 75%".
        forms = (match[1].rstrip(".,"), match[1].split()[0].rstrip(".,"))
        readings = set(map(number_of, forms))
        whole = 100 if re.search("%|percent", match[1]) else 1
        if value is not None and readings.isdisjoint((value, value * whole)):
            return True
    return False


def end_of_denial(text: str, value: Fraction | None = None) -> int | None:
    """Where the last verdict on an answer of this value ends, if it denies the answer; else None.

    A verdict is a clause that calls the answer right or wrong, and says nothing else.

    Example: `end_of_denial("That is not right.") == 17`; `end_of_denial("It is not far.") is None`
    """
    end_of_last = None
    start = 0  # of the clause
    for mark in _CLAUSE_END.finditer(text[:_MAX_BEHIND]):
        is_right = _verdict(text[start : mark.start()], value)
        if is_right is not None and mark[0] != "?":
            end_of_last = None if is_right else mark.start()
        start = mark.end()
    return end_of_last


def _verdict(clause: str, value: Fraction | None) -> bool | None:
    """Whether a clause says that the answer, of this value, is right; None if it says neither.

    An odd number of denials means wrong, so "not wrong" is right. A clause without right or wrong
    counts if it names the answer twice: "it is not 18".

    Example: False of "that is wrong"; None of "17 is wrong" for the value 18.
    """
    subjects, denials, is_judged, is_behind_number = 0, 0, False, False
    for number, word in _PIECE.findall(clause):
        word = re.sub("['’](?:s|re|m|ll|d)$", "", word.casefold())
        if number and number_of(number) != value:
            return None
        if number or word in _ANSWER:
            subjects += 1
        elif word in _JUDGEMENTS:
            is_judged = True
            denials += _JUDGEMENTS[word]
        elif word in _NEGATIONS or re.search("n['’]t$", word):
            denials += 1
        elif word and not is_behind_number and word not in _FILLERS and not word.endswith("ly"):
            return None  # a word that is not the unit of a number, as in "18 eggs"
        is_behind_number = bool(number)
    return denials % 2 == 0 if is_judged or subjects >= 2 else None


# --- Corrections

# An aside: an explanation, the question repeated, "If ... had ..., ... would ...", or an equation
# that checks: "Wait, let me double check: 3 * 6 = 18", but not "Wait, let me check: it is 20".
ASIDE = re.compile(
    r"\W*(?:(?:Note|Remember|This is because|Check|The (?:question|problem) (?:says|asks))\b"
    r"|If\b[^,]*\bhad\b[^,]*,[^,]*\bwould\b"
    r"|(?i:(?:[a-z][a-z']*,?\s){0,5}?(?:double[\s-]?|re-?)?(?:check(?:ed|ing)?|verif[a-z]+|confirm(?:ing)?)"
    r"\b(?!\s(?:out|in))[^=]*=))"
)
# Words of somebody who finds no answer.
_GIVES_UP = re.compile(
    r"(?:(?:\b(?:I|we)\s(?:can(?:not|['’]t| not)|could(?: not|n['’]t)|do(?: not|n['’]t))"
    r"|\b(?:unable|impossible|not possible|no way|not sure how) to|\bcan(?:not|['’]t) be)"
    r"\s(?:solve|determine|find|found|tell|answer|compute|know|say)"
    r"|\bcan(?:not|['’]t)\s(?:solve|determine|compute|know))"
    # But "Tom can't solve 5 of the 23 problems."
    r"(?=\s*(?:[.,;!?)]|\Z|(?:it|this|that|the (?:answer|result|rest))\b))"
    r"|(?:\b(?:not|no)|n['’]t)\s(?:[a-z]+\s){0,3}enough information\b|\binsufficient information\b",
    re.IGNORECASE,
)
# Words that announce another answer, where a sentence or a clause starts.
_TAKES_BACK = re.compile(
    r"(?:\A|[.!?…\n,;>})$*]|\s[—–-])[\s*_)]{0,3}"
    r"(?:(?:oh|but|hm{1,9}|well|ah|ok(?:ay)?|no|and|so)\b[\s,.…]{0,6}){0,2}"
    r"(?:(?:no|sorry|oops|correction)(?=\s?[-—–,.:;!])|actually|wait|hold (?:on|up)|scratch that"
    r"|just kidding|or rather"
    r"|on second thought|(?:I|we) (?:meant?|was wrong|forgot|mis[a-z]{1,12})"
    r"|(?:I|we) made an? [a-z ]{0,20}(?:mistake|error)"
    r"|(?:let(?: me|['’]s| us)|(?:I|we) (?:should|must|need to)|to) (?:correct|fix|try again"
    r"|re-?(?:calc|comput|cons|count|do|eval|examin|think)[a-z]{0,8})|I apologi[sz]e"
    r"|the correct [a-z ]{1,40} is|(?:it|that|this) (?:should|must) (?:be|have been))\b",
    re.IGNORECASE,
)
# Words that reopen the question: another answer follows where a sentence concludes one.
_REOPENS = re.compile(
    r"(?:\A|[.!?\n,;>})$*])[\s*_)]{0,3}(?:hmm?,?\s)?(?:however|yet"
    r"|(?:let me )?(?:re|double)[- ]?check[a-z]{0,3})\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"\b(?:so|therefore|thus|hence)\b", re.IGNORECASE)


def gives_up(text: str) -> bool:
    """Whether a text says that it finds no answer, and no equation or conclusion follows."""
    said = [*_GIVES_UP.finditer(text)]
    behind = text[said[-1].end() :] if said else "="
    return "=" not in behind and not _CONCLUDES.search(behind)


def start_of_correction(text: str) -> int | None:
    """Where the text begins that corrects an answer before it; None where nothing takes it back.

    Example: `start_of_correction(". Actually, it is 20.") == 10`
    """
    if words := _TAKES_BACK.search(text):
        return words.end()
    words = _REOPENS.search(text)
    conclusions = [*_CONCLUDES.finditer(text, words.end())] if words else []
    return conclusions[-1].end() if conclusions else None
