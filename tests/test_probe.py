"""The probe: figures that hold exactly, a verdict for the right reason, and completions that can be scored again."""

import json
import subprocess
import sys
from pathlib import Path

import probe
import pytest
import torch
from support.launching import DENSE_REWARD, TINY
from support.tiny_model import build_tiny_model

from recipes.common.during.matrix import has_spread
from recipes.common.evaluation import load_model as loading
from recipes.common.forecast.learning import Column, Scored, columns_of, figures, notes, verdict
from recipes.common.tools.folder import read_rows
from rewards import load_reward

ROOT = Path(__file__).parents[1]
QUICKSTART = "recipes/arithmetic/quickstart.yaml"
VERIFIER = Column("right", "verifier", 1.0)
REWARDS = """
def never(completions, **kwargs):
    return [0.0 for _ in completions]
never.kind = "verifier"
def minus(completions, **kwargs):
    return [-0.2 for _ in completions]
def broken(completions, **kwargs):
    raise KeyError("gold")
"""


def group(number, amounts, task="math", name="right", **given):
    """One prompt's completions, which ended after ten tokens each."""
    given = {"tokens": 10, "truncated": False, **given}
    return [Scored(group=number, task=task, paid={name: amount}, **given) for amount in amounts]


def judged(scored, columns=(VERIFIER,), groups_a_step=4, **options):
    return figures(scored, list(columns), groups_a_step, limit=64, **options)


def groups(count, amounts, first=0, **given):
    return [s for number in range(first, first + count) for s in group(number, amounts, **given)]


def test_eight_rewards_of_the_same_amount_have_no_spread():
    assert torch.tensor([-0.2] * 8).std() > 0.0  # in float32, as TRL reckons
    assert not has_spread([-0.2] * 8)
    found = judged(groups(4, [-0.2] * 8))
    assert found["tasks"]["math"]["total"] == {"mean": pytest.approx(-0.2), "spread": 0.0, "zero_spread": 1.0}


def test_rounding_of_a_sum_is_no_spread_and_a_small_difference_is():
    assert not has_spread([0.1 + 0.2 - 0.3, 0.0])
    assert not has_spread([1e9, 1e9 + 100])
    assert has_spread([0.0, 1e-5]) and not has_spread([None, 1.0]) and not has_spread([])


def test_a_hit_is_the_full_reward_or_more_than_nothing_where_none_is_declared():
    scored = group(0, [0.5, 1.0, 0.0, 1.0])
    assert judged(scored)["tasks"]["math"]["rewards"]["right"]["hit_rate"] == 0.5
    assert judged(scored, [Column("right", "shaping", None)])["tasks"]["math"]["rewards"]["right"]["hit_rate"] == 0.75


def test_mean_spread_and_share_without_spread_are_exact():
    line = judged(group(0, [0.0, 2.0]) + group(1, [1.0, 1.0]))["tasks"]["math"]["rewards"]["right"]
    assert (line["mean"], line["spread"], line["zero_spread"]) == (1.0, pytest.approx(2**0.5 / 2), 0.5)


@pytest.mark.parametrize(
    ("kind", "amounts", "state"),
    [
        ("verifier", [0.0, 0.0], "never paid"),
        ("verifier", [-0.5, 0.0], "never paid"),
        ("shaping", [-0.5, 0.0], None),
        ("shaping", [-0.2, -0.2], "never paid"),
        ("format", [1.0, 1.0], "constant"),
        ("verifier", [1.0, 0.0], None),
    ],
)
def test_dead_and_constant_rewards_are_told_apart(kind, amounts, state):
    found = judged(group(0, amounts), [Column("right", kind, None)])
    assert found["tasks"]["math"]["rewards"]["right"]["state"] == state


def test_one_task_without_spread_is_enough_not_to_learn():
    scored = groups(8, [0.0, 1.0]) + groups(8, [0.0, 0.0], first=8, task="code", truncated=True)
    learns, said = verdict(judged(scored))
    assert not learns
    assert said == (
        "will not learn: every group of task code has zero spread; 100 % truncated at 64 tokens: "
        "raise max_completion_length to >= 128; never paid: right (show a worked example, take easier rows, pay parts "
        "of an answer)"
    )


def test_a_task_of_few_groups_is_not_condemned_but_named():
    found = judged(groups(8, [0.0, 1.0]) + groups(3, [0.0, 0.0], first=8, task="code"))
    assert verdict(found)[0]
    assert "task code: only 3 groups were seen, too few to judge it: raise --prompts" in notes(found)


def test_useful_groups_a_step_decide():
    scored = groups(2, [0.0, 1.0]) + groups(6, [0.0, 0.0], first=2)
    assert verdict(judged(scored, groups_a_step=2)) == (
        True,
        "will learn: 0.5 useful groups are expected in an optimizer step of 2",
    )
    learns, said = verdict(judged(scored, groups_a_step=1))
    assert not learns and "only 0.25 useful groups are expected in an optimizer step of 1" in said


def test_an_ended_but_unpaid_reward_is_named_as_the_cause():
    assert verdict(judged(groups(4, [0.0, 0.0])))[1] == (
        "will not learn: every group of task math has zero spread; never paid: right (show a worked "
        "example, take easier rows, pay parts of an answer)"
    )


def test_what_is_always_right_is_not_called_unpaid():
    learns, said = verdict(judged(groups(4, [1.0, 1.0])))
    assert not learns and said.endswith("paid alike: raise num_generations, or take rows of another difficulty")


STEP = Column("steps", "step", None)


def stepped(number, steps, **given):
    """A group without any outcome, whose completions have these steps."""
    completions = group(number, [0.0] * len(steps), **given)
    return [
        c._replace(paid={**c.paid, "steps": float(sum(of_one))}, steps={"steps": of_one})
        for c, of_one in zip(completions, steps, strict=True)
    ]


def test_steps_that_are_all_paid_alike_make_no_group_useful():
    alike = stepped(0, [[1.0, 1.0], [1.0], [], [1.0]])  # the sums differ, and training normalises the steps to 0
    assert judged(alike, (VERIFIER, STEP))["useful"] == 0


def test_steps_that_differ_make_a_group_useful_whatever_their_sums():
    differing = stepped(0, [[1.0, -1.0], [], [-1.0, 1.0], []])
    assert judged(differing, (VERIFIER, STEP))["useful"] == 1
    assert judged(differing, (VERIFIER, STEP._replace(weight=0.0)))["useful"] == 0


def test_a_control_makes_no_group_useful():
    found = judged(groups(4, [0.3, 0.7]), [Column("right", "control", None)])
    learns, said = verdict(found)
    assert found["useful"] == 0 and not learns
    assert said.endswith("only controls pay, which teach nothing: name another reward")


def test_a_masked_group_that_is_cut_off_is_not_useful():
    scored = groups(4, [0.0, 1.0], truncated=True)
    assert judged(scored)["useful"] == 4
    masked = judged(scored, mask_truncated=True)
    assert masked["useful"] == 0
    assert "no group of task math has both spread and a completion that ended" in verdict(masked)[1]


def test_a_gate_that_never_opens_leaves_nothing_of_what_it_gates():
    scored = [Scored(0, "math", 5, False, {"right": 0.0, "length": amount}) for amount in (0.1, 0.9)]
    free, gated = Column("length", "shaping", None), Column("length", "shaping", None, gates=("right",))
    assert judged(scored, [VERIFIER, free])["useful"] == 1
    found = judged(scored, [VERIFIER, gated])
    assert found["useful"] == 0 and found["tasks"]["math"]["rewards"]["length"]["state"] == "nothing to judge"


def test_weights_count_in_the_total():
    scored = [Scored(0, "math", 5, False, {"right": a, "other": -a}) for a in (0.0, 1.0)]
    other = Column("other", "shaping", None)
    assert judged(scored, [VERIFIER, other])["useful"] == 0
    assert judged(scored, [VERIFIER, other._replace(weight=0.5)])["useful"] == 1


def test_a_row_that_one_reward_could_not_grade_is_void_for_all():
    scored = group(0, [1.0], failed=("right",)) + group(0, [0.0, 0.0])
    found = judged(scored)
    line = found["tasks"]["math"]["rewards"]["right"]
    assert (found["useful"], line["paid to"], line["failed"]) == (0, 2, 1 / 3)


def test_a_reward_of_another_task_has_no_line():
    scored = [Scored(0, "math", 5, False, {"right": 1.0, "code": None})]
    assert list(judged(scored, [VERIFIER, Column("code", "verifier", 1.0)])["tasks"]["math"]["rewards"]) == ["right"]


def test_lengths_are_of_those_that_ended():
    scored = [Scored(0, "math", n, False, {"right": 0.0}) for n in range(1, 21)]
    scored += [Scored(0, "math", 64, True, {"right": 0.0})] * 5
    task = judged(scored)["tasks"]["math"]
    assert (task["truncated"], task["ended"], task["median_tokens"], task["p95_tokens"]) == (0.2, 0.8, 10.5, 19)


def test_columns_are_what_the_rewards_declare():
    rewards = [load_reward("gsm8k_correctness"), load_reward("xml_format")]
    right, shape = columns_of(rewards, [2.0, 0.5], {"xml_format": "gsm8k_correctness"})
    assert (right.kind, right.weight, right.gates) == ("verifier", 2.0, ())
    assert (shape.kind, shape.weight, shape.gates) == ("format", 0.5, ("gsm8k_correctness",))


def test_a_task_that_was_not_drawn_is_remembered():
    rows = [{"prompt": "p", "task": "math"}] * 50 + [{"prompt": "q", "task": "code"}]
    samples = probe.draw(rows, 2, seed=0)
    assert (len(samples.rows), samples.settings) == (2, {"missed_tasks": ["code"]})
    assert probe.draw(rows, 100, seed=0).settings == {"missed_tasks": []}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def reward_file(tmp_path):
    file = tmp_path / "rewards_of_the_test.py"
    file.write_text(REWARDS)
    return file


@pytest.fixture
def status(monkeypatch, model):
    """The exit status of the probe on the quickstart, made tiny."""

    def run(*words, reward=DENSE_REWARD):
        monkeypatch.chdir(ROOT)
        tiny = [word for name, value in TINY.items() for word in (f"--{name}", str(value))]
        fixed = ["--config", QUICKSTART, "--model_name_or_path", str(model), "--reward_funcs", str(reward), *tiny]
        monkeypatch.setattr(sys, "argv", ["probe.py", *fixed, *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            probe.main()
        return ended.value.code

    return run


def test_a_dense_reward_will_be_learnt_and_what_was_sampled_is_kept(status, tmp_path, capsys):
    out = tmp_path / "probe"
    assert status("--prompts", 4, "--output", out) == 0
    assert "will learn: 2 useful groups are expected in an optimizer step of 2" in capsys.readouterr().out
    rows, lines = read_rows(out / "rows.jsonl"), read_rows(out / "completions.jsonl")
    assert [line["row"] for line in lines] == [i for i in range(4) for _ in range(4)]
    assert all(len(line["token_ids"]) == line["tokens"] <= 12 and set(rows[0]) > {"prompt", "task"} for line in lines)
    found = json.loads((out / "figures.json").read_text())
    assert (found["will_learn"], found["groups"], found["useful"]) == (True, 4, 4)


def test_a_replay_scores_the_same_completions_without_a_model(status, tmp_path, capsys, monkeypatch, reward_file):
    out = tmp_path / "probe"
    assert status("--prompts", 4, "--output", out) == 0
    before = (out / "figures.json").read_text()
    monkeypatch.delattr(loading, "load_model")
    again = tmp_path / "again"
    assert status("--replay", out, "--output", again) == 0
    figures_of = [json.loads((folder / "figures.json").read_text()) for folder in (out, again)]
    assert figures_of[0]["tasks"] == figures_of[1]["tasks"]
    for name, why in (
        ("never", "never paid: never"),
        ("minus", "never paid: minus"),
        ("broken", "zero spread; broken could not grade most completions"),
    ):
        capsys.readouterr()
        assert status("--replay", out, reward=f"{reward_file}:{name}") == 1
        said = capsys.readouterr().out
        assert "will not learn: every group of task chain_sum has zero spread" in said and why in said
    assert (out / "figures.json").read_text() == before


def test_a_replay_with_other_sampling_settings_is_refused(status, tmp_path, capsys):
    out = tmp_path / "probe"
    assert status("--prompts", 1, "--output", out) in (0, 1)
    capsys.readouterr()
    assert status("--replay", out, "--temperature", 0.5, "--max_completion_length", 13) == 2
    said = capsys.readouterr().err
    assert "sampled with max_completion_length 12, not 13; decoding" in said and "sample anew" in said


def test_groups_of_another_size_are_named(status, tmp_path, capsys):
    assert status("--prompts", 2, "--completions", 3, "--output", tmp_path / "probe") in (0, 1)
    assert "groups of 3 were sampled, and num_generations is 4" in capsys.readouterr().out


def test_few_prompts_of_a_mixture_are_no_mistake_of_its_rewards(status, tmp_path, capsys):
    out = tmp_path / "probe"
    mixed = ("--config", "recipes/math_code/smollm2-135m.yaml")
    tasks = ("--reward_funcs", "boxed_math", "number_count", "--seed", 1)
    assert status(*mixed, *tasks, "--prompts", 1, "--output", out) == 1
    assert "no prompt of it was drawn: raise --prompts" in capsys.readouterr().out
    assert status(*mixed, *tasks, "--replay", out) == 1


def test_nothing_is_overwritten(status, tmp_path, capsys):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "note").write_text("mine")
    assert status("--output", tmp_path / "kept") == 2
    assert "exists: name another folder, or remove it" in capsys.readouterr().err


def test_bad_arguments_end_with_status_2_and_say_what_is_wrong(status, tmp_path, capsys, monkeypatch):
    out = ("--output", tmp_path / "probe")
    for words, said in (
        (("--prompts", 0), "--prompts is 0; at least 1"),
        (("--completions", 1), "--completions is 1; at least 2"),
        (("--replay", tmp_path), "has no rows.jsonl, completions.jsonl, sampling.json"),
        (("--replay", tmp_path, "--prompts", 3), "are those of the folder that --replay names"),
        (("--reward_weights", 1, 2), "reward_weights has 2 values for 1 rewards"),
        (("--num_generations", 3), "does not divide by num_generations=3"),
        (("--model_name_or_path", tmp_path / "nothing"), "cannot be loaded"),
        (("--config", tmp_path / "x.yaml"), "is no YAML inside a recipe's folder"),
        (("--reward_funk", "x"), "did you mean 'reward_funcs'?"),
    ):
        assert status(*out, *words) == 2, words
        assert said in capsys.readouterr().err
    assert not out[1].exists()


def test_help_comes_without_the_slow_imports():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "scripts/probe.py", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and "--replay" in done.stdout
    assert not {"torch", "transformers", "trl"} & {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
