"""The shape around an answer: what stands before and behind it in a reference answer, and how it goes wrong."""

import re

OPEN, CLOSE = (
    {"reasoning": "<reasoning>", "think": "<think>"},
    {"reasoning": "</reasoning>", "think": "</think>"},
)
LOOK_ALIKE = str.maketrans("0123456789aceiopxyABEHKMOPTX", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗асеіорхуАВЕНКМОРТХ")
SAME_AS = {
    f"with a long text {where} it": f"with a short text {where} it"
    for where in ("before", "behind")
}


def misshapen(kind: str, wrong: str) -> dict[str, str]:
    """Tags of one vocabulary, `reasoning` or `think`: without content, too many, or out of place."""
    start, end, answer = OPEN[kind], CLOSE[kind], f"<answer>{wrong}</answer>"
    texts = {
        "tags only": f"{start}{end}<answer></answer>",
        "tags 50 times": f"{start}{end}<answer></answer>" * 50,
        "nested tags": f"{start}{start}{end}{end}<answer>{answer}</answer>",
        "unclosed tags": f"{start}r<answer>{wrong}",
        "answer inside": f"{start}r{answer}{end}",
        "answer before": f"{answer}{start}r{end}",
        "look-alike tags": f"{start}r{end}{answer}".translate(LOOK_ALIKE),
        "code fence around": f"```\n{start}r{end}{answer}\n```",
    }
    return {f"{kind}: {name}": text for name, text in texts.items()}


def out_of_shape(wrong: str, before: str, after: str) -> dict[str, str]:
    """A wrong answer in the reference's own tags, with more behind them, closed twice, in reverse, or next to nothing.

    Patterns without anchors, and counts of tags, take each for the shape; models find them, since fewer tokens do it.
    """
    shaped, tags = f"{before}{wrong}{after}", re.findall(r"</?[A-Za-z_]+>", after)
    pieces = re.findall(r"\s*<[^<>]+>\s*|[^<]+?(?=\s*<|$)", shaped)
    texts = {}
    if tags and shaped.rstrip().endswith(tags[-1]):
        texts = {
            "text behind it": shaped.rstrip() + "\nSo be it, or not.",
            "closed twice": shaped.rstrip() + "\n" + tags[-1],
        }
    if len(pieces) > 3:
        texts["back to front"] = "".join(pieces[::-1])
    if len(pieces) > 5:
        texts["nothing in its tags"] = "".join(piece if "<" in piece else "" for piece in pieces)
    return {f"shape: {name}": text for name, text in texts.items()}


def variants(gold: str, reference: str) -> dict[str, str]:
    """The reference answer with neutral text around it; `SAME_AS` names the form that earns as much.

    A reward that is sensitive to it teaches a model where to stop and how long to write, not to be right.
    """
    place = place_of(gold, reference)
    if place is None:
        return {}
    words = {"short": 1, "long": 60}
    texts = {
        size: "\n".join(["Let us see what we know, and go on step by step."] * n)
        for size, n in words.items()
    }
    found = {"with a line end behind it": reference + "\n"}
    found |= {
        f"with a {size} text behind it": f"{reference}\n\n{text}" for size, text in texts.items()
    }
    if any(tag in place[0] for tag in CLOSE.values()):
        found["with another line of reasoning"] = (
            with_more_reasoning(texts["short"], place[0]) + gold + place[1]
        )
    for size, text in texts.items():
        found[f"with a {size} text before it"] = (
            with_more_reasoning(text, place[0]) + gold + place[1]
        )
    return found


def in_reasoning(gold: str, before: str) -> str:
    """`before` with the gold at the end of its reasoning; at its very start where there are no tags for it."""
    for end in CLOSE.values():
        head, tag, tail = before.rpartition(end)
        if tag:
            return f"{head}{gold}{tag}{tail}"
    return f"{gold}\n{before}"


def with_reasoning(text: str, before: str) -> str:
    """`before` with `text` as its reasoning; in front of it where there are no tags for one."""
    for kind, end in CLOSE.items():
        head, tag, tail = before.rpartition(end)
        if tag and OPEN[kind] in head:
            return head[: head.rfind(OPEN[kind])] + OPEN[kind] + text + tag + tail
    return f"{text}\n{before}"


def with_more_reasoning(text: str, before: str) -> str:
    """`before` with `text` added to its reasoning; in front of it where there are no tags for one."""
    for kind, end in CLOSE.items():
        head, tag, tail = before.rpartition(end)
        if tag and OPEN[kind] in head:
            return f"{head.rstrip()}\n{text.rstrip()}{head[len(head.rstrip()) :]}{tag}{tail}"
    return text + before


def place_of(gold: str, reference: str) -> tuple[str, str] | None:
    """The text before and after the last place where the gold is a word of its own (no letter of a tag)."""
    found = list(re.finditer(rf"(?<!\w){re.escape(gold)}(?!\w)", reference)) if gold else []
    return (reference[: found[-1].start()], reference[found[-1].end() :]) if found else None
