PYTHON ?= python3
BIN := .venv/bin
# The pinned set needs Python 3.11; an older one gets the newest that the ranges of pyproject.toml allow.
PINS := $(shell $(PYTHON) -c 'import sys; print("-c constraints.txt" * (sys.version_info >= (3, 11)))')

.PHONY: quickstart test test-fast lint install install-tests

quickstart: install ## prepare the model, train, and print what changed; ARGS=--fresh starts anew
	$(BIN)/python scripts/prepare_model.py
	$(BIN)/accelerate launch --quiet --config_file accelerate_configs/single_gpu.yaml recipes/arithmetic/train.py --config recipes/arithmetic/quickstart.yaml $(ARGS)

test: install-tests ## the whole suite
	$(BIN)/python -m pytest

test-fast: install-tests ## what answers within three minutes
	$(BIN)/python -m pytest -m "not slow"

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

install: .venv/installed

# Stamped, so that the second use reinstalls nothing; made anew when the pins change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable '.[dev]' $(PINS)
	touch $@

install-tests: .venv/installed-tests

# Apart, since the quickstart has no use for it.
.venv/installed-tests: .venv/installed
	$(BIN)/pip install --quiet --editable '.[dev,eval]' $(PINS)
	touch $@
