PYTHON ?= python3
BIN := .venv/bin
# Compiling all of torch at once takes longer than the install: Python compiles a module when it is first imported.
INSTALL := pip install --quiet --no-compile -c constraints.txt

.PHONY: quickstart test test-fast test-gpu lint install install-tests

# Threads that spin while they wait make a busy machine many times slower.
export OMP_WAIT_POLICY ?= passive

QUICKSTART := recipes/arithmetic/quickstart.yaml
FINISHED := runs/quickstart/summary.json

# Ctrl-C reaches the run alone, which saves a checkpoint; the launcher waits for it. A finished run only shows its table.
quickstart: install ## prepare the model, train, and print the table; ARGS=--fresh starts anew
	@if [ -z "$(ARGS)" ] && [ $(FINISHED) -nt $(QUICKSTART) ]; then \
		cat runs/quickstart/table.txt; echo "  Finished before: make quickstart ARGS=--fresh starts anew."; \
	else $(BIN)/python scripts/prepare_model.py && { trap '' INT; \
		$(BIN)/accelerate launch --quiet --config_file accelerate_configs/single_gpu.yaml \
			recipes/arithmetic/train.py --config $(QUICKSTART) $(ARGS); }; \
	fi

# Two files at a time: what they share is made once a file.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test: install-tests ## the whole suite
	$(PYTEST)

test-fast: install-tests ## no training, no launches
	$(PYTEST) -m "not slow"

test-gpu: install-tests ## every engine on the accelerators that are there; skipped with the reason where there are none
	$(BIN)/python -m pytest -m gpu -rs tests/test_launch.py

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

install: .venv/installed

# Stamped, so that the second use reinstalls nothing; made anew when the pins change.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/$(INSTALL) --editable '.[dev]'
	touch $@

install-tests: .venv/installed-tests

# Apart, since the quickstart has no use for it.
.venv/installed-tests: .venv/installed
	$(BIN)/$(INSTALL) --editable '.[dev,eval]'
	touch $@
