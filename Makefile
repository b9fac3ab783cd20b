# make demo: install, then compare one replica with two. make test: install, then run the fast
# tests. make test-all: run the slow ones.
PYTHON ?= python3
VENV := .venv
# The machine's own pip installs into the environment: Debian's venv comes without one.
INSTALL = (test -x $(VENV)/bin/python || $(PYTHON) -m venv --without-pip $(VENV)) && \
	$(PYTHON) -m pip --python $(VENV)/bin/python install --quiet --editable
.PHONY: demo test test-all explore lint docs clean

demo: $(VENV)/.installed
	$(VENV)/bin/lockstep compare digits --replicas 2

# Compiled test files and modules are kept: every process would compile them again.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest

# Two tests at a time: most of them wait for processes that they started.
test: $(VENV)/.installed-dev lint
	$(PYTEST) --numprocesses 2 --dist loadgroup -m "not slow"

# What `make test` leaves out: labs in a browser, torchrun, four replicas, compilers.
test-all: $(VENV)/.installed-dev
	$(PYTEST) --numprocesses 2 --dist loadgroup -m slow

# The property tests, on many examples that no run has seen.
explore: $(VENV)/.installed-dev
	$(PYTEST) --hypothesis-profile=explore \
		$$(grep -rl "from hypothesis" tests --include="test_*.py")

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# The guides and the API reference as one site, with every link checked: open site/index.html.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

$(VENV)/.installed: pyproject.toml
	$(INSTALL) '.[train]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	$(INSTALL) '.[dev]'
	# Aside: without its compiled part, which needs a GPU, it breaks libraries that import it.
	$(PYTHON) -m pip --python $(VENV)/bin/python install --quiet --no-deps --upgrade \
		--target $(VENV)/torchvision/site-packages 'torchvision==0.28.*'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: pyproject.toml
	$(INSTALL) '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis
