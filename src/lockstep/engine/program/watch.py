"""Notice buffers that a forward pass changes."""

from __future__ import annotations

from torch import Tensor, nn

from lockstep.console import Progress
from lockstep.engine.program.step import plain_buffers
from lockstep.engine.recipe.prepare import some
from lockstep.errors import RecipeError


class BufferWatch:
    """Notices when the forward pass changes a buffer, which every replica would do differently."""

    def __init__(self, progress: Progress, *, exact: bool) -> None:
        self.progress, self.exact = progress, exact
        self.modules: list[nn.Module] = []
        self.known: list[tuple[str, Tensor, int]] = []
        self.warned = False

    def remember(self) -> None:
        """Remember the buffers as they are now, after the models were built or restored."""
        self.known = [
            (name, buffer, buffer._version)
            for module in self.modules
            for name, buffer in plain_buffers(module).items()
        ]

    def check(self) -> None:
        """Refuse, or in fast mode warn of, buffers that have changed in the forward pass."""
        if not self.known:
            return
        changed = [name for name, buffer, version in self.known if buffer._version != version]
        current = {id(b) for module in self.modules for b in plain_buffers(module).values()}
        changed += [name for name, buffer, _ in self.known if id(buffer) not in current]
        if not changed:
            return
        text = (
            f"the forward pass changes the buffer {some(changed)}, once for each part of the "
            "batch: that depends on the number of replicas."
        )
        if self.exact:
            raise RecipeError(f"{text} Exact mode cannot keep its promise with this model.")
        if not self.warned:
            self.progress.warn(text)
            self.warned = True
        self.remember()
