"""Start the probes. Python imports this module first if its folder is on the path."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

here = str(Path(__file__).parent)
# Hide this folder from the script.
sys.path[:] = [path for path in sys.path if path != here]

from lockstep.probes.enter import enter  # noqa: E402

enter()
spec = PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    # Run the sitecustomize that this one hides.
    spec.loader.exec_module(module_from_spec(spec))
