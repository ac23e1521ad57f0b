"""Step rewards for tests, by the place of a completion in the batch."""

from collections.abc import Callable


def give_steps(name: str, steps: list) -> Callable:
    """A step reward that gives each completion of a call its steps, and starts again at the end."""

    def reward(prompts, completions, **kwargs):
        return [steps[i % len(steps)] for i in range(len(completions))]

    reward.__name__, reward.kind = name, "step"
    return reward
