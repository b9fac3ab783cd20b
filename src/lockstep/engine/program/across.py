"""A loss over the whole global batch: join the outputs of all shards, with gradients.

Each shard is encoded on its own, with its own random numbers, and the outputs are joined in the
order of the shards. Every replica computes the same loss of the same joined outputs. The gradient
of a row flows back through the shard that it came from; the gradient of the loss's own parameters
counts once, with the first shard. So the sum over the shards is the tree of every other step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lockstep.data.nested import map_tensors, tensors_in
from lockstep.engine.group import Group
from lockstep.engine.program.batches import Batch, Piece
from lockstep.engine.program.notes import Notes
from lockstep.engine.program.step import Loss, Stepper
from lockstep.engine.program.tree import Gradients, ShardTree, take_gradients
from lockstep.errors import LockstepError, RecipeError, raised


def across(
    stepper: Stepper,
    group: Group,
    batch: Batch,
    encode: Callable[[Any], Any],
    loss: Loss,
    call: int,
    notes: Notes,
) -> tuple[Gradients, Tensor]:
    """Return this replica's sum of gradients, and its table of the loss."""
    computing = stepper.computing
    encoded: dict[int, tuple[Piece, Any, list[Tensor]]] = {}
    for piece in batch.pieces:
        computing.enter(call, piece)
        outputs = _encoded(computing.autocast, encode, piece)
        encoded[piece.shards.start] = (piece, outputs, list(tensors_in(outputs)))
    joined = _joined(group, batch, encoded)
    # The same random numbers on every replica, for the loss sees the whole batch.
    computing.enter_whole(call)
    structure = next(iter(encoded.values()))[1] if encoded else joined.structure
    found = computing.loss(loss, _filled(structure, iter(joined.leaves)))
    if not found.total.requires_grad:
        raise RecipeError("the loss does not depend on what encode returned.")
    computing.run_backward(found.total)
    own = take_gradients(stepper.used.parameters)
    tree = ShardTree(len(own))
    for shards in computing.plan.parts(group.world.rank):
        entry = encoded.get(shards.start)
        if entry is None:
            tree.add(None)
            continue
        piece, _, outputs = entry
        start = joined.starts[shards.start]
        pairs = [
            (output, leaf.grad[start : start + len(output)])
            for output, leaf in zip(outputs, joined.leaves, strict=True)
            if output.requires_grad and leaf.grad is not None
        ]
        if pairs:
            ends, gradients = zip(*pairs, strict=True)
            torch.autograd.backward(list(ends), list(gradients), inputs=stepper.used.inputs)
        mine = take_gradients(stepper.used.parameters)
        if shards.start == 0:
            # What the loss itself uses, such as a temperature, counts once.
            twice = ShardTree(len(own))
            twice.add(mine)
            twice.add(own)
            mine = twice.total()
        tree.add(mine)
    table = torch.zeros(2, computing.plan.shards, dtype=torch.float64, device=group.device)
    if 0 in encoded:
        table[0, 0], table[1, 0] = found.total.detach(), found.items
        notes.add(0, found.notes)
    return tree.total(), table


def _encoded(autocast: Any, encode: Callable[[Any], Any], piece: Piece) -> Any:
    name = getattr(encode, "__name__", type(encode).__name__)
    try:
        with autocast():
            outputs = encode(piece.content)
    except (LockstepError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise RecipeError(raised(f"the encoder {name}", error)) from error
    samples = sum(piece.sizes)
    tensors = list(tensors_in(outputs))
    if not tensors or any(t.dim() == 0 or len(t) != samples for t in tensors):
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors) or "no tensor"
        raise RecipeError(
            f"the encoder {name} returned {shapes} for {samples} samples: lockstep joins rows, so "
            "each tensor needs one row per sample."
        )
    return outputs


class _Joined:
    """The outputs of the whole global batch, as leaves of a new graph."""

    def __init__(self, leaves: list[Tensor], starts: dict[int, int], structure: Any) -> None:
        self.leaves, self.starts, self.structure = leaves, starts, structure


def _joined(
    group: Group, batch: Batch, encoded: dict[int, tuple[Piece, Any, list[Tensor]]]
) -> _Joined:
    own = {shard: [t.detach().cpu() for t in tensors] for shard, (_, _, tensors) in encoded.items()}
    structure = next((outputs for _, outputs, _ in encoded.values()), None)
    every: dict[int, list[Tensor]] = {}
    structures = []
    for one, shape in group.objects((own, _emptied(structure))):
        every |= one
        structures.append(shape)
    order = sorted(every)
    starts, position = {}, 0
    for shard in order:
        starts[shard] = position
        position += len(every[shard][0])
    columns = zip(*(every[shard] for shard in order), strict=True)
    leaves = [
        torch.cat(list(column)).to(group.device).requires_grad_(column[0].is_floating_point())
        for column in columns
    ]
    return _Joined(leaves, starts, next((s for s in structures if s is not None), None))


def _emptied(structure: Any) -> Any:
    """Return the structure with empty tensors: replicas without samples need to know it."""
    return map_tensors(structure, lambda t: torch.empty(0))


def _filled(structure: Any, leaves: Any) -> Any:
    """Return the structure with other tensors."""
    return map_tensors(structure, lambda _: next(leaves))
