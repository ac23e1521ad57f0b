"""The estimate of an update's memory is what was measured, and a note names what fits."""

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from recipes.common.checks.memory import memory_note, update_bytes

SETTINGS = {
    "per_device_train_batch_size": 16, "num_generations": 8, "max_completion_length": 160,
    "share_prompts": True, "gradient_checkpointing": False, "beta": 0.0, "use_cpu": True,
    "dtype": "bfloat16", "load_in_4bit": False, "load_in_8bit": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def qwen() -> Qwen2ForCausalLM:
    """A model of the shape of Qwen2.5-Coder-0.5B with untied embeddings, without memory."""
    config = Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config)
        lora = LoraConfig(r=16, target_modules=["q_proj", "v_proj", "down_proj"])
        return inject_adapter_in_model(lora, model)


@pytest.mark.parametrize(("completions", "gibibytes"), [(8, 4.37), (16, 7.05)])
def test_the_estimate_is_within_a_tenth_of_what_was_measured(qwen, completions, gibibytes):
    estimated = update_bytes(qwen, SETTINGS, 228, completions)
    assert estimated / 2**30 == pytest.approx(gibibytes, rel=0.1)


def test_weights_in_four_bits_are_smaller_and_layers_may_differ(qwen, monkeypatch):
    whole = update_bytes(qwen, SETTINGS, 0, 1)
    quantized = update_bytes(qwen, {**SETTINGS, "load_in_4bit": True}, 0, 1)
    assert whole - quantized == pytest.approx(1.4 * qwen.num_parameters())
    monkeypatch.setitem(vars(qwen.config), "intermediate_size", [1, 4864])  # as of Gemma 3n
    assert update_bytes(qwen, SETTINGS, 0, 1) == whole


def test_a_vllm_in_the_same_process_keeps_its_share_of_the_gpu(qwen, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (20e9, 24e9))
    vllm = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.5}
    settings = {**SETTINGS, **vllm, "use_cpu": False, "vllm_enable_sleep_mode": False}
    settings["max_completion_length"] = 8000
    (note,) = memory_note(qwen, settings, 228)
    assert "and 8.0 GB are free" in note


@pytest.mark.parametrize(("use_cpu", "words", "tensors"), [(True, 2048, 9), (False, 32768, 1)])
def test_logits_are_of_4096_tokens_at_a_time(qwen, use_cpu, words, tensors):
    long = {**SETTINGS, "max_completion_length": 512, "use_cpu": use_cpu}
    of_4, of_8, of_16 = (update_bytes(qwen, long, 0, count) for count in (4, 8, 16))
    logits = 4096 * words * 4 * tensors  # of 8 completions, in bytes
    assert 2 * (of_8 - of_4) - (of_16 - of_8) == pytest.approx(logits)


def test_a_note_names_the_micro_batch_that_fits(qwen, monkeypatch):
    for name in ("ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"):
        monkeypatch.delenv(name, raising=False)
    assert memory_note(qwen, SETTINGS, 228, free=8e9) == []
    (note,) = memory_note(qwen, SETTINGS, 228, free=6e9)
    assert "16 completions of 160 tokens (a vocabulary of 151,936 words)" in note
    assert "6.0 GB are free: per_device_train_batch_size 8 needs" in note
    (note,) = memory_note(qwen, SETTINGS, 228, free=1e9)
    assert "per_device_train_batch_size 1 needs" in note
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert memory_note(qwen, SETTINGS, 228, free=6e9) == []
