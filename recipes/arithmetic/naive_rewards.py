"""Two rewards as one writes them in a hurry, which the audit finds out; hack.yaml trains on them to
show why it matters.

They declare no kind. `tag_count` pays more for fifty tags than for a right answer: preflight lets
it train because it says how it is farmable.
"""

from rewards.text import completion_text

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def tag_count(prompts: list, completions: list, **kwargs) -> list[float]:
    """0.2 for each tag, however often and wherever it stands: `xml_format` without its care."""
    texts = [completion_text(completion) for completion in completions]
    return [round(0.2 * sum(text.count(tag) for tag in TAGS), 6) for text in texts]


tag_count.farmable = "any tag earns it, as often as it is written"


def gold_in_text(prompts: list, completions: list, answer: list[str], **kwargs) -> list[float]:
    """2.0 where the gold answer stands anywhere: `reasoning_gym` without its care."""
    texts = [completion_text(completion) for completion in completions]
    return [2.0 * (gold in text) for gold, text in zip(answer, texts, strict=True)]
