# Both commands do all their own set-up: they need Python 3.11 or newer, pip and make, and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
OLD := .venv-old
TRACKIO := .venv-trackio
RIVALS := build/rivals
RELEASE := .venv-release
RECIPES := .venv-recipes
PYTHONS ?= $(PYTHON)
ROUNDS ?= 3
ATTEMPTS ?= 20000

FRAMEWORK_TESTS := tests/hooks/test_frameworks.py tests/monitor/test_lightning.py tests/monitor/test_transformers.py \
    tests/live/test_keras_health.py tests/live/test_lightning_health.py tests/live/test_ray.py tests/live/test_transformers_health.py \
    tests/stores/test_checkpoint_formats.py tests/test_examples.py tests/test_posttraining.py

LOWEST_NEEDS := graphql-core hypothesis jsonschema pytest pytest-timeout pytest-xdist
LOWEST_TESTS := tests/readers/test_torch_distributed.py tests/readers/test_torch_zip.py \
    tests/readers/test_safetensors_header.py tests/monitor/test_dumps.py tests/monitor/test_gap_monitor.py \
    tests/monitor/test_odd_models.py tests/monitor/test_statistics.py tests/monitor/test_trackers.py \
    tests/hooks/test_mlflow_hook.py tests/hooks/test_wandb_hook.py tests/stores/test_mlruns.py \
    tests/stores/test_mlflow_store.py tests/stores/test_wandb_local.py

# Many inputs for one rule each, or one statistic computed twice.
LONG_RULE_TESTS := $(patsubst %,tests/rules/test_%.py,near_misses numerics missing_from_optimizer loss_spike schedule \
    settings_out_of_range betas_swapped epsilon_dominates reward_lost gradient_spike exploding_gradient repeated_batch \
    chance_level evaluation_stands_still nonfinite_loss curve underconfident)

# The quick tests: causes, whose tags are whose, roles, readers and forms, the engine, and of rules those of which each
# covers many. They leave out what draws its input, trains a model or imports a tracker; `make test` runs all.
QUICK_TESTS := tests/test_outcomes.py tests/test_headlines.py tests/test_diagnosis.py tests/test_causes_of_posttraining.py \
    tests/stores/test_whose_tags.py tests/test_acknowledged.py tests/test_roles.py \
    tests/readers/test_text_forms.py tests/readers/test_trainer_state.py \
    tests/readers/test_training_summary.py tests/readers/test_safetensors_header.py \
    tests/test_engine.py tests/test_evidence.py tests/test_curve_parts.py tests/test_parameters.py tests/test_retired.py \
    $(filter-out $(LONG_RULE_TESTS),$(wildcard tests/rules/test_*.py))

TARGETS := lint check new-rule demo test fuzz frameworks lowest old-wandb slow bench faults causes rivals mutants docs site screenshots trackio dist try-dist support recipes clean
.PHONY: $(TARGETS)

# The many processes that tests start need not compile the package each time anew.
export PYTHONDONTWRITEBYTECODE :=

demo: $(VENV)/.demo-installed
	$(BIN)/tracker-health demo

test: $(VENV)/.dev-installed
	$(BIN)/python -m pytest -n auto -q $(ARGS)

lint: $(VENV)/.dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python -m pytest -q -m prose tests/prose

# Before each commit: some two minutes on two cores.
check: lint
	$(BIN)/python -m pytest -n 2 -q -m "not slow and not hypothesis and not trains" $(QUICK_TESTS) $(ARGS)

# `make new-rule NAME=late-loss-jump PACKAGE=curves`, or the name alone as the second word. LETTERS=GRD for a code that
# does not begin as most of the package's do.
ifeq (new-rule,$(firstword $(MAKECMDGOALS)))
NAME ?= $(word 2,$(MAKECMDGOALS))
ifneq (,$(word 2,$(MAKECMDGOALS)))
# A word that make would take for a target of its own; a rule's name has a hyphen and is none of ours.
.PHONY: $(word 2,$(MAKECMDGOALS))
$(filter-out $(TARGETS),$(word 2,$(MAKECMDGOALS))): ;@:
endif
endif

new-rule: $(VENV)/.dev-installed
	@$(BIN)/python scripts/new_rule.py '$(NAME)' --package '$(PACKAGE)' --letters '$(LETTERS)'

# The tests that draw their input, with input not drawn before, ROUNDS times over; then every reader on ATTEMPTS spoilt
# files, and every endpoint of a server that would use us up: of both it prints the numbers.
fuzz: $(VENV)/.dev-installed
	for round in $$(seq $(ROUNDS)); do \
	    $(BIN)/python -m pytest -n auto -q -m "hypothesis and not slow" --hypothesis-profile=fuzz --hypothesis-seed=random $(ARGS) || exit; \
	done
	$(BIN)/python -m tests.fuzz --attempts $(ATTEMPTS)
	$(BIN)/python -m tests.fuzz.servers

# The tests that need other people's trainers, with tiny models made on the spot: nothing is downloaded.
frameworks: $(VENV)/.frameworks-installed
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n auto -q -m "slow or not slow" \
	    -k "frameworks or lightning or transformers or accelerate or keras or ray" $(FRAMEWORK_TESTS) $(ARGS)

# What reaches into other packages, with the lowest versions that pyproject.toml declares; constraints.txt has the newest.
# Runs of a W&B server ask for a higher one than the rest. Then the newest MLflow with a server of the lowest, and the
# other way round.
lowest: $(LOWEST)/.installed $(VENV)/.dev-installed
	$(LOWEST)/bin/python -m pytest -n auto -q $(LOWEST_TESTS) $(ARGS)
	$(LOWEST)/wandb-server/bin/python -m pytest -n auto -q -m "slow or not slow" \
	    tests/stores/test_wandb_server.py tests/stores/test_wandb_online.py $(ARGS)
	OTHER_MLFLOW=$(CURDIR)/$(LOWEST)/bin/python $(BIN)/python -m pytest -q tests/stores/test_mlflow_versions.py $(ARGS)
	OTHER_MLFLOW=$(CURDIR)/$(BIN)/python $(LOWEST)/bin/python -m pytest -q tests/stores/test_mlflow_versions.py $(ARGS)

# Runs of SDKs that put the console into their log.
old-wandb: $(VENV)/.dev-installed $(OLD)/.installed
	OLD_WANDB="$(CURDIR)/$(OLD)/0.16/bin/python $(CURDIR)/$(OLD)/0.19/bin/python" \
	    $(BIN)/python -m pytest -q tests/stores/test_wandb_local.py -k old_sdks $(ARGS)

# Trainings with real trackio, its oldest version that is read and its newest. It is no part of .[dev]: it asks for an
# older Pillow than matplotlib may bring.
trackio: $(VENV)/.dev-installed $(TRACKIO)/.installed
	TRACKIO_PYTHONS="$(CURDIR)/$(TRACKIO)/0.20/bin/python $(CURDIR)/$(TRACKIO)/newest/bin/python" \
	    $(BIN)/python -m pytest -q -m slow tests/stores/test_trackio_real.py $(ARGS)

# Files for schedulers, with the schemas of Kubernetes and of Argo, and the real Airflow.
recipes: $(VENV)/.dev-installed $(RECIPES)/.installed
	RECIPES_PYTHON=$(CURDIR)/$(RECIPES)/schemas/bin/python AIRFLOW_PYTHON=$(CURDIR)/$(RECIPES)/airflow/bin/python \
	    $(BIN)/python -m pytest -q -m "slow or not slow" tests/test_recipes.py $(ARGS)

# A version of your choice, for docs/support.md: TRY="mlflow-client 3.1.4", or mlflow-skinny, mlflow-server, wandb-offline.
support: $(VENV)/.dev-installed
	$(BIN)/python scripts/support.py $(TRY)

# What takes too long for every change: every cell of every matrix, trainers of others, lowest versions, old SDKs.
slow: frameworks lowest old-wandb trackio recipes
	$(BIN)/python -m pytest -n auto -q -m "slow or exhaustive"

bench: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/speed/check_folder.py
	$(BIN)/python benchmarks/speed/batch.py $(RUNS)
	$(BIN)/python benchmarks/speed/checkpoints.py $(ARGS)
	$(BIN)/python benchmarks/speed/logs.py
	$(BIN)/python benchmarks/speed/watch.py
	$(BIN)/python benchmarks/speed/finish.py

faults: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --requirement benchmarks/faults/requirements.txt
	$(BIN)/python benchmarks/faults generate --size small
	$(BIN)/python benchmarks/faults score --size small

# What the signs of causes weigh, counted again from what the tuning runs showed.
causes: $(VENV)/.dev-installed
	$(BIN)/python benchmarks/faults causes --count

# Ten runs with a known truth, judged by this tool and by others: docs/rivals.md.
rivals: $(VENV)/.dev-installed $(RIVALS)/.installed
	$(BIN)/python benchmarks/rivals $(RIVALS)

# How much of the code that judges its tests protect: ARGS="--minutes 30 --seed 2", or ARGS="--only curves/diverged".
mutants: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt cosmic-ray pytest-cov
	$(BIN)/python scripts/mutants.py $(ARGS)

docs: $(VENV)/.dev-installed
	$(BIN)/python scripts/generate_docs.py

# The documentation as a site, into build/site; strict: a link that leads nowhere is an error.
site: $(VENV)/.site-installed
	$(BIN)/python scripts/build_site.py

screenshots: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python scripts/make_screenshots.py

# What is published: a wheel and an sdist, with what they have checked; what they need, with versions and licences (SBOM
# in the format of CycloneDX). The parts are those of the wheel with its extras, in an environment of its own.
dist: $(RELEASE)/.installed
	rm -rf dist build
	$(RELEASE)/bin/python -m build --outdir dist .
	rm -rf build src/*.egg-info
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/python scripts/dist.py check dist
	$(PYTHON) -m venv --clear $(RELEASE)/parts
	$(RELEASE)/parts/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[charts,mlflow,wandb-server,remote]"
	$(RELEASE)/parts/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(RELEASE)/bin/cyclonedx-py environment $(RELEASE)/parts --output-reproducible \
	    --of JSON --output-file dist/sbom.cdx.json
	$(RELEASE)/bin/python scripts/dist.py licences dist/sbom.cdx.json > docs/licences.md

# Installs both files with each of PYTHONS, and judges runs with what was installed: PYTHONS="python3.11 python3.14".
try-dist:
	@env -u PYTHONPATH $(PYTHON) scripts/dist.py try dist $(PYTHONS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo-installed: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	@echo "installing MLflow, torch and what else the demo needs into $(VENV): a minute or more, in which pip says nothing"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.dev-installed: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	@echo "installing what the tests need into $(VENV): some minutes, in which pip says nothing"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.frameworks-installed: $(VENV)/.dev-installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,frameworks,objectives]'
	touch $@

$(VENV)/.site-installed: pyproject.toml setup.py constraints.txt | $(VENV)/bin/python
	@echo "installing MkDocs into $(VENV)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[site]'
	touch $@

$(OLD)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLD)/0.16
	$(OLD)/0.16/bin/python -m pip install --quiet 'wandb==0.16.6' 'numpy<2' 'setuptools<81'
	$(PYTHON) -m venv $(OLD)/0.19
	$(OLD)/0.19/bin/python -m pip install --quiet 'wandb==0.19.11'
	touch $@

$(TRACKIO)/.installed: pyproject.toml setup.py
	$(PYTHON) -m venv $(TRACKIO)/0.20
	$(TRACKIO)/0.20/bin/python -m pip install --quiet 'trackio==0.20.2' 'huggingface_hub<1.12' -e '.[charts]'
	$(PYTHON) -m venv $(TRACKIO)/newest
	$(TRACKIO)/newest/bin/python -m pip install --quiet trackio -e '.[charts]'
	touch $@

$(RECIPES)/.installed:
	$(PYTHON) -m venv $(RECIPES)/schemas
	$(RECIPES)/schemas/bin/python -m pip install --quiet kubernetes-validate hera pyyaml
	$(PYTHON) -m venv $(RECIPES)/airflow
	$(RECIPES)/airflow/bin/python -m pip install --quiet 'apache-airflow>=3' apache-airflow-providers-standard
	touch $@

$(RELEASE)/.installed:
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet build cyclonedx-bom twine
	touch $@

$(RIVALS)/.installed: benchmarks/rivals/requirements.txt
	$(PYTHON) -m venv $(RIVALS)
	$(RIVALS)/bin/python -m pip install --quiet --requirement $<
	touch $@

# The lowest versions come from pyproject.toml, and what these need from constraints-lowest.txt: where both name a
# package and differ, pip refuses. These are versions for Python 3.11.
$(LOWEST)/.installed: pyproject.toml setup.py constraints-lowest.txt scripts/lowest_versions.py
	@echo "installing the lowest versions into $(LOWEST): some minutes, in which pip says nothing"
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt $(LOWEST_NEEDS) \
	    $$($(LOWEST)/bin/python scripts/lowest_versions.py charts mlflow torch wandb) --editable .
	$(PYTHON) -m venv $(LOWEST)/wandb-server
	$(LOWEST)/wandb-server/bin/python -m pip install --quiet $(LOWEST_NEEDS) \
	    $$($(LOWEST)/bin/python scripts/lowest_versions.py --extras-only wandb-server) --editable '.[charts]'
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(OLD) $(TRACKIO) $(RELEASE) $(RECIPES) .venv-support build dist tracker-health-demo
