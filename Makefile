# make demo: install, then compare one replica with two. make test: install, then run all tests.
PYTHON ?= python3
VENV := .venv
# The machine's own pip installs into the environment: Debian's venv comes without one.
INSTALL = (test -x $(VENV)/bin/python || $(PYTHON) -m venv --without-pip $(VENV)) && \
	$(PYTHON) -m pip --python $(VENV)/bin/python install --quiet --editable
.PHONY: demo test explore lint clean

demo: $(VENV)/.installed
	$(VENV)/bin/lockstep compare digits --replicas 2

# Two files at a time: most tests wait for processes that they started.
test: $(VENV)/.installed-dev lint
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --numprocesses 2 --dist loadfile

# The property tests, on many examples that no run has seen.
explore: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest --hypothesis-profile=explore \
		$$(grep -rl "from hypothesis" tests --include="test_*.py")

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/.installed: pyproject.toml
	$(INSTALL) '.[train]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml
	$(INSTALL) '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
