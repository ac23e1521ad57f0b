"""Run a script with TRL's colocated vLLM on the CPU: `... vllm_on_cpu.py SCRIPT ARGUMENTS ...`

vLLM's CPU build packs the weights for its matrix product and drops them, so TRL finds no parameter
to load the weights of a new step into. Here vLLM keeps them, and torch multiplies.
"""

import runpy
import sys

import torch
from vllm.model_executor.layers import utils


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


utils.dispatch_cpu_unquantized_gemm = keep_weights

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = sys.argv[0].rpartition("/")[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
