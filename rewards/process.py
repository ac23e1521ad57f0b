"""Step rewards (process supervision): score the equations of a completion, each at its end."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from rewards.contract import Steps
from rewards.latex.number import SCALE
from rewards.latex.parse import NUMBER_WORDS, Unreadable, parse
from rewards.latex.value import exact_constant
from rewards.text import completion_text, find_tag, question_of

# These limits bound the time that a long completion takes; text beyond them is not read.
MAX_CHARS = 10_000  # of a completion or a question
MAX_TOKENS = 40  # of one side of an equation
MAX_EQUATIONS = 200  # of a text
# These words change the number next to them: in "10% of 200 + 5" the part "200 + 5" is not a side.
BINDING = set(
    "of times plus minus over per percent squared cubed power root mod ^ √ hundred thousand "
    "million billion dozen twice double triple divided multiplied".split()
)
WORDS = NUMBER_WORDS | {
    "half": 2, "twice": 2, "double": 2, "doubled": 2, "triple": 3, "tripled": 3, "thrice": 3,
    "dozen": 12, "quarter": 4, "third": 3, "pair": 2, "pairs": 2, "couple": 2,
}  # fmt: skip
_SIGNS = {
    r"\times": "*", r"\cdot": "*", "×": "*", "x": "*", "X": "*", r"\div": "/", "÷": "/", "−": "-",
    "–": "-",
}  # fmt: skip
_LINE = re.compile(r".*\n|.+")
_TOKEN = re.compile(
    r"(?P<bold>(?<![0-9)])\*\*|\*\*(?![0-9(]))|"  # but `2**3` is a power
    # The length of a number is bounded, so that a long row of digits is read once.
    r"\$?(?>(?P<number>(?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,15})?"
    r"|(?<![\w.])\.[0-9]{1,15}))"
    # Not a number: with a letter, percent sign or more digits behind. In 2.5kg, 2 is not tried.
    r"(?!\w| ?\\?%|:[0-9]|,[0-9]{3})"
    r"|(?P<equals>=)"
    r"|(?P<sign>[-+*/()×÷−–]|\\(?:times|cdot|div)\b|[xX](?=\s*[0-9(]))"
    r"|(?P<word>[0-9]+:[0-9]+|\w+%?)"
    r"|(?P<stop>[^\w\s]|\n)"
)
_SCALE = re.compile(SCALE)
# A product without a sign, and a unary plus: completions seldom mean these.
_IMPLIED = re.compile(r"[0-9)] \(|(?:\A|[-+*/(] )\+")


class Side(NamedTuple):
    """One side of an equation: its value (NaN if it divides by 0), numbers, and end in the text."""

    value: Fraction | float
    numbers: list[Fraction]
    end: int


def equations(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[Side, Side]]:
    """Yield (left, right) for each equation in `text[start:end]` with an operation on the left.

    A chain yields one pair per equal sign.

    Example: "2 + 3 = 5, 5 = 5, 1 + 1 = 3 - 1 = 2" yields three equations, all but 5 = 5.
    """
    end = min(start + MAX_CHARS, len(text) if end is None else end)
    tried = 0
    for chain in _chains(text, start, end):
        for left_tokens, right_tokens in itertools.pairwise(chain):
            if sum(bool(token["number"]) for token in left_tokens) < 2:
                continue  # a number alone, without an operation
            tried += 1
            if tried > MAX_EQUATIONS:
                return
            left, right = _read_side(left_tokens), _read_side(right_tokens)
            if left is not None and right is not None:
                yield left, right


def _chains(text: str, start: int, end: int) -> Iterator[list[list[re.Match]]]:
    """Yield chains of sides, such as those of "1 + 1 = 3 - 1 = 2"; a side is a list of tokens.

    A word or punctuation ends a chain. The word starts the next chain, since it may belong to the
    expression: in "5 apples + 3 = 8" the side "apples + 3" cannot be read. In "in all 5 + 3 = 8"
    the side is "5 + 3". A line without an equal sign is skipped.
    """
    for line in _LINE.finditer(text, start, end):
        if "=" not in line[0]:
            continue
        chain: list[list[re.Match]] = [[]]  # of sides, each a list of tokens
        for token in _TOKEN.finditer(text, *line.span()):
            if token["bold"]:
                continue
            if token["word"] or token[0] in BINDING:
                # A number right before a binding word belongs to it: 10 in "= 10 percent".
                is_binding = token[0] in BINDING or _SCALE.fullmatch(token[0])
                yield chain[:-1] if is_binding else chain
                chain = [[token]]
            elif token["stop"]:
                yield chain
                chain = [[]]
            elif token["equals"]:
                chain.append([])
            elif len(chain) == 1 and len(chain[0]) == 1 and _is_before_side(chain[0][0], token):
                chain = [[token]]
            else:
                chain[-1].append(token)
        yield chain


def _is_before_side(first: re.Match, second: re.Match) -> bool:
    """Whether the first token of a side is no part of it: a word or the dash of a bullet.

    Example: "all" in "all 5 + 3", but not in "all - 5", nor the minus in "-5 + 3".
    """
    if first["word"]:
        is_start = second["number"] is not None or second[0] == "("
        return is_start and first[0] not in BINDING
    return first[0] in "-*" and second.start() > first.end()


def _read_side(tokens: list[re.Match]) -> Side | None:
    """Read a side made of numbers, + - * / and parentheses; None for anything else.

    Example: the side of "2 * (3 + 4)" has the value 14 and the numbers 2, 3, 4; 2(3) is None.
    """
    tokens = _trimmed(tokens)
    if not tokens or len(tokens) > MAX_TOKENS or tokens[0]["word"]:
        return None
    texts = [_SIGNS.get(t[0], t[0].lstrip("$").replace(",", "")) for t in tokens]
    if _IMPLIED.search(" ".join(texts)):
        return None
    numbers = [Fraction(text) for text in texts if text[-1].isdigit()]
    try:
        value = exact_constant(parse(" ".join(texts)))
    except Unreadable:
        return None
    return Side(math.nan if value is None else value, numbers, tokens[-1].end())


def _trimmed(tokens: list[re.Match]) -> list[re.Match]:
    """The tokens without a parenthesis whose partner is outside, and without a dash at the end.

    Example: of the side "(3 + 4" in "(3 + 4 = 7)" the tokens "3 + 4" are left.
    """
    signs = Counter(token[0] for token in tokens)
    surplus = signs["("] - signs[")"]
    first, last = 0, len(tokens)
    while surplus > 0 and tokens[first][0] == "(":
        first, surplus = first + 1, surplus - 1
    while surplus < 0 and tokens[last - 1][0] == ")":
        last, surplus = last - 1, surplus + 1
    if first < last and tokens[last - 1][0] == "-":
        last -= 1
    return tokens[first:last]


def numbers_in(question: str) -> Counter[Fraction]:
    """Count each number of a question, written in digits or as a word of `WORDS`.

    Example: `numbers_in("half of 8 and 8 more") == {2: 1, 8: 2}`
    """
    numbers: Counter[Fraction] = Counter()
    for match in _TOKEN.finditer(question[:MAX_CHARS]):
        if match.lastgroup == "number":
            numbers[Fraction(match["number"].replace(",", ""))] += 1
        elif match.lastgroup == "word" and match[0].lower() in WORDS:
            numbers[Fraction(WORDS[match[0].lower()])] += 1
    return numbers


class EquationSteps:
    """Step reward for the arithmetic of a completion: `right` or `wrong` for each equation.

    The reward reads each `a op b = c` in the last complete `<reasoning>`, or in the whole text if
    there is none. Each equal sign of a chain is an equation. Results are exact: a rounded one is
    wrong. Text that cannot be read (units between numbers, percentages, an implied `2(3)`, a date)
    and `5 = 5` are not steps. Only the first `max_steps` steps are scored.

    A right equation earns `right` if its right side is a single number (not `3 + 4 = 3 + 4`) and
    the numbers of its left side are unused. Unused at the start are the numbers of the question
    (the last message of the prompt): each may be used as often as it stands there, times `uses`. An
    equation that earns uses up its numbers and adds its result, once. So a completion has at most
    `uses` x numbers of the question - 1 earning steps. With `uses` above 1 the reward is
    `farmable`. A right equation that does not earn is not a step. A wrong equation always is.

    Not covered: whether an equation helps. For "58 + 26 =", 58 - 26 = 32 earns as much as 58 + 26 =
    84: use a verifier too. A completion truncated inside a result gets `wrong` for that equation.

    Example: with "3 + 4 - 2 =" as the question, `"3 + 4 = 7, 7 - 2 = 6"` has the steps `[(9, 1.0),
    (20, -1.0)]`.
    """

    __name__ = "equation_steps"
    kind = "step"

    def __init__(self, right: float = 1.0, wrong: float = -1.0, uses: int = 1, max_steps: int = 16):
        if uses < 1 or max_steps < 1:
            raise ValueError(
                f"equation_steps: uses is {uses}, max_steps {max_steps}; they must be at least 1."
            )
        self.right, self.wrong, self.uses, self.max_steps = right, wrong, uses, max_steps
        if uses > 1:
            self.farmable = f"numbers used {uses} times are enough for equations that get nowhere"

    def __call__(self, prompts: list, completions: list, **kwargs) -> list[Steps]:
        questions, texts = map(question_of, prompts), map(completion_text, completions)
        return [self.steps(*row) for row in zip(questions, texts, strict=True)]

    def steps(self, question: str, text: str) -> Steps:
        """Return the steps (end, reward) of one completion, in the order of the text."""
        place = find_tag(text, "reasoning")
        part = (place.inside, place.inside_end) if place else (0, len(text))
        steps, unused = [], numbers_in(question)
        for number in unused:
            unused[number] *= self.uses
        for left, right in equations(text, *part):
            used = Counter(left.numbers)
            if left.value != right.value:
                steps.append((right.end, self.wrong))
            elif len(right.numbers) == 1 and used <= unused:  # else it could be repeated for pay
                unused = unused - used + Counter({abs(right.value): 1})
                steps.append((right.end, self.right))
            if len(steps) == self.max_steps:
                break
        return steps
