"""Requirements of the steps that no rule of the doctor covers.

Each function reads the doctor's observations and yields a message for what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lockstep.labs.lab2_ddp.observe import BATCH, PREPARED, RANKS, TEST, Observed
from lockstep.labs.lab2_ddp.run_program import printed

Need = Callable[[Observed], Iterator[str]]


def two_ranks(seen: Observed) -> Iterator[str]:
    """Require a process group of two."""
    if seen.facts["ranks"] < RANKS:
        yield (
            f"The lab started the program {RANKS} times, as torchrun does, but it formed no "
            "process group: each process trained alone. Call dist.init_process_group() in main."
        )


def own_device(seen: Observed) -> Iterator[str]:
    """Require a different GPU for each rank."""
    if None in seen.devices:
        rank = seen.devices.index(None)
        yield (
            f"Rank {rank} sends its model to no GPU, though torch.cuda.is_available() is True. "
            "Keep model.to(device)."
        )
    elif len(set(seen.devices)) < len(seen.devices):
        yield (
            f"All ranks send their models to cuda:{seen.devices[0]}: they share one GPU. First "
            "call torch.cuda.set_device(local_rank) with int(os.environ['LOCAL_RANK'])."
        )


def prepared_once(seen: Observed) -> Iterator[str]:
    """Require one rank that writes the prepared data while the others wait."""
    advice = "Let local rank 0 make it, and let all ranks wait at dist.barrier() before reading it."
    several = [f for f in seen.facts["files"] if len(f["ranks"]) > 1 and f["path"] != "model.pt"]
    for file in several:
        ranks = " and ".join(map(str, file["ranks"]))
        yield f"Ranks {ranks} write {file['path']}. {advice}"
    if not several and seen.hurried is not None:
        # A later rank found the file, and may have read it before it was complete.
        yield (
            f"Rank {seen.hurried} writes {PREPARED}, but the other ranks do not wait until it is "
            f"complete. {advice}"
        )


def same_global_batch(seen: Observed) -> Iterator[str]:
    """Require as many samples per step as on one GPU."""
    found = seen.facts.get("global_batch")
    if found != BATCH:
        yield (
            f"All ranks together take {found} samples per step; with --batch-size {BATCH} they "
            f"should take {BATCH}. Give the loader args.batch_size // world_size."
        )


def is_wrapped(seen: Observed) -> Iterator[str]:
    """Require DDP around the trained model."""
    if seen.facts.get("reductions_per_step") is None:
        yield "No model is wrapped. On its GPU, wrap it: model = DistributedDataParallel(model)."
    elif not seen.facts["reductions_per_step"]:
        yield (
            "A model is wrapped, but its steps exchange nothing. Train the model that "
            "DistributedDataParallel(model) returns."
        )


def whole_norm(seen: Observed) -> Iterator[str]:
    """Require batch norm over the batch of all ranks."""
    if seen.norms:
        yield (
            f"{seen.norms} batch-norm layers see only the {BATCH // RANKS} samples of their own "
            "rank. Before wrapping: model = nn.SyncBatchNorm.convert_sync_batchnorm(model)."
        )


def each_once(seen: Observed) -> Iterator[str]:
    """Require an evaluation in which the ranks' parts make up the test set."""
    passes = [p for p in seen.facts["passes"] if not p["trains"] and p["complete"]]
    if not passes:
        yield (
            "The doctor saw no evaluation by all ranks. Each rank should evaluate its part of the "
            "test set in every epoch."
        )
        return
    last: dict[str, Any] = passes[-1]
    counts = " and ".join(map(str, last["samples"]))
    if set(last["samples"]) == {TEST}:
        yield (
            f"Each rank evaluates all {TEST} test images: correct, but {RANKS} times the work. "
            "Give each rank a part: Subset(test_data, range(rank, len(test_data), world_size))."
        )
    elif sum(last["samples"]) != TEST or last["shared"] or last["twice"]:
        yield (
            f"The ranks evaluate {counts} of {TEST} test images, but each image should count "
            "exactly once. Use Subset(test_data, range(rank, len(test_data), world_size))."
        )


def a_count(seen: Observed) -> Iterator[str]:
    """Require an accuracy that is a count divided by the number of all samples."""
    found = printed("\n".join(seen.said[0]))
    if not found.accuracies:
        yield "Rank 0 printed no line with an accuracy. Keep the line that it prints per epoch."
        return
    share = found.accuracies[-1]
    off = abs(share * TEST - round(share * TEST))
    if share > 1 or off > 0.51 * TEST * 10.0**-found.digits:
        yield (
            f"The printed accuracy, {share:.4f}, is not that of {TEST} test images, which would be "
            f"a multiple of 1/{TEST} = {1 / TEST:g}. Add up the numbers of correct and of all "
            "images over the ranks, and divide afterwards; a mean of the ranks' means gives "
            "unequal parts equal weight."
        )


def all_images(seen: Observed) -> Iterator[str]:
    """Require that the printed number counts the images of all ranks."""
    expected = [sum(p["samples"]) for p in seen.facts["passes"] if p["trains"]]
    found = printed("\n".join(seen.said[0])).images
    if not found:
        yield "Rank 0 printed no number of images. Keep the line that it prints per epoch."
    elif found != expected:
        yield (
            f"Rank 0 printed {found[0]} images for an epoch, but all ranks together took "
            f"{expected[0]}. Put the count into a tensor, and add it up with dist.all_reduce."
        )


def one_speaks(seen: Observed) -> Iterator[str]:
    """Require that only rank 0 prints."""
    for rank, lines in enumerate(seen.said[1:], 1):
        if lines:
            yield f"Rank {rank} prints too: '{lines[0]}'. Print only if rank == 0."


def saved(seen: Observed) -> Iterator[str]:
    """Require that a rank saves the model."""
    if not any(file["path"] == "model.pt" for file in seen.facts["files"]):
        yield "No rank saved model.pt. Save it on rank 0, after the last epoch."


def leaves(seen: Observed) -> Iterator[str]:
    """Require that the program leaves its process group."""
    if not seen.leaves:
        yield "The process group stays open: call dist.destroy_process_group() at the end."
