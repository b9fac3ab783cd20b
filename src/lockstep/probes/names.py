"""Names and formats that the probes write and others read, without importing torch."""

from array import array

COLLECTIVES = (
    "all_reduce reduce broadcast barrier monitored_barrier all_gather gather scatter "
    "all_gather_into_tensor reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single "
    "all_gather_object gather_object scatter_object_list broadcast_object_list "
    "all_reduce_coalesced all_gather_coalesced"
)
"""Collectives of torch.distributed that the probes watch, separated by spaces."""
FIRST_STEP = "first-step-{}.pt"
"""The file in which a rank keeps its first step for the gradient oracle."""
MORE_BATCHES = "asks for more batches"
"""Why the oracle has no verdict yet: one process wants the ranks' batches one by one."""


def packed(numbers: list[int]) -> str:
    """Encode whole numbers as a text that is quick to write.

    >>> unpacked(packed([3, 1, 2]))
    [3, 1, 2]
    """
    return array("q", numbers).tobytes().hex()


def unpacked(text: str) -> list[int]:
    """Decode the numbers of a text that `packed` made."""
    found = array("q")
    found.frombytes(bytes.fromhex(text))
    return found.tolist()
