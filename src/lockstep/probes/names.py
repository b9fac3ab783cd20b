"""Collectives of torch.distributed, by name: known also where torch is not."""

COLLECTIVES = (
    "all_reduce",
    "reduce",
    "broadcast",
    "barrier",
    "monitored_barrier",
    "all_gather",
    "gather",
    "scatter",
    "all_gather_into_tensor",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "broadcast_object_list",
    "all_reduce_coalesced",
    "all_gather_coalesced",
)
