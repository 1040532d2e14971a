# Needs Python 3.11 or newer and make; uses uv if it is there. Everything else comes into .venv on the first call.
PYTHON ?= $(firstword $(foreach name,python3.11 python3,$(shell command -v $(name) 2>/dev/null)))
UV := $(shell command -v uv 2>/dev/null)
BIN := $(CURDIR)/.venv/bin
READY := .venv/ready
NPM := $(shell command -v npm 2>/dev/null)
NODE := build/node/node_modules
PROJECT := build/demo/digits
DEMO := cd $(PROJECT) && $(BIN)/digits

ifdef UV
MAKE_VENV = $(UV) venv --quiet --clear --python '>=3.11' .venv
INSTALL = $(UV) pip install --quiet --python $(BIN)/python
else
MAKE_VENV = $(PYTHON) -m venv --clear .venv && $(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
INSTALL = $(BIN)/python -m pip install --quiet
endif
BAKE = rm -rf build/demo && $(BIN)/cookiecutter . --no-input --default-config --output-dir build/demo

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint benchmark clean

help:
	@echo 'make demo      bake a project, train it on the digits, export and verify it'
	@echo 'make test      run the tests (up to 30 minutes on 2 cores)'
	@echo 'make test-all  run those that take longer too'
	@echo 'make lint      ruff and mypy on the template and on a baked project'
	@echo 'make benchmark measure what callbacks and exports gain and cost (over an hour)'
	@echo 'make clean     delete .venv and build'

# The project's dependencies are named once, in its own pyproject.toml: they are installed from a baked one.
$(READY): pyproject.toml cookiecutter.json {{cookiecutter.project_slug}}/pyproject.toml
	$(MAKE_VENV)
	$(INSTALL) --group test
	$(BAKE)
	$(INSTALL) --group $(PROJECT)/pyproject.toml:dev --editable '$(PROJECT)[executorch,openvino,server,tensorboard,tiff,wandb]'
	touch $@

# For the page in the browser; without npm its tests are skipped.
$(NODE): {{cookiecutter.project_slug}}/deploy/browser/package.json
	mkdir -p build/node
	cp $< build/node
	npm install --prefix build/node --silent --no-audit --no-fund
	touch $@

demo: $(READY)
	$(BAKE)
	$(INSTALL) --editable $(PROJECT)
	$(BIN)/python tests/sample_images.py $(PROJECT)/images
	$(DEMO) fit
	$(DEMO) test
	$(DEMO) predict images
	$(DEMO) export
	@echo "verified bundle: $$(find $(PROJECT) -name model.json -exec dirname {} \;)"

test: $(READY) $(if $(NPM),$(NODE))
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow'

test-all: $(READY) $(if $(NPM),$(NODE))
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BAKE)
	cd $(PROJECT) && $(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy

benchmark: $(READY)
	$(BIN)/python benchmarks/callbacks.py
	$(BIN)/python benchmarks/export.py

clean:
	rm -rf .venv build
