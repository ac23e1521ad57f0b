"""The CPU settings: they take effect, and change no result."""

import pytest
import torch
from support.tiny_model import build_tiny_model
from transformers import AutoModelForCausalLM

from recipes.common.tools.machine import make_head_input_contiguous


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return AutoModelForCausalLM.from_pretrained(build_tiny_model(tmp_path_factory.mktemp("tiny")))


def test_the_head_sees_a_contiguous_last_position_and_answers_as_before(model):
    seen = []
    ids = torch.arange(5, 25).view(4, 5)
    generate = dict(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False)
    before = model.generate(**generate)
    model.lm_head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].is_contiguous()))
    model.generate(**generate)
    assert not all(seen), "the prompt's last position is contiguous by itself: the hook is not needed any more"
    seen.clear()
    make_head_input_contiguous(model)
    after = model.generate(**generate)
    assert all(seen) and torch.equal(before, after)
