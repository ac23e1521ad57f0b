"""Evaluate any model on the held-out rows of a recipe, as a run does before and after training.

    python scripts/evaluate_model.py --model runs/quickstart --config recipes/arithmetic/quickstart.yaml
    python scripts/evaluate_model.py --model HUB_ID --config recipes/gsm8k/qwen2.5-1.5b-lora.yaml --num_eval_rows 1319
    python scripts/evaluate_model.py --model A --against B --config recipes/gsm8k/smollm2-135m.yaml

`--model` is a Hub id, a checkpoint, or a run folder (under LoRA its adapter is loaded on its base). The
rows, rewards, metric and lengths are the recipe's; any argument of the recipe can be overridden.
`--output FILE` keeps the judgement of every row. `--against` evaluates a second model and compares them
row by row.
"""

import argparse
from pathlib import Path


def judge(model_name: str, rows: list[dict], rewards: list, metric, args, title: str) -> list[dict]:
    """Load a model and judge it on `rows` as a run of the recipe would."""
    from recipes.common.evaluation.evaluate import evaluate
    from recipes.common.evaluation.generate import decoding_of
    from recipes.common.evaluation.load_model import load_model, precision_of_a_run

    model, tokenizer = load_model(model_name, args)
    with precision_of_a_run(model.device, args):
        return evaluate(
            model,
            tokenizer,
            rows,
            rewards,
            metric,
            max_new_tokens=args.training["max_completion_length"],
            batch_size=args.training["per_device_eval_batch_size"],
            samples=args.recipe.num_eval_samples,
            decoding=decoding_of(args.training),
            seed=args.training["seed"],
            chat_template_kwargs=args.training["chat_template_kwargs"],
            title=title,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Hub id, checkpoint or run folder")
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--against", help="a second model, shown as `after`")
    parser.add_argument("--output", type=Path, help="write one JSON object a row; with --against, of the second model")
    options, rest = parser.parse_known_args()
    from recipes.common.before.arguments import parse_arguments
    from recipes.common.before.recipe import import_recipe
    from recipes.common.evaluation.scores import compare, comparison_table, summarize
    from recipes.common.tools.folder import write_rows
    from rewards import load_rewards

    recipe = import_recipe(options.config)
    args = parse_arguments(recipe.RecipeArguments, ["--config", str(options.config), *rest])
    _, rows = args.attempt(recipe.load_rows, args.recipe, args.training["seed"]) or (None, [])
    rewards = args.attempt(load_rewards, args.recipe.reward_funcs, args.recipe.reward_kwargs, args.recipe.reward_tasks)
    if not rows and not args.problems:
        args.problems.append("num_eval_rows is 0; there is nothing to evaluate.")
    if args.problems:
        raise SystemExit("error: " + "\n".join(args.problems))
    models = [options.model, options.against] if options.against else [options.model]
    try:
        judged = [judge(name, rows.to_list(), rewards, recipe.metric, args, name) for name in models]
    except ValueError as problem:
        raise SystemExit(f"error: {problem}") from problem
    if options.output:
        write_rows(options.output, judged[-1])
    first, second = judged[0], judged[1] if options.against else None
    p = compare(first, second) if second else None
    print(comparison_table(summarize(first), summarize(second) if second else None, p))


if __name__ == "__main__":
    main()
