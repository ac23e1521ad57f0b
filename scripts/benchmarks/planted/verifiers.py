"""Verifiers with planted bugs: each behaves as a public reward did where its source says."""

import math
import random
import re

from scripts.benchmarks.planted import public
from scripts.benchmarks.planted.cases import BOXED, HASHED, SOLUTION, STATED, XML, planted, text_of

TAG = re.compile("<answer>(.*?)</answer>", re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def spoken(text: str) -> str:
    """The text after the thoughts; nothing where they do not end."""
    return (
        text.rpartition("</think>")[2] if "</think>" in text else "" if "<think>" in text else text
    )


def tagged(text: str, last: bool = True) -> str | None:
    found = TAG.findall(spoken(text))
    return found[-1 if last else 0].strip() if found else None


def boxed(text: str, thoughts: bool = False) -> str | None:
    """The content of a box, braces matched."""
    text = text if thoughts else spoken(text)
    start = text.rfind(r"\boxed{")
    depth = 0
    for place in range(start + 6, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 7 : place].strip()
    return None


def number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


@planted("words")
def part_of_gold(text, gold):
    """Liuziyu77/Visual-RFT#176: the answer may be a part of the gold: an empty one is."""
    return float(tagged(text) is not None and tagged(text).lower() in gold.lower())


@planted("words")
def names_several(text, gold):
    """Liuziyu77/Visual-RFT#79: the gold may be a part of the answer: 'A or B or C' is right."""
    return float(gold.lower() in (tagged(text) or "").lower())


@planted(reference=BOXED)
def anywhere_for_half(text, gold):
    """cisco-ai-defense/defenseclaw#679: half the reward where the gold stands anywhere."""
    return 1.0 if boxed(text) == gold else 0.5 * (gold in text)


@planted()
def first_tag(text, gold):
    """Deep-Agent/R1-V src/r1-v/src/open_r1/grpo.py@3c16cd3: the first answer counts, later ones are not read."""
    return float(tagged(text, last=False) == gold)


@planted(reference=HASHED)
def first_hashes(text, gold):
    """verl gsm8k.py@945104d: the number behind the first ####."""
    found = re.search(r"#### (-?[0-9.,]+)", spoken(text))
    return float(found is not None and found[1].replace(",", "") == gold)


@planted(reference=HASHED)
def last_number(text, gold):
    """verl gsm8k.py@945104d: flexible: the last number of all."""
    found = [part for part in re.findall(r"-?[0-9.,]+", spoken(text)) if part not in ("", ".")]
    return float(bool(found) and found[-1] == gold)


@planted(reference=STATED)
def without_sign(text, gold):
    """open-instruct: a whole number loses its sign."""
    found = re.findall(r"[-+]?\d*\.\d+|\d+", re.sub(r"(\d),(\d)", r"\1\2", spoken(text)))
    return float(bool(found) and found[-1] == gold.lstrip("-"))


@planted(reference=BOXED)
def any_reading(text, gold):
    """open-instruct: any of two readings may be right."""
    stated = re.findall(r"[Tt]he final answer is (.*?)\.(?:\s|$)", text)
    return float(gold in (boxed(text), stated[-1] if stated else None))


@planted("latex", BOXED)
def unreadable_is_right(text, gold):
    """huggingface/cookbook#335: a gold that cannot be parsed makes every answer right."""
    return (
        1.0
        if not re.search(r"\w", gold) or gold.count("{") != gold.count("}")
        else float(boxed(text) == gold)
    )


@planted(reference=SOLUTION)
def close_is_good(text, gold):
    """notebook Advanced_Llama3_2: a third of it within 10 %."""
    found = re.search(r"<SOLUTION>(.+?)</SOLUTION>\s*$", spoken(text), re.DOTALL)
    guess = number(found[1]) if found else None
    if found is None or found[1].strip() == gold:
        return float(found is not None) * 3.0
    ratio = guess / float(gold) if guess is not None else 0.0
    return 1.0 if 0.9 <= ratio <= 1.1 else 0.5 if 0.8 <= ratio <= 1.2 else -1.5


@planted(reference=SOLUTION)
def first_number_in_tag(text, gold):
    """notebook Advanced_Llama3_2: the first number in the tag."""
    found = re.search(r"<SOLUTION>.*?([-\d.,]+)", spoken(text), re.DOTALL)
    return 0.0 if not found else 1.5 if number(found[1]) == float(gold) else -0.5


@planted("words")
def raises_when_right(text, gold):
    """verl strategyqa.py@945104d: the first pattern that fits raises IndexError."""
    answers = []
    for pattern in ("<answer>(.*?)</answer>", "<answer>\n(.*?)\n</answer>"):
        if re.search(pattern, spoken(text), re.DOTALL):
            break
        answers.append("")
    return float(answers[0].lower() == gold.lower())


@planted("words")
def contained_match(text, gold):
    """verl search_r1_like_qa_em.py@32a02aa: the gold within the answer is enough."""
    answer = " ".join(re.sub(r"\b(a|an|the)\b|[^\w\s]", " ", (tagged(text) or "").lower()).split())
    return float(" ".join(re.sub(r"\b(a|an|the)\b", " ", gold.lower()).split()) in answer)


@planted()
def within_five_percent(text, gold):
    """verl chartqa.py@20ea7ab: within 5 % is right."""
    guess = number(tagged(text))
    return float(guess is not None and abs(guess - float(gold)) <= abs(float(gold)) * 0.05)


@planted()
def hundredfold(text, gold):
    """verl chartqa.py@20ea7ab: a hundred times as much is right, as per cent."""
    guess = number(tagged(text))
    return float(
        guess is not None and any(math.isclose(guess * f, float(gold)) for f in (1, 100, 0.01))
    )


@planted(reference=BOXED)
def behind_the_equals_sign(text, gold):
    """verl math_dapo.py@012542c: what stands behind the last = is the answer."""
    return float((boxed(text) or "").split("=")[-1].strip() == gold)


@planted("words")
def first_word_named(text, gold):
    """zhiyuanhubj/Logic-RL verl/utils/reward_score/kk.py@0e741bf: the first of the words in the answer."""
    words = ("swan", "paris", "oxygen", "the nile", "knight", "knave")
    places = {(tagged(text) or "").lower().find(word): word for word in words}
    return float(
        min(((p, w) for p, w in places.items() if p >= 0), default=(0, ""))[1] == gold.lower()
    )


@planted()
def pays_for_the_tag(text, gold):
    """Jiayi-Pan/TinyZero verl/utils/reward_score/countdown.py@f36b1b8: 0.1 for any answer in its tag."""
    return 0.0 if tagged(text) is None else 1.0 if tagged(text) == gold else 0.1


@planted(reference="<think>Let us see.</think>\n\\boxed{{answer}}")
def second_piece(text, gold):
    """rllm-org/rllm rllm/rewards/math_reward.py@3709f16: the text between the first and the second </think>."""
    pieces = text.split("</think>")
    return float(len(pieces) > 1 and boxed(pieces[1], thoughts=True) == gold)


@planted()
def inverted(text, gold):
    """NVlabs/alpamayo-recipes#29: the sign is inverted: the better, the lower."""
    return 0.0 if tagged(text) == gold else 1.0


@planted()
def other_column(completions, ground_truths=None, **kwargs):
    """jsboige/CoursIA#13047: asks for a column that the rows do not have, and gets its default."""
    golds = ground_truths or [None] * len(completions)
    return [
        float(gold is not None and tagged(text_of(c)) == gold)
        for c, gold in zip(completions, golds, strict=True)
    ]


@planted(reference=HASHED)
def clipped(text, gold):
    """verl-project/verl#7274: only the last 300 characters are read: a right answer with more behind it is wrong."""
    found = re.findall(r"^#### (-?[0-9.,]+)$", spoken(text)[-300:], re.MULTILINE)
    return float(bool(found) and found[-1] == gold)


@planted("choices", BOXED)
def clipped_choice(text, gold):
    """verl gpqa.py@0cfb134: only the last 100 characters are read."""
    return float((boxed(spoken(text)[-100:]) or "").upper() == gold)


@planted("words")
def strips_letters(text, gold):
    """verl coder1/__init__.py@4a75c58: strips the letters of the tag from the answer."""
    return float(text.strip().strip("<answer>").strip("</answer>").strip() == gold)


@planted()
def evaluates(text, gold):
    """philschmid/deep-learning-pytorch-huggingface run_r1_grpo.py@4a7cc93: evaluates the answer: 9**9**9 never ends."""
    answer = tagged(text) or ""
    try:
        return float(
            bool(re.fullmatch(r"[\d+\-*/().\s]+", answer))
            and abs(eval(answer) - float(gold)) < 1e-5
        )
    except (SyntaxError, TypeError, ZeroDivisionError, OverflowError):
        return 0.0


@planted()
def nothing_after_an_error(completions, answer, **kwargs):
    """open-r1: returns None for the whole batch after an error."""
    try:
        guesses = [float(tagged(text_of(c)) or "0") for c in completions]
    except ValueError:
        return None
    return [float(guess == float(gold)) for guess, gold in zip(guesses, answer, strict=True)]


@planted()
def takes_the_key(completions, prompts, answer, **kwargs):
    """open-instruct: takes a key out of the row: right once, wrong after."""
    scores = []
    for completion, prompt, gold in zip(completions, prompts, answer, strict=True):
        known = prompt[-1].pop("content", None) is not None
        scores.append(float(known and tagged(text_of(completion)) == gold))
    return scores


@planted("choices", BOXED)
def any_capital(text, gold):
    """verl math.py@5da0bc7: the last capital A to E of all the text, in capitals."""
    found = re.findall(r"\b([A-E])\b", spoken(text).upper())
    return float(bool(found) and found[-1] == gold)


@planted()
def one_for_all(completions, answer, **kwargs):
    """huggingface/trl#6533: one score for the whole batch."""
    return [float(tagged(text_of(completions[0])) == answer[0])]


@planted("words")
def share_of_length(text, gold):
    """open-thought/reasoning-gym reasoning_gym/dataset.py@3e24feb: a share of it for an answer that holds the gold."""
    answer = tagged(text) or ""
    return 1.0 if answer == gold else len(gold) / len(answer) if gold in answer else 0.0


@planted(reference=BOXED)
def reads_thoughts(text, gold):
    """TRL accuracy_rewards.py, why reasoning_accuracy_reward was added: an answer in the thoughts alone counts."""
    return float(boxed(text, thoughts=True) == gold)


# Any whole number earns as much as the right one.
planted(reference=XML, kind="shaping")(public.integer)


# Counts words of steps, whatever they say.
planted(reference=XML, kind="shaping")(public.open_r1_steps)


@planted(kind="shaping")
def shortest_of_batch(completions, answer, **kwargs):
    """open-r1: the length is scored against the rest of the batch."""
    lengths = [len(text_of(c)) for c in completions]
    low, spread = min(lengths), max(lengths) - min(lengths)
    right = [tagged(text_of(c)) == gold for c, gold in zip(completions, answer, strict=True)]
    shares = [0.5 - (length - low) / spread if spread else 0.0 for length in lengths]
    return [share if ok else min(0.0, share) for share, ok in zip(shares, right, strict=True)]


@planted()
def sometimes_wrong(text, gold):
    """NVIDIA-NeMo/Gym#2852: a sampled scoring model: the same answer is right in one call and wrong in the next."""
    return float((tagged(text) == gold) != (random.random() < 0.1))
