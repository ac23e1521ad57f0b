PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test test-fast lint install

quickstart: install ## prepare the model, train, and print what changed; ARGS=--fresh starts anew
	$(BIN)/python scripts/prepare_model.py
	$(BIN)/accelerate launch --quiet --config_file accelerate_configs/single_gpu.yaml recipes/arithmetic/train.py --config recipes/arithmetic/quickstart.yaml $(ARGS)

test: install ## the whole suite
	$(BIN)/python -m pytest

test-fast: install ## what answers within three minutes
	$(BIN)/python -m pytest -m "not slow"

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

install: .venv/installed

# Stamped, so that the second use reinstalls nothing; made anew when the pins change.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("error: constraints.txt needs Python 3.11 or newer; give one: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]' -c constraints.txt
	touch $@
