"""Import torchvision once, for a server that forks scripts which import it.

Torchvision imports torch's compiler, which every forked script would have to do by itself.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

from lockstep.probes.fake_data.finder import OperatorFinder

finder = OperatorFinder()
sys.meta_path.insert(0, finder)
try:
    # The script's own import raises the error, if there is one.
    with suppress(Exception):
        import_module("torchvision")
finally:
    sys.meta_path.remove(finder)
