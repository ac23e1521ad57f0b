"""What a held-out answer is judged by: metric(row, completion) -> name -> True or False."""

from collections.abc import Callable

from rewards.format import is_xml_format
from rewards.gsm8k import is_last_number, score_gsm8k

Metric = Callable[[dict, str], dict[str, bool]]


def answer_metric(row: dict, completion: str) -> dict[str, bool]:
    """For a numeric answer in `<reasoning>..</reasoning><answer>..</answer>`.

    - strict: the whole completion is the asked format and its answer tag has the right value
    - lenient: the last number anywhere has the right value, format ignored
    - format: the whole completion is the asked format
    """
    formatted = is_xml_format(completion)
    return {
        "strict": formatted and (score_gsm8k(completion, row["answer"]) or 0.0) > 0.0,
        "lenient": is_last_number(completion, row["answer"]),
        "format": formatted,
    }
