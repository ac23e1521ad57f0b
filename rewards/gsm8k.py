"""Grade-school maths: the number in the answer tag against the gold number."""

from rewards.parsing import completion_text, last_number, parse_number, tag_text
from rewards.rows import LogExtra, score_rows


def score_gsm8k(text: str, gold: str, exact: float = 2.0, numeric: float = 1.5) -> float | None:
    """`exact` when the text of the last answer tag equals `gold`, `numeric` when only their values are equal, else 0.0.

    None when `gold` is no number: the row cannot be graded, whatever the completion says.

    Example: `score_gsm8k("<answer>$18.00</answer>", "18") == 1.5`
    """
    gold_value = parse_number(gold) if isinstance(gold, str) else None
    if gold_value is None:
        return None
    answer = tag_text(text, "answer")
    if answer is None:
        return 0.0
    if answer == gold.strip():
        return exact
    return numeric if parse_number(answer) == gold_value else 0.0


def is_last_number(text: str, gold: str) -> bool:
    """True when the last number anywhere in `text` has the value of `gold`: the lenient reading, format ignored."""
    number = last_number(text)
    return number is not None and number == parse_number(gold)


class Gsm8kCorrectness:
    """Verifier for a numeric `answer` column: pays `exact` or `numeric` for the text of the answer tag."""

    __name__ = "gsm8k_correctness"
    kind = "verifier"

    def __init__(self, exact: float = 2.0, numeric: float = 1.5):
        self.exact = exact
        self.numeric = numeric
        self.full = exact

    def __call__(
        self, prompts: list, completions: list, answer: list[str], log_extra: LogExtra | None = None, **kwargs
    ) -> list[float | None]:
        return score_rows(self.__name__, self._score, completions, answer, log_extra=log_extra)

    def _score(self, completion: str | list[dict], gold: str) -> float | None:
        return score_gsm8k(completion_text(completion), gold, self.exact, self.numeric)
