# Everything below runs inside .venv, which is made on first use and left alone until
# pyproject.toml or constraints.txt change.

PYTHON ?= python3
JOBS ?= 2

BIN := .venv/bin
PY := $(BIN)/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check --constraint constraints.txt

# Two environments in one folder: the demo needs little, development needs all (torch among it).
# Where the large one is there, the demo uses it.
DEV := .venv/.installed-dev
SMALL := $(if $(wildcard $(DEV)),$(DEV),.venv/.installed-demo)

# Material for MkDocs prints a notice about its future on every build; the pins already keep us on this major.
export NO_MKDOCS_2_WARNING := 1
# pyright prints a notice on every run when a newer release exists.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types docs bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

demo: $(SMALL) ## run the demonstration and write its report
	$(BIN)/samuel demo

# A thread for each of the jobs; tests/conftest.py has JAX compile quickly.
test: $(DEV) ## everything that must pass: lint, types, docs and tests
	@$(MAKE) --no-print-directory --jobs $(JOBS) --output-sync lint types docs
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadgroup $(PYTEST_ARGS)

lint: $(DEV) ## style, formatting, and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

# Of the library's public names, those whose types are stated must be at least 95 of 100. pyright finds the package by
# the first python on PATH here.
types: $(DEV) ## check the types
	$(PY) -m pyright --pythonpath $(PY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PY) -m pyright --verifytypes samuel --ignoreexternal | awk ' \
	    /^Type completeness score/ { print; enough = $$4 + 0 >= 95 } END { exit !enough }'

docs: $(DEV) ## build the documentation into site/
	$(PY) -m mkdocs build --strict
	@echo "The documentation is in site/index.html"

# shift_rates.py needs data.
bench: $(DEV) ## run the benchmarks (ratios within one run, not absolute times)
	@set -e; for file in $(filter-out benchmarks/shift_rates.py, $(wildcard benchmarks/*.py)); do echo "== $$file"; $(PY) "$$file"; done

clean: ## remove .venv and everything built, but no results in runs/
	rm -rf .venv build dist site samuel-demo samuel-play .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Makes .venv unless a working one is there.
define venv
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
	    command -v "$(PYTHON)" >/dev/null || { \
	        echo "samuel needs Python 3.11 or newer; there is no '$(PYTHON)' here. Choose one: make PYTHON=python3.12 ..." >&2; \
	        exit 1; }; \
	    "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "samuel needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Choose one: make PYTHON=python3.12 ..." >&2; \
	        exit 1; }; \
	    echo "Making .venv"; \
	    "$(PYTHON)" -m venv --clear .venv; }
endef

$(DEV): pyproject.toml constraints.txt
	$(venv)
	@echo "Installing samuel and everything to develop it into .venv (a minute or two, once)"
	@$(PIP) --editable '.[dev]'
	@touch .venv/.installed-demo $@

.venv/.installed-demo: pyproject.toml constraints.txt
	$(venv)
	@echo "Installing samuel and what the demonstration needs into .venv (once)"
	@$(PIP) --editable '.[lab]'
	@touch $@
