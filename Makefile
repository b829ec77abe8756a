# Each target makes .venv when it is missing and installs what it needs, with the pinned versions.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
# One thread a worker: more would only wait for each other. Tests of one group, such as Spark's, share a worker.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

.PHONY: demo test test-fast soak lint docs bench hooks clean

demo: .venv/.core
	@$(BIN)/rulewright demo

test: .venv/.dev
	@$(PYTEST)

test-fast: .venv/.dev
	@$(PYTEST) -m "not slow"

soak: .venv/.dev
	@RULEWRIGHT_SOAK=1 $(PYTEST) -m soak

lint: .venv/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "the site is in build/site"

bench: .venv/.dev
	@for file in $(filter-out $(addprefix benchmarks/,measure.py made_graph.py chains_by_hand.py),$(wildcard benchmarks/*.py)); do \
	  echo "== $$file"; $(BIN)/python $$file || exit 1; done

hooks: .venv/.dev
	@$(BIN)/pre-commit install

$(BIN)/python:
	@echo "making .venv ..."
	@$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rulewright and what it needs (a minute or two, once) ..."
	@$(INSTALL) --editable .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing rulewright with its test tools (a minute or two, once) ..."
	@$(INSTALL) --editable '.[dev,docs,frames,nlp,rdf,spark,viz,web]'
	@touch $@ .venv/.core

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
