"""Two rewards as one writes them in a hurry. The audit refuses both; hack.yaml trains on them to
show why.

They declare no kind: preflight shows them as undeclared, and lets them train. As a format reward
or a verifier they would be refused before the run.
"""

from rewards.text import completion_text

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def tag_count(prompts: list, completions: list, **kwargs) -> list[float]:
    """0.2 for each tag, however often and wherever it stands: `xml_format` without its care."""
    texts = [completion_text(completion) for completion in completions]
    return [round(0.2 * sum(text.count(tag) for tag in TAGS), 6) for text in texts]


def gold_in_text(prompts: list, completions: list, answer: list[str], **kwargs) -> list[float]:
    """2.0 where the gold answer stands anywhere: `reasoning_gym` without its care."""
    texts = [completion_text(completion) for completion in completions]
    return [2.0 * (gold in text) for gold, text in zip(answer, texts, strict=True)]
