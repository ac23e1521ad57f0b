"""What TRL's trainer computes is what the formulas of docs/grpo.md say, term by term, on a tiny
model.

TRL's head gives log-probabilities in float32 whatever the model is in. They are held to the model's
logits at that precision; from there on TRL's own loss runs in float64 and is held to
`reference_grpo.py` to 1e-9, with its gradient.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import trl
import yaml
from support.reference_grpo import grpo_loss, k3, surrogate
from support.scored_by_place import give, make_trainer

from recipes.common.trainer import GRPOTrainer

pytestmark = pytest.mark.usefixtures("one_thread")

PAGE = Path(__file__).parent.parent / "docs" / "grpo.md"
END, PAD = 1, 0
EXACT = {"rel": 0, "abs": 1e-9}
SINGLE = {"rel": 0, "abs": 1e-5}  # what passed through float32
CLIPS = {"epsilon": 0.2, "epsilon_high": 0.28}
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo")

# Four completions of up to five tokens. Ratios on both sides of each bound (0.8, 1.28), and between
# a bound and its mirror image (0.75, 1.25), for either sign of the advantage; past the length of a
# completion they are junk.
LENGTHS = [5, 4, 1, 3]
ADVANTAGES = [1.2, -0.7, 0.4, -1.5]
RATIOS = [
    [1.0, 1.25, 1.5, 0.75, 0.5],
    [1.25, 1.5, 0.75, 0.5, 7.0],
    [1.9, 7.0, 7.0, 7.0, 7.0],
    [0.9, 1.1, 0.75, 7, 7],
]
GAPS = [
    [0.0, 0.5, -0.5, 1.0, -1.0],
    [0.3, -0.2, 0.1, 0.7, 3.0],
    [-0.4, 3.0, 3.0, 3.0, 3.0],
    [0.2, 0.9, -0.8, 3, 3],
]


@pytest.fixture
def build(model: Path, tmp_path: Path) -> Callable[..., GRPOTrainer]:
    """A trainer as it is inside `train()`, with log-probabilities in float64 (`logps`)."""

    def built(rewards: tuple[float, ...] = (0.0,), **config) -> GRPOTrainer:
        settings = {"max_completion_length": 8, "log_completions": False, **config}
        reward = give("reward", list(rewards))
        trainer = make_trainer(model, tmp_path, [reward], ["a", "b"], settings)
        trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
        trainer.model.train()
        use_float64(trainer)
        return trainer

    return built


def use_float64(trainer: GRPOTrainer) -> None:
    in_float32 = trainer._get_per_token_logps_and_entropies

    def in_float64(*args, **kwargs):
        logps, entropies, aux_loss = in_float32(*args, **kwargs)
        trainer.logps = logps.double()
        if logps.requires_grad:
            trainer.logps.retain_grad()
        return trainer.logps, entropies, aux_loss

    trainer._get_per_token_logps_and_entropies = in_float64


def make_batch(lengths=LENGTHS, advantages=ADVANTAGES) -> dict[str, torch.Tensor]:
    """What TRL's loss takes, without old and reference policy; one prompt is the shortest."""
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    prompts = torch.tensor([[PAD, 10, 11]] + [[12, 13, 14]] * (len(lengths) - 1))
    return {
        "prompt_ids": prompts,
        "prompt_mask": (prompts != PAD).long(),
        "completion_ids": 20 + torch.arange(mask.numel()).view(mask.shape),
        "completion_mask": mask,
        "advantages": torch.tensor(advantages, dtype=torch.float64),
        "num_items_in_batch": mask.sum(),
    }


def with_policies(trainer: GRPOTrainer, inputs: dict) -> dict[str, torch.Tensor]:
    """The old policy by RATIOS and the reference by GAPS from the policy as it is."""
    new = policy_logps(trainer, inputs).detach()
    old, ref = new - torch.tensor(RATIOS).double().log(), new + torch.tensor(GAPS).double()
    return {**inputs, "old_per_token_logps": old, "ref_per_token_logps": ref}


def policy_logps(trainer: GRPOTrainer, inputs: dict) -> torch.Tensor:
    """Log-probabilities of the completions by the model's own logits, 0 where masked."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    tokens = inputs["completion_ids"]
    logits = trainer.model(input_ids=ids, attention_mask=attention).logits.double()
    logits = logits[:, -tokens.shape[1] - 1 : -1] / trainer.temperature
    every = torch.log_softmax(logits, dim=-1)
    return every.gather(2, tokens[:, :, None]).squeeze(2) * inputs["completion_mask"]


def by_formula(trainer: GRPOTrainer, inputs: dict, new: torch.Tensor, **changed) -> torch.Tensor:
    """The loss by `reference_grpo.py` with the settings of the trainer, or others."""
    args = trainer.args
    names = ["loss_type", "max_completion_length", "beta", "use_bias_correction_kl", "epsilon"]
    settings = {name: getattr(args, name) for name in [*names, "importance_sampling_level"]}
    settings["epsilon_high"] = args.epsilon_high or args.epsilon
    settings["num_items_in_batch"] = inputs["num_items_in_batch"]
    old = inputs.get("old_per_token_logps", new.detach())
    ref = inputs.get("ref_per_token_logps", new.detach())
    advantages = inputs["advantages"][:, None].expand_as(new)
    return grpo_loss(new, old, ref, advantages, inputs["completion_mask"], **settings | changed)


def by_trl(trainer: GRPOTrainer, inputs: dict) -> tuple[float, torch.Tensor]:
    """TRL's loss, and its gradient with respect to the log-probabilities."""
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return loss.item(), trainer.logps.grad


def assert_held(trainer: GRPOTrainer, inputs: dict, **changed) -> None:
    """TRL's loss and gradient are those of the formula."""
    loss, gradient = by_trl(trainer, inputs)
    new = trainer.logps.detach().requires_grad_()
    expected = by_formula(trainer, inputs, new, **changed)
    assert loss == pytest.approx(expected.item(), **EXACT)
    assert gradient.numpy() == pytest.approx(torch.autograd.grad(expected, new)[0].numpy(), **EXACT)


def scored(trainer: GRPOTrainer) -> dict[str, torch.Tensor]:
    """What TRL makes of one generation: tokens, masks, advantages, log-probabilities."""
    return trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))


# Advantages


def test_trls_advantages_are_the_formula_with_epsilon_1e_4(build):
    """The worked example of docs/grpo.md, with the sample's standard deviation."""
    advantages = scored(build((106.0, 77.0, 71.0, 44.0, 1.0, 0.0, 1.0, 0.0)))["advantages"]
    expected = [1.23839, 0.09828, -0.13760, -1.19907, 0.86588, -0.86588, 0.86588, -0.86588]
    assert advantages.tolist() == pytest.approx(expected, rel=0, abs=1e-5)


def test_scale_rewards_none_leaves_the_distance_from_the_mean(build):
    trainer = build((106.0, 77.0, 71.0, 44.0), scale_rewards="none")
    assert scored(trainer)["advantages"].tolist() == [31.5, 2.5, -3.5, -30.5] * 2


# The loss as a whole


@pytest.mark.parametrize("beta, corrected", [(0.0, False), (0.1, False), (0.1, True)])
@pytest.mark.parametrize(
    "loss_type, level",
    [*((name, "token") for name in LOSSES), ("grpo", "sequence")],  # the last is GSPO
)
def test_trls_loss_and_gradient_are_the_formulas(build, loss_type, level, beta, corrected):
    clips = {"epsilon_high": 1.4} if loss_type == "cispo" else CLIPS  # cispo's is the cap itself
    kl = {"beta": beta, "use_bias_correction_kl": corrected}
    trainer = build(loss_type=loss_type, importance_sampling_level=level, **kl, **clips)
    assert_held(trainer, with_policies(trainer, make_batch()))


def test_the_recipes_trainer_leaves_trls_loss_alone():
    assert GRPOTrainer.compute_loss is trl.GRPOTrainer.compute_loss


def test_log_probabilities_in_parts_of_the_vocabulary_are_those_of_the_whole(build, monkeypatch):
    gradients, shapes = [], []
    multiply = torch.mm

    def counted(tokens, words, **kwargs):
        shapes.append((len(tokens), words.shape[1]))
        return multiply(tokens, words, **kwargs)

    for part in (40, 2048):  # the tiny model has 261 words
        monkeypatch.setattr("recipes.common.training.completion.VOCABULARY_PART", part)
        trainer = build()
        shapes.clear()
        with monkeypatch.context() as patch:
            patch.setattr(torch, "mm", counted)
            by_trl(trainer, make_batch())
        tokens = sum(LENGTHS)  # and none of the prompts or of the padding
        assert {tokens} == {shape[0] for shape in shapes} and shapes[0][1] == min(part, 261)
        gradients.append([weight.grad for weight in trainer.model.parameters()])
    for by_parts, whole in zip(*gradients, strict=True):
        torch.testing.assert_close(by_parts, whole, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_policy_is_the_models_at_the_temperature_that_was_sampled_at(build, temperature):
    trainer, inputs = build(temperature=temperature), make_batch()
    by_trl(trainer, inputs)
    expected = policy_logps(trainer, inputs).detach().numpy()
    assert trainer.logps.detach().numpy() == pytest.approx(expected, **SINGLE)


# The clipped surrogate


@pytest.mark.parametrize(
    "ratio, advantage, value",
    [(1.5, 1.0, 1.28), (0.5, 1.0, 0.5), (1.5, -1.0, -1.5), (0.75, -1.0, -0.8)],
)
def test_a_token_is_clipped_only_where_the_ratio_has_gone_the_way_of_the_advantage(
    ratio, advantage, value
):
    of_formula = surrogate(torch.tensor(ratio).double(), torch.tensor(advantage), **CLIPS)
    assert of_formula.item() == pytest.approx(value)


def test_epsilon_high_is_epsilon_unless_set(build):
    trainer = build(loss_type="grpo", epsilon=0.3)
    assert_held(trainer, with_policies(trainer, make_batch()), epsilon=0.3, epsilon_high=0.3)


# KL


def test_k3_is_0_at_equality_and_above_0_elsewhere():
    gaps = torch.tensor([-3.0, -0.5, -1e-3, 0.0, 1e-3, 0.5, 3.0], dtype=torch.float64)
    estimates = k3(torch.zeros(7, dtype=torch.float64), gaps)
    assert estimates[3] == 0.0 and all(estimates[gaps != 0] > 0)
    assert estimates[5].item() == pytest.approx(0.1487212707, **EXACT)  # e^0.5 - 1.5


def test_beta_0_loads_no_reference_and_any_other_does(build):
    without, anchored = build(beta=0.0), build(beta=0.02)
    assert without.ref_model is None and "ref_per_token_logps" not in scored(without)
    assert anchored.ref_model is not None and "ref_per_token_logps" in scored(anchored)


# What the sum over the tokens is divided by


@pytest.mark.parametrize(
    "lengths, advantages, losses",
    [
        (  # a good token and four bad ones
            [1, 4],
            [1.0, -1.0],
            {"grpo": (-1 + 1) / 2, "bnpo": 3 / 5, "dapo": 3 / 5, "dr_grpo": 3 / (2 * 8)},
        ),
        (  # a masked completion still counts as one of grpo and dr_grpo
            [3, 0],
            [1.0, 1.0],
            {"grpo": -0.5, "bnpo": -1.0, "dapo": -1.0, "dr_grpo": -3 / 16},
        ),
    ],
)
def test_tokens_and_completions_weigh_as_the_loss_type_says(build, lengths, advantages, losses):
    for loss_type, loss in losses.items():
        trainer, inputs = build(loss_type=loss_type), make_batch(lengths, advantages)
        value, gradient = by_trl(trainer, inputs)
        of_formula = by_formula(trainer, inputs, trainer.logps.detach()).item()
        assert (value, of_formula) == (pytest.approx(loss, **EXACT),) * 2, loss_type
        assert not gradient[inputs["completion_mask"] == 0].any()


@pytest.mark.parametrize("loss_type", LOSSES)
def test_micro_batches_add_up_to_the_whole_batch_but_for_bnpo(build, loss_type):
    trainer = build(
        loss_type=loss_type, per_device_train_batch_size=2, gradient_accumulation_steps=2, beta=0.1
    )
    inputs = with_policies(trainer, make_batch())
    trainer._generate_and_score_completions = lambda rows: inputs
    loss = sum(trainer.training_step(trainer.model, [], None).item() for _ in range(2))
    # bnpo averages over the tokens of each micro batch apart
    parts = trainer._buffered_inputs if loss_type == "bnpo" else [inputs]
    losses = [by_formula(trainer, part, policy_logps(trainer, part)) for part in parts]
    expected = sum(losses) / len(parts)
    head = trainer.model.lm_head.weight
    gradient = torch.autograd.grad(expected, head)[0]
    assert loss == pytest.approx(expected.item(), **SINGLE)
    assert head.grad.numpy() == pytest.approx(gradient.numpy(), **SINGLE)


def test_the_tokens_of_a_generation_are_shared_evenly_among_its_updates(build):
    trainer = build(loss_type="dapo", per_device_train_batch_size=4, steps_per_generation=2)
    inputs = {**with_policies(trainer, make_batch()), "num_items_in_batch": torch.tensor(40)}
    assert_held(trainer, inputs, num_items_in_batch=20)  # though these four completions have 13


# Masks


def test_the_first_eos_is_the_last_token_that_counts(build):
    trainer = build()
    written = [[30, END, 31, END], [END, 30, 30, 30], [30, 31, 32, END], [30, 31, 32, 33]] * 2
    trainer.model.generate = lambda input_ids, **kwargs: torch.cat(
        [input_ids, torch.tensor(written)], dim=1
    )
    inputs = scored(trainer)
    kept = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert inputs["completion_mask"][:4].tolist() == kept
    assert inputs["completion_ids"][0].tolist() == [30, END, PAD, PAD]
    assert inputs["num_items_in_batch"] == 22


# Several updates from one generation


def test_the_second_update_compares_with_the_policy_that_generated(build):
    assert "old_per_token_logps" not in scored(build(num_iterations=1)), "the ratio is 1"
    trainer = build(num_iterations=2, loss_type="grpo", per_device_train_batch_size=4, **CLIPS)
    rows = next(iter(trainer.get_train_dataloader()))
    first = trainer._prepare_inputs(rows)
    first["advantages"] = torch.tensor(ADVANTAGES).double()
    sampled_by = policy_logps(trainer, first).detach()
    with torch.no_grad():
        trainer.model.lm_head.weight.mul_(1.1)
    trainer._step += 1
    second = trainer._prepare_inputs(rows)
    assert second is first, "the completions are used twice"
    assert second["old_per_token_logps"].numpy() == pytest.approx(sampled_by.numpy(), **SINGLE)
    assert_held(trainer, second)
    assert (trainer.logps - sampled_by).abs().max() > 0.01


# The page


def test_the_page_states_trls_defaults():
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(), re.MULTILINE)
    fields = trl.GRPOConfig.__dataclass_fields__
    assert len(rows) == 14
    assert {name: yaml.safe_load(value) for name, value in rows} == {
        name: fields[name].default for name, _ in rows
    }
