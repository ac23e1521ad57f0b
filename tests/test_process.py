"""Process supervision: a token has its completion's advantage and those of steps that end later."""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from support.launching import ROOT, run_on_two
from support.scored_by_place import advantages_of, give, give_steps, make_trainer
from support.steps_on_two_ranks import advantages, writes
from test_grpo_arithmetic import by_trl, make_batch, scored, use_float64, with_policies
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from recipes.common.trainer import GRPOTrainer
from recipes.common.training.advantages import normalise
from recipes.common.training.process import LOSS_TYPES, tokens_that_hold
from rewards.contract import check_steps, route

pytestmark = pytest.mark.usefixtures("one_thread")

TEXTS = ["aaaa", "bbb", "cccccc", "d", "ee", "ff", "gg", ""]
RIGHT = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
STEPS = [[(2, 1.0), (4, -1.0)], [(3, 1.0)], [], [(1, -1.0)], [(2, 1.0)], [(1, 1.0)], [], []]
# Of the first group four steps, 1 and -1 twice: their mean is 0, their sample deviation the root of
# 4/3.
S = 1 / ((4 / 3) ** 0.5 + 1e-4)
A = 0.5 / (3**-0.5 + 1e-4)  # of the rewards 1, 0, 0, 1
# The tokens: aaaa and its end of sequence; bbb and its; cccccc, cut off; d and its. The second
# group's steps are all alike.
BY_HAND = [
    [A + S - S, A + S - S, A - S, A - S, A, 0.0],
    [-A + S, -A + S, -A + S, -A, 0.0, 0.0],
    [-A] * 6,
    [A - S, A, 0.0, 0.0, 0.0, 0.0],
    [A, A, A, 0.0, 0.0, 0.0],
    [A, A, A, 0.0, 0.0, 0.0],
    [-A, -A, -A, 0.0, 0.0, 0.0],
    [-A, 0.0, 0.0, 0.0, 0.0, 0.0],
]
MEANS = [(5 * A - 2 * S) / 5, (-4 * A + 3 * S) / 4, -A, (2 * A - S) / 2, A, A, -A, -A]
SINGLE = {"rel": 0, "abs": 1e-5}


@pytest.fixture
def build(model: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """A trainer whose model writes TEXTS, with these step rewards and RIGHT as the outcome."""

    def built(*steps, right: list = RIGHT, texts: list = TEXTS, **settings) -> GRPOTrainer:
        rewards, settings = [give("right", right), *steps], {"max_completion_length": 6} | settings
        trainer = make_trainer(model, tmp_path, rewards, ["a", "b"], settings)
        writes(trainer, texts)
        trainer.model.train()
        return trainer

    return built


def tokens_of(trainer: GRPOTrainer) -> list[list[float]]:
    return scored(trainer)["advantages"].tolist()


def assert_equal(rows: list[list[float]], expected: list[list[float]]) -> None:
    for row, wanted in zip(rows, expected, strict=True):
        assert row == pytest.approx(wanted, **SINGLE)


# The arithmetic


@pytest.mark.parametrize("alike", [[[], []], [[1.0], []], [[0.3] * 7, [0.1 + 0.2]]])
def test_steps_without_spread_are_worth_nothing(alike):
    assert normalise(alike, 2) == [[0.0] * len(steps) for steps in alike]


def test_scale_rewards_means_for_steps_what_it_means_for_completions():
    rewards = [[1.0, -1.0], [1.0, 0.0], [9.0], [0.0]]
    centred = [[0.75, -1.25], [0.75, -0.25], [4.5], [-4.5]]
    assert normalise(rewards, 2, "none") == centred
    divisor = statistics.stdev([1.0, -1.0, 1.0, 0.0, 9.0, 0.0]) + 1e-4
    expected = [[amount / divisor for amount in steps] for steps in centred]
    assert_equal(normalise(rewards, 2, "batch"), expected)


# From characters to tokens


@pytest.fixture(scope="module", params=["bytes", "SmolLM2"])
def tokenizer(request: pytest.FixtureRequest, model: Path) -> PreTrainedTokenizerBase:
    folder = model if request.param == "bytes" else ROOT / "models/SmolLM2-135M-Instruct"
    if not folder.is_dir():
        pytest.skip("python scripts/prepare_model.py puts the model there")
    return AutoTokenizer.from_pretrained(folder)


SCRIPTS = [
    "7 - 2 = 5", "café, é", "三加四等于七。", "a 💩 b 👩‍👩‍👧",
    "\ufffd and \ufffd", " \n\t x", "�💩",
]  # fmt: skip


@pytest.mark.parametrize("text", SCRIPTS)
def test_each_character_is_found_in_the_token_that_completes_it(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    end = tokenizer.eos_token_id
    ids = [*ids[:2], end, *ids[2:], end]  # special tokens are not in the text
    prefixes = [ids[:count] for count in range(len(ids) + 1)]
    shown = [tokenizer.decode(prefix, skip_special_tokens=True) for prefix in prefixes]
    ends = range(1, len(text) + 1)
    shortest = [[prefix.startswith(text[:end]) for prefix in shown].index(True) for end in ends]
    found = tokens_that_hold(tokenizer, ids, text, list(ends))
    assert found == [count - 1 for count in shortest]


def test_a_text_that_is_not_that_of_the_tokens_is_refused(tokenizer):
    with pytest.raises(ValueError, match="not what its tokens decode to"):
        tokens_that_hold(tokenizer, tokenizer("called a tool")["input_ids"], "a tool", [1])


# In the trainer


def test_the_advantages_of_a_group_are_those_worked_out_by_hand(build):
    without_steps = scored(build())
    assert without_steps["advantages"].shape == (8,)
    output = scored(build(give_steps("step", STEPS)))
    assert_equal(output["advantages"].tolist(), BY_HAND)
    masked = output["completion_mask"] == 0
    assert masked.sum() == 8 * 6 - sum(min(len(text) + 1, 6) for text in TEXTS)
    assert output["advantages"][masked].abs().max() == 0.0
    assert output["advantages"][~masked].abs().min() > 1e-5  # A and S differ by 1.5e-4


def test_a_masked_completion_is_0_and_its_steps_still_shape_the_group(build):
    cut = [*STEPS[:2], [(6, 1.0), (3, -1.0)], *STEPS[3:]]
    rows = tokens_of(build(give_steps("step", cut), mask_truncated_completions=True))
    s = 1 / (statistics.stdev([1.0, -1.0] * 3) + 1e-4)
    assert rows[2] == [0.0] * 6
    assert rows[0] == pytest.approx([A, A, A - s, A - s, A, 0.0], **SINGLE)


def test_a_group_teaches_where_its_steps_of_some_weight_differ(build):
    for weights, share in (([0.0, 1.0], 0.5), ([0.0, 0.0], 1.0)):
        trainer = build(give_steps("step", STEPS), reward_weights=weights)
        scored(trainer)
        for name in ("groups/without_spread", "frac_groups_without_step_spread"):
            assert trainer._metrics["train"][name] == [share]


def test_a_group_of_completions_that_are_all_masked_teaches_nothing(build):
    trainer = build(texts=["cccccc"] * 4 + TEXTS[4:], mask_truncated_completions=True)
    scored(trainer)
    assert trainer._metrics["train"]["groups/without_spread"] == [0.5]


def test_a_masked_completion_has_no_part_in_a_push(build):
    seen, trainer = [], build(mask_truncated_completions=True)
    trainer.observe = lambda rows, completions, advantages: seen.extend(advantages) or {}
    scored(trainer)
    assert seen == pytest.approx([A, -A, 0.0, A, A, A, -A, -A], **SINGLE)


def test_what_is_logged_are_means_over_tokens_and_numbers_and_means_of_steps(build):
    trainer = build(give_steps("step", STEPS), give_steps("none", [[]]))
    for _ in range(2):  # only the advantages of the second batch are replaced
        scored(trainer)
        assert list(trainer._logs["advantages"]) == pytest.approx(MEANS, **SINGLE)
    assert len(trainer._logs["prompt"]) == len(trainer._logs["advantages"]) == 8
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    assert metrics["step_rewards/step/mean"] == pytest.approx(2 / 6)
    assert (metrics["steps/step/count"], metrics["steps/none/count"]) == (0.75, 0.0)
    assert math.isnan(metrics["step_rewards/none/mean"])  # there is no mean of no steps
    assert (metrics["frac_groups_without_step_spread"], metrics["errors/step"]) == (0.5, 0.0)
    assert list(trainer._logs["extra"]["steps/step"])[:4] == ["2:+1 4:-1", "3:+1", "", "1:-1"]


def test_each_step_reward_is_normalised_by_itself_and_then_weighted(build):
    # The outcome weighs nothing.
    alone = tokens_of(build(give_steps("step", STEPS), reward_weights=[0.0, 1.0]))
    assert_equal(alone[:2], [[0.0, 0.0, -S, -S, 0.0, 0.0], [S, S, S, 0.0, 0.0, 0.0]])
    large = [[(end, 100 * reward + 7) for end, reward in steps] for steps in STEPS]
    steps = give_steps("one", STEPS), give_steps("large", large)
    trainer = build(*steps, reward_weights=[1.0, 1.0, 0.5])
    s = 100 / (statistics.stdev([107.0, -93.0, 107.0, -93.0]) + 1e-4)
    rows = tokens_of(trainer)
    assert rows[1] == pytest.approx([-A + S + 0.5 * s] * 3 + [-A, 0.0, 0.0], **SINGLE)
    assert rows[3] == pytest.approx([A - S - 0.5 * s, A, 0.0, 0.0, 0.0, 0.0], **SINGLE)


@pytest.mark.parametrize(
    "case", ["None of the step reward", "not the text of its tokens", "None of another reward"]
)
def test_a_row_whose_steps_or_outcome_failed_is_as_if_absent(build, monkeypatch, case):
    def first_is_none(tokenizer, ids, text, ends):
        if text == TEXTS[0]:
            raise ValueError("not what its tokens decode to")
        return tokens_that_hold(tokenizer, ids, text, ends)

    if case == "not the text of its tokens":
        monkeypatch.setattr("recipes.common.training.process.tokens_that_hold", first_is_none)
    steps = [None, *STEPS[1:]] if case == "None of the step reward" else STEPS
    right = [None, *RIGHT[1:]] if case == "None of another reward" else RIGHT
    trainer = build(give_steps("step", steps), right=right)
    rows, outcome, s = tokens_of(trainer), advantages_of([None, 0.0, 0.0, 1.0]), 1 / (2**0.5 + 1e-4)
    assert rows[0] == [0.0] * 6
    assert rows[1] == pytest.approx([outcome[1] + s] * 3 + [outcome[1], 0.0, 0.0], **SINGLE)
    assert rows[3] == pytest.approx([outcome[3] - s, outcome[3], 0.0, 0.0, 0.0, 0.0], **SINGLE)
    rate = {"None of the step reward": "unparsed/step", "None of another reward": "unparsed/right"}
    assert trainer._metrics["train"][rate.get(case, "errors/step")] == [0.125]
    assert trainer._metrics["train"]["rewards/right/mean"] == [pytest.approx(3 / 7)]


NO_STEPS = [[(0, 1.0)], [(5, 1.0)], [(1.0, 1.0)], [(True, 1.0)], [1.0], 3]
NO_STEPS += [[(1, reward)] for reward in (math.nan, -1e39, 10**400, "1", None)]


@pytest.mark.parametrize("steps", NO_STEPS)
def test_what_is_not_a_step_of_the_text_is_refused(steps):
    with pytest.raises(ValueError, match="a step is a pair"):
        check_steps([steps], ["aaaa"])


def test_rows_of_other_tasks_have_no_steps_and_are_not_failed(build):
    trainer = build(route(give_steps("step", STEPS[:4]), ("a",)))
    assert_equal(tokens_of(trainer), BY_HAND)
    assert trainer._metrics["train"]["unparsed/step"] == [0.0]
    # Of the four completions that it scores.
    assert trainer._metrics["train"]["steps/step/count"] == [1.0]


def test_advantages_travel_with_their_rows_through_every_update_of_a_generation(build):
    texts = ["aaaa", "bbb", "cccccc", "d", "ee", "ffff", "g", "hhhhh"]
    many = [[(len(text), float(i))] for i, text in enumerate(texts)]
    sizes = {"per_device_train_batch_size": 4, "steps_per_generation": 2}
    sizes |= {"num_iterations": 2, "max_steps": 4}
    trainer = build(give_steps("step", many), texts=texts, **sizes)
    rows = next(iter(trainer.get_train_dataloader()))
    worth = [steps[0] for steps in normalise([[float(i)] for i in range(8)], 4)]
    seen = []
    for _ in range(4):
        batch = trainer._prepare_inputs(rows)
        columns = (batch[name] for name in ("completion_ids", "advantages", "completion_mask"))
        for ids, advantages_here, mask in zip(*columns, strict=True):
            place = texts.index(trainer.processing_class.decode(ids, skip_special_tokens=True))
            outcome = A if RIGHT[place] else -A
            length = len(texts[place])
            expected = [outcome + worth[place]] * length + [outcome] * (int(mask.sum()) - length)
            expected += [0.0] * (6 - len(expected))
            assert advantages_here.tolist() == pytest.approx(expected, **SINGLE)
            seen.append(place)
        trainer._step += 1
    assert sorted(seen) == sorted([*range(8)] * 2), "each completion is used in two updates"
    assert seen[:8] == seen[8:] and seen[:8] != list(range(8)), "the generation was shuffled, once"


# The loss


@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_the_gradient_of_a_token_follows_its_own_advantage(build, loss_type):
    trainer = build(loss_type=loss_type, max_completion_length=8)
    trainer.current_gradient_accumulation_steps = 1
    use_float64(trainer)
    inputs = with_policies(trainer, make_batch(advantages=[[0.1] * 5] * 4))
    other = {**inputs, "advantages": inputs["advantages"].clone()}
    other["advantages"][:, 0] += 1.0
    (_, gradient), (_, changed) = by_trl(trainer, inputs), by_trl(trainer, other)
    assert (changed - gradient)[:, 0].abs().max() > 0.0
    assert (changed - gradient)[:, 1:].abs().max() == 0.0, "with that of another"


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("loss_type", "sapo", "given: sapo"),
        ("importance_sampling_level", "sequence", "given: sequence"),
        ("off_policy_mask_threshold", 0.5, "keeps or drops a whole completion"),
    ],
)
def test_a_loss_without_advantages_of_tokens_is_refused(build, setting, value, words):
    with pytest.raises(ValueError, match=rf"step rewards .*{words}"):
        build(give_steps("step", STEPS), **{setting: value})


# Names and refusals


def test_the_trainer_refuses_rewards_it_cannot_use(model, tmp_path, build):
    with pytest.raises(ValueError, match="needs one that is not of the kind step"):
        make_trainer(model, tmp_path, [give_steps("step", STEPS)], ["a"], {})
    with pytest.raises(ValueError, match="reward_weights has 3 values for 2"):
        build(give_steps("step", STEPS), reward_weights=[1.0, 1.0, 2.0])


# Two processes, and the recipe itself


@pytest.mark.slow
def test_groups_over_two_processes_are_those_of_one(model, tmp_path):
    run_on_two("tests/support/steps_on_two_ranks.py", model, tmp_path)
    ranks = [json.loads((tmp_path / f"seen_{rank}.json").read_text()) for rank in (0, 1)]
    alone = advantages(model, tmp_path / "alone", 0, 12)
    rows = [row + [0.0] * (6 - len(row)) for rank in ranks for row in rank["advantages"]]
    assert_equal(rows, alone["advantages"])
    assert rows[6] == [0.0] * 6 and max(map(max, rows)) > 1.0
    for rank in ranks:
        assert rank["logged"] == pytest.approx(alone["logged"], **SINGLE)
        assert rank["metrics"] == pytest.approx(alone["metrics"], rel=1e-6)
