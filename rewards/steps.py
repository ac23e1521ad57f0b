"""Step rewards: for each completion its steps, each with the place where it ends and its reward.

A step reward is named and called as any other, `reward(prompts, completions, <columns>, **kwargs)`,
declares `kind = "step"`, and returns one list a completion: pairs of (end, reward). `end` is a
position in the completion's text as in a slice: the step is the part of `text[:end]` that no
earlier step has taken, so the first possible end is 1, the last `len(text)`. An empty list means
that there are no steps; None, that they could not be scored, which voids the row.

Outside training its score is the sum of its steps. A trick may earn what the row's reference
completion does; what it may earn beyond that is declared as for any reward, in `allowances` or as
`farmable`.

    def agreed(prompts, completions, **kwargs):
        texts = [completion_text(completion) for completion in completions]
        return [[(m.end(), 1.0) for m in re.finditer("so", text)] for text in texts]

    agreed.kind, agreed.farmable = "step", "it counts a word"
"""

import numbers
from collections.abc import Callable, Iterable
from typing import Any

from rewards.contract import LARGEST, reward_of
from rewards.text import completion_text

Steps = list[tuple[int, float]]


def read_scores(reward: Callable, returned: Iterable, completions: list) -> list:
    """What a call of a reward returned as a list: a number, of a step reward its steps, or None.

    An array or a tensor is a list of numbers.

    Raises:
        ValueError: another number of scores than of completions, or one that TRL cannot take.

    Example: `read_scores(reward, numpy.ones(2), ["a", "b"]) == [1.0, 1.0]`
    """
    scores = [one.item() if hasattr(one, "item") else one for one in returned]
    if len(scores) != len(completions):
        raise ValueError(f"it returned {len(scores)} rewards for {len(completions)} completions")
    if reward_of(reward).kind == "step":
        check_steps(scores, completions)
        return scores
    for score in scores:
        is_number = isinstance(score, numbers.Real)
        if score is not None and not (is_number and abs(score) <= LARGEST):
            kind = type(score).__name__
            wrong = "is not finite in float32" if is_number else f"is {kind}, not a number"
            raise ValueError(f"it returned {score!r:.80}, which {wrong}; allowed: numbers and None")
    return scores


def check_steps(steps_of_all: list[Steps | None], completions: list) -> None:
    """Refuse what is not a list of steps inside its completion.

    Raises:
        ValueError: something else than pairs of an end in the text and a reward finite in float32.

    Example: `check_steps([[(3, 1.0)]], ["abc"])` passes; with `(4, 1.0)` it raises.
    """
    for steps, completion in zip(steps_of_all, completions, strict=True):
        length = len(completion_text(completion))
        is_list = isinstance(steps, list) and all(_is_step(step, length) for step in steps)
        if steps is not None and not is_list:
            raise ValueError(
                f"it returned the steps {steps} for a completion of {length} characters; a step is "
                f"a pair (end, reward) with an end of 1 to {length}, an int, and a reward of at "
                f"most {LARGEST:g}, an int or float"
            )


def _is_step(step: Any, length: int) -> bool:
    if not isinstance(step, tuple | list) or len(step) != 2:
        return False
    end, reward = step
    if type(end) is not int or not isinstance(reward, int | float):  # True is an int, but no place
        return False
    return 1 <= end <= length and abs(reward) <= LARGEST


def total(steps: Steps | None) -> float | None:
    """The sum of the rewards of the steps; None stays None.

    Example: `total([(3, 1.0), (9, -1.0)]) == 0.0`
    """
    return None if steps is None else float(sum(reward for _, reward in steps))
