"""think_answer_format scores the whole completion or nothing, also where the chat template has written `<think>`."""

import pytest

from rewards import load_reward
from rewards.format import is_think_answer


@pytest.mark.parametrize(
    "text",
    [
        "<think>a</think><answer>b</answer>",
        "<think>\na\n</think>\n\n<answer>\nb\n</answer>\n",
        "  <think></think><answer></answer>",
    ],
)
def test_the_asked_format_scores_in_full(text):
    assert is_think_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "<think>a</think>", "<think>a</think><answer>b</answer> bye", "hello <think>a</think><answer>b</answer>",
        "<think>a</think> so <answer>b</answer>", "<answer>b</answer><think>a</think>",
        "<think>a<answer>b</answer></think>", "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a</think><answer>b</answer>" * 50, "<think>a</think>\n<answer>b</answer>\njunk\n<think>",
        "<think><think>a</think><answer>b</answer>", "<Think>a</Think><Answer>b</Answer>",
        "a</think><answer>b</answer>",
    ],
)  # fmt: skip
def test_anything_else_is_not(text):
    assert not is_think_answer(text)


def test_a_prefilled_think_is_part_of_the_completion():
    assert is_think_answer("a</think><answer>b</answer>", prefilled=True)
    assert not is_think_answer("<think>a</think><answer>b</answer>", prefilled=True)


def test_a_plain_prompt_that_ends_in_think_is_prefilled():
    reward = load_reward("think_answer_format", full=0.5)
    text = "a</think><answer>b</answer>"
    assert reward(prompts=["Question <think>\n", "Question"], completions=[text, text]) == [
        0.5,
        0.0,
    ]


def test_prefilled_chat_templates_are_declared():
    completion = [{"role": "assistant", "content": "a</think><answer>b</answer>"}]
    prompt = [{"role": "user", "content": "Question"}]
    assert load_reward("think_answer_format")(prompts=[prompt], completions=[completion]) == [0.0]
    assert load_reward("think_answer_format", prefilled=True)(
        prompts=[prompt], completions=[completion]
    ) == [1.0]
