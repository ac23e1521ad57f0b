PYTHON ?= python3
BIN := .venv/bin
PINS := -c constraints.txt

.PHONY: quickstart test test-fast test-gpu lint install install-tests

quickstart: install ## prepare the model, train, and print what changed; ARGS=--fresh starts anew
	$(BIN)/python scripts/prepare_model.py
	$(BIN)/accelerate launch --quiet --config_file accelerate_configs/single_gpu.yaml recipes/arithmetic/train.py --config recipes/arithmetic/quickstart.yaml $(ARGS)

test: install-tests ## the whole suite
	$(BIN)/python -m pytest

test-fast: install-tests ## what answers within three minutes
	$(BIN)/python -m pytest -m "not slow"

test-gpu: install-tests ## every engine on the accelerators that are there; skipped with the reason where there are none
	$(BIN)/python -m pytest -m gpu -rs tests/test_launch.py

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
