"""From a place in the text of a completion to the token that holds it.

The text is what TRL shows to rewards, `decode(ids, skip_special_tokens=True)`; tokens are those that were sampled, not
those of the text tokenized anew. A character of several byte-level tokens is held by the one that completes it.
"""

from bisect import bisect_left
from typing import NamedTuple

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase


class Mark(NamedTuple):
    """After so many tokens the text is so many characters long, none of them unfinished."""

    tokens: int
    characters: int


def tokens_that_hold(tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str, ends: list[int]) -> list[int]:
    """For each end (as in a slice) the index of the token that holds the character before it.

    The tokenizer's stream gives the place of most tokens in one pass. Where it held several of them back (a character
    in parts), and where a tokenizer has no stream or tidies the text up afterwards, the shortest prefix is searched
    that shows the character.

    Args:
        ids: the tokens of a completion, special ones included.
        text: their text.
        ends: places in it, 1 to `len(text)`.

    Raises:
        ValueError: `text` is not the text of these tokens, as of a completion with tool calls or a parsed response.

    Example: with tokens `3`, ` +`, ` 4`, ` =`, ` 7`, end of sequence, the ends `[1, 9]` of `"3 + 4 = 7"` give `[0, 4]`.
    """
    if tokenizer.decode(ids, skip_special_tokens=True) != text:
        raise ValueError(
            f"the completion {text[:200]!r} is not what its tokens decode to, so steps have no tokens in it: step "
            "rewards go with the plain text alone, not with tool calls or a tokenizer's response_schema."
        )
    marks = _marks(tokenizer, ids, text)
    return [_token(tokenizer, ids, text, end, marks) for end in ends]


def _marks(tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str) -> list[Mark]:
    """Places known from the tokenizer's stream, as far as it gives this text; the first and the last in any case."""
    marks, backend = [Mark(0, 0)], getattr(tokenizer, "backend_tokenizer", None)
    stream = DecodeStream(skip_special_tokens=True)
    for i, token in enumerate(ids if backend is not None else []):
        try:
            piece = stream.step(backend, token)
        except Exception:  # it refuses bytes that are no text: those the search below finds
            break
        if piece and not text.startswith(piece, marks[-1].characters):
            break
        if piece:
            marks.append(Mark(i + 1, marks[-1].characters + len(piece)))
    return [*marks, Mark(len(ids), len(text))]


def _token(tokenizer: PreTrainedTokenizerBase, ids: list[int], text: str, end: int, marks: list[Mark]) -> int:
    """The last token of the shortest prefix that shows `text[:end]`, which lies between two marks."""
    place = bisect_left(marks, end, key=lambda mark: mark.characters)
    too_few, enough = marks[place - 1].tokens, marks[place].tokens
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if tokenizer.decode(ids[:middle], skip_special_tokens=True).startswith(text[:end]):
            enough = middle
        else:
            too_few = middle
    return enough - 1
