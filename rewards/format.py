"""Format rewards: is the completion shaped as asked?"""

from rewards.parsing import completion_text

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")


def score_xml_format(text: str, per_tag: float = 0.2) -> float:
    """`per_tag` for each of the four tags that occurs exactly once, in the asked order, and properly nested.

    A tag that is repeated, stands before an earlier one that earned, or closes what was never opened
    earns nothing for itself; the others still do. Range: 0.0 to 4 x `per_tag`.

    Example: `score_xml_format("<reasoning>r</reasoning><answer>4</answer>") == 0.8`
    """
    earned, end = 0, 0
    for tag in TAGS:
        start = text.find(tag)
        opened = not tag.startswith("</") or 0 <= text.find(tag.replace("</", "<")) < start
        if start >= end and opened and text.count(tag) == 1:
            earned, end = earned + 1, start + len(tag)
    return round(earned * per_tag, 6)


def is_xml_format(text: str) -> bool:
    """True when the whole completion is the asked format: the four tags once each, in order, nothing outside them.

    Stricter than a full `score_xml_format`, which pays tags and not their surroundings: this is what
    evaluation counts as the asked format.
    """
    inside = text.strip()
    if score_xml_format(inside, per_tag=1.0) != 4.0:
        return False
    between = inside[inside.index(TAGS[1]) + len(TAGS[1]) : inside.index(TAGS[2])]
    return inside.startswith(TAGS[0]) and inside.endswith(TAGS[3]) and not between.strip()


class XmlFormat:
    """Reward for `<reasoning>...</reasoning><answer>...</answer>`, `per_tag` for each tag in its place."""

    __name__ = "xml_format"
    kind = "format"

    def __init__(self, per_tag: float = 0.2):
        self.per_tag = per_tag
        self.full = round(4 * per_tag, 6)

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [score_xml_format(completion_text(completion), self.per_tag) for completion in completions]
