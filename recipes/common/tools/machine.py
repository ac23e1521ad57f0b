"""What makes a run on the CPU as fast as the CPU: measured in RESULTS.md, and no change to what is computed."""

import os

import torch
from transformers import PreTrainedModel
from trl import GRPOConfig


def usable_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores(training: GRPOConfig) -> None:
    """Take the one thread that `accelerate launch` leaves to a process for what it is: a default.

    Another number, given as `--num_cpu_threads_per_process`, stands.
    """
    if training.use_cpu and torch.get_num_threads() == 1:
        torch.set_num_threads(max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", 1))))


def make_head_input_contiguous(model: PreTrainedModel) -> None:
    """Let the LM head multiply once a batch when a prompt has been read.

    `generate` gives the head a strided slice, the last position of each prompt. For a strided input torch
    multiplies sequence by sequence with a copy of the weights for each: 56 MB times the batch for a
    vocabulary of 49 152. Nothing happens on other devices.
    """
    if model.device.type == "cpu":
        model.get_output_embeddings().register_forward_pre_hook(lambda module, inputs: (inputs[0].contiguous(),))
