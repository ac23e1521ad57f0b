"""Evaluate any model on the test questions of a recipe, as a run does before and after training.

    python scripts/evaluate_model.py --model runs/quickstart \\
        --config recipes/arithmetic/quickstart.yaml
    python scripts/evaluate_model.py --model A --against B --config recipes/gsm8k/smollm2-135m.yaml
    python scripts/evaluate_model.py --model A --config recipes/code/smollm2-135m.yaml \\
        --dataset_path data/humaneval --num_eval_rows 164 --num_eval_samples 16 --temperature 0.8

`--model` is a Hub id, a checkpoint, or a run folder (under LoRA its adapter is loaded on its base).
The rows, rewards, metric, lengths, tools and vLLM are the recipe's; any argument of it can be
overridden. With `--num_eval_samples` each row is also sampled so often, and pass@k printed.
"""

import gc
from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--model", required=True, help="Hub id, checkpoint or run folder")
    parser.add_argument("--config", required=True, type=Path, help="a YAML of a recipe")
    parser.add_argument("--against", help="a second model, compared row by row: `after`")
    parser.add_argument("--output", type=Path, help="one JSON object a row, of the last model")
    options, overrides = parser.parse_known_args()
    if options.against == options.model:
        parser.error("--against: it is the model of --model; there is nothing to compare")
    from recipes.common.data.recipe import load_recipe
    from recipes.common.evaluation.evaluate import evaluate
    from recipes.common.evaluation.metrics import try_metric
    from recipes.common.evaluation.pass_at_k import format_pass_at_k
    from recipes.common.evaluation.scores import compare, comparison_table
    from recipes.common.sampling.idle import held_out_rows, idle_trainer
    from recipes.common.utils.run_files import write_rows

    evaluated = {}
    with refusals():
        if options.output and options.output.is_dir():
            raise ValueError(f"--output {options.output} is a folder; name a file in it")
        recipe = load_recipe(options.config, overrides, rows=False)
        rows, samples = held_out_rows(recipe), recipe.args.recipe.num_eval_samples
        try_metric(recipe.module.metric, rows)
        for name in filter(None, (options.model, options.against)):
            trainer = None  # its model's memory is free before the next is loaded
            gc.collect()
            trainer = idle_trainer(recipe, name)
            evaluated[name] = evaluate(trainer, rows, recipe.module.metric, samples, name)
        first = "before" if options.against else options.model
        print(comparison_table(**compare(*evaluated.values()), first=first))
        if samples:
            print("\n".join(format_pass_at_k(evaluated)))
        if options.output:
            write_rows(options.output, evaluated[name])


if __name__ == "__main__":
    main()
