#!/usr/bin/env bash
# Test correctness on a machine with one GPU where lockstep is not installed: bash bench/gpu.sh
# Five tests at a time, with pytest-xdist: bash bench/gpu.sh -n 5 -p no:benchmark
set -u
export PYTHONPATH=src:tests OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1
python3 - <<'P'
import importlib, sys
print(sys.version)
for n in ("torch", "typer", "rich", "safetensors", "plotly", "scipy", "pytest", "hypothesis", "numpy"):
    try:
        print(n, getattr(importlib.import_module(n), "__version__", "?"))
    except Exception as error:
        print(n, "missing", error)
P
python3 -m pytest -q -p no:cacheprovider tests/parity/test_gpu.py tests/parity/test_gpu_loop.py tests/bench/test_gpu.py tests/data/test_synthetic.py -m gpu "$@" 2>&1 | tail -60
