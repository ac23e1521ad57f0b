"""Control arms: rewards that know nothing, to tell learning from what the prompt or the sampling does by itself."""

import hashlib

from rewards.text import completion_text


def score_random(text: str, step: int, seed: int) -> float:
    """A number from 0.0 to 1.0 that depends on these three alone, so that a resumed run repeats it."""
    digest = hashlib.sha256(f"{seed}/{step}/{text}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / (2**48 - 1)


class Random:
    """Uniform from 0.0 to 1.0, drawn anew each step by `seed`, step, and the text of the completion."""

    __name__ = "random"
    kind = "control"
    farmable = "a control arm: it rewards any text"

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __call__(
        self, prompts: list, completions: list, trainer_state=None, **kwargs
    ) -> list[float]:
        step = getattr(trainer_state, "global_step", 0)
        return [
            score_random(completion_text(completion), step, self.seed) for completion in completions
        ]


class Constant:
    """The same score for every completion: no advantage, so nothing is learnt except what KL and clipping do."""

    __name__ = "constant"
    kind = "control"
    farmable = "a control arm: it rewards any text"

    def __init__(self, value: float = 1.0):
        self.value = value

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [self.value for _ in completions]
