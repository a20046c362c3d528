# make demo   the whole pipeline on embedded data, in minutes       make test   the tests
# make lint   what the tests cannot see                             make clean  the environment and caches, not results
# make test-machines   the numerical tests as other processors run them, in an hour or two
# make docs   the documentation's site in build/docs      make readme-picture   README's picture, from the demo
# make test-slurm   the slow tests on SLURM clusters of one and two nodes too (root on Debian)
# Nothing but Python >= 3.11 with venv and a package index is needed; PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SNAKEMAKE := $(BIN)/snakemake --profile workflow/profiles/local
INSTALLED := $(VENV)/.installed
# A user's own settings of pip may say where packages come from, but not that they go elsewhere or stay away.
ELSEWHERE := env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_NO_DEPS -u PIP_DRY_RUN -u PIP_PYTHON

.PHONY: help demo test test-machines test-slurm smoke install lint docs readme-picture clean
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

install: $(INSTALLED)

# Made again when the requirements change; otherwise nothing is downloaded or installed twice.
$(INSTALLED): pyproject.toml envs/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is missing or older than 3.11; install one, or say make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || \
	  { echo "error: $(PYTHON) has no venv; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(ELSEWHERE) $(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar off \
	  --constraint envs/constraints.txt --editable '.[test]'
	@touch $@

demo: $(INSTALLED)
	$(SNAKEMAKE) --configfile workflow/configs/demo.yaml --quiet rules host
	@echo; echo "Report:  results/demo/report.html"; echo "Figures: results/demo/figures/"

readme-picture: demo
	$(BIN)/python docs/readme_picture.py results/demo/figures/pareto/pareto.png docs/pareto

smoke: $(INSTALLED)
	$(SNAKEMAKE) --configfile workflow/configs/smoke.yaml --quiet rules host

test: $(INSTALLED)
	$(BIN)/pytest -n auto --dist loadgroup

test-machines: $(INSTALLED)
	.ci/machines

test-slurm: $(INSTALLED)
	$(BIN)/pytest tests/slurm -m "slow or not slow"

$(VENV)/.docs: $(INSTALLED)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar off \
	  --constraint envs/constraints.txt --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Site: build/docs/index.html"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint

# What `make install` and the tools made, said one by one. A link is left with what it points to, and so is a .venv that
# `make install` has not finished: it may be somebody else's. Results took hours and may have other files among them.
clean:
	@for made in $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build fedbench.egg-info; do \
	  if [ -L $$made ]; then echo "left: $$made is a link"; \
	  elif [ $$made = $(VENV) ] && [ -e $$made ] && [ ! -e $(INSTALLED) ]; then echo "left: $$made, not made by make install"; \
	  elif [ -e $$made ]; then echo "removing $$made"; rm -rf ./$$made; fi; \
	done
	@for made in results checkpoints slurm_logs .snakemake; do \
	  [ ! -e $$made ] || echo "left: $$made, delete it yourself if nothing in it is needed"; \
	done
