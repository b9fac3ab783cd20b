"""What steps ask for that no rule of the doctor's does: each need says what is missing, or nothing.

All of it is in what the doctor saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lockstep.labs.lab2_ddp.observe import BATCH, PREPARED, RANKS, TEST, Observed
from lockstep.labs.lab2_ddp.printed_lines import printed

Need = Callable[[Observed], Iterator[str]]


def two_ranks(seen: Observed) -> Iterator[str]:
    """A process group of two."""
    if seen.facts["ranks"] < RANKS:
        yield (
            f"The program was started {RANKS} times, as torchrun does, and ended without a process "
            "group: each process trained alone. Call dist.init_process_group() in main."
        )


def own_device(seen: Observed) -> Iterator[str]:
    """A GPU for each rank."""
    if None in seen.devices:
        rank = seen.devices.index(None)
        yield (
            f"Rank {rank} sends its model to no GPU, though torch.cuda.is_available() says yes. "
            "Keep model.to(device)."
        )
    elif len(set(seen.devices)) < len(seen.devices):
        yield (
            f"All ranks send their models to cuda:{seen.devices[0]}: they share one GPU. Call "
            "torch.cuda.set_device(local_rank) before, with int(os.environ['LOCAL_RANK'])."
        )


def prepared_once(seen: Observed) -> Iterator[str]:
    """One writer of the prepared data, for whom the others wait."""
    advice = "Let local rank 0 make it, and let all wait at dist.barrier() before they read it."
    several = [f for f in seen.facts["files"] if len(f["ranks"]) > 1 and f["path"] != "model.pt"]
    for file in several:
        ranks = " and ".join(map(str, file["ranks"]))
        yield f"{file['path']} is written by ranks {ranks}. {advice}"
    if not several and seen.hurried is not None:
        # Who came later found the file, and may have read it while it was written.
        yield (
            f"{PREPARED} is written by rank {seen.hurried}, and nothing makes the others wait "
            f"until all of it is there. {advice}"
        )


def same_global_batch(seen: Observed) -> Iterator[str]:
    """As many samples per step as on one GPU."""
    found = seen.facts.get("global_batch")
    if found != BATCH:
        yield (
            f"All ranks together take {found} samples in a step; started with --batch-size {BATCH} "
            f"they should take {BATCH}. Give the loader args.batch_size // world_size."
        )


def is_wrapped(seen: Observed) -> Iterator[str]:
    """DDP around the model that is trained."""
    if seen.facts.get("reductions_per_step") is None:
        yield "No model is wrapped: model = DistributedDataParallel(model), once it is on its GPU."
    elif not seen.facts["reductions_per_step"]:
        yield (
            "A model is wrapped, but its steps exchange nothing. Train with what "
            "DistributedDataParallel(model) returns."
        )


def whole_norm(seen: Observed) -> Iterator[str]:
    """Batch norm over the batch of all ranks."""
    if seen.norms:
        yield (
            f"{seen.norms} layers of batch norm see only the {BATCH // RANKS} samples of their own "
            "rank. Before the wrap: model = nn.SyncBatchNorm.convert_sync_batchnorm(model)."
        )


def each_once(seen: Observed) -> Iterator[str]:
    """An evaluation in parts that make up the whole."""
    passes = [p for p in seen.facts["passes"] if not p["trains"] and p["complete"]]
    if not passes:
        yield (
            "No evaluation was seen that all ranks take part in. Each should go over its part of "
            "the test set, in every epoch."
        )
        return
    last: dict[str, Any] = passes[-1]
    counts = " and ".join(map(str, last["samples"]))
    if set(last["samples"]) == {TEST}:
        yield (
            f"Each rank evaluates all {TEST} test images: right, and {RANKS} times the work. Give "
            "each rank a part: Subset(test_data, range(rank, len(test_data), world_size))."
        )
    elif sum(last["samples"]) != TEST or last["shared"] or last["twice"]:
        yield (
            f"The ranks evaluate {counts} of {TEST} test images: each should be evaluated exactly "
            "once. Subset(test_data, range(rank, len(test_data), world_size)) does that."
        )


def a_count(seen: Observed) -> Iterator[str]:
    """An accuracy that is a number of samples over all of them."""
    found = printed("\n".join(seen.said[0]))
    if not found.accuracies:
        yield "Rank 0 printed no line with an accuracy. Keep the line that is printed per epoch."
        return
    share = found.accuracies[-1]
    off = abs(share * TEST - round(share * TEST))
    if share > 1 or off > 0.51 * TEST * 10.0**-found.digits:
        yield (
            f"The accuracy that is printed, {share:.4f}, is not that of {TEST} test images: it "
            f"would be a multiple of 1/{TEST} = {1 / TEST:g}. Add up the numbers of correct and of "
            "all images over the ranks, and divide after that; a mean of the ranks' means gives "
            "unequal parts equal weight."
        )


def all_images(seen: Observed) -> Iterator[str]:
    """The images of all ranks in what is printed."""
    expected = [sum(p["samples"]) for p in seen.facts["passes"] if p["trains"]]
    found = printed("\n".join(seen.said[0])).images
    if not found:
        yield "Rank 0 printed no number of images. Keep the line that is printed per epoch."
    elif found != expected:
        yield (
            f"Rank 0 says that an epoch had {found[0]} images; all ranks together took "
            f"{expected[0]}. Put the count into a tensor, and add it up with dist.all_reduce."
        )


def one_speaks(seen: Observed) -> Iterator[str]:
    """Silence on all ranks but the first."""
    for rank, lines in enumerate(seen.said[1:], 1):
        if lines:
            yield f"Rank {rank} prints as well: '{lines[0]}'. Print under if rank == 0."


def saved(seen: Observed) -> Iterator[str]:
    """A model that is saved."""
    if not any(file["path"] == "model.pt" for file in seen.facts["files"]):
        yield "No rank saved model.pt. Save it on rank 0, after the last epoch."


def leaves(seen: Observed) -> Iterator[str]:
    """A group that is left."""
    if not seen.leaves:
        yield "The process group is never left: call dist.destroy_process_group() at the end."
