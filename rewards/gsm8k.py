"""Grade-school maths: the number in the answer tag against the gold number."""

import re
from fractions import Fraction
from functools import partial

from rewards.answer import final_answer, parse_number
from rewards.rows import LogExtra, log_answers, score_rows
from rewards.text import after_thinking, completion_text, tag_span, tagged_answer

# What lm-evaluation-harness's strict filter finds.
_MARKED = re.compile(r"#### (?=-?[0-9.,])")


def score_gsm8k(
    text: str, gold: str, exact: float = 2.0, numeric: float = 1.5, thoughts: bool = False
) -> float | None:
    """`exact` when the text of the last answer tag equals `gold`, `numeric` when only their values are equal, else 0.0.

    None when `gold` is not a number. An answer inside `<think>` counts only with `thoughts`. GSM8K's `####` before the
    answer is not part of it.

    Example: `score_gsm8k("<answer>$18</answer>", "18") == 1.5`; `score_gsm8k("<answer>#### 18</answer>", "18") == 2.0`
    """
    return _score_answer(_tagged(text, thoughts), gold, exact, numeric)


def _score_answer(answer: str | None, gold: str, exact: float, numeric: float) -> float | None:
    gold_value = parse_number(gold) if isinstance(gold, str) else None
    if gold_value is None:
        return None
    if answer is None:
        return 0.0
    answer = answer.removeprefix("####").strip()
    if answer == gold.strip():
        return exact
    return numeric if parse_number(answer) == gold_value else 0.0


def _tagged(text: str, thoughts: bool) -> str | None:
    return tagged_answer(text if thoughts else after_thinking(text))


def score_harness(
    text: str,
    gold: str,
    exact: float = 2.0,
    numeric: float = 1.5,
    marker: float = 0.2,
    per_character: float = 0.001,
    max_penalty: float = 0.5,
) -> float | None:
    """`score_gsm8k` for runs evaluated by lm-evaluation-harness, whose strict filter looks for `#### 18`.

    A right answer behind `#### ` in the answer tag earns `marker` more; each character of text behind the
    answer's `</answer>` costs `per_character`, at most `max_penalty`, right or wrong.

    Example: `score_harness("<answer>#### 18</answer>", "18") == 2.2`
    """
    answer = tagged_answer(text) or ""
    earned = _score_answer(answer, gold, exact, numeric)
    if earned is None:
        return None
    bonus = marker if earned > 0.0 and _MARKED.match(answer) else 0.0
    inside = tag_span(text, "answer")
    behind = text[inside[1] + len("</answer>") :].strip() if inside else ""
    penalty = min(max_penalty, per_character * len(behind))
    return round(earned + bonus - penalty, 6)


class Gsm8kCorrectness:
    """Verifier for a numeric `answer` column: `exact` or `numeric` for the text of the answer tag.

    With `lenient` it needs no tag: `exact` for a completion whose final answer, however it is marked
    (see `rewards.answer`), has the right value.

    An answer inside `<think>` alone earns nothing: chat templates drop the thoughts, so a reader never sees it, and the
    model would learn to stop there. `thoughts` accepts it, for a model that never closes them.

    Logs the columns `outcome/`, `gold/` and `parsed/gsm8k_correctness`.
    """

    __name__ = "gsm8k_correctness"
    kind = "verifier"

    def __init__(
        self,
        exact: float = 2.0,
        numeric: float = 1.5,
        lenient: bool = False,
        thoughts: bool = False,
    ):
        self.exact, self.numeric, self.lenient, self.thoughts = exact, numeric, lenient, thoughts
        self.full = exact

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        read = final_answer if self.lenient else _tagged
        parsed = [read(completion_text(completion), self.thoughts) for completion in completions]
        log_answers(self.__name__, answer, parsed, log_extra)
        return score_rows(self.__name__, self._score, parsed, answer, log_extra=log_extra)

    def _score(self, parsed: str | Fraction | None, gold: str) -> float | None:
        if not self.lenient:
            return _score_answer(parsed, gold, self.exact, self.numeric)
        gold_value = parse_number(gold) if isinstance(gold, str) else None
        return None if gold_value is None else self.exact * (parsed == gold_value)


class Gsm8kHarness:
    """Verifier like `gsm8k_correctness` that rewards `####` and fines text after the answer (see `score_harness`)."""

    __name__ = "gsm8k_harness"
    kind = "verifier"

    def __init__(self, exact: float = 2.0, **amounts: float):
        self.amounts = {"exact": exact, **amounts}
        self.full = exact
        score_harness("", "0", **self.amounts)  # refuses a name that it does not know

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [after_thinking(completion_text(completion)) for completion in completions]
        log_answers(self.__name__, answer, [tagged_answer(text) for text in texts], log_extra)
        score = partial(score_harness, **self.amounts)
        return score_rows(self.__name__, score, texts, answer, log_extra=log_extra)
