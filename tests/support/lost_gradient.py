"""A recipe that loses the gradients of rank 1: `accelerate launch lost_gradient.py train.py`.

It runs to its end and logs its rewards; only a comparison of parameters or gradient norms can tell.
"""

import os
import runpy
import sys
from typing import Any

import trl

compute_loss = trl.GRPOTrainer.compute_loss


def without_gradient(self: trl.GRPOTrainer, *args: Any, **kwargs: Any) -> Any:
    loss = compute_loss(self, *args, **kwargs)
    return loss * 0.0 if os.environ["RANK"] == "1" else loss


if __name__ == "__main__":
    trl.GRPOTrainer.compute_loss = without_gradient
    sys.argv = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    runpy.run_path(sys.argv[0], run_name="__main__")
