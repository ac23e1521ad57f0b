"""The probe: exact figures, a verdict for the right reason, samples that can be scored again."""

import dataclasses
import json
import sys
from pathlib import Path

import probe
import pytest
import trl.trainer.grpo_trainer
from support.launching import DENSE_REWARD, TINY
from support.scored_by_place import give, make_trainer
from support.step_rewards import give_steps
from support.tiny_model import build_tiny_model

from recipes.common.sampling.learning import Scored, figures, notes, verdict
from recipes.common.sampling.probe import Samples, pushes_of_rewards, right_elsewhere, score
from recipes.common.training.gates import has_spread
from recipes.common.utils.run_files import read_rows

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[1]
EASIER = "show a worked example, take easier rows, reward parts of an answer"
DEAD = f"never more than 0: right ({EASIER})"
REWARDS = """
def never(completions, **kwargs):
    return [0.0 for _ in completions]
never.kind = "verifier"
def minus(completions, **kwargs):
    return [-0.2 for _ in completions]
def broken(completions, **kwargs):
    raise KeyError("gold")
"""


def reward(kind="verifier", full=None, name="right"):
    """What is declared of a reward: nothing calls it here."""
    declared = give(name, [], kind)
    declared.full = full
    return declared


RIGHT = reward(full=1.0)


def group(row, amounts, task="math", truncated=False, **given):
    """One prompt's completions, which ended after ten tokens each."""
    given = {"teaches": has_spread(amounts), **given}
    return [
        Scored(row, task, 10, truncated, {"right": amount}, amount, **given) for amount in amounts
    ]


def groups(count, amounts, first=0, **given):
    return [s for number in range(first, first + count) for s in group(number, amounts, **given)]


def found(scored, rewards=(RIGHT,), groups_a_step=4, **options):
    return figures(scored, list(rewards), groups_a_step, limit=64, **options)


def right(scored, declared=RIGHT):
    return found(scored, [declared]).tasks["math"].rewards["right"]


def test_hit_rate_mean_spread_and_share_without_spread_are_exact():
    # A hit is the full reward, or more than 0 where none is declared.
    scored = group(0, [0.5, 1.0, 0.0, 1.0])
    hits = (right(scored).hit_rate, right(scored, reward("shaping")).hit_rate)
    assert hits == (0.5, 0.75)
    line = right(group(0, [0.0, 2.0]) + group(1, [1.0, 1.0]))
    assert (line.mean, line.spread, line.zero_spread) == (1.0, pytest.approx(2**0.5 / 2), 0.5)
    total = found(groups(4, [-0.2] * 8)).tasks["math"].total  # rounding is no spread
    assert (total.mean, total.spread, total.zero_spread) == (pytest.approx(-0.2), 0.0, 1.0)


@pytest.mark.parametrize(
    ("kind", "amounts", "state"),
    [
        ("verifier", [0.0, 0.0], "never more than 0"),
        ("verifier", [-0.5, 0.0], "never more than 0"),
        ("shaping", [-0.5, 0.0], None),  # it differs
        ("shaping", [-0.2, -0.2], "never more than 0"),
        ("format", [1.0, 1.0], "constant"),
        ("verifier", [1.0, 0.0], None),
    ],
)
def test_dead_and_constant_rewards_differ(kind, amounts, state):
    assert right(group(0, amounts), reward(kind)).state == state


CUT = {"first": 8, "task": "code", "truncated": True}
A_FEW = groups(2, [0.0, 1.0]) + groups(6, [0.0, 0.0], first=2)
TOO_SHORT = "100 % truncated at 64 tokens: raise max_completion_length to >= 128"
VERDICTS = {
    "a task without spread": (
        groups(8, [0.0, 1.0]) + groups(8, [0.0, 0.0], **CUT),
        {},
        f"will not learn: every group of task code has zero spread; {TOO_SHORT}; {DEAD}",
    ),
    "never right": (
        groups(4, [0.0, 0.0]),
        {},
        f"will not learn: every group of task math has zero spread; {DEAD}",
    ),
    "always right": (
        groups(4, [1.0, 1.0]),
        {},
        "score alike: raise num_generations, or take rows of another difficulty",
    ),
    "enough": (
        A_FEW,
        {"groups_a_step": 2},
        "will learn the task: 0.5 useful groups are expected in an optimizer step of 2",
    ),
    "too few": (
        A_FEW,
        {"groups_a_step": 1},
        "only 0.25 useful groups are expected in an optimizer step of 1 (at",
    ),
    "controls": (
        groups(4, [0.3, 0.7], teaches=False),
        {"rewards": [reward("control")]},
        "only controls score, which teach nothing: name another reward",
    ),
    "masked": (
        groups(4, [0.0, 1.0], truncated=True),
        {"mask_truncated": True},
        "both spread and a completion that ended",
    ),
    "right by luck": (
        groups(8, [0.0, 1.0]),
        {"right": {"math": [0.5, 0.25, 0.5]}},
        "may learn only to guess: task math: 50.0 % right by the held-out metric on their own "
        "prompts, on others 37.5 % in the mean, 50.0 % at most; raise --prompts to be sure, or",
    ),
    "right by skill": (
        groups(8, [0.0, 1.0]),
        {"right": {"math": [0.5, 0.25, 0.375]}},
        "will learn the task: ",
    ),
    "right whatever the prompt": (
        groups(8, [0.0, 1.0]),
        {"right": {"math": [0.5, 0.5, 0.5]}},
        "will learn the task: ",
    ),
    "right by luck, with steps": (
        groups(8, [0.0, 1.0]),
        {"right": {"math": [0.5, 0.25, 0.5]}, "rewards": [reward("step")]},
        "will learn the task: ",
    ),
    "right by luck, and no verifier teaches": (
        groups(8, [0.0, 1.0]),
        {"right": {"math": [0.5, 0.25, 0.5]}, "rewards": [reward("shaping")]},
        "will learn: ",
    ),
    "shaping alone": (groups(4, [0.0, 1.0]), {"rewards": [reward("shaping")]}, "will learn: "),
}


@pytest.mark.parametrize(("scored", "options", "sentence"), VERDICTS.values(), ids=VERDICTS)
def test_a_verdict_has_its_reason(scored, options, sentence):
    learns, text = verdict(found(scored, **options))
    is_good = sentence.startswith(("will learn the task", "will learn: "))
    assert learns is is_good and sentence in text


@pytest.mark.parametrize("kind", ["verifier", "step"])
@pytest.mark.parametrize("full", [0.0, 1.0])
def test_where_only_the_format_differs_within_groups_only_the_format_is_learnt(kind, full):
    scored = [
        Scored(number, "math", 9, False, {"right": full * (i % 2), "tidy": i % 2}, i % 2, True)
        for number in range(8)
        for i in range(4)
    ]
    rewards = reward(kind, 1.0), reward("format", 1.0, "tidy")
    learns, sentence = verdict(found(scored, rewards))
    only = "no group of task math differs in the score of a verifier or a step reward"
    start = "will learn the task" if full else f"will learn the format only: {only}"
    assert learns is (full == 1.0) and sentence.startswith(start)


def test_completions_are_handed_to_the_next_prompts_of_their_task():
    rows = [{"task": "sum", "answer": answer} for answer in ("1", "2", "2")]
    rows.insert(1, {"task": "other", "answer": "2"})
    texts = [(0, "1"), (0, "2"), (1, "2"), (2, "2"), (3, "1")]
    samples = Samples(rows, [{"row": row, "text": text} for row, text in texts], {})

    def metric(row, text):
        return {"format": True, "lenient": text == row["answer"]}

    # 1 and 2, 2, 1 for golds 1, 2, 2; for 2, 2, 1; for 2, 1, 2
    assert right_elsewhere(metric, samples) == {"sum": [0.5, 0.75, 0.25], "other": [1.0]}
    never = Samples([{**row, "answer": "5"} for row in rows], samples.completions, {})
    assert right_elsewhere(metric, never) == {"sum": [0.0], "other": [0.0]}


def test_a_task_of_few_groups_is_noted_and_changes_no_verdict():
    few = found(groups(8, [0.0, 1.0]) + groups(3, [0.0, 0.0], first=8, task="code"))
    note = "task code: only 3 groups were seen, too few for a verdict: raise --prompts"
    assert verdict(few)[0] and note in notes(few)


def test_completions_are_scored_and_their_groups_have_spread_as_in_training(model, tmp_path):
    """Eight of two rows: of the first nothing is worth more than another but in its steps."""
    steps = [[(1, 1.0)], [(1, -1.0)], [], [], *[[(1, 1.0)]] * 4]
    rewards = [
        give("right", [0.0, 0.0, 0.0, 0.0, 1.0, None, 0.0, 1.0]),
        give("gated", [0.5], "shaping"),
        give("random", [0.1, 0.9], "control"),
        give_steps("steps", steps),
    ]
    settings = {"reward_gates": {"gated": "right"}, "reward_weights": [1.0, 0.5, 1.0, 1.0]}
    trainer = make_trainer(model, tmp_path, rewards, ["math"], settings)
    trainer.model.eval()
    tokens = trainer.processing_class("one")["input_ids"]
    line = {"text": trainer.processing_class.decode(tokens), "token_ids": tokens}
    line |= {"tokens": len(tokens), "truncated": False}
    rows = [{"prompt": f"{i}:", "task": "math"} for i in range(2)]
    samples = Samples(rows, [{"row": i, **line} for i in (0, 0, 0, 0, 1, 1, 1, 1)], {})
    scored = score(trainer, samples, at_once=8)
    assert [one.row for one in scored] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [one.teaches for one in scored] == [True] * 8, "the first group by its steps alone"
    nothing = dict.fromkeys(("right", "gated", "random", "steps"))
    assert scored[0].rewards == {"right": 0.0, "gated": None, "random": 0.1, "steps": 1.0}
    assert scored[4].rewards == {"right": 1.0, "gated": 0.5, "random": 0.1, "steps": 1.0}
    assert (scored[5].rewards, scored[5].failed) == (nothing, ("right",)), "void"
    assert [one.total for one in scored[3:]] == [0.0, 1.25, None, 0.0, 1.25]
    assert [one.right for one in scored[3:]] == [False, True, None, False, True]
    trainer.steps.weights = [0.0]
    again = score(trainer, samples, at_once=8)
    assert [one.teaches for one in again] == [False] * 4 + [True] * 4, "a control counts for none"


def test_the_pass_rate_of_a_row_is_over_the_completions_that_a_verifier_could_score():
    scored = [*group(0, [1.0], right=True), *group(0, [0.0], right=False), *group(0, [None])]
    assert [row.pass_rate for row in found(scored + group(1, [None])).rows] == [0.5, None]
    failed = right(group(0, [None], failed=("right",)) + group(0, [0.0, 0.0]))
    assert (failed.scored, failed.failed) == (2, 1 / 3)


def test_the_push_of_each_reward_alone_says_what_it_would_teach():
    texts = ["<4>", "4", "<5>", "5"]
    lines = [{"row": row, "text": text} for row in (0, 1) for text in texts]
    samples = Samples([{"answer": "4"}, {"answer": "7"}], lines, {})
    scored = []
    for line in lines:
        tidy, right = float("<" in line["text"]), float(line["row"] == 0 and "4" in line["text"])
        (one,) = group(line["row"], [0.0])
        scored.append(dataclasses.replace(one, rewards={"tidy": tidy, "right": right}))

    def metric(row, text):
        return {"format": text.startswith("<"), "right": row["answer"] in text}

    assert pushes_of_rewards(metric, samples, scored) == {
        "format": {"tidy": 0.577, "right": 0.0},  # the format first
        "right": {"tidy": 0.0, "right": 0.289},  # no answer to the second row is right
    }


# The script


@pytest.fixture(scope="module")
def status(tmp_path_factory):
    """The exit status of the probe on the quickstart, made tiny."""
    model = build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
    fixed = ["probe.py", "--config", "recipes/arithmetic/quickstart.yaml"]
    for name, value in {**TINY, "model_name_or_path": model, "reward_gates": "{}"}.items():
        fixed += [f"--{name}", str(value)]

    def run(*words, reward=DENSE_REWARD):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.chdir(ROOT)
            patch.setattr(sys, "argv", [*fixed, "--reward_funcs", reward, *map(str, words)])
            probe.main()
        return ended.value.code

    return run


@pytest.fixture(scope="module")
def probed(status, tmp_path_factory):
    """A probe of four prompts that will learn."""
    folder = tmp_path_factory.mktemp("probe") / "probe"
    assert status("--prompts", 4, "--output", folder) == 0
    return folder


def test_a_dense_reward_will_be_learnt_and_what_was_sampled_is_kept(probed):
    rows, lines = read_rows(probed / "rows.jsonl"), read_rows(probed / "completions.jsonl")
    assert [line["row"] for line in lines] == [i for i in range(4) for _ in range(4)]
    assert all(len(line["token_ids"]) == line["tokens"] <= 12 for line in lines)
    assert set(rows[0]) > {"prompt", "task"}
    kept = json.loads((probed / "figures.json").read_text())
    assert (kept["will_learn"], kept["groups"], kept["useful"]) == (True, 4, 4)
    assert kept["config"] == "recipes/arithmetic/quickstart.yaml"
    assert kept["push"].keys() == {"strict", "lenient", "format"}
    assert kept["verdict"] == "will learn: 2 useful groups are expected in an optimizer step of 2"


def test_a_replay_scores_the_same_completions_without_a_model(
    status, probed, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(trl.trainer.grpo_trainer, "create_model_from_path", None)
    before, again = (probed / "figures.json").read_text(), tmp_path / "again"
    assert status("--replay", probed, "--output", again) == 0
    assert json.loads((again / "figures.json").read_text())["tasks"] == json.loads(before)["tasks"]
    (tmp_path / "own.py").write_text(REWARDS)
    for name, why in (
        ("never", "never more than 0: never"),
        ("minus", "never more than 0: minus"),
        ("broken", "zero spread; broken could not grade most completions"),
    ):
        capsys.readouterr()
        assert status("--replay", probed, reward=f"{tmp_path}/own.py:{name}") == 1
        printed = capsys.readouterr().out
        assert "will not learn: every group of task " in printed and why in printed
    assert status("--replay", probed, "--reward_funcs", DENSE_REWARD, "reasoning_gym") == 1
    assert "\nwill learn the format only: " in capsys.readouterr().out
    assert (probed / "figures.json").read_text() == before
    assert status("--replay", probed, "--temperature", 0.5, "--max_completion_length", 13) == 2
    message = capsys.readouterr().err
    assert "sampled with max_completion_length 12, not 13; decoding" in message


def test_few_prompts_of_a_mixture_are_no_mistake_of_its_rewards_and_other_groups_are_noted(
    status, tmp_path, capsys
):
    mixed = ["--config", "recipes/math_code/smollm2-135m.yaml", "--seed", 1]
    mixed += ["--reward_funcs", "boxed_math", "number_count"]
    out = tmp_path / "probe"
    assert status(*mixed, "--prompts", 1, "--completions", 3, "--output", out) == 1
    printed = capsys.readouterr().out
    assert "no prompt of it was drawn: raise --prompts" in printed
    assert "groups of 3 were sampled, and num_generations is 4" in printed
    assert status(*mixed, "--replay", out) == 1


def test_bad_arguments_end_with_status_2_and_say_what_is_wrong(status, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "note").write_text("mine")
    out = tmp_path / "probe"
    for words, message in (
        (("--prompts", 0), "0 is too small; at least 1"),
        (("--completions", 1), "1 is too small; at least 2"),
        (("--output", tmp_path / "kept"), "exists: name another folder, or remove it"),
        (("--replay", tmp_path), "has no rows.jsonl, completions.jsonl, sampling.json"),
        (("--replay", tmp_path, "--prompts", 3), "are those of the folder that --replay names"),
        (("--reward_weights", 1, 2), "reward_weights has 2 values for 1 rewards"),
        (("--num_generations", 3), "does not divide by num_generations=3"),
        (("--model_name_or_path", tmp_path / "nothing"), "cannot be loaded"),
        (("--config", tmp_path / "x.yaml"), "--config names a YAML inside a recipe's folder"),
        (("--reward_funk", "x"), "did you mean 'reward_funcs'?"),
    ):
        assert status("--output", out, *words) == 2, words
        assert message in capsys.readouterr().err
    assert not out.exists()
