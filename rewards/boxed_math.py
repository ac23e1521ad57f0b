r"""Mathematics: the answer in the last `\boxed{}` against the gold answer.

    from rewards import load_reward
    reward = load_reward("boxed_math")
    reward(prompts=["..."], completions=[r"So it is \boxed{\frac{2}{4}}."], answer=["0.5"])    # [1.0]

Most answers are decided by `rewards.latex`, exactly and in microseconds. What is left, such as an
identity of sines, is asked of Math-Verify, in worker processes with a hard time limit.

Read strictly, since a false positive is what training finds: brackets count, a bare list keeps its order (a set in
`\{ \}`, `a \pm b` and "a or b" have none), units that are named must agree, 0.333333 is 1/3 but 0.33 is not.
"""

from functools import lru_cache

from rewards.boxes import boxed_answer
from rewards.latex.compare import Pending, compare
from rewards.latex.read import Answer, read_answer
from rewards.latex.stated import gold_answer, is_number_in_words, sentence_answer, without_dollars
from rewards.parsing import completion_text
from rewards.rows import LogExtra, log_answers
from rewards.worker_pool import Result, WorkerPool

# A longer answer is no answer: it is wrong without being read.
MAX_ANSWER_CHARS = 2000
# A gold of more words is a sentence, which nobody repeats word by word.
MAX_GOLD_WORDS = 6


def is_equivalent(gold: str, answer: str, timeout_s: float = 2.0) -> bool | None:
    r"""Whether `answer` is the same answer as `gold`, None where that cannot be told through no fault of the answer.

    Example: `is_equivalent(r"\frac{1}{2}", "0.5") is True`; `is_equivalent("", "5") is None`
    """
    (outcome,) = compare_pairs([gold], [answer], timeout_s)
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
    """`compare_quickly`, which keeps no megabytes, and whose bugs cost a row and not the batch."""
    try:
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
    except (RecursionError, OverflowError, MemoryError):  # the answer's own doing: it is too large to hold
        return "wrong", []
    return ("right", pending) if same else ("wrong", [])


def _read_in_box(text: str, wanted: Answer) -> Answer:
    """The answer, or what the sentence states that stands in its place."""
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
    stated = sentence_answer(text) if answer.kind in ("bad", "opaque") or "answer" in answer.source else None
    answer = answer if stated is None else read_answer(stated)
    is_prose = answer.kind == "text" and (
        len(answer.source.split()) > MAX_GOLD_WORDS or is_number_in_words(answer.source)
    )
    return Answer("bad", answer.source) if is_prose else answer


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
    r"""Verifier for an `answer` column in LaTeX: pays `correct` for the same answer in the last `\boxed{}`.

    0.0 for a wrong answer, for none, and for one on which Math-Verify takes more than `timeout_s` seconds;
    None where the gold is unusable or a worker died. Logs which as the column `outcome/boxed_math`, next to it
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
        outcomes = compare_pairs(answer, texts, self.timeout_s)
        if log_extra is not None:
            log_extra("outcome/boxed_math", outcomes)
        log_answers(self.__name__, answer, texts, log_extra)
        amounts = {"right": self.correct, "wrong": 0.0, "timeout": 0.0}
        return [amounts.get(outcome) for outcome in outcomes]
