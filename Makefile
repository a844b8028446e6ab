# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' service/oomdoc/__init__.py)

.PHONY: demo test test-slow lint types cases load image wheel lock docs docs-serve clean

demo: $(STAMP)  ## Diagnose a real failure
	$(BIN)/oomdoc diagnose examples/dpo-v100/train.log --config examples/dpo-v100/train.yaml

test: $(STAMP)  ## Set up and run the tests
	$(BIN)/python -m pytest -m "not slow" -n logical --maxprocesses=4 --dist=loadfile

test-slow: $(STAMP)  ## The tests that take longer
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

cases: $(STAMP)
	$(BIN)/oomdoc case lint

load: $(STAMP)  ## The server under load: 60 s of diagnoses, estimates, four times the load, 50,000 requests
	$(BIN)/python bench/load/run.py

image:  ## Build the container image with the engine that is here: docker, podman or buildah
	"$$(command -v docker || command -v podman || command -v buildah)" build -t oomdoc:local -t oomdoc:$(VERSION) .

wheel: $(STAMP)  ## Build the wheel, install it elsewhere, run it from there
	PYTHON=$(PYTHON) bash .ci/wheel

docs: $(STAMP)  ## Build the documentation into site/, every broken link an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q -f .ci/mkdocs.yml

docs-serve: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve -f .ci/mkdocs.yml

lock: $(STAMP)  ## Write the hashes of what the image installs
	$(BIN)/uv pip compile pyproject.toml --extra serve --extra postgres --extra bots --extra mcp --extra zst \
	  -c constraints.txt --python-version 3.12 --universal --generate-hashes --no-annotate --no-header -q -o service/deploy/requirements.txt

clean:
	rm -rf $(VENV) dist build

# The stamp is newer than what decides the environment: a second run starts at once.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("oomdoc needs Python 3.11 or newer; name one with PYTHON=...") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/python -m pip install -q -c constraints.txt torch hatchling
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e ".[embed,serve,postgres,bots,mcp,fleet,ray,chart,trace,zst]" --group dev --group docs
	touch $(STAMP)
