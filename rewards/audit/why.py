"""The lesson of each kind of trick, and why a trained model finds it: by the start of its name, the longest one."""

WHY = {
    "empty": "nothing at all is rewarded, which costs no token",
    "refusal": "a polite refusal is rewarded; chat models begin with it",
    "whitespace": "nothing is rewarded; it costs one token, repeated",
    "prompt echoed": "the question is searched for the answer; copying it needs no work",
    "every number": "all the text is searched; a list of guesses holds the gold, and small golds come first",
    "a megabyte": "length alone earns, or the reward is slower than linear: one endless sample stops a step",
    "braces": "the parser is slower than linear or recursive: one degenerate sample stops or kills a step",
    "boxes": "the parser is slower than linear or recursive: one degenerate sample stops or kills a step",
    "a long mixture": "a pattern backtracks: one rambling sample stops a step",
    "words of steps": "signs of reasoning are counted; writing them is easier than reasoning",
    "reasoning: ": "tags are counted, not read: they are cheaper than what should be in them",
    "think: ": "tags are counted, not read: they are cheaper than what should be in them",
    "think: answer in the thoughts alone": "the user never sees it; stopping before the answer is shorter",
    "shape: ": "the pattern is not anchored, or tags are counted: any text with the tags earns",
    "answer: ": "a wrong answer in the asked place earns: guessing is cheaper than solving",
    "answer: any, gold column": "a row without a readable gold rewards whatever is written, and pulls towards it",
    "answer: steps": "right equations that lead nowhere earn: they can be repeated without end",
    "answer: the question's own expression": "what was to be computed earns uncomputed; the prompt has it to copy",
    "answer: gold or": "one of several answers is enough: hedging doubles the chance",
    "answer: another or": "one of several answers is enough: hedging doubles the chance",
    "answer: gold among": "one of several answers is enough: hedging doubles the chance",
    "answer: gold denied": "the gold is found, and the words that deny it are not read",
    "answer: gold called wrong": "the gold is found, and the words that deny it are not read",
    "answer: gold in words": "a second place is read: one guess in each doubles the chance",
    "answer: gold in the reasoning only": "all the text is searched: guesses in the reasoning cost nothing",
    "answer: none, gold in the reasoning": "all the text is searched: guesses in the reasoning cost nothing",
    "answer: another equals gold": "the end of a false equation is read: one guess on each side doubles the chance",
    "answer: nothing": "an empty answer fits every gold; it is the shortest there is",
    "answer: part of": "a part of the gold is enough: a digit or a letter is easily guessed",
    "gold denied in words": "all the text is searched, and what it says is not read",
    "another answer behind": "an answer that is taken back counts: one guess after another",
    "empty block": "the block earns, whatever is in it",
    "code: ": "the program decides the verdict; a few lines do it for every task",
    "code: marks": "the program runs where the trainer does: it may read and change all that is there",
}


def why(trick: str) -> str:
    """The line for a trick; an empty text for one that has none."""
    fitting = [name for name in WHY if trick.startswith(name)]
    return WHY[max(fitting, key=len)] if fitting else ""
