"""The memory of one process, part by part, from a model's sizes, a run's settings and a launch: arithmetic alone.

The rules, for TRL 1.16 (N parameters, T of them trained, W processes; bytes):

- Weights: as loaded (`dtype`); 2 under DeepSpeed with bf16 or fp16; 4 for what FSDP2 trains, and for an adapter.
- Casts: fp32 weights under bf16 keep a 2-byte copy of each matrix through the backward pass.
- Gradients: as the weights; DDP keeps its buckets, of the same size, all the time; DeepSpeed a bucket of 5e8 elements.
- Optimizer: Adam, two moments of the weights' own bytes; DeepSpeed 12 (fp32 weights and moments).
- Reference model: the weights once more, when `beta` is not 0 and no adapter can be switched off instead.
- Shared out over W: ZeRO-1 the optimizer, ZeRO-2 the gradients too, ZeRO-3 and FSDP2 also the weights. Of these
  ZeRO-3 gathers up to 1e9 parameters while it learns and all of them to generate; FSDP2 two layers and the head.
- Activations: `saved_per_layer`, for a micro batch; with gradient checkpointing one layer and the input of each.
- Logits: TRL works in tiles of 4 096 tokens x 32 768 entries of the vocabulary, in the compute type on a GPU, about 30
  bytes an element on the CPU, and sums the head's gradient in fp32.
- KV cache: the completions of one generation on this process; none under vLLM, which has its own share.

The peak is the largest of generating, learning and the optimizer's step. Not covered: what CUDA, NCCL and kernels
take for themselves, fragmentation (`USABLE` leaves room for these), mixtures of experts, images, optimizers other than
Adam, what a reward model takes. For GPT-2, whose MLP has no gate, activations are planned a tenth too high.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from recipes.common.checks.batch import completions_of_a_call
from recipes.common.checks.launch import Launch
from recipes.common.sampling.sizes import ModelSizes

USABLE = 0.9  # of a GPU's memory
TILE_TOKENS, TILE_VOCABULARY = 4096, 32768  # of TRL's chunked log-probabilities
CPU_TILE_BYTES = 30  # its backward pass in plain torch: seven fp32 tiles and a mask at once
DEEPSPEED_BUCKET = 500_000_000  # reduce_bucket_size
ZERO3_LIVE = 1_000_000_000  # stage3_max_live_parameters
SAMPLING_COPIES = 3  # fp32 logits, their probabilities, and what sampling sorts


@dataclass(frozen=True)
class RunSettings:
    """The settings of a recipe that memory depends on; rows are completions."""

    micro_batch: int
    rows_generated: int
    prompt_tokens: int
    completion_tokens: int
    accumulates: bool = False
    half_precision: bool = True
    checkpointing: bool = True
    reference: bool = False
    vllm: bool = False
    gathers_to_generate: bool = True
    on_cpu: bool = False

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


def settings_of(training: dict[str, Any], launch: Launch, prompt_tokens: int) -> RunSettings:
    """The settings out of the trainer's arguments, of a batch that divides."""
    new_name = training["activation_checkpointing"]  # of transformers 5; it wins where it is set
    return RunSettings(
        micro_batch=training["per_device_train_batch_size"],
        rows_generated=completions_of_a_call(training, launch.processes),
        prompt_tokens=prompt_tokens,
        completion_tokens=training["max_completion_length"],
        accumulates=training["gradient_accumulation_steps"] > 1,
        half_precision=bool(
            training["fp16"] or training["bf16"] is not False
        ),  # TRL: bf16 unless fp16 is set
        checkpointing=bool(training["gradient_checkpointing"] if new_name is None else new_name),
        reference=training["beta"] != 0.0,
        vllm=training["use_vllm"],
        gathers_to_generate=training["ds3_gather_for_generation"],
        on_cpu=training["use_cpu"] or launch.use_cpu,
    )


class Memory(NamedTuple):
    """Bytes of one process: of each part, and of the three moments that can be the peak."""

    parts: dict[str, int]
    moments: dict[str, int]

    @property
    def peak(self) -> int:
        return max(self.moments.values())


def plan_memory(model: ModelSizes, run: RunSettings, launch: Launch) -> Memory:
    """The memory of one process; of 1e9 fp32 parameters trained alone weights and gradients 4e9, optimizer 8e9."""
    parts = {**_held(model, run, launch), **_worked_with(model, run, launch)}
    always = (
        parts["weights"] + parts["reference model"] + parts["communication"] + parts["optimizer"]
    )
    working = parts["activations"] + parts["logits"]
    # Without accumulation the gradients grow while the activations they come from are freed.
    learning = parts["gradients"] + working if run.accumulates else max(parts["gradients"], working)
    moments = {
        "generating": always
        + parts["gathered to generate"]
        + parts["KV cache"]
        + parts["generation"],
        "learning": always + parts["casts"] + parts["gathered to learn"] + learning,
        "optimizer step": always + parts["gradients"],
    }
    return Memory(parts, moments)


def _held(model: ModelSizes, run: RunSettings, launch: Launch) -> dict[str, int]:
    """The parts that a process keeps from step to step, and the gradients."""

    def share(size: int, shared: bool) -> int:
        return -(-size // launch.processes) if shared else size

    zero, engine, offload = launch.zero, launch.engine, launch.offload_weights
    frozen = model.parameters * (2 if zero and run.half_precision else model.weight_bytes)
    each = 4 if model.lora or (engine == "FSDP2" and run.half_precision) else model.weight_bytes
    if zero:
        each = 2 if run.half_precision else model.weight_bytes
    trained, adam = model.trainable * each, model.trainable * (12 if zero else 2 * each)
    kept = share(trained, engine in ("ZeRO-2", "ZeRO-3", "FSDP2"))
    alone = engine in ("one process", "DDP")  # these autocast
    autocast = alone and run.half_precision and model.weight_bytes == 4
    reference = 0 if model.lora or not run.reference else frozen
    weights = trained + (frozen if model.lora else 0)
    bucket = DEEPSPEED_BUCKET * compute_bytes(run)
    return {
        "weights": 0 if offload else share(weights, launch.shards_weights),
        "casts": 2 * (model.parameters - model.embeddings) if autocast else 0,
        "reference model": 0 if offload else share(reference, launch.shards_weights),
        "gradients": 0 if launch.offload_optimizer and engine != "ZeRO-1" else kept,
        "communication": bucket if zero else trained if engine == "DDP" else 0,
        "optimizer": 0 if launch.offload_optimizer else share(adam, not alone),
    }


def _worked_with(model: ModelSizes, run: RunSettings, launch: Launch) -> dict[str, int]:
    """The parts that come and go within a step."""
    whole, part = model.parameters, min(model.parameters, ZERO3_LIVE)
    if launch.engine == "FSDP2":
        whole = part = 2 * (model.parameters - model.embeddings) // model.layers + model.embeddings
    each = compute_bytes(run) if launch.shards_weights else 0
    compute = compute_bytes(run)
    # On a GPU TRL scores the completions; elsewhere every position, so that shapes stay the same.
    scored = run.micro_batch * (run.tokens - 1 if run.on_cpu else run.completion_tokens)
    tile = min(scored, TILE_TOKENS) * min(model.vocabulary, TILE_VOCABULARY)
    head = 4 * model.vocabulary * model.hidden if model.head_is_trained else 0
    rows = 0 if run.vllm else run.rows_generated
    # Keys come out of the rotation in the residual's type.
    cached = model.layers * model.key * (compute + residual_bytes(model, run, launch))
    prompt = run.prompt_tokens * (
        8 * model.hidden + compute * (2 * model.query + 3 * model.intermediate)
    )
    return {
        "gathered to learn": each * part,
        "activations": activations(model, run, launch),
        # A tile, the fp32 gradient of the head's input and, where the head is trained, of the head.
        "logits": tile * (compute + CPU_TILE_BYTES * run.on_cpu) + 4 * scored * model.hidden + head,
        "gathered to generate": each * (whole if run.gathers_to_generate else part),
        "KV cache": rows * run.tokens * cached,
        # The prompts are read layer by layer; then come the logits of one token a row.
        "generation": rows * max(prompt, model.vocabulary * (compute + 4 * SAMPLING_COPIES)),
    }


def compute_bytes(run: RunSettings) -> int:
    """Bytes of an element where matrices are multiplied."""
    return 2 if run.half_precision else 4


def residual_bytes(model: ModelSizes, run: RunSettings, launch: Launch) -> int:
    """Bytes of an element between layers: that of the embeddings, which autocast does not change."""
    own_precision = run.half_precision and (launch.zero or launch.engine == "FSDP2")
    return 2 if own_precision else model.weight_bytes


def saved_per_layer(model: ModelSizes, run: RunSettings, launch: Launch) -> int:
    """Bytes that one layer saves of one token for the backward pass (flash attention, gated MLP).

    Full training: the input of both norms in fp32 and what they return, the input of each projection, query, key and
    value for each head, attention's output and its row of the mask, and four tensors of the MLP. With a frozen base
    only what the gradient of the activations needs, and the input of each LoRA matrix.
    """
    compute, residual = compute_bytes(run), residual_bytes(model, run, launch)
    norms, attention = 2 * 4 * model.hidden, compute * (4 * model.query + run.tokens)
    if model.lora:
        return norms + attention + 3 * compute * model.intermediate + compute * model.lora_width
    casts = (
        5 if residual != compute else 2
    )  # autocast copies the input for q, k, v, gate and up each
    inputs = 2 * residual * model.hidden + casts * compute * model.hidden
    return norms + inputs + attention + 4 * compute * model.intermediate


def activations(model: ModelSizes, run: RunSettings, launch: Launch) -> int:
    """Bytes that a micro batch saves for the backward pass."""
    layer, boundary = (
        saved_per_layer(model, run, launch),
        residual_bytes(model, run, launch) * model.hidden,
    )
    of_token = layer + boundary * model.layers if run.checkpointing else layer * model.layers
    return run.micro_batch * run.tokens * of_token
