# make demo and make test set up everything themselves. PYTHON picks the interpreter (3.11 or 3.12).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip compiles on one core; afterwards all of them do (files of Python 2 among the packages fail).
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib >/dev/null || true
SETUP_INPUTS := pyproject.toml constraints.txt

.PHONY: demo docs test test-all test-frameworks test-triton lint bench figures claims clean

demo: $(VENV)/.demo
	$(BIN)/penex compare

docs: $(VENV)/.docs
	$(BIN)/python docs/theme/build.py

# Two workers on two cores: a second thread in each would only be in the way. Tests start hundreds of
# processes: our modules are compiled once, whatever the environment says of that.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test: lint
	$(PYTEST) -m "not slow and not records"

test-all: test
	$(PYTEST) -m "slow or records"

# Our adapters in the real frameworks: some 850 MB, so not a part of the others. The frameworks'
# own warnings are no errors.
test-frameworks: $(VENV)/.frameworks
	$(PYTEST) -m frameworks -W default tests/integrations

# The GPU kernels in Triton's interpreter: 640 MB, so not a part of the others.
test-triton: $(VENV)/.dev
	$(PIP) --no-deps triton==3.6.0
	$(COMPILE)
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/test_triton.py tests/test_packed_conv.py

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.imports
	$(BIN)/penex bench
	$(BIN)/python -m benchmarks.training

figures: $(VENV)/.demo
	$(BIN)/python examples/boosting_view.py
	$(BIN)/python examples/divergence.py
	$(BIN)/python examples/other_sign.py
	$(BIN)/python examples/loss_shapes.py
	$(BIN)/penex bench
	cp runs/bench/bench.png docs/images/
	$(BIN)/penex compare
	cp runs/digits/curves.png docs/images/
	$(BIN)/penex compare --seeds 5 --train-size 100 300 900
	cp runs/digits/train_size.png docs/images/

claims: $(VENV)/.dev
	$(BIN)/penex reproduce table1 --read-only --out results
	mv results/claims.md docs/reproduction.md
	$(BIN)/penex reproduce fair --read-only --out results/fair
	mv results/fair/fair.md docs/fair.md

$(VENV)/.venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "penex needs Python 3.11 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.demo: $(VENV)/.venv $(SETUP_INPUTS)
	$(PIP) --editable '.[lab]'
	$(COMPILE)
	touch $@

$(VENV)/.docs: $(VENV)/.venv $(SETUP_INPUTS)
	$(PIP) --editable '.[docs]'
	$(COMPILE)
	touch $@

$(VENV)/.dev: $(VENV)/.venv $(SETUP_INPUTS)
	$(PIP) --editable '.[dev]'
	$(COMPILE)
	touch $@

# fastai and timm want torchvision, of which no build is for a torch without CUDA: it gets a folder
# of its own, since whatever finds it imports it (tests/vision_here.py).
$(VENV)/.frameworks: $(VENV)/.dev constraints-frameworks.txt
	$(PIP) --constraint constraints-frameworks.txt --editable '.[accelerate,ignite,jax,keras,lightning,skorch,transformers]' \
		cloudpickle fastdownload fastprogress fasttransform optax pandas requests
	$(PIP) --constraint constraints-frameworks.txt --no-deps fastai timm
	$(PIP) --constraint constraints-frameworks.txt --no-deps --upgrade --target $(VENV)/vision torchvision
	$(COMPILE)
	touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
