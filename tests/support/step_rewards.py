"""Step rewards for tests: by the place of a completion in the batch, or by its text."""

from collections.abc import Callable

from rewards.text import completion_text


def give_steps(name: str, steps: list) -> Callable:
    """A step reward that gives each completion of a call its steps, and starts again at the end."""

    def reward(prompts, completions, **kwargs):
        return [steps[i % len(steps)] for i in range(len(completions))]

    reward.__name__, reward.kind = name, "step"
    return reward


def every_third(prompts, completions, **kwargs):
    """A step ends with every third character, and is scored by that character."""
    texts = [completion_text(completion) for completion in completions]
    return [
        [(end, ord(text[end - 1]) % 7 - 3.0) for end in range(3, len(text) + 1, 3)]
        for text in texts
    ]


every_third.kind, every_third.farmable = "step", "any text"
