"""A random model of a few thousand parameters with a byte-level tokenizer, to train and launch."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>"
    "{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]


def build_tiny_model(folder: Path, seed: int = 0, head_dim: int = 8) -> Path:
    """Save the model and its tokenizer in `folder` and return it; vLLM needs a head_dim of 32."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(SPECIAL + symbols)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[2:]})
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=head_dim, pad_token_id=0,
        eos_token_id=1, bos_token_id=None, max_position_embeddings=4096,
        initializer_range=0.6,  # large, so that what it writes depends on the prompt
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def same_weights(*folders: Path) -> bool:
    """Whether those of two folders are equal, bit for bit."""
    mine, theirs = (load_file(folder / "model.safetensors") for folder in folders)
    return all(torch.equal(mine[name], theirs[name]) for name in mine.keys() | theirs.keys())
