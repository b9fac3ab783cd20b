"""Python runs this first when its folder is on the path: here the probes enter every process."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

here = str(Path(__file__).parent)
# The script must not see that it is watched.
sys.path[:] = [path for path in sys.path if path != here]

from lockstep.probes.enter import enter  # noqa: E402

enter()
spec = PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    # The one that would have been run without us.
    spec.loader.exec_module(module_from_spec(spec))
