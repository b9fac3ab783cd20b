"""Where `make` puts the real torchvision for the scripts that tests run.

It stands beside the environment's packages, not among them: its compiled part does not load beside
a CPU build of torch, and Lightning, which imports torchvision if it is installed, would fail.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(sys.prefix, "torchvision", "site-packages")
