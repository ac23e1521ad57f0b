"""A prompt computed once for its group gives TRL's completions and gradient, or TRL's way runs."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from datasets import Dataset
from support.scored_by_place import TINY, give
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from trl.trainer.utils import add_fused_lm_head

from recipes.common.trainer import GRPOConfig, GRPOTrainer
from recipes.common.training.shared_prompt import (
    share_prompts,
    why_finished_stay,
    why_prompts_are_not_shared,
)

pytestmark = pytest.mark.usefixtures("one_thread")

# Left padding, since the prompts are unlike in length; two groups with the same text.
PROMPTS = ["Twice:", "A longer prompt, which the others are padded to:", "Twice:", "Short"]
AMOUNTS = [1.0, 0.0, 0.5, 0.25, 0.0, 0.0, 1.0, 0.0, 0.7, 0.1, 0.2, 0.3, 1.0, 1.0, 0.0, 1.0]
PLAIN_DESCENT = {
    "optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
    "gradient_checkpointing": False, "per_device_train_batch_size": 16,
}  # fmt: skip
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


@pytest.mark.parametrize("part", ["the update", "generation"])
def test_an_argument_that_trl_adds_is_told_once_and_nothing_is_shared(pair, part):
    batch = {**two_groups(), "output_attentions": False}
    config = GenerationConfig(max_new_tokens=2, pad_token_id=0)

    def output_of(model):
        if part == "the update":
            return model(**batch, labels=batch["input_ids"], fused_lm_head=True).log_probs
        return model.generate(**batch, generation_config=config)

    plain, shared = pair
    message = f"no effect on {part}: the model is called with output_a"
    with pytest.warns(UserWarning, match=message) as warned:
        outputs = [output_of(plain), output_of(shared), output_of(shared)]
    assert torch.equal(outputs[0], outputs[1]) and torch.equal(outputs[0], outputs[2])
    assert sum(message in str(warning.message) for warning in warned) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"loss_type": "grpo", "importance_sampling_level": "sequence", **OLD},  # gspo
        {"loss_type": "bnpo"},  # a mean over the micro batch: it keeps TRL's order
        {"loss_type": "dapo", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4},
        {"loss_type": "grpo", "per_device_train_batch_size": 8, "steps_per_generation": 2, **OLD},
        {"mask_truncated_completions": True, "max_completion_length": 120},
        {"loss_type": "cispo", "beta": 0.04, **OLD},
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
    of_all_tokens = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2}  # the prompt's too
    config = GenerationConfig(max_new_tokens=12, do_sample=False, pad_token_id=0, **of_all_tokens)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    plain, shared = (each.generate(**inputs, generation_config=config) for each in pair)
    assert torch.equal(plain, shared)


def test_prompts_are_computed_in_the_mixed_precision_of_the_run(model, tmp_path):
    rows, kinds = Dataset.from_list([{"prompt": "any"}]), []
    settings = {**TINY, **PLAIN_DESCENT, "bf16": True, "share_prompts": True}
    args = GRPOConfig(output_dir=str(tmp_path), **settings)
    model = GRPOTrainer(str(model), give("reward", [1.0]), args, rows).model
    keys = model.base_model.layers[0].self_attn.k_proj
    keys.register_forward_hook(lambda _, inputs, output: kinds.append(output.dtype))
    model.generate(**two_groups(), generation_config=GenerationConfig(max_new_tokens=1))
    assert set(kinds) == {torch.bfloat16}


def test_a_completion_that_has_ended_leaves_the_batch_and_the_others_stay_the_same(pair, model):
    rows = []
    plain, _ = pair
    shared = AutoModelForCausalLM.from_pretrained(model).eval()
    share_prompts(shared, drop_finished=True)
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    inputs = tokenizer(["one", "two, longer", "three"], return_tensors="pt", padding=True)
    inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    config = GenerationConfig(max_new_tokens=96, do_sample=False, pad_token_id=0, eos_token_id=1)
    expected = plain.generate(**inputs, generation_config=config)
    shared.generate(**inputs, generation_config=config)  # tries first whether this model can share
    shared.base_model.register_forward_pre_hook(
        lambda module, args, given: rows.append(len(given["input_ids"])), with_kwargs=True
    )
    assert torch.equal(expected, shared.generate(**inputs, generation_config=config))
    # They end after 82, 9 and 53 tokens: in the third part of 32 tokens, the first, the second.
    assert rows[1:] == [3] * 32 + [2] * 32 + [1] * 18


def test_finished_completions_stay_where_a_setting_of_the_model_may_end_others(model):
    policy = AutoModelForCausalLM.from_pretrained(model)
    assert why_finished_stay(policy, weights_are_sharded=False) is None
    assert "equally often" in why_finished_stay(policy, weights_are_sharded=True)
    policy.generation_config.min_new_tokens = 40
    assert "sets min_new_tokens" in why_finished_stay(policy, weights_are_sharded=False)


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
    ids = torch.full((8, 30), 7)
    labels = ids.clone()
    labels[:, :20] = -100
    batch = {"input_ids": ids, "attention_mask": ids * 0 + 1, "labels": labels}
    shared(**batch, fused_lm_head=True)  # tries first whether this model can share
    shared.model.register_forward_pre_hook(
        lambda _, args, given: rows.append(given["input_ids"].shape), with_kwargs=True
    )
    shared(**batch, fused_lm_head=True)
    # The last token of the prompt predicts the first of the completion.
    assert rows == [(1, 19), (8, 11)]


# Every architecture: the same to rounding, or refused with a word

SIZES = {
    "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "initializer_range": 0.2,  # large, so that a prompt changes what follows it
    "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
GPT_SIZES = {"n_positions": 512, "n_embd": 32, "n_layer": 2, "n_head": 4}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
BY_LENGTH = "rotary embedding depends on the number of tokens"
NOT_PLAIN = "cache is not a plain one"


def rope(kind: str, **more) -> dict:
    """Settings of a rotary embedding that was trained on 16 tokens; the rows here have 34."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, **more}}


SCALES = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
ARCHITECTURES = [  # model type, what is not in SIZES, words of the warning; none: shared
    ("llama", {}, ""),
    ("llama", rope("yarn", original_max_position_embeddings=16), ""),
    ("llama", {"max_position_embeddings": 16, **rope("dynamic")}, BY_LENGTH),
    ("phi3", rope("longrope", original_max_position_embeddings=16, **SCALES), BY_LENGTH),
    ("qwen2", {}, ""),
    ("qwen3_moe", {"head_dim": 8, "shared_expert_intermediate_size": 16, **EXPERTS}, ""),
    ("mistral", {"sliding_window": 8}, NOT_PLAIN),
    ("gemma3_text", {"head_dim": 8}, NOT_PLAIN),
    ("gemma3_text", {"head_dim": 8, "layer_types": ["full_attention"] * 2}, ""),
    ("gpt2", GPT_SIZES, "disable_dropout"),
    ("gpt2", {**GPT_SIZES, **NO_DROPOUT}, ""),  # learnt positions
    ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0}, ""),
    ("bloom", {"n_layer": 2, "n_head": 4}, ""),
    ("falcon", {"alibi": True}, ""),
    # By default it generates without a cache. Its positions are columns.
    ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 512}, "on generation"),
    ("rwkv", {"context_length": 512}, "on the update"),  # a state, and no cache
    ("mamba", {}, NOT_PLAIN),
    ("llama", {"output_router_logits": True}, "router"),
    ("llama", {"vision_config": {}}, "images"),
]


@pytest.mark.filterwarnings("ignore")  # of small configurations
@pytest.mark.parametrize(("kind", "more", "reason"), ARCHITECTURES)
def test_each_architecture_gives_what_it_gives_without_sharing(kind, more, reason):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **more})
    plain, shared = (AutoModelForCausalLM.from_config(config).eval() for _ in range(2))
    shared.load_state_dict(plain.state_dict())
    for either in (plain, shared):
        add_fused_lm_head(either, outputs=("log_probs", "entropy"))
    why = why_prompts_are_not_shared(SimpleNamespace(gradient_checkpointing=False), shared)
    if why is not None:
        assert reason and reason in why
        return
    batch, weights = two_groups(), torch.randn(6, 33)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    labels[:, :24] = -100
    prompts = {name: tensor[:, :24] for name, tensor in batch.items()}
    config = GenerationConfig(max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        share_prompts(shared)
        both = (plain, shared)
        written = [either.generate(**prompts, generation_config=config) for either in both]
        for either in both:
            output = either(**batch, labels=labels, fused_lm_head=True)
            (output.log_probs * weights).sum().backward()
    words = [str(one.message) for one in caught if "share_prompts" in str(one.message)]
    assert any(reason in text for text in words) if reason else words == []
    assert torch.equal(*written)
    of_plain = {name: weight.grad for name, weight in plain.named_parameters()}
    largest = max(gradient.abs().max() for gradient in of_plain.values() if gradient is not None)
    for name, weight in shared.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, of_plain[name], rtol=0, atol=1e-5 * largest)


def two_groups() -> dict[str, torch.Tensor]:
    """Two prompts of 24 and 19 tokens, which share 17; each begins 3 rows of 34."""
    ids = torch.randint(5, 250, (6, 34), generator=torch.Generator().manual_seed(0))
    ids[:3, :24], ids[3:, :24] = ids[0, :24].clone(), ids[3, :24].clone()
    ids[3:, 5:22] = ids[0, :17]
    mask = torch.ones_like(ids)
    mask[3:, :5] = 0
    mask[1, 30:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def test_with_gradient_checkpointing_nothing_is_shared(pair):
    why = why_prompts_are_not_shared(SimpleNamespace(gradient_checkpointing=True), pair[1])
    assert why.startswith("gradient_checkpointing computes a layer again")
