"""Metrics of a held-out answer: metric(row, completion) -> name -> True or False.

A metric may say which rewards score as it does: `metric.scorers`, its names -> names of rewards. Of
a run with such a reward it is no evidence of its own, and the verdict says so.
"""

from collections.abc import Callable

from rewards import reward_of
from rewards.answer import is_final_answer
from rewards.format import is_xml_format
from rewards.gsm8k import score_gsm8k
from rewards.text import answer_part

Metric = Callable[[dict, str], dict[str, bool]]


def by_reward(metric: Metric, rewards: list[Callable]) -> list[str]:
    """The names of the metric that score as a reward of the run does.

    Example: `by_reward(code_metric, load_rewards(["code_tests"])) == ["tests"]`
    """
    used = {reward_of(reward).name for reward in rewards}
    scorers = getattr(metric, "scorers", {})
    return [name for name, rewards in scorers.items() if used & set(rewards)]


def answer_metric(row: dict, completion: str) -> dict[str, bool]:
    """For a numeric answer in `<reasoning>..</reasoning><answer>..</answer>`.

    - strict: the whole completion is the asked format and its answer tag has the right value
    - lenient: the final answer that the text offers has the right value, format ignored
    - format: the whole completion is the asked format
    """
    formatted = is_xml_format(completion)
    return {
        "strict": formatted and (score_gsm8k(completion, row["answer"]) or 0.0) > 0.0,
        "lenient": is_final_answer(completion, row["answer"]),
        "format": formatted,
    }


answer_metric.scorers = {"strict": ["gsm8k_correctness", "gsm8k_harness"]}


def boxed_metric(row: dict, completion: str, refuses: bool = False) -> dict[str, bool]:
    """For an answer in `\\boxed{}`; nothing for a row whose gold cannot be compared.

    - strict: the last box equals the gold, as `boxed_math` reads it
    - lenient: the same, or the final answer that the text offers has the value of the gold, format
      ignored
    - format: there is a box

    With `refuses` a box with the work undone is not right, as of `boxed_math` with
    `prompt_expressions: refuse`.
    """
    # Here: a recipe for numbers does not load the reading of LaTeX.
    from rewards.boxed_math import is_equivalent, is_unworked
    from rewards.text import boxed_answer

    box = boxed_answer(answer_part(completion))
    right = is_equivalent(row["answer"], box or "")
    if right is None:
        return {}
    right = right and not (refuses and is_unworked(row["prompt"], box, row["answer"]))
    return {
        "strict": right,
        "lenient": right or is_final_answer(completion, row["answer"]),
        "format": box is not None,
    }


boxed_metric.scorers = {"strict": ["boxed_math"], "lenient": ["boxed_math"]}


def code_metric(row: dict, completion: str) -> dict[str, bool]:
    """For a program with tests, run in the sandbox of the run's rewards, always isolated.

    - tests: every test passes that the reward sees
    - hidden: every hidden test passes, in rows that have some
    - format: one complete Python block

    A row that the sandbox failed on has the last alone. Timeout and block are the defaults of
    `code_tests`, whatever `reward_kwargs` sets.
    """
    from rewards.code_blocks import is_one_python_block
    from rewards.code_tests import CodeTests  # a maths recipe does not load the sandbox

    result = CodeTests().run([completion], [row])[0]
    shares = {"tests": result.share(), "hidden": result.hidden_share()}
    passed = {name: share == 1.0 for name, share in shares.items() if share is not None}
    return passed | {"format": is_one_python_block(completion)}


code_metric.scorers = {"tests": ["code_tests"]}
