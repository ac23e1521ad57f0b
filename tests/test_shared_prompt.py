"""A prompt computed once for its group gives what TRL gives: completions and gradient."""

from pathlib import Path

import pytest
import torch
import transformers
from datasets import Dataset
from support.scored_by_place import TINY, give
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from trl.trainer.utils import add_fused_lm_head

from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.shared_prompt import share_prompts, why_prompts_are_not_shared

pytestmark = pytest.mark.usefixtures("one_thread")

# Left padding, since the prompts are unlike in length; two groups with the same text.
PROMPTS = ["Twice:", "A longer prompt, which the others are padded to:", "Twice:", "Short"]
AMOUNTS = [1.0, 0.0, 0.5, 0.25, 0.0, 0.0, 1.0, 0.0, 0.7, 0.1, 0.2, 0.3, 1.0, 1.0, 0.0, 1.0]
PLAIN_DESCENT = {
    "optim": "sgd",
    "learning_rate": 0.1,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "gradient_checkpointing": False,
    "per_device_train_batch_size": 16,
}
REFERENCE = {"beta": 0.04}
OLD = {"num_iterations": 2, "max_steps": 2}  # the second step has an old policy


def train(model: Path, folder: Path, share: bool, **config) -> tuple[list[torch.Tensor], list]:
    """The weights after training, by plain gradient descent, and the completions."""
    rows = Dataset.from_list([{"prompt": prompt, "task": "any"} for prompt in PROMPTS])
    settings = {**TINY, **PLAIN_DESCENT, "share_prompts": share, **config}
    args = GRPOConfig(output_dir=str(folder), **settings)
    trainer = GRPOTrainer(str(model), give("reward", AMOUNTS), args, rows)
    trainer.train()
    weights = [weight.detach().clone() for weight in trainer.model.parameters()]
    return weights, sorted(trainer._logs["completion"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"loss_type": "dr_grpo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", **OLD},  # gspo
        {"loss_type": "bnpo"},  # a mean over the micro batch: it keeps TRL's order
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "grpo", "per_device_train_batch_size": 8, "steps_per_generation": 2, **OLD},
        {"mask_truncated_completions": True, "max_completion_length": 120},
        {"loss_type": "cispo", **REFERENCE, **OLD},
        {"loss_type": "grpo", "skip_zero_advantages": True},
        {"loss_type": "grpo", "top_entropy_quantile": 0.5},
    ],
    ids=str,
)
def test_an_update_is_that_of_a_prompt_computed_for_each_completion(model, tmp_path, config):
    (plain, asked), (shared, given) = (
        train(model, tmp_path / str(share), share, **config) for share in (False, True)
    )
    assert asked == given
    start = AutoModelForCausalLM.from_pretrained(model).parameters()
    moved = max((a - b).abs().max().item() for a, b in zip(start, plain, strict=True))
    apart = max((a - b).abs().max().item() for a, b in zip(plain, shared, strict=True))
    assert moved > 1e-3 and apart < 1e-4 * moved


@pytest.fixture
def pair(model: Path) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedModel]:
    """The same model as it is, and with its prompts shared."""
    plain, shared = (AutoModelForCausalLM.from_pretrained(model).eval() for _ in range(2))
    for each in (plain, shared):
        add_fused_lm_head(each, outputs=("log_probs", "entropy"))
    share_prompts(shared)
    return plain, shared


EXAMPLE = "An example that all prompts begin with, long enough to be worth it."


@pytest.mark.parametrize(
    "prompts",
    [
        ["same"] * 4,  # one prompt: nothing but whole prompts is shared
        ["one", "two, longer", "one", "three"],
        [EXAMPLE + " one", EXAMPLE + " two, longer", EXAMPLE + " one"],  # a common beginning
        [EXAMPLE, EXAMPLE + " and more"],  # one prompt begins the other
        ["x", "y"],  # one token each: the cache of nothing
    ],
)
def test_generation_is_that_of_a_prompt_computed_for_each_row(pair, model, prompts):
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    of_all_tokens = {
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
    }  # the prompt's too
    config = GenerationConfig(max_new_tokens=12, do_sample=False, pad_token_id=0, **of_all_tokens)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    plain, shared = (each.generate(**inputs, generation_config=config) for each in pair)
    assert torch.equal(plain, shared)


@pytest.mark.parametrize("masked", ["a token", "a row", "all"])
def test_log_probabilities_do_not_depend_on_what_is_masked(pair, masked):
    ids = torch.randint(5, 200, (6, 20), generator=torch.Generator().manual_seed(0))
    ids[:4, :12], ids[4:, :12] = ids[0, :12], ids[4, :12]
    mask = torch.ones_like(ids)
    mask[:4, :3] = 0  # padding
    rows = {"a token": slice(0, 1), "a row": slice(0, 1), "all": slice(None)}[masked]
    mask[rows, 19 if masked == "a token" else 12 :] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :12] = -100
    given = {"input_ids": ids, "attention_mask": mask, "labels": labels, "fused_lm_head": True}
    plain, shared = (each(**given) for each in pair)
    assert plain.log_probs.shape == shared.log_probs.shape
    torch.testing.assert_close(plain.log_probs, shared.log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(plain.entropy, shared.entropy, rtol=0, atol=1e-5)


def test_a_prompt_goes_through_the_model_once_for_its_group(pair):
    rows = []
    _, shared = pair
    shared.model.register_forward_pre_hook(
        lambda _, args, given: rows.append(given["input_ids"].shape), with_kwargs=True
    )
    ids = torch.full((8, 30), 7)
    labels = ids.clone()
    labels[:, :20] = -100
    shared(input_ids=ids, attention_mask=ids * 0 + 1, labels=labels, fused_lm_head=True)
    assert rows == [
        (1, 19),
        (8, 11),
    ]  # the last token of the prompt predicts the first of the completion


@pytest.mark.parametrize(
    ("settings", "changes", "reason"),
    [
        ({}, {}, None),
        ({"gradient_checkpointing": True}, {}, "gradient_checkpointing computes a layer again"),
        (
            {},
            {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8},
            "cache is not a plain",
        ),
        ({}, {"is_encoder_decoder": True}, "encoder"),
        ({}, {"output_router_logits": True}, "router"),
        ({}, {"vision_config": {}}, "images"),
    ],
)
def test_where_a_prompt_is_not_shared_the_reason_is_given(
    model, tmp_path, settings, changes, reason
):
    config = transformers.AutoConfig.from_pretrained(model)
    for name, value in changes.items():
        setattr(config, name, value)
    args = GRPOConfig(
        output_dir=str(tmp_path), **{**TINY, "gradient_checkpointing": False, **settings}
    )
    found = why_prompts_are_not_shared(args, config)
    assert found is None if reason is None else reason in found
