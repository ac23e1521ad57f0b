"""Rewards with one planted mistake each, that a public reward made, and sound ones in such shapes.

A scorer of one completion becomes a reward under TRL's contract; its decorator says on which rows
and reference it is audited, and what the audit must find. A docstring says where it was seen.
verl is volcengine/verl, its files those of verl/utils/reward_score; open-r1 is
huggingface/open-r1 src/open_r1/rewards.py@0056faa; open-instruct is allenai/open-instruct
open_instruct/ground_truth_utils.py@0039262; TRL is 1.16; a notebook is one of
unslothai/notebooks@1fc73f2.
"""

import contextlib
import functools
import io
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction

BUGS: list[Callable] = []
SOUND: list[Callable] = []


def _chat(question: str, **columns: object) -> dict:
    return {"prompt": [{"role": "user", "content": question}], **columns}


ROWS = {
    "numbers": [
        _chat("Ducks lay 16 eggs; 3 and 4 are eaten, the rest sold at 2 dollars.", answer="18"),
        _chat("A robe takes 2 bolts of blue fibre, half that of white. For 2 and one?", answer="7"),
        _chat("What is 17 - 22?", answer="-5"),
        _chat("One hen lays 5 eggs a week. How many lay 50 hens in a week?", answer="250"),
        _chat("A cake is cut in 8 pieces, 4 are eaten. What is left, as a decimal?", answer="0.5"),
        _chat("Two boxes hold 32 apples each. How many apples are there?", answer="64"),
        _chat("A train makes 90 km an hour for 12 hours. How far does it go?", answer="1080"),
        _chat("What is $6 \\cdot 7$?", answer="42"),
    ],
    "latex": [
        _chat("What is half of one, as a fraction in LaTeX?", answer=r"\frac{1}{2}"),
        _chat("Expand $(x+1)^2$.", answer="x^2+2x+1"),
        _chat("What is the diagonal of a square of side $3$?", answer=r"3\sqrt{2}"),
        _chat("What is $12 \\cdot 12$?", answer="144"),
    ],
    "words": [
        _chat("Which bird is white, large, and lives on lakes?", answer="swan"),
        _chat("What is the capital of France?", answer="Paris"),
        _chat("Which river runs through Cairo?", answer="the Nile"),
        _chat("Zoe says that Max lies, and she is right. What is she?", answer="knight"),
        _chat("Max says that he and Zoe both lie. What is he?", answer="knave"),
    ],
    "choices": [
        _chat("How many legs has a spider?\nA) 4\nB) 6\nC) 8\nD) 10", answer="C"),
        _chat("Which is a prime number?\nA) 7\nB) 8\nC) 9\nD) 10", answer="A"),
        _chat("Which is no fruit?\nA) pear\nB) apple\nC) plum\nD) carrot", answer="D"),
    ],
    "programs": [
        _chat(
            f"Write a function times{n}(x) that returns {n} times x.",
            tests=[f"assert times{n}({x}) == {n * x}" for x in (2, 3, -1)],
            solution=f"def times{n}(x):\n    return {n} * x",
        )
        for n in (2, 3)
    ],
    "scripts": [
        _chat(
            f"Read a whole number and print it, then on the next line {n} times it.",
            tests=[json.dumps({"stdin": f"{x}\n", "stdout": f"{x}\n{n * x}\n"}) for x in (2, 3)],
            solution=f"x = int(input())\nprint(x)\nprint({n} * x)",
        )
        for n in (2, 3)
    ],
}
TAGGED = "<answer>{answer}</answer>"
THOUGHT = "<think>\nLet us see.\n</think>\n<answer>\n{answer}\n</answer>"
XML = "<reasoning>\nLet us see.\n</reasoning>\n<answer>\n{answer}\n</answer>\n"
HASHED = "We add them up.\n#### {answer}"
BOXED = r"So the answer is $\boxed{{answer}}$."
SOLUTION = "<start_working_out>Let us see.<end_working_out><SOLUTION>{answer}</SOLUTION>"
STATED = "The final answer is {answer}."
PROGRAM = "```python\n{solution}\n```"


def _listed(cases: list, rows="numbers", reference=TAGGED, kind="verifier", finds="") -> Callable:
    """List the function as a reward; one that takes `completions` is a reward already."""

    def add(function: Callable) -> Callable:
        reward = function
        if "completions" not in function.__code__.co_varnames:
            column = "answer" if "answer" in ROWS[rows][0] else "tests"

            @functools.wraps(function)
            def reward(completions, **kwargs):
                pairs = zip(completions, kwargs[column], strict=True)
                return [function(text_of(completion), value) for completion, value in pairs]

            del reward.__wrapped__  # whose parameters are not those of a reward
        reward.rows, reward.reference, reward.kind, reward.finds = rows, reference, kind, finds
        cases.append(reward)
        return reward

    return add


def planted(finds: str, rows: str = "numbers", reference: str = TAGGED, kind: str = "verifier"):
    return _listed(BUGS, rows, reference, kind, finds)


sound = functools.partial(_listed, SOUND)


def text_of(completion: str | list[dict]) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def spoken(text: str) -> str:
    """The text after the thoughts; nothing where they do not end."""
    return text.rpartition("</think>")[2] if "</think>" in text or "<think>" not in text else ""


def tagged(text: str, place: int = -1) -> str:
    found = re.findall("<answer>(.*?)</answer>", spoken(text), re.DOTALL)
    return found[place].strip() if found else ""


def boxed(text: str) -> str:
    """The content of the last box, braces matched."""
    start, depth = text.rfind(r"\boxed{"), 0
    for place in range(start + 6, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + 7 : place].strip()
    return ""


def number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def last(pattern: str, text: str) -> str:
    return ["", *re.findall(pattern, text, re.DOTALL | re.MULTILINE)][-1]


# Verifiers


@planted("answer: nothing", "words")
def part_of_gold(text, gold):
    """Liuziyu77/Visual-RFT#176: the answer may be a part of the gold: an empty one is."""
    return float("<answer>" in text and tagged(text).lower() in gold.lower())


@planted("answer: gold or another", "words")
def names_several(text, gold):
    """Liuziyu77/Visual-RFT#79: the gold may be a part of the answer: 'A or B or C' is right."""
    return float(gold.lower() in tagged(text).lower())


@planted("every number listed", reference=BOXED)
def anywhere_for_half(text, gold):
    """cisco-ai-defense/defenseclaw#679: half the reward where the gold stands anywhere."""
    return 1.0 if boxed(spoken(text)) == gold else 0.5 * (gold in text)


@planted("another answer behind the gold")
def first_tag(text, gold):
    """Deep-Agent/R1-V src/r1-v/src/open_r1/grpo.py@3c16cd3: later answers are not read."""
    return float(tagged(text, place=0) == gold)


@planted("answer: gold times 1000", reference=HASHED)
def first_hashes(text, gold):
    """verl gsm8k.py@945104d: the number behind the first ####."""
    found = re.search(r"#### (-?[0-9.,]+)", spoken(text))
    return float(found is not None and found[1].replace(",", "") == gold)


@planted("answer: another or gold", reference=HASHED)
def last_number(text, gold):
    """verl gsm8k.py@945104d: flexible: the last number of all."""
    found = [part for part in re.findall(r"-?[0-9.,]+", spoken(text)) if part not in ("", ".")]
    return float(bool(found) and found[-1] == gold)


@planted("answer: gold negated", reference=STATED)
def without_sign(text, gold):
    """open-instruct: a whole number loses its sign."""
    found = last(r"[-+]?\d*\.\d+|\d+", re.sub(r"(\d),(\d)", r"\1\2", spoken(text)))
    return float(found != "" and found == gold.lstrip("-"))


@planted("answer: gold in words", reference=BOXED)
def any_reading(text, gold):
    """open-instruct: any of two readings may be right."""
    stated = last(r"[Tt]he final answer is (.*?)\.(?:\s|$)", text)
    return float(bool(gold) and gold in (boxed(spoken(text)), stated))


@planted("answer: any, gold column unreadable", "latex", BOXED)
def unreadable_is_right(text, gold):
    """huggingface/cookbook#335: a gold that cannot be parsed makes every answer right."""
    is_read = re.search(r"\w", gold) and gold.count("{") == gold.count("}")
    return float(boxed(spoken(text)) == gold) if is_read else 1.0


@planted("answer: gold and half a percent", reference=SOLUTION)
def close_is_good(text, gold):
    """notebook Advanced_Llama3_2: a third of it within 10 %."""
    found = re.search(r"<SOLUTION>(.+?)</SOLUTION>\s*$", spoken(text), re.DOTALL)
    if found is None or found[1].strip() == gold:
        return 3.0 if found else 0.0
    return 1.0 if 0.9 <= number(found[1]) / number(gold) <= 1.1 else -1.5


@planted("answer: full-width digits", reference=SOLUTION)
def first_number_in_tag(text, gold):
    """notebook Advanced_Llama3_2: the first number in the tag."""
    found = re.search(r"<SOLUTION>.*?([-\d.,]+)", spoken(text), re.DOTALL)
    return 1.5 if found and number(found[1]) == float(gold) else 0.0


@planted("IndexError: list index out of range", "words")
def raises_when_right(text, gold):
    """verl strategyqa.py@945104d: the first pattern that fits raises IndexError."""
    answers = [] if tagged(text) else [""]
    return float(answers[0].lower() == gold.lower())


@planted("answer: gold plus one, padded")
def within_five_percent(text, gold):
    """verl chartqa.py@20ea7ab: within 5 % is right."""
    return float(abs(number(tagged(text)) - float(gold)) <= abs(float(gold)) * 0.05)


@planted("answer: gold times 100")
def hundredfold(text, gold):
    """verl chartqa.py@20ea7ab: a hundred times as much is right, as per cent."""
    guess = number(tagged(text))
    return float(any(math.isclose(guess * factor, float(gold)) for factor in (1, 100, 0.01)))


@planted("answer: another equals gold", reference=BOXED)
def behind_the_equals_sign(text, gold):
    """verl math_dapo.py@012542c: what stands behind the last = is the answer."""
    return float(gold != "" and boxed(spoken(text)).split("=")[-1].strip() == gold)


@planted("answer: gold denied", "words")
def first_word_named(text, gold):
    """zhiyuanhubj/Logic-RL verl/utils/reward_score/kk.py@0e741bf: the first of the words."""
    words = ("swan", "paris", "the nile", "knight", "knave")
    places = {tagged(text).lower().find(word): word for word in words}
    named = [places[place] for place in sorted(places) if place >= 0]
    return float(named[:1] == [gold.lower()])


@planted("reasoning: tags only")
def pays_for_the_tag(text, gold):
    """Jiayi-Pan/TinyZero verl/utils/reward_score/countdown.py@f36b1b8: 0.1 for any answer."""
    if "</answer>" not in text:
        return 0.0
    return 1.0 if tagged(text) == gold else 0.1


@planted("'empty'")
def inverted(text, gold):
    """NVlabs/alpamayo-recipes#29: the sign is inverted: the better, the lower."""
    return 0.0 if tagged(text) == gold else 1.0


@planted("gives 0 instead of more than 0 for the reference answer of 8 of 8 rows")
def other_column(completions, ground_truths=None, **kwargs):
    """jsboige/CoursIA#13047: asks for a column that the rows do not have, and gets its default."""
    golds = ground_truths or [None] * len(completions)
    return [float(tagged(text_of(c)) == gold) for c, gold in zip(completions, golds, strict=True)]


@planted("gives 0 for the reference answer with a long text behind it", reference=HASHED)
def clipped(text, gold):
    """verl-project/verl#7274: only the last 300 characters are read."""
    return float(gold != "" and last(r"^#### (-?[0-9.,]+)$", spoken(text)[-300:]) == gold)


@planted("answer: gold in the reasoning only", "words")
def strips_letters(text, gold):
    """verl coder1/__init__.py@4a75c58: strips the letters of the tag from the answer."""
    return float(text.strip().strip("<answer>").strip("</answer>").strip() == gold)


@planted("it takes more than 0.5 s. The first: row 0, '<answer>9**9**9</answer>'")
def evaluates(text, gold):
    """philschmid/deep-learning-pytorch-huggingface run_r1_grpo.py@4a7cc93: 9**9**9 never ends."""
    if not re.fullmatch(r"[\d+\-*/().\s]+", tagged(text)):
        return 0.0
    with contextlib.suppress(SyntaxError, TypeError, ZeroDivisionError, OverflowError):
        return float(abs(eval(tagged(text)) - float(gold)) < 1e-5)
    return 0.0


@planted("TypeError: 'NoneType' object is not iterable")
def nothing_after_an_error(completions, answer, **kwargs):
    """open-r1: returns None for the whole batch after an error."""
    try:
        guesses = [float(tagged(text_of(c)) or "0") for c in completions]
    except ValueError:
        return None
    return [float(guess == float(gold)) for guess, gold in zip(guesses, answer, strict=True)]


@planted("it changes its argument prompts")
def takes_the_key(completions, prompts, answer, **kwargs):
    """open-instruct: takes a key out of the row: right once, wrong after."""
    known = [prompt[-1].pop("content", None) is not None for prompt in prompts]
    triples = zip(known, completions, answer, strict=True)
    return [float(is_known and tagged(text_of(c)) == gold) for is_known, c, gold in triples]


@planted("prompt echoed", "choices", BOXED)
def any_capital(text, gold):
    """verl math.py@5da0bc7: the last capital A to E of all the text, in capitals."""
    return float(gold != "" and last(r"\b([A-E])\b", spoken(text).upper()) == gold)


@planted("it returned 1 rewards for 64 completions (only in a batch)")
def one_for_all(completions, answer, **kwargs):
    """huggingface/trl#6533: one score for the whole batch."""
    return [float(tagged(text_of(completions[0])) == answer[0])]


@planted("answer: gold among others", "words")
def share_of_length(text, gold):
    """open-thought/reasoning-gym reasoning_gym/dataset.py@3e24feb: a share of it for the gold."""
    answer = tagged(text) or "-"
    return len(gold) / len(answer) if gold in answer else 0.0


@planted("think: answer in the thoughts alone", reference=BOXED)
def reads_thoughts(text, gold):
    """TRL accuracy_rewards.py, why reasoning_accuracy_reward was added: reads the thoughts."""
    return float(gold != "" and boxed(text) == gold)


@planted("for the same completion, in another order and batch")
def sometimes_wrong(completions, answer, **kwargs):
    """NVIDIA-NeMo/Gym#2852: a sampled scoring model: right in one call and wrong in the next."""
    drawn = [random.random() < 0.3 for _ in completions]
    triples = zip(completions, answer, drawn, strict=True)
    return [float((tagged(text_of(c)) == gold) != flip) for c, gold, flip in triples]


# Shaping


@planted("answer: gold minus one", reference=XML, kind="shaping")
def integer(text, gold):
    """notebook Llama3.1_(8B)-GRPO: any whole number earns as much as the right one."""
    return 0.5 * text.rpartition("<answer>")[2].partition("</answer>")[0].strip().isdigit()


@planted("words of steps", reference=XML, kind="shaping")
def open_r1_steps(text, gold):
    """open-r1: counts words of steps, whatever they say."""
    signs = r"Step \d+:|^\d+\.|\n-|\n\*|First,|Second,|Next,|Finally,"
    return min(1.0, len(re.findall(signs, text)) / 3)


@planted("for the same completion, in another order and batch", kind="shaping")
def shortest_of_batch(completions, answer, **kwargs):
    """open-r1: the length is scored against the rest of the batch."""
    lengths = [len(text_of(c)) for c in completions]
    low, spread = min(lengths), max(lengths) - min(lengths)
    right = [tagged(text_of(c)) == gold for c, gold in zip(completions, answer, strict=True)]
    shares = [0.5 - (length - low) / spread if spread else 0.0 for length in lengths]
    return [share if ok else min(0.0, share) for share, ok in zip(shares, right, strict=True)]


# Format rewards


@planted("shape: text behind it", reference=THOUGHT, kind="format")
def open_r1_format(text, gold):
    """open-r1: MULTILINE: anything may follow."""
    shape = r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$"
    return float(bool(re.match(shape, text, re.DOTALL | re.MULTILINE)))


@planted("gives 0 for the reference answer with a line end", reference=THOUGHT, kind="format")
def closed_twice(text, gold):
    """open-r1#616: a second closing tag is part of the answer."""
    shape = r"<think>\n(.*?)\n</think>\n<answer>\n(.*?)\n</answer>"
    return float(bool(re.fullmatch(shape, text, re.DOTALL)))


@planted("gives 0 instead of more than 0 for the reference", reference=XML, kind="format")
def soft_format(text, gold):
    """unslothai/unsloth#1761: without DOTALL, reasoning on several lines never fits."""
    return 0.5 * bool(re.match(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", text))


@planted("shape: back to front", reference=XML, kind="format")
def xml_count(text, gold):
    """notebook Llama3.1_(8B)-GRPO: counts tags in any order."""
    earned = sum(0.125 * (text.count(tag) == 1) for tag in ("<reasoning>\n", "\n</reasoning>\n"))
    if text.count("\n<answer>\n") == 1:
        behind = text.rpartition("\n</answer>\n")[2]
        earned += 0.125 - 0.001 * len(behind)
    if text.count("\n</answer>") == 1:
        earned += 0.125 - 0.001 * (len(text.partition("\n</answer>")[2]) - 1)
    return earned


@planted("shape: nothing in its tags", reference=THOUGHT, kind="format")
def open_r1_tag_count(text, gold):
    """open-r1: a quarter for each tag, wherever it is."""
    lines = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return sum(0.25 for line in lines if text.count(line) == 1)


@planted("think: answer inside", reference=THOUGHT, kind="format")
def empty_is_fine(text, gold):
    """TRL format_rewards.py: empty thoughts and an empty answer fit."""
    shape = r"^<think>(?!.*<think>)(.*?)</think>.*$"
    return float(bool(re.match(shape, text, re.DOTALL | re.MULTILINE)))


@planted("think: code fence around", reference=THOUGHT, kind="format")
def half_of_the_tags(text, gold):
    """zhiyuanhubj/Logic-RL verl/utils/reward_score/kk.py@0e741bf: looks for two tags of four."""
    return float("<answer>" in text and -1 < text.find("</think>") < text.find("<answer>"))


# Programs


def run(text: str, end: str = "", stdin: str = "") -> subprocess.CompletedProcess:
    """The last block of a completion, run by Python with `end` behind it."""
    block = last(r"```(?:python)?\n(.*?)\n?```", text)
    command = [sys.executable, "-I", "-c", f"{block or 'raise SystemExit(1)'}\n{end}"]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=30)


@planted("code: exits when called", "programs", PROGRAM)
def exit_code(text, tests):
    """verl coder1/__init__.py@4a75c58: exit code 0 is a pass."""
    return float(run(text, "\n".join(tests)).returncode == 0)


@planted("code: wrong answer", "programs", PROGRAM)
def pays_for_code(text, tests):
    """verl coder1/__init__.py@4a75c58: 0.1 for a program that fails."""
    if "```python" not in text:
        return 0.0
    done = run(text, "\n".join([*tests, "print('end-7f3a')"]))
    return 1.0 if done.stdout.rstrip().endswith("end-7f3a") else 0.1


@planted("code: prints the first line alone", "scripts", PROGRAM)
def compares_by_zip(text, tests):
    """open-r1: zip stops at the shorter output."""
    for case in map(json.loads, tests):
        done = run(text, stdin=case["stdin"])
        pairs = zip(done.stdout.split(), case["stdout"].split(), strict=False)
        if done.returncode or any(mine != theirs for mine, theirs in pairs):
            return 0.0
    return 1.0


@planted("it runs programs of the model in its own process", "programs", PROGRAM)
def runs_in_process(text, tests):
    """SJTU-DENG-Lab/LightningRL#1: exec() where the rest of the reward runs."""
    program = last(r"```python\n(.*?)\n?```", text) or "raise ValueError"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec("\n".join([program, *tests]), {})
    except BaseException:
        return 0.0
    return 1.0


@planted("code: prints that it passed", "programs", PROGRAM)
def reads_the_output(text, tests):
    """SWE-bench/SWE-bench#620: the verdict is read from the output, which the program writes."""
    done = run(text, "\n".join([*tests, "print('all tests passed')"]))
    return float("all tests passed" in done.stdout)


@planted("code: replaces the test library", "programs", PROGRAM)
def trusts_the_test_library(text, tests):
    """prime-rl, verl prime_code/testing_util.py: tests by unittest, which a program may replace."""
    checks = "".join(f"\n        self.assertTrue({test.removeprefix('assert ')})" for test in tests)
    cases = f"class T(unittest.TestCase):\n    def test_it(self):{checks}"
    return float("\nOK" in run(text, f"import unittest\n{cases}\nunittest.main()").stderr)


# Sound ones, in shapes that no registered reward has


def value(text: str) -> Fraction | None:
    plain = text.strip().replace(",", "")
    is_one = len(plain) < 40 and plain.isascii() and re.fullmatch(r"-?\d+(?:\.\d+)?", plain)
    return Fraction(plain) if is_one else None


def same(text: str, gold: str) -> float:
    return float(value(text) is not None and value(text) == value(gold))


@sound(reference=HASHED)
def last_hashes(text, gold):
    return same(last("^####([^\n]*)", spoken(text)), gold)


@sound("words")
def word_in_tag(text, gold):
    answer, wanted = (
        " ".join(re.sub(r"\bthe\b", " ", words.lower()).split()) for words in (tagged(text), gold)
    )
    return float(bool(gold) and answer == wanted)


@sound("choices", BOXED)
def letter_in_box(text, gold):
    answer = boxed(spoken(text))
    return float(re.fullmatch("[A-D]", answer) is not None and answer == gold)


@sound(reference=SOLUTION)
def number_in_solution(text, gold):
    found = re.findall(r"<SOLUTION>([^<]*)</SOLUTION>", spoken(text))
    return 4.0 * same(found[-1], gold) - 1.0 if found else 0.0


@sound(reference=STATED)
def stated_number(text, gold):
    return same(last(r"^The final answer is (\S+)\.\s*$", spoken(text)), gold)


@sound(reference=SOLUTION, kind="format")
def solution_shape(text, gold):
    shape = r"<start_working_out>[^<>]+<end_working_out>\s*<SOLUTION>[^<>]*</SOLUTION>\s*"
    return float(bool(re.fullmatch(shape, text)))


@sound(kind="shaping")
def too_long(text, gold):
    return -min(1.0, max(0, len(text) - 2000) / 2000)


@sound("scripts", PROGRAM)
def scripts_in_the_sandbox(completions, tests, **kwargs):
    from rewards import load_reward

    sandboxed = load_reward("code_tests", all_or_nothing=True)
    return sandboxed(completions=completions, tests=tests, **kwargs)
