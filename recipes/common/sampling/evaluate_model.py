"""Any model on the held-out rows of a recipe, as a run does before and after training; for scripts."""

from collections.abc import Callable
from typing import Any

from recipes.common.evaluation.evaluate import evaluate
from recipes.common.evaluation.metrics import Metric
from recipes.common.sampling.generate import Completion, decoding_of, prompt_text, sample
from recipes.common.sampling.load_model import load_model, precision_of_a_run


def held_out_rows(module: Any, args: Any) -> list[dict]:
    """The evaluation rows of a recipe; where it reads its splits one by one no other: HumanEval has one."""
    seed, count = args.training["seed"], args.recipe.num_eval_rows
    if hasattr(module, "load_split"):
        rows = module.load_split(args.recipe, "test", count, seed)
    else:
        rows = module.load_rows(args.recipe, seed)[1]
    if not rows:
        raise ValueError("num_eval_rows is 0; there is nothing to evaluate.")
    return rows.to_list()


def sample_model(
    name: str, rows: list[dict], samples: int, batch_size: int, args: Any
) -> tuple[list[list[Completion]], str]:
    """Load a model and draw `samples` completions of each row as a recipe trains; also the first prompt as text."""
    (model, tokenizer), how = load_model(name, args), _how(name, args.training)
    with precision_of_a_run(model.device, args):
        drawn = sample(model, tokenizer, rows, samples, batch_size=batch_size, **how)
    return drawn, prompt_text(tokenizer, rows[0]["prompt"], how["chat_template_kwargs"])


def evaluate_model(
    name: str, rows: list[dict], rewards: list[Callable], metric: Metric, args: Any
) -> list[dict]:
    """Load a Hub id, checkpoint or run folder, and evaluate it on `rows` with the arguments of a recipe."""
    (model, tokenizer), how = load_model(name, args), _how(name, args.training)
    sizes = {
        "batch_size": args.training["per_device_eval_batch_size"],
        "samples": args.recipe.num_eval_samples,
    }
    with precision_of_a_run(model.device, args):
        return evaluate(model, tokenizer, rows, rewards, metric, **sizes, **how)


def _how(name: str, training: dict[str, Any]) -> dict[str, Any]:
    if training["tools"] or training["environment_factory"]:
        raise ValueError(
            "completions with tools or environments are made in a run alone, which evaluates before and after: start "
            "one with --max_steps 1."
        )
    kept = {key: training[key] for key in ("seed", "chat_template_kwargs")} | {
        "decoding": decoding_of(training)
    }
    return {**kept, "max_new_tokens": training["max_completion_length"], "title": name}
