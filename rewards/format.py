"""Format rewards: is the completion shaped as asked?"""

from rewards.text import completion_text

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
THINK_TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def score_xml_format(text: str, per_tag: float = 0.2) -> float:
    """`per_tag` for each of the four tags that is in its place: 0.0 to 4 x `per_tag`.

    The first tag must begin the text and the last must end it: where text after the answer costs
    nothing, a model learns to write some. A tag earns nothing if it is repeated, if it is out of
    order, or if it closes a part that was never opened. The other tags still earn.

    Example: `score_xml_format("<reasoning>r</reasoning><answer>4</answer>") == 0.8`
    """
    text = text.strip()
    earned, end = 0, 0
    for tag in TAGS:
        start = text.find(tag)
        opening = text.find(tag.replace("</", "<"))  # of an opening tag: its own place
        is_in_order = text.count(tag) == 1 and end <= start and 0 <= opening <= start
        begins = tag != TAGS[0] or start == 0
        ends = tag != TAGS[-1] or text.endswith(tag)
        if is_in_order and begins and ends:
            earned, end = earned + 1, start + len(tag)
    return round(earned * per_tag, 6)


def is_xml_format(text: str) -> bool:
    """Whether the completion is the two tagged parts and nothing else, each tag once, in order.

    Evaluation reports this; `score_xml_format` pays for each tag.
    """
    return _is_all_tagged(text, TAGS)


def is_think_answer(text: str, prefilled: bool = False) -> bool:
    """Whether the whole text is `<think>...</think>`, then `<answer>...</answer>`, each tag once.

    With `prefilled` the prompt ends in `<think>`, so the text starts inside it.

    Example: `is_think_answer("<think>2+2</think> <answer>4</answer>")`
    """
    return _is_all_tagged(THINK_TAGS[0] + text if prefilled else text, THINK_TAGS)


def _is_all_tagged(text: str, tags: tuple[str, str, str, str]) -> bool:
    """Whether the text is two tagged parts and else only white space, each of the tags once.

    `tags` are the opening and the closing tag of the first part, then those of the second.
    """
    text = text.strip()
    places = [text.find(tag) for tag in tags]
    if places != sorted(places) or any(text.count(tag) != 1 for tag in tags):
        return False
    between = text[places[1] + len(tags[1]) : places[2]]
    return text.startswith(tags[0]) and text.endswith(tags[3]) and not between.strip()


class XmlFormat:
    """Reward for `<reasoning>..</reasoning><answer>..</answer>`: `per_tag` for each tag."""

    __name__ = "xml_format"
    kind = "format"
    farmable = "each tag in its place earns for itself; what it holds is not read"

    def __init__(self, per_tag: float = 0.2):
        self.per_tag, self.full = per_tag, round(4 * per_tag, 6)

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        return [score_xml_format(completion_text(text), self.per_tag) for text in completions]


class ThinkAnswerFormat:
    """Reward `full` for a whole completion `<think>..</think><answer>..</answer>`, else 0.0.

    Set `prefilled` where the chat template writes the opening `<think>`. A plain-text prompt that
    ends in `<think>` needs no setting.
    """

    __name__ = "think_answer_format"
    kind = "format"
    farmable = "the shape earns it; what its tags hold is not read"

    def __init__(self, full: float = 1.0, prefilled: bool = False):
        self.full, self.prefilled = full, prefilled

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[float]:
        scores = []
        for prompt, text in zip(prompts, completions, strict=True):
            is_open = isinstance(prompt, str) and prompt.rstrip().endswith(THINK_TAGS[0])
            is_shaped = is_think_answer(completion_text(text), self.prefilled or is_open)
            scores.append(self.full * is_shaped)
        return scores
