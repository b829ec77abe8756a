# Each target makes .venv when it is missing and installs what it needs, with the pinned versions.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench clean

demo: .venv/.core
	@$(BIN)/rulewright demo

test: .venv/.dev
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2  # one thread a worker: more would only wait for each other

lint: .venv/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: .venv/.dev
	@for each in engine imports milr; do $(BIN)/python benchmarks/$$each.py || exit 1; done

$(BIN)/python:
	@echo "making .venv ..."
	@$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rulewright and what it needs (a minute or two, once) ..."
	@$(INSTALL) --editable .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rulewright with its test tools (a minute or two, once) ..."
	@$(INSTALL) --editable '.[dev,frames,nlp,rdf,viz,web]'
	@touch $@ .venv/.core

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
