"""Evaluate with lm-evaluation-harness before and after a run: GSM8K as the recipe asks it, and as lm-eval does.

    python scripts/harness_eval.py --model runs/gsm8k-qwen2.5-1.5b-lora                # its base is the `before`
    python scripts/harness_eval.py --model Qwen/Qwen2.5-1.5B-Instruct --adapter HUB_ID_OR_FOLDER
    python scripts/harness_eval.py --model runs/quickstart --limit 100 --data FOLDER   # no Hub: test.jsonl in FOLDER
    python scripts/harness_eval.py --model HUB_ID                                      # one column

Both models answer the same rows greedily. The table shows each filter's exact match with lm-eval's standard
error, and the difference row by row with its own and the exact McNemar test. Tasks (recipes/gsm8k/lm_eval/):

  gsm8k_recipe    the recipe's system prompt, chat template and answer tag, as in training
  gsm8k_zeroshot  the prompt, stops and filters of lm-eval's own gsm8k (`####`), zero-shot

or any of lm-eval's own. Needs `pip install -e '.[eval]' -c constraints.txt`.
"""

import argparse
import logging
import os
import time
from pathlib import Path


def count(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="run folder, checkpoint, Hub id or folder of a model")
    parser.add_argument("--adapter", help="LoRA adapter on --model: Hub id or folder; --model alone is the `before`")
    parser.add_argument("--against", help="the `before`: Hub id or folder; default the base that a run folder names")
    parser.add_argument("--tasks", nargs="+", default=["gsm8k_recipe", "gsm8k_zeroshot"], help="default both of ours")
    parser.add_argument("--limit", type=count, help="the first rows alone; default all")
    parser.add_argument("--data", help="folder with test.jsonl (question, answer); default openai/gsm8k from the Hub")
    parser.add_argument(
        "--config", type=Path, help="YAML of the GSM8K recipe: its worked example and max_completion_length"
    )
    parser.add_argument(
        "--max_gen_toks",
        type=count,
        help="most tokens to generate; default in gsm8k_recipe as in the run or --config, else lm-eval's 256",
    )
    parser.add_argument("--apply_chat_template", action="store_true", help="also in tasks other than gsm8k_recipe")
    parser.add_argument("--batch_size", type=count, default=8)
    parser.add_argument("--dtype", default="auto", help="of both models; default as the first was saved")
    parser.add_argument("--device", help="default the accelerator if there is one, else cpu")
    parser.add_argument("--output", type=Path, help="write all figures, versions and every row as JSON")
    return parser.parse_args()


def require_harness() -> None:
    try:
        import lm_eval.evaluator  # noqa: F401
    except ModuleNotFoundError as missing:
        raise SystemExit(
            f"error: lm-evaluation-harness is not installed ({missing}). "
            "Install it with: pip install -e '.[eval]' -c constraints.txt"
        ) from missing


def evaluate(options: argparse.Namespace) -> dict:
    """All that --output holds; `runs` and `models` are of before and after, or of the one model."""
    from recipes.common import harness

    for name in ("lm_eval.api.task", "lm_eval.evaluator"):  # they warn of what is done here on purpose
        logging.getLogger(name).setLevel(logging.ERROR)
    models = harness.contenders(options.model, options.adapter, options.against)
    asked = harness.asked_as(options.model, options.config)
    manager = harness.task_manager(options.tasks, options.data, asked["example"])
    lengths = {"gsm8k_recipe": asked["max_gen_toks"]}
    if options.max_gen_toks:
        lengths = dict.fromkeys(options.tasks, options.max_gen_toks)
    runs, seconds, dtype = [], [], options.dtype
    for model in models:
        print(f"{model}", flush=True)
        lm = harness.load_harness_model(
            model,
            batch_size=options.batch_size,
            device=options.device,
            dtype=dtype,
            chat_template_kwargs=asked["chat_template_kwargs"],
        )
        dtype = lm.model.dtype  # both in the same precision, however the second was saved
        start = time.monotonic()
        runs.append(
            harness.run_tasks(
                lm,
                options.tasks,
                manager,
                limit=options.limit,
                lengths=lengths,
                apply_chat_template=options.apply_chat_template,
            )
        )
        seconds.append(round(time.monotonic() - start, 1))
        del lm
    return {
        "models": dict(zip(harness.names(runs), map(str, models), strict=True)),
        "figures": harness.figures(runs),
        "seconds": dict(zip(harness.names(runs), seconds, strict=True)),
        "settings": {
            "data": options.data or "openai/gsm8k",
            "limit": options.limit,
            "batch_size": options.batch_size,
            "dtype": str(dtype),
            **asked,
            "tasks": {task: {k: run[k] for k in ("version", "generation_kwargs")} for task, run in runs[-1].items()},
        },
        "rows": harness.rows(runs),
    }


def main() -> None:
    options = parse()
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise SystemExit("error: this is one process: start it with python, not with accelerate launch or torchrun.")
    require_harness()
    from recipes.common import harness
    from recipes.common.files import write_json
    from recipes.common.record import versions

    try:
        found = evaluate(options)
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem
    print(harness.table(found["figures"]))
    if options.output:
        record = versions()
        record["versions"]["lm_eval"] = harness.harness_version()
        write_json(options.output, {**record, **found})
        print(f"  Every row: {options.output}")


if __name__ == "__main__":
    main()
