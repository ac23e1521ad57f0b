"""Grade-school maths: the number in the answer tag, or anywhere, against the gold number."""

import re
from fractions import Fraction
from functools import partial

from rewards.answer import final_answer, last_tag, read_one_number
from rewards.latex.number import number_of
from rewards.rows import LogExtra, log_answers, read_each, score_rows
from rewards.text import answer_part, completion_text, find_tag

# The start of an answer that lm-evaluation-harness's strict filter accepts.
_HASHES = re.compile(r"#### (?=-?[0-9.,])")


def score_gsm8k(text: str, gold: str, exact: float = 2.0, numeric: float = 1.5) -> float | None:
    """`exact` if the last answer tag holds the text of `gold`, `numeric` if its value, else 0.0.

    None where `gold` is no number (see `number_of`). A `####` before the answer is ignored.

    Example: `score_gsm8k("<answer>$18</answer>", "18") == 1.5`
    """
    return _score(last_tag(answer_part(text)), gold, exact, numeric)


def _score(answer: str | Fraction | None, gold: str, exact: float, numeric: float) -> float | None:
    """Score the text of an answer tag, or a number that was read from free text (a Fraction).

    A right number earns `exact`; a text `exact` if it is that of `gold`, `numeric` for its value.
    """
    wanted = number_of(gold) if isinstance(gold, str) else None
    if wanted is None:
        return None
    if not isinstance(answer, str):
        return exact * (answer == wanted)
    answer = answer.removeprefix("####").strip()
    return exact if answer == gold.strip() else numeric * (read_one_number(answer) == wanted)


def score_harness(
    text: str,
    gold: str,
    exact: float = 2.0,
    numeric: float = 1.5,
    marker: float = 0.2,
    per_character: float = 0.001,
    max_penalty: float = 0.5,
) -> float | None:
    """`score_gsm8k` for lm-evaluation-harness, whose strict filter wants `#### 18`.

    A right answer after `#### ` in the answer tag earns `marker` more. For a right or wrong answer,
    each character of text after `</answer>` costs `per_character`, at most `max_penalty` in all.

    Example: `score_harness("<answer>#### 18</answer>", "18") == 2.2`
    """
    answer = last_tag(text) or ""
    earned = _score(answer, gold, exact, numeric)
    if earned is None:
        return None
    bonus = marker if earned > 0.0 and _HASHES.match(answer) else 0.0
    place = find_tag(text, "answer")
    behind = text[place.end :].strip() if place else ""
    return round(earned + bonus - min(max_penalty, per_character * len(behind)), 6)


class Gsm8kCorrectness:
    """Verifier for a numeric `answer` column: `exact` or `numeric` for the text of the answer tag.

    With `lenient` no tag is needed: a completion earns `exact` if its final answer, however it is
    marked (see `rewards.answer`), has the right value.

    An answer that stands only inside `<think>` earns nothing: chat templates drop the thoughts, so
    a reader never sees the answer, and the model would learn to stop there. `thoughts` accepts it,
    for a model that never writes `</think>`. Logs the columns `outcome/`, `gold/` and
    `parsed/gsm8k_correctness`.
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
        self.lenient, self.thoughts, self.full = lenient, thoughts, exact
        self.score = partial(_score, exact=exact, numeric=numeric)

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        parsed = read_each(self._read_answer, [completion_text(one) for one in completions])
        log_answers(self.__name__, answer, parsed, log_extra)
        return score_rows(self.__name__, self.score, parsed, answer, log_extra=log_extra)

    def _read_answer(self, text: str) -> str | Fraction | None:
        """The text of the answer tag, or with `lenient` the number that the text offers."""
        if self.lenient:
            return final_answer(text, self.thoughts)
        return last_tag(answer_part(text, self.thoughts))


class Gsm8kHarness:
    """Verifier that pays `score_harness`: a bonus for `####`, a penalty for text after the tag."""

    __name__ = "gsm8k_harness"
    kind = "verifier"

    def __init__(self, exact: float = 2.0, **amounts: float):
        self.full = exact
        self.score = partial(score_harness, exact=exact, **amounts)
        self.score("", "0")  # an unknown name in `amounts` raises TypeError here

    def __call__(
        self,
        prompts: list,
        completions: list,
        answer: list[str],
        log_extra: LogExtra | None = None,
        **kwargs,
    ) -> list[float | None]:
        texts = [answer_part(completion_text(completion)) for completion in completions]
        log_answers(self.__name__, answer, read_each(last_tag, texts), log_extra)
        return score_rows(self.__name__, self.score, texts, answer, log_extra=log_extra)
