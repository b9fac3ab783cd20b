"""A stage of torch.distributed.pipelining that counts what it sends."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage

from lockstep.engine.exchange.traffic import Traffic


class CountedStage(PipelineStage):
    """A stage that counts what it sends."""

    traffic: Traffic

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Count the activations for the next stage."""
        return self._count(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Count the gradients of activations for the stage before."""
        return self._count(super().get_bwd_send_ops(bwd_chunk_id))

    def _count(self, operations: list[dist.P2POp]) -> list[dist.P2POp]:
        for operation in operations:
            self.traffic.note(operation.tensor.nbytes)
        return operations
