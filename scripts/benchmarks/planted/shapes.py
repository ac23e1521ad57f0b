"""Format rewards with planted bugs: each behaves as a public reward did where its source says."""

import re

from scripts.benchmarks.planted.cases import SOLUTION, THOUGHT, XML, planted


@planted(
    "huggingface/open-r1 src/open_r1/rewards.py@0056faa", "MULTILINE: anything may follow", "numbers", THOUGHT, "format"
)
def multiline_end(text, gold):
    shape = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return float(bool(re.match(shape, text, re.DOTALL | re.MULTILINE)))


@planted("huggingface/open-r1#616", "a second closing tag is part of the answer", "numbers", THOUGHT, "format")
def closed_twice(text, gold):
    return float(bool(re.fullmatch(r"<think>\n(.*?)\n</think>\n<answer>\n(.*?)\n</answer>", text, re.DOTALL)))


@planted("unslothai/unsloth#1761", "without DOTALL, reasoning on several lines never fits", "numbers", XML, "format")
def one_line_only(text, gold):
    return 0.5 * bool(re.match(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", text))


@planted("unslothai/notebooks Llama3.1_(8B)-GRPO.py@1fc73f2", "counts tags in any order", "numbers", XML, "format")
def counts_lines(text, gold):
    count = 0.125 * (text.count("<reasoning>\n") == 1) + 0.125 * (text.count("\n</reasoning>\n") == 1)
    for line in ("\n<answer>\n", "\n</answer>"):
        if text.count(line) == 1:
            count += 0.125 - 0.001 * max(0, len(text.split("\n</answer>")[-1]) - 1)
    return count


@planted(
    "huggingface/open-r1 src/open_r1/rewards.py@0056faa",
    "a quarter for each tag, wherever it is",
    "numbers",
    THOUGHT,
    "format",
)
def counts_tags(text, gold):
    return sum(0.25 for tag in ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>") if text.count(tag) == 1)


@planted(
    "unslothai/notebooks Advanced_Llama3_2_(3B)_GRPO_LoRA.py@1fc73f2",
    "each tag once, in any order",
    "numbers",
    SOLUTION,
    "format",
)
def each_tag_once(text, gold):
    tags = ("<start_working_out>", "<end_working_out>", "<SOLUTION>", "</SOLUTION>")
    return sum(0.5 if text.count(tag) == 1 else -1.0 for tag in tags)


@planted(
    "huggingface/trl trl/rewards/format_rewards.py 1.16",
    "empty thoughts and an empty answer fit",
    "numbers",
    THOUGHT,
    "format",
)
def empty_is_fine(text, gold):
    return float(bool(re.match(r"^<think>(?!.*<think>)(.*?)</think>.*$", text, re.DOTALL | re.MULTILINE)))


@planted(
    "zhiyuanhubj/Logic-RL verl/utils/reward_score/kk.py@0e741bf",
    "looks for two tags of four",
    "numbers",
    THOUGHT,
    "format",
)
def half_of_the_tags(text, gold):
    return float("<answer>" in text and -1 < text.find("</think>") < text.find("<answer>"))
