# Everything a person or CI does. Needs Python 3.11 or newer; each target makes what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Both places, so that kernels and tools come from the environment and from nowhere else.
RUN := PATH="$(CURDIR)/$(BIN):$$PATH" JUPYTER_PREFER_ENV_PATH=1
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: serve lab test unit lint bench clean

serve: $(VENV)/app
	$(RUN) $(BIN)/attnlab serve $(ARGS)

lab: $(VENV)/app
	$(RUN) $(BIN)/attnlab lab $(ARGS)

test: $(VENV)/test
	$(RUN) PYTHON=$(BIN)/python sh tests/run $(ARGS)

unit: $(VENV)/test
	$(RUN) $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not browser" $(ARGS)

lint: $(VENV)/dev $(VENV)/namespace/attnlab
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/namespace $(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/test
	$(RUN) PYTHONPATH=tests $(BIN)/python -m bench.run $(ARGS)

clean:
	rm -rf $(VENV) build dist artifacts *.egg-info

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "attnlab needs Python 3.11 or newer; set PYTHON=python3.11 (or newer)." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/app $(VENV)/test $(VENV)/dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[$(@F)]'
	@touch $@

# mypy reads no editable install that maps folders onto a namespace; three links say the same.
$(VENV)/namespace/attnlab: | $(VENV)/bin/python
	mkdir -p $@
	for part in engine widgets explorables; do ln -sfn ../../../$$part $@/$$part; done
