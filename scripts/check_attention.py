"""Do the attention implementations of a model agree? Each one in bf16 beside eager attention in float32.

    python scripts/check_attention.py models/SmolLM2-135M-Instruct
    python scripts/check_attention.py models/SmolLM2-135M-Instruct --device cuda

Prints of each implementation the error of its logits, ||out - ref|| / ||ref||, on a batch that is padded on the left
as generation pads it, and the milliseconds of a forward pass; what is not installed is `not run`. What bf16 costs
is the model's own affair; an implementation may have twice the error of eager attention. Exit status: 0 when each has
at most that, 1 when one has more or is not in force where it was asked for.
"""

import argparse
import statistics
import time
from importlib.util import find_spec
from typing import NamedTuple

IMPLEMENTATIONS = ("eager", "sdpa", "flash_attention_2")
LARGEST_RATIO = 2.0  # of an error to eager attention's
TEXTS = [
    "What is 17 + 25?",
    "A farmer has 12 cows. He sells 5 of them and buys 3 more. How many cows does he have at the end of the day?",
    "The desolate slope lay in the evening light, and nothing moved on it but the grass.",
]


class Passed(NamedTuple):
    """A forward pass: logits in float32 (tokens that are no padding, vocabulary), what was in force, milliseconds."""

    logits: "torch.Tensor"  # noqa: F821
    in_force: str
    milliseconds: float


def run(model: str, device: str) -> int:
    """Print a line for each implementation; the exit status."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True).to(device)
    reference = forward(model, "eager", torch.float32, batch).logits
    wrong, of_eager = 0, None
    for name in IMPLEMENTATIONS:
        reason = not_run(name, device)
        if reason:
            print(f"{name} not run: {reason}")
            continue
        found = forward(model, name, torch.bfloat16, batch)
        error = ((found.logits - reference).norm() / reference.norm()).item()
        print(f"{found.in_force} error {100 * error:.2f} % in {found.milliseconds:.1f} ms")
        of_eager = error if of_eager is None else of_eager
        wrong += found.in_force != name or not error <= LARGEST_RATIO * of_eager  # NaN is wrong
    return int(wrong > 0)


def forward(model: str, implementation: str, dtype: "torch.dtype", batch: dict) -> Passed:  # noqa: F821
    """One pass of a batch, the median of three for the time."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype, attn_implementation=implementation)
    loaded = loaded.to(batch["input_ids"].device).eval()
    seconds = []
    with torch.no_grad():
        for _ in range(4):  # the first warms up
            started = time.perf_counter()
            out = loaded(**batch).logits[batch["attention_mask"].bool()].float().cpu()
            seconds.append(time.perf_counter() - started)
    return Passed(out, loaded.config._attn_implementation, 1000 * statistics.median(seconds[1:]))


def not_run(implementation: str, device: str) -> str:
    """Why an implementation cannot run here, or nothing."""
    if implementation != "flash_attention_2":
        return ""
    if device == "cpu":
        return "needs a GPU"
    return "" if find_spec("flash_attn") else "the package flash_attn is not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder or a Hub id")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1; default cpu")
    args = parser.parse_args()
    raise SystemExit(run(args.model, args.device))


if __name__ == "__main__":
    main()
