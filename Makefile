# make demo   the whole pipeline on embedded data, in minutes       make test   the tests
# make lint   what the tests cannot see                             make clean  everything made here, results too
# make test-machines   the numerical tests as other processors run them, in an hour or two
# make test-slurm   the slow tests on a SLURM cluster of one node too (root on Debian)
# Nothing but Python >= 3.11 with venv and a package index is needed; PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SNAKEMAKE := $(BIN)/snakemake --profile workflow/profiles/local
INSTALLED := $(VENV)/.installed

.PHONY: help demo test test-machines test-slurm smoke install lint clean
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
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --progress-bar off \
	  --constraint envs/constraints.txt --editable '.[test]'
	@touch $@

demo: $(INSTALLED)
	$(SNAKEMAKE) --configfile workflow/configs/demo.yaml --quiet rules host
	@echo; echo "Report:  results/demo/report.html"; echo "Figures: results/demo/figures/"

smoke: $(INSTALLED)
	$(SNAKEMAKE) --configfile workflow/configs/smoke.yaml --quiet rules host

test: $(INSTALLED)
	$(BIN)/pytest -n auto --dist loadgroup

test-machines: $(INSTALLED)
	.ci/machines

test-slurm: $(INSTALLED)
	$(BIN)/pytest tests/slurm -m "slow or not slow"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint

clean:
	rm -rf $(VENV) results checkpoints slurm_logs .snakemake .pytest_cache .ruff_cache .hypothesis fedbench.egg-info
