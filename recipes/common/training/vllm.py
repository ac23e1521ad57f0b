"""vLLM in the type that the model trains in.

TRL 1.16 gives vLLM no type. vLLM then takes the one in the model's configuration, and bfloat16 in
place of float32, so that it can generate in another type than the model trains in.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import trl
from transformers import TrainingArguments
from trl.generation import vllm_generation

from recipes.common.training.completion import replaced
from recipes.common.training.engine import asked_engine
from recipes.common.utils.screen import announce, is_main


def training_dtype(args: TrainingArguments, weights: str) -> str:
    """The type of the forward pass: that of the mixed precision, or else that of the weights.

    >>> training_dtype(TrainingArguments(bf16=True), "float32")
    'bfloat16'
    """
    return {"bf16": "bfloat16", "fp16": "float16"}.get(args.mixed_precision, weights)


@contextmanager
def vllm_like_the_training(trainer: trl.GRPOTrainer) -> Iterator[None]:
    """Inside the block a vLLM that TRL starts (`vllm_mode: colocate`) gets the trainer's type.

    After it, syncs with any vLLM leave the weights below LoRA as they were.
    """

    def start_vllm(**settings):
        from vllm import LLM

        weights = str(trainer.model.dtype).removeprefix("torch.")
        return LLM(**settings, dtype=training_dtype(trainer.args, weights))

    with replaced(vllm_generation, LLM=start_vllm):
        yield
    is_sharded = asked_engine().startswith(("ZeRO-3", "FSDP"))
    if hasattr(trainer, "vllm_generation") and not is_sharded:
        restore_after_syncs(trainer)


def restore_after_syncs(trainer: trl.GRPOTrainer) -> None:
    """Give the weights below LoRA back their exact values after each sync with vLLM.

    TRL merges LoRA into them and takes it out again, by which bfloat16 rounds: the model would
    drift away from that which the saved adapter belongs to (TRL #6688). For whole weights alone.
    """
    sync = trainer.vllm_generation.sync_weights
    below = {name: of for name, of in trainer.model.named_parameters() if ".base_layer." in name}

    def sync_and_restore() -> None:
        before = {name: weight.detach().to("cpu", copy=True) for name, weight in below.items()}
        sync()
        for name, weight in below.items():
            weight.data.copy_(before[name])

    trainer.vllm_generation.sync_weights = sync_and_restore


def notes_on_vllm(args: trl.GRPOConfig, weights: str | None) -> list[str]:
    """Check that vLLM is installed and its server answers; note if the server has another type.

    Waits `args.vllm_server_timeout` seconds for the server. `weights` is the setting `dtype`.
    Raises ModuleNotFoundError without vLLM, and TRL's ConnectionError or RuntimeError for a server
    that does not answer, or does not say its settings.
    """
    import vllm  # noqa: F401  # raises here if it is missing or broken

    if args.vllm_mode != "server" or not is_main():  # TRL, too, connects from one process
        return []
    server = args.vllm_server_base_url or f"{args.vllm_server_host}:{args.vllm_server_port}"
    announce(f"Asking the vLLM server at {server}, for up to {args.vllm_server_timeout:g} s ...")
    client = vllm_generation.VLLMClient(
        base_url=args.vllm_server_base_url,
        host=args.vllm_server_host,
        server_port=args.vllm_server_port,
        connection_timeout=args.vllm_server_timeout,
    )
    generates = client.get_server_info()["model_config"]["dtype"].removeprefix("torch.")
    trains = training_dtype(args, weights or "auto")
    if trains in (generates, "auto", "fastest"):  # the last two say no type to compare
        return []
    return [
        f"the vLLM server generates in {generates}, the model trains in {trains}: their "
        f"probabilities differ. Start the server with --dtype {trains}"
    ]
