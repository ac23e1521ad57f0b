"""Two careless rewards: the audit shows that tricks earn them. hack.yaml trains on them as a demo.

They declare no kind. `tag_count` pays more for fifty tags than for a right answer. Preflight
accepts it because it declares `farmable`.
"""

from rewards.text import completion_text

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def tag_count(prompts: list, completions: list, **kwargs) -> list[float]:
    """0.2 for every tag, even repeated or misplaced ones, unlike `xml_format`."""
    texts = [completion_text(completion) for completion in completions]
    return [round(0.2 * sum(text.count(tag) for tag in TAGS), 6) for text in texts]


tag_count.farmable = "any tag earns it, as often as it is written"


def gold_in_text(prompts: list, completions: list, answer: list[str], **kwargs) -> list[float]:
    """2.0 if the gold answer stands anywhere in the text; `reasoning_gym` reads only the tag."""
    texts = [completion_text(completion) for completion in completions]
    return [2.0 * (gold in text) for gold, text in zip(answer, texts, strict=True)]
