"""Every registered reward scores any text, alike in any form, order and thread, step by step."""

import itertools
import json
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counting import calls_of
from support.hostile import HOSTILE
from test_layout import REQUIRED

from rewards import load_reward
from rewards.boundary import score
from rewards.loading import REGISTRY

SCORING = list(REGISTRY)
PARAMETERS = {**REQUIRED, "code_tests": {"timeout_s": 0.5}}
SUM = {"dataset": "chain_sum", "parameters": {}, "question": "9 + 9 =", "answer": "18"}
COLUMNS = {
    "answer": "18",
    "entry": json.dumps({**SUM, "metadata": {}}),
    "task": "maths",
    "tests": ["assert f(9) == 18"],
}
GOLDS = ["18", r"\frac{1}{2}", r"\sqrt{x^2+1}", r"(1,\infty)", "x=5", r"\{1,2\}", r"\text{east}"]
VALID = [
    "<reasoning>9 + 9 = 18</reasoning>\n<answer>\n18\n</answer>",
    "<think>9 + 9 = 18</think><answer>18</answer>",
    r"So it is $\boxed{\frac{36}{2}}$.",
    r"\boxed{\frac{x^2+1}{\sqrt{1+x^2}}}",
    "9 + 9 = <<9+9=18>>18\n#### 18",
    "The answer is **$1,018.50**.",
    "So:\n```python\ndef f(x):\n    return 2 * x\n```",
]
TAGS = ["<answer>", "</answer>", "<think>", "</think>", "</reasoning>", "<", "<<", ">>"]
LATEX = r"""
    { } \ \boxed{ \frac{ \text{ \sqrt[ \int_0^ \sum_{k=1}^{ \binom{ \sinh{ \begin{pmatrix} \\ \left(
    \right] \pm \cup \approx \le \{ \} \pi \sin \pmod ( ) [ ] | $ ^ _ & ! = : ; + * x y i cm dozen
"""
NUMBERS = """
    #### ** 18 0 , . - − / e9 1e999 10^{10^{10}} 2356! 0.333333 1/0 １ 𝟙 ² ½ % NaN inf 9**9**9
"""
WORDS = ["The answer is ", "not ", "or ", "wait", "Q:", "```python\n", "```", "~~~"]
PIECES = [*TAGS, *LATEX.split(), *NUMBERS.split(), *WORDS]
PIECES += ["\n", "\t", " ", "\x00", "\u200b", "\u202e", "\ud800"]
WRAPPERS = ["{}", "<answer>{}</answer>", r"\boxed{{{}}}", "#### {}"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A good completion with a few pieces inserted anywhere."""
    text = draw(st.sampled_from(VALID))
    for piece in draw(st.lists(st.sampled_from(PIECES), max_size=6)):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + piece + text[place:]
    return text


@st.composite
def heaped(draw: st.DrawFn) -> str:
    """Pieces in any order, some of them many times, in what a reward looks for."""
    times = st.sampled_from([*[1] * 9, 100])
    pieces = draw(st.lists(st.tuples(st.sampled_from(PIECES), times), max_size=40))
    inside = "".join(piece * count for piece, count in pieces)[:2000]
    return draw(st.sampled_from(WRAPPERS)).format(inside)


# characters() has lone surrogates, text() alone has not
ANY_TEXT = st.text(st.characters(), max_size=200) | mutated() | heaped()


def loaded(name: str):
    return load_reward(name, **PARAMETERS.get(name, {}))


def columns_of(reward, gold: str = r"\sqrt{x^2+1}") -> dict[str, str | list[str]]:
    """Values of a row for the columns a reward needs; a new column needs one in COLUMNS."""
    values = COLUMNS | ({"answer": gold} if reward.__name__ == "boxed_math" else {})
    return {column: values[column] for column in ("task", *reward.columns)}


def scores_of(reward, texts: list[str], prompt: str | list[dict], gold: str) -> tuple[list, list]:
    """The scores of a reward, and the failures that it logs."""
    rows = [{"prompt": prompt, **columns_of(reward, gold)} for _ in texts]
    return score(reward, rows, texts)


# What runs programs is asked less. The others share the texts: to draw them takes most of the time.
@pytest.mark.parametrize(
    ("names", "examples"),
    [([name for name in SCORING if name != "code_tests"], 60), (["code_tests"], 15)],
    ids=["no programs", "programs"],
)
def test_any_text_is_scored_alike_in_any_form_order_and_thread(names, examples):
    rewards, chat = [loaded(name) for name in names], [{"role": "user", "content": "9 + 9 ="}]

    @settings(deadline=None, derandomize=True, max_examples=examples)
    @given(st.lists(ANY_TEXT, min_size=1, max_size=4), st.sampled_from(GOLDS))
    def holds(texts, gold):
        for reward in rewards:
            scores, failures = scores_of(reward, texts, chat, gold)
            may_abstain = reward.kind not in ("verifier", "format")
            assert len(scores) == len(texts)
            assert all(may_abstain if one is None else math.isfinite(one) for one in scores)
            assert not any(failures)
            assert scores_of(reward, texts, "9 + 9 =", gold)[0] == scores
            assert scores_of(reward, texts[::-1], chat, gold)[0] == scores[::-1]
            assert pool.submit(scores_of, reward, texts, chat, gold).result()[0] == scores

    with ThreadPoolExecutor(1) as pool:
        holds()


@pytest.mark.parametrize("name", SCORING)
def test_hostile_text_earns_no_verifier_s_reward(name):
    reward = loaded(name)
    for (title, hostile), wrapper in itertools.product(HOSTILE.items(), WRAPPERS):
        text, row = wrapper.format(hostile), {"prompt": "9 + 9 =", **columns_of(reward)}
        (amount,), _ = score(reward, [row], [text])
        assert amount is None or math.isfinite(amount)
        assert reward.kind != "verifier" or not amount or amount < 0.0, (title, wrapper)


# What a careless reader takes up once for each of its kind, or looks behind to the text's end.
REPEATED = [
    "#### 1+", "\\boxed{1}", "\\boxed{1},", "\\boxed{", "\\frac{", "<<1", "```1\n", "nswer is 1 ",
    "because ", "1 and ", "(1", "<answer>1</answer>", "<answer>", "</think>", "\n\nQ: 1 ", "{", "}",
    "1 = ", "- 1. ", "not ", "1,", "$1", "word ", "1+1=", "1=2+", "1+1=2 ", "=\n",
]  # fmt: skip
READERS = [
    ("gsm8k_correctness", {}), ("gsm8k_correctness", {"lenient": True}), ("gsm8k_harness", {}),
    ("boxed_math", {}), ("xml_format", {}), ("think_answer_format", {}), ("code_format", {}),
    ("number_count", {}), ("prose", {}), ("majority", {}), ("equation_steps", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), READERS)
def test_the_steps_of_a_reader_grow_with_the_text_alone(name, options):
    reward = load_reward(name, **options).call
    for part, wrapper in itertools.product(REPEATED, WRAPPERS):
        text = wrapper.format(part * (20_000 // len(part)))
        arguments = {"prompts": ["p"], "completions": [text], "answer": ["18"]}
        steps = calls_of(lambda row=arguments: reward(**row))
        assert steps <= 10 * len(text), (part, wrapper)
