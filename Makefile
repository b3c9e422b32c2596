# Everything a checkout needs, with python3 and make alone. CONTRIBUTING.md has the most frequent ones as plain commands.
#
#   make quick                    unit tests, the store and one job's life, under a minute
#   make test                     set up .venv and run all tests           ARGS="-k promote -x" goes to pytest
#   make stateful                 the state machine with 5,000 examples
#   make chaos                    the long fault runs, about 3 hours       ARGS="-k kills" selects some of them
#   make mutation                 plant bugs, show which tests fail        ARGS="signature" selects them by name
#   make upstream                 Django's own tests of its tasks framework against our backend (Django 6)
#   make lint                     formatting, style, import layers, types
#   make format                   apply the formatting and the safe fixes of the style
#   make demo [SECONDS=8]         the example project, until Ctrl-C or for so many seconds
#   make bench                    compare a few figures with the fastest other systems, 5 minutes
#   make bench-all                compare all figures with nine other systems, write docs/reference/benchmarks.md; 2 hours, on an idle machine
#   make docs                     build the site of docs/ in build/docs; a warning is an error
#   make pages                    write what pages have of the code: the settings, the keys, the diagrams, the checklist
#   make messages                 bring the translations of the admin up to date, and list what is missing
#   make clean                    remove what the targets above made
#
# WORKERS=4 chooses how many processes run tests side by side, WORKERS=0 runs them in one, as ARGS=--pdb needs.
# PYTHON=python3.13 chooses the interpreter, DJANGO="django==6.1.*" the Django (both only when a venv is made),
# UV=1 installs by uv instead of pip, EXTRA=test leaves out the tools of `make lint`.

PYTHON ?= python3
DJANGO ?= django
VENV ?= .venv
DEMO_VENV ?= .venv-demo
EXTRA ?= dev
SECONDS ?=
ARGS ?=
# Two more than there are cores: many tests wait for processes.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

# Without bytecode files each process that a test starts compiles the package again, which is a third of its CPU time.
unexport PYTHONDONTWRITEBYTECODE

bin = $(VENV)/bin
install = $(if $(UV),uv pip install --python $(1)/bin/python,$(1)/bin/python -m pip install --quiet --disable-pip-version-check)
code = django_delayq tests example_project $(wildcard benchmarks docs/*.py)

.DEFAULT_GOAL := help
.PHONY: help quick test unit stateful chaos upstream bench bench-all mutation example-test docs pages messages lint format style floors types demo clean

help:
	@sed -n '/^#   make/s/^#  //p' Makefile

# A venv is complete when its stamp exists; the next call completes one that was interrupted.
$(VENV)/.installed: pyproject.toml
	@$(call make-venv,$(VENV),$(EXTRA))

$(DEMO_VENV)/.installed: pyproject.toml
	@$(call make-venv,$(DEMO_VENV),demo)

define make-venv
set -e; \
$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, $(PYTHON) is " + sys.version.split()[0] \
  if sys.version_info < (3, 11) else 0)'; \
echo "Setting up $(1) (once; a minute at most) ..."; \
$(PYTHON) -m venv $(1); \
$(call install,$(1)) -e '.[$(2)]' '$(DJANGO)'; \
touch $(1)/.installed
endef

quick: $(VENV)/.installed
	$(bin)/python -m pytest -n $(WORKERS) tests/unit tests/integration/store tests/integration/test_walk.py $(ARGS)

test: $(VENV)/.installed
	$(bin)/python -m pytest -n $(WORKERS) $(ARGS)
	@$(MAKE) --no-print-directory example-test

# The example project is a site with its own settings.
example-test: $(VENV)/.installed
	@if find example_project -name 'test_*.py' | grep -q .; then set -x; \
	  $(bin)/python -m pytest example_project --ds=marketplace.settings $(ARGS); fi

unit: $(VENV)/.installed
	$(bin)/python -m pytest tests/$@ $(ARGS)

# The long forms, with the tests marked slow, one at a time: they load the machine themselves. Random tests print their
# seed; DELAYQ_CHAOS_SEED repeats it. DELAYQ_CHAOS_KILLS, _JOBS, _RESTARTS, _MINUTES (of mixed faults), _POISON (of each
# kind), _SOAK (minutes) and _AOF_CUTS (bytes) set the sizes.
stateful chaos: export DELAYQ_STATEFUL_EXAMPLES ?= 5000
stateful chaos: $(VENV)/.installed
	$(bin)/python -m pytest tests/$@ -m "slow or not slow" $(ARGS)

# The other systems are installed at the first call, each in a venv under benchmarks/.venvs. ARGS="--systems
# delayq,huey --scenarios drain" selects; python -m benchmarks --help lists all options.
bench: $(VENV)/.installed
	$(bin)/python -m benchmarks --short $(ARGS)

bench-all: $(VENV)/.installed
	$(bin)/python -m benchmarks $(ARGS)

upstream: $(VENV)/.installed
	$(bin)/python -m tests.django_tasks.upstream

docs: $(VENV)/.installed
	$(bin)/python -m sphinx --quiet --jobs auto --fail-on-warning --keep-going --fresh-env -b html docs build/docs

pages: $(VENV)/.installed
	$(bin)/python -m tests.architecture.settings_page
	$(bin)/python -m tests.testing_helpers.docs.generated
	$(bin)/python -m tests.deployment.checklist_page

messages: $(VENV)/.installed
	$(bin)/python -m tests.admin.languages $(ARGS)

mutation: $(VENV)/.installed
	$(bin)/python -m tests.mutation $(ARGS)

lint: style floors types

style: $(VENV)/.installed
	$(bin)/ruff format --check $(code)
	$(bin)/ruff check $(code)

floors: $(VENV)/.installed
	$(bin)/lint-imports

types: $(VENV)/.installed
	$(bin)/mypy

format: $(VENV)/.installed
	$(bin)/ruff format $(code)
	$(bin)/ruff check --fix $(code)

# The demo has a smaller venv, which takes seconds instead of the minute for all tools.
demo: $(DEMO_VENV)/.installed
	@exec $(DEMO_VENV)/bin/python example_project/demo.py $(if $(SECONDS),--seconds $(SECONDS))

clean:
	rm -rf $(VENV) $(DEMO_VENV) benchmarks/.venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
