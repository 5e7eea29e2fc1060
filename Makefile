# Both commands do all their own set-up: they need Python 3.11 or newer, pip and make, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test bench faults docs screenshots clean

demo: $(VENV)/.demo-installed
	$(BIN)/tracker-health demo

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -n auto -q $(ARGS)

bench: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/speed/check_folder.py
	$(BIN)/python benchmarks/speed/checkpoints.py $(ARGS)

faults: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement benchmarks/faults/requirements.txt
	$(BIN)/python benchmarks/faults generate --size small
	$(BIN)/python benchmarks/faults score --size small

docs: $(VENV)/.dev-installed
	$(BIN)/python scripts/generate_docs.py

screenshots: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python scripts/make_screenshots.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.dev-installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build tracker-health-demo
