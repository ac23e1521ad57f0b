"""Train a recipe's model on its own reference completions, for a checkpoint to start GRPO from.

    python scripts/warm_start.py --config recipes/arithmetic/warm.yaml --rows 128 --steps 36
    accelerate launch --config_file accelerate_configs/single_gpu.yaml \\
        recipes/arithmetic/train.py --config recipes/arithmetic/warm.yaml \\
        --model_name_or_path runs/sums-warm-start

A reward that is never earned teaches nothing. Some minutes of supervised steps (TRL's SFTTrainer,
loss on the completion alone) show the model the asked form first. The test questions are evaluated
before and after. The questions used are kept in warm_start.json: a run from this checkpoint does
not train on them again, and is refused if it evaluates on them. One process. Other arguments go to
the recipe.
"""

from pathlib import Path

from command import at_least, make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--config", required=True, type=Path, help="a YAML of a recipe")
    add("--rows", type=at_least(1), default=256, help="training rows to use, by the run's seed")
    add("--steps", type=at_least(1), default=32, help="of 16 rows each")
    add("--learning_rate", type=float, help="default: 5e-4 with LoRA, 2e-5 without")
    add("--output_dir", type=Path, help="default: the YAML's output_dir with -warm-start")
    options, overrides = parser.parse_known_args()
    from recipes.common.warm_start import warm_start

    with refusals():
        warm_start(**vars(options), overrides=overrides)


if __name__ == "__main__":
    main()
