"""Metrics of held-out completions: metric(row, completion) -> name -> True or False.

`metric.scorers` (optional) maps a name to the rewards that score completions in the same way. In a
run with such a reward the metric is not independent evidence, and the verdict says so.
"""

import logging
from collections.abc import Callable, Iterable

from recipes.common.utils.secrets import hide_secrets
from rewards import Reward
from rewards.answer import is_final_answer, last_box
from rewards.boundary import describe, measure
from rewards.format import is_xml_format
from rewards.gsm8k import score_gsm8k
from rewards.text import answer_part, question_of

Metric = Callable[[dict, str], dict[str, bool]]
Measured = tuple[dict[str, bool], str | None]  # what a metric gives, and how it failed, if it did

logger = logging.getLogger(__name__)
_shown: set[tuple[str, type]] = set()  # failures of which a warning was logged


def measure_or_fail(metric: Metric, row: dict, text: str) -> Measured:
    """The metrics of a completion, and what went wrong if the metric failed, else None.

    Where the metric fails on the completion and not on an empty one, the completion is at fault and
    counts as an empty one: wrong. Where it fails on both, there are no metrics. A warning shows the
    first failure of each type.
    """
    try:
        return measure(metric, row, text), None
    except Exception as error:
        kind, failure = type(error), hide_secrets(describe(error))
    name = getattr(metric, "__name__", type(metric).__name__)
    if (name, kind) not in _shown:
        _shown.add((name, kind))
        logger.warning(f"metric {name!r} failed on a completion: {failure}")
    try:
        return measure(metric, row, ""), failure
    except Exception:
        return {}, failure


def try_metric(metric: Metric, rows: Iterable[dict]) -> set[str]:
    """Try a metric on an empty completion of one row of each task; return its names.

    Raises ValueError if the metric fails on it.
    """
    names: set[str] = set()
    for task, row in {row.get("task"): row for row in rows}.items():
        try:
            names |= measure(metric, {**row, "truncated": False}, "").keys()
        except Exception as error:
            of_task = f" of task {task!r}" if task else ""
            raise ValueError(
                f"the metric fails on an empty completion of a row{of_task}: "
                f"{hide_secrets(describe(error))}."
            ) from error
    return names


def by_reward(metric: Metric, rewards: list[Reward]) -> list[str]:
    """The names of the metric that score like one of the `rewards`, as `metric.scorers` declares.

    Example: `by_reward(code_metric, load_rewards(["code_tests"])) == ["tests"]`
    """
    used = {reward.name for reward in rewards}
    scorers = getattr(metric, "scorers", {})
    return [name for name, alike in scorers.items() if used & set(alike)]


def answer_metric(row: dict, completion: str) -> dict[str, bool]:
    """Metrics of a numeric answer in `<reasoning>..</reasoning><answer>..</answer>`.

    - strict: the whole completion has the asked format, and its answer tag has the right value
    - lenient: the final answer in the text has the right value, in any format
    - format: the whole completion has the asked format
    """
    formatted = is_xml_format(completion)
    return {
        "strict": formatted and (score_gsm8k(completion, row["answer"]) or 0.0) > 0.0,
        "lenient": is_final_answer(completion, row["answer"], row.get("truncated", False)),
        "format": formatted,
    }


answer_metric.scorers = {"strict": ["gsm8k_correctness", "gsm8k_harness"]}


def boxed_metric(row: dict, completion: str, refuses: bool = False) -> dict[str, bool]:
    """Metrics of an answer in `\\boxed{}`; empty for a row whose gold cannot be compared.

    - strict: the last box equals the gold, by the comparison of `boxed_math`
    - lenient: strict holds, or the final answer in the text has the value of the gold, in any
      format
    - format: the completion has a box

    With `refuses`, a right box that leaves a calculation (4+3 for 7) or copies the question is
    wrong, as in `boxed_math` with `prompt_expressions: refuse`.
    """
    # Imported here, so that a recipe with numeric answers does not load the LaTeX parser.
    from rewards.boxed_math import is_equivalent, is_unworked

    box = last_box(answer_part(completion))  # what a model only thinks is no answer
    right = is_equivalent(row["answer"], box or "", question_of(row.get("prompt", "")))
    if right is None:
        return {}
    right = right and not (refuses and is_unworked(row["prompt"], box, row["answer"]))
    return {
        "strict": right,
        "lenient": right or is_final_answer(completion, row["answer"], row.get("truncated", False)),
        "format": box is not None,
    }


boxed_metric.scorers = {"strict": ["boxed_math"], "lenient": ["boxed_math"]}


def code_metric(row: dict, completion: str) -> dict[str, bool]:
    """Metrics of a program with tests, which runs in the isolated sandbox of `code_tests`.

    - tests: the program passes every test that the reward uses
    - hidden: the program passes every hidden test; only for rows with hidden tests
    - format: the completion has one complete Python block

    Where the sandbox fails, the row has `format` alone. The timeout and the choice of the block are
    the defaults of `code_tests`, whatever `reward_kwargs` sets.
    """
    from rewards.code_blocks import is_one_python_block
    from rewards.code_tests import CodeTests  # here: maths recipes need no sandbox

    result = CodeTests().run([completion], [row])[0]
    shares = {"tests": result.share(), "hidden": result.hidden_share()}
    passed = {name: share == 1.0 for name, share in shares.items() if share is not None}
    return {**passed, "format": is_one_python_block(completion)}


code_metric.scorers = {"tests": ["code_tests"]}
