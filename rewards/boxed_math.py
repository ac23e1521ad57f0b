r"""Mathematics: the answer in the last `\boxed{}` against the gold answer.

    from rewards import load_reward
    reward = load_reward("boxed_math")
    reward(prompts=["..."], completions=[r"So it is \boxed{\frac{2}{4}}."], answer=["0.5"])    # [1.0]

Most answers are decided by `rewards.latex_answers`, exactly and in microseconds. What is left, such as an
identity of sines, is asked of Math-Verify, in worker processes with a hard time limit.

Read strictly, since a false positive is what training finds: brackets count, a bare list keeps its order (a set in
`\{ \}`, `a \pm b` and "a or b" have none), units that are named must agree, 0.333333 is 1/3 but 0.33 is not.
"""

import logging
import re
from functools import lru_cache

from rewards.latex_answers import Answer, Pending, compare, read_answer
from rewards.parsing import completion_text
from rewards.rows import LogExtra, log_answers
from rewards.worker_pool import Result, WorkerPool

# A longer answer is no answer: it is wrong without being read.
MAX_ANSWER_CHARS = 2000
# Where `stated_answer` looks: the end of a longer text.
MAX_STATEMENT_CHARS = 4000

_BRACE = re.compile(
    r"(?P<open>\{)|(?P<close>\})|\\+(?:(?:boxed|fbox)\s*(?P<box>\{)|boxed\s+(?P<bare>[^\s${}\\]+)|(?P<escaped>[{}]))"
)
# What may stand between two boxes that are one answer, "\boxed{-2} and \boxed{1}": each piece starts with another sign.
_BETWEEN = re.compile(r"(?:[\s$,;&}]|\\(?:[(),;]|q?quad|text\{)|and|or)*")
_JOINS = re.compile(r"[,;&]|and|or")
_MAX_BETWEEN = 60


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{}` (or `\fbox{}`, or `\boxed 5`), or None where there is none.

    Linear in the length of the text, whatever its braces.

    Example: `last_boxed(r"\boxed{1} then \boxed{\frac{1}{2}}") == r"\frac{1}{2}"`
    """
    boxes = _boxes(text)
    return text[slice(*boxes[-1][1:3])].strip() if boxes else None


def boxed_answer(text: str, adjacent: bool = False) -> str | None:
    r"""The answer in the last box; boxes joined by a comma, "and" or "or" are one answer in any order.

    With `adjacent` boxes are also joined by nothing: nobody writes a gold twice.

    Example: `boxed_answer(r"\boxed{-2} and \boxed{1}") == "-2 or 1"`; `boxed_answer("5") is None`
    """
    boxes = _boxes(text)
    if not boxes:
        return None
    parts = [boxes[-1]]
    for box in reversed(boxes[:-1]):
        if not _are_joined(text[box[3] : parts[0][0]][: _MAX_BETWEEN + 1], adjacent):
            break
        parts.insert(0, box)
    contents = list(dict.fromkeys(text[start:end].strip() for _, start, end, _ in parts))
    return " or ".join(filter(None, contents)) if len(contents) <= 20 else ""


def _are_joined(between: str, adjacent: bool) -> bool:
    joins = adjacent or _JOINS.search(between) is not None
    return joins and len(between) <= _MAX_BETWEEN and _BETWEEN.fullmatch(between) is not None


def _boxes(text: str) -> list[tuple[int, int, int, int]]:
    """Start, start and end of the content, and end of each complete box that is in no other complete box."""
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


_SPAN = re.compile(
    r"\$\$(?P<a>.+?)\$\$|\\\[(?P<b>.+?)\\\]|\\\((?P<c>[^\n]+?)\\\)|(?<![\\$])\$(?P<d>[^$\n]+)(?<!\\)\$", re.DOTALL
)
_PROSE = re.compile(
    r"(?<![A-Za-z\\])(?:answer|is|are|it's|therefore|thus|hence|so|we|remain|solution)(?![A-Za-z])", re.I
)
_STATES = re.compile(r"\b(?:answer\s*:|is|are|equals|it's|be)(?![A-Za-z])\s*:?|:\s", re.I)
_LABELLED = re.compile(r"[A-Za-z]{3,} ?:")
_FINAL = re.compile(r"the final answer is(?=:? *\$)", re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z<])|\n\s*\n")
_LAST_NUMBER = re.compile(
    r"(?<![\w.,])[-+]?[$€£]?(?:\d+ \d+/\d+|\d[\d,]*(?:\.\d+)?(?:/\d+)?|\.\d+)\s*(?:%|percent)?(?!\d)", re.ASCII
)


def stated_answer(text: str) -> str:
    """The answer that a text comes to: its last box, else what its last sentence with a number states, else itself.

    For judging texts that were not asked for a box, in evaluations and benchmarks; the reward wants the box.

    Example: `stated_answer("The final answer is $(0, 1)$. I hope it is correct.") == "(0, 1)"`
    """
    final = _FINAL.search(text, text.rfind("boxed"))  # a box before it was a step
    if "boxed" in text and final is None:
        return boxed_answer(text) or ""
    text = text[final.start() if final else 0 :][-MAX_STATEMENT_CHARS:]
    text = text.partition("<|im_start|>")[0].replace("I hope it is correct", "").strip()
    spans = list(_SPAN.finditer(text))
    outside = _SPAN.sub(" ", text)
    if not _PROSE.search(outside) and not (spans and ":" in outside) and not _LABELLED.match(text):
        return text
    if not spans and (text.count("$") > 1 or r"\(" in text):
        return ""  # mathematics that never ends
    sentences = [part for part in _SENTENCE_END.split(text) if re.search(r"\d|[$\\]", part)]
    return _stated(sentences[-1]) if sentences else text


def _stated(sentence: str) -> str:
    """What follows the last "is" if that is short, else the last mathematics, else the last number."""
    *_, last = [0, *(match.end() for match in _STATES.finditer(sentence))]
    rest = sentence[last:].strip(" .*\n")
    if last and len(rest) <= 40 and re.search(r"\d|[$\\]", rest) and _is_read(read_answer(_without_dollars(rest))):
        return rest
    spans = list(_SPAN.finditer(sentence))
    numbers = _LAST_NUMBER.findall(_SPAN.sub(" ", sentence))
    if spans and not (numbers and spans[-1].end() < sentence.rfind(numbers[-1])):
        return spans[-1][spans[-1].lastgroup].strip()
    return numbers[-1].strip() if numbers else rest


def _is_read(answer: Answer) -> bool:
    if answer.kind == "text" and re.search("[0-9]", answer.source):  # "3 hours ago" holds a number, "May 14" is one
        return len(answer.source.split()) < 3
    return answer.kind not in ("bad", "opaque") and all(_is_read(item) for item in answer.items)


def gold_answer(gold: str) -> str:
    r"""The answer in a gold that is bare LaTeX, in dollars, in a box, or a solution that ends in one.

    Example: `gold_answer(r"Hence $x = \boxed{3}$.") == "3"`; `gold_answer("$125$ miles") == "125 miles"`
    """
    boxed = boxed_answer(gold, adjacent=True)
    if boxed is None:
        boxed = stated_answer(gold) if _FINAL.search(gold) else gold
    return _without_dollars(boxed)


def _without_dollars(text: str) -> str:
    """Without the signs that open and close mathematics; an odd one is money."""
    signs = re.findall(r"(?<!\\)\$", text)
    return re.sub(r"(?<!\\)\$", "", text) if len(signs) % 2 == 0 else text


@lru_cache(maxsize=4096)
def quick_judge(gold: str, answer: str) -> tuple[str, Pending]:
    """An outcome, right, wrong or unparsed, that holds if every pending pair (gold, answer) is equal."""
    wanted = _read_gold(gold)
    if wanted.kind == "bad":
        return "unparsed", []
    if gold.strip() == answer.strip():
        return "right", []
    if len(answer) > MAX_ANSWER_CHARS:
        return "wrong", []
    try:
        same, pending = compare(wanted, read_answer(_without_dollars(answer)))
    except RecursionError:
        return "wrong", []
    return ("right", pending) if same else ("wrong", [])


@lru_cache(maxsize=4096)
def _read_gold(gold: str) -> Answer:
    answer = gold_answer(gold) if isinstance(gold, str) else ""
    return read_answer(answer) if len(answer) <= MAX_ANSWER_CHARS else Answer("bad", "")


def judge_pairs(golds: list[str], answers: list[str | None], timeout_s: float = 2.0) -> list[str]:
    """The outcome of each answer: right, wrong, timeout, unparsed (the gold is unusable) or error (ours).

    Equal questions are asked once, and all workers are kept busy.

    Example: `judge_pairs(["1/2", "1/2"], ["0.5", None]) == ["right", "wrong"]`
    """
    quick = [_quick(gold, answer or "") for gold, answer in zip(golds, answers, strict=True)]
    asked = list(dict.fromkeys(pair for outcome, pending in quick for pair in pending))
    proved = dict(zip(asked, _ask(asked, timeout_s), strict=True))
    return [_outcome(outcome, [proved[pair] for pair in pending]) for outcome, pending in quick]


def _quick(gold: str, answer: str) -> tuple[str, Pending]:
    """`quick_judge`, which keeps no megabytes, and whose bugs cost a row and not the batch."""
    try:
        return quick_judge(gold, answer[: MAX_ANSWER_CHARS + 1])
    except Exception:
        return "error", []


def judge(gold: str, answer: str, timeout_s: float = 2.0) -> bool | None:
    r"""Whether `answer` is the same answer as `gold`, None where that cannot be told through no fault of the answer.

    Example: `judge(r"\frac{1}{2}", "0.5") is True`; `judge("", "5") is None`
    """
    (outcome,) = judge_pairs([gold], [answer], timeout_s)
    return None if outcome in ("unparsed", "error") else outcome == "right"


def _outcome(quick: str, proofs: list[Result]) -> str:
    if quick == "error":
        return quick
    for status in ("error", "timeout"):
        if any(proof.status == status for proof in proofs):
            return status
    if any(proof.value is None for proof in proofs):
        return "unparsed"
    return quick if all(proof.value for proof in proofs) else "wrong"


_pools: dict[float, WorkerPool] = {}


def _ask(pairs: list[tuple[str, str]], timeout_s: float) -> list[Result]:
    if not pairs:
        return []
    if timeout_s not in _pools:
        _pools[timeout_s] = WorkerPool("rewards.boxed_math:ask_math_verify", timeout_s)
    return _pools[timeout_s].run(pairs)


class BoxedMath:
    r"""Verifier for an `answer` column in LaTeX: pays `correct` for the same answer in the last `\boxed{}`.

    0.0 for a wrong answer, for none, and for one on which Math-Verify takes more than `timeout_s` seconds;
    None where the gold is unusable or a worker died. Logs which as the column `outcome/boxed_math`, beside it
    `gold/boxed_math` and `parsed/boxed_math`.
    """

    __name__ = "boxed_math"
    kind = "verifier"

    def __init__(self, correct: float = 1.0, timeout_s: float = 2.0):
        self.correct = correct
        self.timeout_s = timeout_s
        self.full = correct

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [boxed_answer(completion_text(completion)) for completion in completions]
        outcomes = judge_pairs(answer, texts, self.timeout_s)
        if log_extra is not None:
            log_extra("outcome/boxed_math", outcomes)
        log_answers(self.__name__, answer, texts, log_extra)
        paid = {"right": self.correct, "wrong": 0.0, "timeout": 0.0}
        return [paid.get(outcome) for outcome in outcomes]


# --------------------------------------------------------------------------- in the worker


def ask_math_verify(gold: str, answer: str) -> bool | None:
    """Whether Math-Verify proves two expressions equal, and none of its known slips explains that.

    None when it cannot read the gold. Runs in a worker: there is no time limit in here.
    """
    wanted, given = _sympy(gold), _sympy(answer)
    if wanted is None or given is None:
        return None if wanted is None else False
    return _proves(wanted, given) and _agree(wanted, given)


def _warm_up() -> None:
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that there is no time limit: there is one
    ask_math_verify(r"\sin^2 x + \cos^2 x", "1")


ask_math_verify.warm_up = _warm_up


def _sympy(text: str) -> object | None:
    """The expression that Math-Verify's LaTeX grammar reads.

    The grammar alone: `math_verify.parse` would take a fraction out of the middle of what it cannot read, and its
    other reader ends in sympy's `parse_expr`, which evaluates.
    """
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex

    text = re.sub(r"(\d*)\.(\d+)", _as_fraction, text)  # floats would be compared to six places
    text = text.replace(r"\degree", r"^{\circ}").replace("*", r"\cdot ").replace("$", "")
    config = NormalizationConfig(basic_latex=True, malformed_operators=True, nits=True, boxed="none")
    is_real = not should_treat_as_complex(text)
    try:
        return latex2sympy(
            normalize_latex(text, config), is_real=is_real, convert_degrees=True, normalization_config=None
        )
    except Exception:  # a grammar and a converter of others: what it trips over is unread
        return None


def _as_fraction(match: re.Match[str]) -> str:
    return rf"\frac{{{match[1]}{match[2]}}}{{1{'0' * len(match[2])}}}"


def _proves(gold: object, answer: object) -> bool:
    from math_verify import verify

    try:
        return bool(verify(gold, answer, timeout_seconds=None))
    except Exception:
        return False


def _agree(gold: object, answer: object) -> bool:
    """A second opinion for what Math-Verify finds equal: the same letters, and 30 equal digits at two points."""
    from sympy import Eq, Expr, Rational, Set
    from sympy.core.relational import Relational

    if isinstance(gold, Set) != isinstance(answer, Set) and not isinstance(gold, Relational):
        return False
    if isinstance(gold, Eq) and isinstance(answer, Eq):  # two contradictions have the same solutions: none
        return bool(gold.free_symbols) and gold.free_symbols == answer.free_symbols
    if not isinstance(gold, Expr) or not isinstance(answer, Expr):
        return True
    if (gold - answer).is_Rational:  # an addend too small for any number of digits
        return bool(gold - answer == 0)
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for shift in (0, 5):
        point = {name: Rational(37 + 11 * place + shift, 29 + place) for place, name in enumerate(names)}
        if not _close(gold.subs(point), answer.subs(point)):
            return False
    return True


def _close(left: object, right: object) -> bool:
    left, right = left.doit().evalf(40), right.doit().evalf(40)
    if not (left.is_number and right.is_number):
        return True
    return abs(left - right) <= 1e-30 * max(abs(left), abs(right))
