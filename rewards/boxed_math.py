r"""Mathematics: the answer in the last `\boxed{}` against the gold answer.

    from rewards import load_reward
    reward = load_reward("boxed_math")
    reward(prompts=["..."], completions=[r"So it is \boxed{\frac{2}{4}}."], answer=["0.5"])    # [1.0]

Most answers are decided by `rewards.latex`, exactly and in microseconds. Math-Verify decides the rest, such as an
identity of sines, in worker processes with a hard time limit.

Read strictly, since a false positive is what training finds: brackets count, a bare list keeps its order (a set in
`\{ \}`, `a \pm b` and "a or b" have none), units that are named must agree or convert, 0.333333 is 1/3 but 0.33
is not.
"""

import re
from functools import lru_cache

from rewards.answer import parse_number
from rewards.latex.compare import Pending, compare
from rewards.latex.read import Answer, read_answer
from rewards.latex.stated import gold_answer, is_number_in_words, sentence_answer, without_dollars
from rewards.latex.tidy import tidy
from rewards.rows import LogExtra, check_penalty, log_answers
from rewards.text import after_thinking, boxed_answer, completion_text
from rewards.worker_pool import Result, WorkerPool

# A longer answer is not an answer: it is wrong without being read.
MAX_ANSWER_CHARS = 2000
# A gold of more words is a sentence, which nobody repeats word by word.
MAX_GOLD_WORDS = 6
_CHOICE = re.compile(
    r"\s*\\(?:text|mathrm|mathbf)[a-z]*\{\s*\(?([A-F])\)\s*\}[\s~\\:,]*(\S.*)", re.DOTALL
)
# What is left to calculate in the place of a number, and of a whole number.
_OPERATION = re.compile(r"[0-9)}\]]\s*(?:[-+*]|\\(?:cdot|times|div)(?![a-z]))\s*[0-9({\\.]")
_DIVISION = re.compile(r"[0-9]\s*/\s*[0-9]|\\[dt]?frac(?![a-z])")
_TAKEN_BACK = re.compile(r"\b(?:wrong|incorrect)\b", re.IGNORECASE)


def is_equivalent(gold: str, answer: str) -> bool | None:
    r"""Tell whether `answer` is the same answer as `gold`, None where that is unknown through no fault of the answer.

    Example: `is_equivalent(r"\frac{1}{2}", "0.5") is True`; `is_equivalent("", "5") is None`
    """
    (outcome,) = compare_pairs([gold], [answer])
    return None if outcome in ("unparsed", "error") else outcome == "right"


def compare_pairs(golds: list[str], answers: list[str | None], timeout_s: float = 2.0) -> list[str]:
    """The outcome of each answer: right, wrong, timeout, unparsed (the gold is unusable) or error (ours).

    Equal questions are asked once, and all workers are kept busy.

    Example: `compare_pairs(["1/2", "1/2"], ["0.5", None]) == ["right", "wrong"]`
    """
    quick = [_quick(gold, answer or "") for gold, answer in zip(golds, answers, strict=True)]
    asked = list(dict.fromkeys(pair for outcome, pending in quick for pair in pending))
    proved = dict(zip(asked, _ask(asked, timeout_s), strict=True))
    return [_outcome(outcome, [proved[pair] for pair in pending]) for outcome, pending in quick]


def _quick(gold: str, answer: str) -> tuple[str, Pending]:
    try:  # a bug costs a row and not the batch
        return compare_quickly(gold, answer[: MAX_ANSWER_CHARS + 1])
    except Exception:
        return "error", []


@lru_cache(maxsize=4096)
def compare_quickly(gold: str, answer: str) -> tuple[str, Pending]:
    """An outcome, right, wrong or unparsed, that holds if every pending pair (gold, answer) is equal."""
    wanted = _read_gold(gold)
    if wanted.kind == "bad":
        return ("right" if wanted.source and gold.strip() == answer.strip() else "unparsed"), []
    if gold.strip() == answer.strip():
        return "right", []
    if len(answer) > MAX_ANSWER_CHARS:
        return "wrong", []
    try:
        same, pending = compare(wanted, _read_in_box(answer, wanted))
    except (
        RecursionError,
        OverflowError,
        MemoryError,
    ):  # the answer's own doing: it is too large to hold
        return "wrong", []
    return ("right", pending) if same else ("wrong", [])


def _read_in_box(text: str, wanted: Answer) -> Answer:
    """The answer, or what the sentence states that stands in its place."""
    choice = _CHOICE.fullmatch(text)
    if choice:  # "(C) 14" answers both what C is and what 14 is
        text = choice[1] if wanted.tree == ("letter", choice[1]) else choice[2]
    if wanted.kind != "text" and _TAKEN_BACK.search(
        text
    ):  # its letters would be factors, which 0 makes equal to 0
        return Answer("bad", "")
    answer = read_answer(without_dollars(text))
    if answer.kind not in ("text", "opaque", "bad") or answer == wanted:
        return answer
    stated = sentence_answer(text)
    return answer if stated is None else read_answer(stated)


@lru_cache(maxsize=4096)
def _read_gold(gold: str) -> Answer:
    """The gold answer; bad where no answer could equal it, as a sentence, or a number in words."""
    text = gold_answer(gold) if isinstance(gold, str) else ""
    if len(text) > MAX_ANSWER_CHARS:
        return Answer("bad", "")
    answer = read_answer(text)
    stated = (
        sentence_answer(text)
        if answer.kind in ("bad", "opaque") or "answer" in answer.source
        else None
    )
    answer = answer if stated is None else read_answer(stated)
    is_long = len(answer.source.split()) > MAX_GOLD_WORDS or is_number_in_words(answer.source)
    return Answer("bad", answer.source) if answer.kind == "text" and is_long else answer


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
        _pools[timeout_s] = WorkerPool("rewards.latex.prove:ask_math_verify", timeout_s)
    return _pools[timeout_s].run(pairs)


class BoxedMath:
    r"""Verifier for an `answer` column in LaTeX: `correct` for the same answer in the last `\boxed{}`.

    `wrong` (0.0, or a penalty) for a wrong answer, for none, and for one on which Math-Verify takes more than
    `timeout_s` seconds; None where the gold is unusable or a worker died. Logs the columns `outcome/`, `gold/` and
    `parsed/boxed_math`.

    With `prompt_expressions: refuse` an answer that stands in the question earns nothing unless it is the gold as text,
    nor does an expression in the place of a number: to "What is $3 + 4$?" neither `3 + 4` nor `4 + 3` is an answer. Off
    by default, because the prompt may hold the choices.

    A box inside `<think>` alone earns nothing (see `rewards.gsm8k`), except with `thoughts`.
    """

    __name__ = "boxed_math"
    kind = "verifier"

    def __init__(
        self,
        correct: float = 1.0,
        timeout_s: float = 2.0,
        prompt_expressions: str = "score",
        thoughts: bool = False,
        wrong: float = 0.0,
    ):
        check_penalty(self.__name__, wrong)
        if prompt_expressions not in ("score", "refuse"):
            raise ValueError(
                f"boxed_math: prompt_expressions is {prompt_expressions!r}; allowed: score, refuse."
            )
        self.correct, self.timeout_s, self.thoughts = correct, timeout_s, thoughts
        self.refuses = prompt_expressions == "refuse"
        self.full, self.wrong = correct, wrong

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [completion_text(completion) for completion in completions]
        texts = [boxed_answer(text if self.thoughts else after_thinking(text)) for text in texts]
        outcomes = compare_pairs(answer, texts, self.timeout_s)
        if self.refuses:
            rows = zip(prompts, texts, answer, outcomes, strict=True)
            outcomes = [
                "wrong" if o == "right" and is_unworked(p, t, a) else o for p, t, a, o in rows
            ]
        if log_extra is not None:
            log_extra("outcome/boxed_math", outcomes)
        log_answers(self.__name__, answer, texts, log_extra)
        amounts = {"right": self.correct, "wrong": self.wrong, "timeout": self.wrong}
        return [amounts.get(outcome) for outcome in outcomes]


def is_unworked(prompt: str | list[dict], answer: str, gold: str) -> bool:
    """Whether a right answer leaves the work undone: it stands in the question, or is an expression for a number.

    The gold as text is always worked out.

    Example: `is_unworked("What is $3 + 4$?", "4+3", "7")`; `not is_unworked("Is it 3 or 4?", "4", "4")`
    """
    wanted = _read_gold(gold)
    sources = {wanted.source, *(item.source for item in wanted.items)}
    given = answer.rpartition("=")[2]
    if _squeezed(given) in {_squeezed(text) for text in (gold_answer(gold), *sources)}:
        return False
    number = parse_number(gold)
    if number is not None and (
        _OPERATION.search(given) or (number.denominator == 1 and _DIVISION.search(given))
    ):
        return True
    question = (
        prompt if isinstance(prompt, str) else str(prompt[-1].get("content")) if prompt else ""
    )
    return (
        re.search(
            rf"(?:(?<![\w.])|(?!\w)){re.escape(_squeezed(given))}(?!\w|\.\d)", _squeezed(question)
        )
        is not None
    )


@lru_cache(maxsize=1024)
def _squeezed(text: str) -> str:
    """One spelling without braces and dollars, with white space between words alone."""
    return re.sub(
        r"\s*([^\w\s])\s*",
        r"\1",
        re.sub(r"[{}$]", lambda m: " " if m[0] == "$" else "", tidy(text)),
    ).strip()
