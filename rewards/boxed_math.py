r"""Mathematics: the answer in the last `\boxed{}` against the gold answer.

    from rewards import load_reward
    reward = load_reward("boxed_math")
    reward(prompts=["..."], completions=[r"It is \boxed{\frac{2}{4}}."], answer=["0.5"])    # [1.0]

The comparison is strict, because training exploits false positives. Brackets count. The order of a
bare list counts, but not of a set in `\{ \}`, `a \pm b` or "a or b". Two units must agree or
convert. 0.333333 equals 1/3, but 0.33 does not.
"""

import re
from functools import lru_cache

from rewards.answer import last_box, stated_text
from rewards.latex.compare import compare, problem_of
from rewards.latex.number import SCALES, written_number
from rewards.latex.parse import NUMBER_WORDS, Tree, tidy
from rewards.latex.read import Answer, read_answer
from rewards.rows import LogExtra, check_penalty, log_answers, read_each, score_rows
from rewards.text import answer_part, completion_text, gold_answer, question_of, without_dollars

MAX_ANSWER_CHARS = 2000  # a longer answer is wrong without being read
MAX_GOLD_WORDS = 6  # a gold of more words is a sentence, which no answer repeats exactly
# A date, a time, a telephone number: 2024-01-05, 3/4/2024, 10:30, 555-12-34. A range: 5-7.
_NO_SUM = re.compile(r"\d+([-–/])\d+(?:\1\d+)+|\d{1,2}:[0-5]\d(?::[0-5]\d)?")
_RANGE = re.compile(r"(\d+)[-–](\d+)")
# What a spreadsheet makes of 3/5 and of an error: 5-Mar, Mar-05, #DIV/0!.
_MONTH = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_SPREADSHEET = re.compile(rf"(?i)\d\d?-(?:{_MONTH})|(?:{_MONTH})-\d\d|#[A-Z]+(?:/0)?[!?]|#N/A")
# 1,00,000 of India and 1.234,56 of Germany, with a sign or a unit; a list has spaces.
_GROUPED = re.compile(
    r"[^\d(\[{]{0,3}(?:\d\d?(?:,\d\d)+,\d{3}|\d{1,3}(?:\.\d{3})+,\d+)[^\d)\]}]{0,12}"
)
_NO_GROUPS = "write 1,00,000 as 100000, 1.234,56 as 1234.56, a list with spaces: 1, 10, 100"
_NO_VALUE = (
    "it may be a date, a time or a range, which has no value: work a sum out, write a ratio as "
    "1/3, or leave the row out"
)
_NUMBER_WORDS = {*NUMBER_WORDS, *SCALES, "a", "and"}
_PROSE = re.compile(r"(?i)(?<![A-Z\\])(?:answer|is|are|therefore|thus|hence|so|we)(?![A-Z])")
# A question after values that have no order, unless it asks for one.
_ANY_ORDER = re.compile(
    r"(?is)(?!.*(?:\border(?:ed)?\b|respectively|scending|creasing|(?:st|west) to\b|from left"
    r"|\b[a-z]\$?,? and \$?[a-z]\b|\bthe [a-z]+(?: [a-z]+)? and the\b))"
    r".*separated by (?:a )?comma"
)


def is_equivalent(gold: str, answer: str, question: str = "") -> bool | None:
    r"""Whether `answer` equals `gold`; None where the gold can be compared with no answer.

    The question may name a value (`m + n = 7` is 7) or ask for several "separated by commas".

    Example: `is_equivalent(r"\frac{1}{2}", "0.5") is True`; `is_equivalent("", "5") is None`
    """
    wanted = _read_gold(gold)
    if wanted.source and gold.strip() == answer.strip():
        return True
    name, _, value = answer.partition("=")
    is_asked = value and _stands_in(question, name, r"|=(?!$|[_?]|\\_|\\under)")  # or given
    is_named = (
        is_asked
        and wanted.kind not in ("named", "equation")
        and _read(answer, wanted).kind == "equation"  # 3 + 4 = 8 is false
    )
    texts, golds = [answer, value] if is_named else [answer], [wanted]
    if wanted.kind == "list" and not wanted.label and _ANY_ORDER.match(question):
        golds.append(wanted._replace(label="any"))
    is_short = len(answer) <= MAX_ANSWER_CHARS
    if is_short and any(compare(one, _read(text, one)) for one in golds for text in texts):
        return True
    return False if problem_of(wanted) is None else None


def _read(text: str, wanted: Answer | None = None) -> Answer:
    """The answer in a text; where the text is a sentence, the answer that the sentence states.

    A text that equals `wanted`, the gold, is no sentence. In a gold (`wanted` is None) words may be
    the answer; elsewhere they may hold one: "it is odd" for the gold "odd".
    """
    answer = read_answer(without_dollars(text))
    if answer == wanted or answer.kind == "choice":
        return answer
    unread = ("opaque", "bad") if wanted is None else ("opaque", "bad", "text")
    if answer.kind not in unread and not _PROSE.search(text):
        return answer
    stated = stated_text(text)
    return answer if stated is None else read_answer(stated)


@lru_cache(maxsize=4096)
def _read_gold(gold: str) -> Answer:
    """The gold answer; "bad" if no answer can equal it: a sentence, a date, a number in words."""
    text = gold_answer(gold) if isinstance(gold, str) else ""
    if len(text) > MAX_ANSWER_CHARS:
        return Answer("bad", "")
    if _GROUPED.fullmatch(text):
        return Answer("bad", text, label=_NO_GROUPS)
    compact = text.replace(" ", "")
    ends = _RANGE.fullmatch(compact)
    is_range = ends is not None and int(ends[1]) < int(ends[2])  # 7-5 is a difference
    if is_range or _NO_SUM.fullmatch(compact) or _SPREADSHEET.fullmatch(text):
        return Answer("bad", text, label=_NO_VALUE)
    answer = _read(text)
    words = answer.source.split()
    is_no_answer = len(words) > MAX_GOLD_WORDS or _NUMBER_WORDS.issuperset(words)
    return Answer("bad", answer.source) if answer.kind == "text" and is_no_answer else answer


def gold_problem(gold: str) -> str | None:
    """Why no answer can equal the gold; None where one can.

    Example: `"a/bx can mean" in gold_problem("7/3x")`; `gold_problem("1/2") is None`
    """
    problem = problem_of(_read_gold(gold))
    if problem == "":
        return f"use digits, mathematics with a value, or at most {MAX_GOLD_WORDS} other words"
    return problem


class BoxedMath:
    r"""Verifier for an `answer` column in LaTeX: `correct` for its value in the last `\boxed{}`.

    `wrong` (0.0, or a penalty) for a wrong or missing answer; None where the gold is unusable.
    Logs the columns `outcome/`, `gold/` and `parsed/boxed_math`.

    With `prompt_expressions: refuse`, an answer copied from the question is wrong unless it is the
    text of the gold. An expression is wrong where the gold is a number: `3 + 4` and `4 + 3` do not
    answer "What is $3 + 4$?". Off by default, because the prompt may list the choices.

    A box that stands only inside `<think>` counts with `thoughts` alone (see `rewards.gsm8k`).
    """

    __name__ = "boxed_math"
    kind = "verifier"

    def __init__(
        self,
        correct: float = 1.0,
        prompt_expressions: str = "score",
        thoughts: bool = False,
        wrong: float = 0.0,
    ):
        check_penalty(self.__name__, wrong)
        if prompt_expressions not in ("score", "refuse"):
            raise ValueError(
                f"boxed_math: prompt_expressions is {prompt_expressions!r}; allowed: score, refuse."
            )
        self.refuses = prompt_expressions == "refuse"
        self.full, self.wrong, self.thoughts = correct, wrong, thoughts

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [answer_part(completion_text(one), self.thoughts) for one in completions]
        boxes = read_each(last_box, texts)
        log_answers(self.__name__, answer, boxes, log_extra)
        return score_rows(self.__name__, self._score, boxes, prompts, answer, log_extra=log_extra)

    def _score(self, box: str | None, prompt: str | list[dict], gold: str) -> float | None:
        """Score the answer that was read from a box; None where no answer can equal the gold."""
        is_right = is_equivalent(gold, box or "", question_of(prompt))
        if is_right and self.refuses:
            is_right = not is_unworked(prompt, box, gold)
        if is_right is None:
            return None
        return self.full if is_right else self.wrong


def is_unworked(prompt: str | list[dict], answer: str, gold: str) -> bool:
    """Whether a right answer is copied from the question or leaves a calculation to do.

    A calculation is left where the gold has only numbers and the answer has an expression. An
    answer that is the text of the gold is always worked out, and so are a choice and whole numbers.

    Example: `is_unworked("What is $3 + 4$?", "4+3", "7")`; `not is_unworked("3 or 4?", "4", "4")`
    """
    wanted, result = _read_gold(gold), answer.rpartition("=")[2]
    sources = {gold_answer(gold), wanted.source, *(item.source for item in wanted.items)}
    if not {_squeezed(answer), _squeezed(result)}.isdisjoint(map(_squeezed, sources)):
        return False
    # `written_number` is None for an expression that is not worked out, such as 4+3.
    gold_numbers = [written_number(tree) for tree in _values(wanted)]
    numbers = [written_number(tree) for tree in _values(_read(result, wanted))]
    if gold_numbers and None not in gold_numbers and None in numbers:
        return True
    are_whole = all(number is not None and number.denominator == 1 for number in numbers)
    is_choice = wanted.kind == "choice" or (wanted.tree or ("",))[0] == "letter"
    if is_choice or (are_whole and gold_numbers == numbers):
        return False
    return _stands_in(question_of(prompt), result)


def _stands_in(question: str, expression: str, behind: str = "") -> bool:
    """Whether the question has an expression as a whole, not as a part of a word or a number."""
    bare = re.escape(_squeezed(expression))
    whole = rf"(?:(?<![\w.])|(?!\w)){bare}(?!\w|\.\d{behind})"
    return bare != "" and re.search(whole, _squeezed(question)) is not None


def _values(answer: Answer) -> list[Tree]:
    """The expressions in an answer; for `x = 5` and `(C) 5` only that of 5."""
    if answer.tree is not None:
        return [answer.tree]
    items = answer.items[:1] if answer.kind in ("named", "choice") else answer.items
    return [tree for item in items for tree in _values(item)]


@lru_cache(maxsize=1024)
def _squeezed(text: str) -> str:
    """The text in one spelling: no braces or dollar signs, and white space only between words."""
    bare = re.sub(r"[{}]", "", tidy(text).replace("$", " "))
    return re.sub(r"\s*([^\w\s])\s*", r"\1", bare).strip()
