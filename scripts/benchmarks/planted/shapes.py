"""Format rewards with planted bugs: each behaves as a public reward did where its source says."""

import re

from scripts.benchmarks.planted import public
from scripts.benchmarks.planted.cases import SOLUTION, THOUGHT, XML, planted

# MULTILINE: anything may follow.
planted(reference=THOUGHT, kind="format")(public.open_r1_format)


@planted(reference=THOUGHT, kind="format")
def closed_twice(text, gold):
    """open-r1#616: a second closing tag is part of the answer."""
    return float(
        bool(re.fullmatch(r"<think>\n(.*?)\n</think>\n<answer>\n(.*?)\n</answer>", text, re.DOTALL))
    )


# unslothai/unsloth#1761: without DOTALL, reasoning on several lines never fits.
planted(reference=XML, kind="format")(public.soft_format)


# Counts tags in any order.
planted(reference=XML, kind="format")(public.xml_count)


# A quarter for each tag, wherever it is.
planted(reference=THOUGHT, kind="format")(public.open_r1_tag_count)


@planted(reference=SOLUTION, kind="format")
def each_tag_once(text, gold):
    """notebook Advanced_Llama3_2: each tag once, in any order."""
    tags = ("<start_working_out>", "<end_working_out>", "<SOLUTION>", "</SOLUTION>")
    return sum(0.5 if text.count(tag) == 1 else -1.0 for tag in tags)


@planted(reference=THOUGHT, kind="format")
def empty_is_fine(text, gold):
    """TRL format_rewards.py: empty thoughts and an empty answer fit."""
    return float(
        bool(re.match(r"^<think>(?!.*<think>)(.*?)</think>.*$", text, re.DOTALL | re.MULTILINE))
    )


@planted(reference=THOUGHT, kind="format")
def half_of_the_tags(text, gold):
    """zhiyuanhubj/Logic-RL verl/utils/reward_score/kk.py@0e741bf: looks for two tags of four."""
    return float("<answer>" in text and -1 < text.find("</think>") < text.find("<answer>"))
