"""Both loaders answer the same requests with the same batches, in the same order."""

from __future__ import annotations

import gc
import random
from functools import partial

import numpy
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from lockstep.data import Tensors, flip, pad_crop
from lockstep.data.batches import Finish, Request, Watch, in_channels_last
from lockstep.data.keyed import SampleKeys
from lockstep.data.loaders import ResidentLoader, make_loader
from lockstep.data.workers import WorkerLoader, loader_limits
from lockstep.errors import DataError

CPU = torch.device("cpu")


def pictures(samples: int = 30) -> Tensors:
    numbers = torch.arange(samples * 3 * 4 * 5).view(samples, 3, 4, 5)
    return Tensors((numbers % 251).to(torch.uint8), torch.arange(samples) * 10)


def loader(data, workers: int = 0, resident: bool | None = None, watch=None, **finish):
    settled = Finish(**{"seed": 5} | finish)
    return make_loader(
        data, CPU, settled, watch=watch or Watch(), workers=workers, resident=resident
    )


def requests(*batches: tuple[int, list[int]]) -> list[Request]:
    return [Request(epoch, torch.tensor(indices)) for epoch, indices in batches]


SOME = requests((0, [3, 1, 2]), (0, [29]), (1, [1, 2, 3, 4]), (1, [3, 3]), (7, list(range(30))))


def same(first, second) -> bool:
    first, second = list(first), list(second)
    return len(first) == len(second) and all(
        torch.equal(a, b) and a.dtype == b.dtype
        for one, other in zip(first, second, strict=True)
        for a, b in zip(one, other, strict=True)
    )


class Plain(Dataset):
    """A data set of a user, without `take`: only workers can read it."""

    def __init__(self, data: Tensors | None = None) -> None:
        self.data = data or pictures()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int):
        return self.data[index]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_both_loaders_give_the_same_batches_for_the_same_requests(workers: int):
    finish = {
        "augment": (partial(pad_crop, padding=1), flip),
        "prepare": lambda x: x.float() / 255,
    }
    resident = loader(pictures(), resident=True, **finish)
    reading = loader(pictures(), workers, resident=False, **finish)
    assert isinstance(resident, ResidentLoader)
    assert isinstance(reading, WorkerLoader)
    assert same(resident.batches(SOME), reading.batches(SOME))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_in_the_order_of_the_requests(workers: int):
    many = [Request(0, torch.tensor([n % 30, (7 * n) % 30])) for n in range(40)]
    targets = [t.tolist() for _, t in loader(Plain(), workers).batches(many)]
    assert targets == [[10 * i for i in request.indices.tolist()] for request in many]


@pytest.mark.parametrize("data", [pictures(), Plain()], ids=["resident", "workers"])
def test_no_requests_are_answered_with_no_batches(data):
    assert list(loader(data).batches([])) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_requests_may_come_from_a_generator_that_never_ends(workers: int):
    def endless():
        number = 0
        while True:
            yield Request(0, torch.tensor([number % 30]))
            number += 1

    batches = loader(Plain(), workers).batches(endless())
    assert [next(batches)[1].item() for _ in range(12)] == [10 * n for n in range(12)]
    batches.close()


@pytest.mark.parametrize("data", [pictures(), Plain()], ids=["resident", "workers"])
def test_a_loader_can_be_asked_twice(data):
    asked = loader(data)
    assert same(asked.batches(SOME), asked.batches(SOME))


class Noisy(Dataset):
    """A data set with randomness of its own, in three libraries."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int):
        return torch.tensor([random.random(), numpy.random.rand(), torch.rand(1).item()]), index


def noise(batches: list[Request], workers: int = 0, seed: int = 5) -> Tensor:
    return torch.cat([x for x, _ in loader(Noisy(), workers, seed=seed).batches(batches)])


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_randomness_of_a_data_set_is_keyed_per_sample(workers: int):
    alone = noise(requests((7, [4])))[0]
    company = noise(requests((7, [1, 4, 2]), (7, [9, 4]), (7, [4])), workers)
    assert torch.equal(company[[1, 4, 5]], alone.expand(3, 3))


def test_no_library_repeats_itself_over_samples_epochs_and_seeds():
    rows = [
        noise(requests((0, [0, 1, 2]))),
        noise(requests((1, [0, 1, 2]))),
        noise(requests((0, [0, 1, 2])), seed=6),
    ]
    numbers = torch.cat(rows)
    assert all(len(numbers[:, library].unique()) == 9 for library in range(3))


def test_earlier_draws_of_the_process_do_not_matter():
    first = noise(requests((0, [3, 4])))
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    assert torch.equal(noise(requests((0, [3, 4]))), first)


def test_reading_leaves_the_generators_of_the_process_alone():
    # Else dropout in a user's own loop would hang on the number of workers.
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    expected = random.random(), numpy.random.rand(), torch.rand(1).item()
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    noise(requests((0, [3, 4])))
    assert (random.random(), numpy.random.rand(), torch.rand(1).item()) == expected


def test_a_tensor_dataset_is_recognised_and_lives_on_the_device():
    data = pictures()
    found = loader(TensorDataset(data.inputs, data.targets))
    assert isinstance(found, ResidentLoader)
    assert same(found.batches(SOME), loader(data).batches(SOME))


class Brightened(TensorDataset):
    """A user's own way of reading: it must not be bypassed."""

    def __getitem__(self, index: int):
        image, target = super().__getitem__(index)
        return image + 1, target


def test_a_tensor_dataset_with_a_getitem_of_its_own_is_read_through_it():
    data = pictures()
    found = loader(Brightened(data.inputs, data.targets))
    assert same(found.batches(SOME), loader(Tensors(data.inputs + 1, data.targets)).batches(SOME))


def test_data_with_take_live_on_the_device_by_default():
    assert isinstance(loader(pictures()), ResidentLoader)
    assert isinstance(loader(pictures(), resident=True), ResidentLoader)
    assert isinstance(loader(pictures(), resident=False), WorkerLoader)
    assert isinstance(loader(Plain()), WorkerLoader)


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


class StreamWithLength(Stream):
    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "data", [Stream(), StreamWithLength(), iter([])], ids=lambda d: type(d).__name__
)
def test_data_without_an_index_are_refused(data):
    with pytest.raises(DataError, match="map-style"):
        loader(data)


def test_a_list_of_pairs_is_a_data_set():
    pairs = [(torch.full((2,), float(n)), n) for n in range(4)]
    ((inputs, targets),) = loader(pairs).batches(requests((0, [2, 0])))
    assert inputs.tolist() == [[2.0, 2.0], [0.0, 0.0]]
    assert targets.tolist() == [2, 0]


@pytest.mark.parametrize(
    "data",
    [
        [torch.zeros(2)] * 4,
        [(torch.zeros(2), 0, 1)] * 4,
        [{"image": torch.zeros(2), "label": 0}] * 4,
        TensorDataset(torch.zeros(4, 2)),
    ],
    ids=["tensors", "triples", "dicts", "one tensor"],
)
def test_samples_that_are_no_pairs_are_refused(data):
    with pytest.raises(DataError, match="pairs of"):
        list(loader(data).batches(requests((0, [0, 1]))))


def test_samples_that_are_no_pairs_are_refused_in_a_worker_too():
    with pytest.raises(DataError, match="pairs of"):
        list(loader([torch.zeros(2)] * 4, workers=1).batches(requests((0, [0, 1]))))
    gc.collect()  # the worker ends with the traceback that holds it; torch waits 5 s for it


def test_residence_is_refused_to_data_that_cannot():
    with pytest.raises(DataError, match=r"Plain cannot live on the device.*Leave out --resident"):
        loader(Plain(), resident=True)


class Notes(Watch):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.marks: list[str] = []
        self.spans: list[tuple[str, float, float]] = []

    def mark(self, part: str) -> None:
        self.marks.append(part)

    def span(self, part: str, start: float, end: float) -> None:
        self.spans.append((part, start, end))


def test_the_watch_of_resident_data_gets_two_marks_per_batch():
    notes = Notes()
    list(loader(pictures(), watch=notes).batches(SOME))
    assert notes.marks == ["read data", "pre-process"] * len(SOME)
    assert notes.spans == []


@pytest.mark.parametrize("workers", [0, 2])
def test_the_watch_of_workers_gets_marks_and_the_workers_spans(workers: int):
    notes = Notes()
    list(loader(Plain(), workers, watch=notes).batches(SOME))
    assert notes.marks == ["queue", "transport to the device", "pre-process"] * len(SOME)
    assert [part for part, _, _ in notes.spans] == ["read data", "transport"] * len(SOME)
    assert all(start <= end for _, start, end in notes.spans)


def test_augmentation_comes_before_preparation():
    seen = []

    def augment(inputs: Tensor, keys: SampleKeys) -> Tensor:
        seen.append((inputs.dtype, keys.seed, keys.epoch, keys.indices.tolist()))
        return inputs + 1

    finish = Finish(5, (augment, augment), lambda x: x.float() * 10)
    out = finish(torch.ones(2, 1, dtype=torch.uint8), Request(3, torch.tensor([8, 9])))
    assert out.tolist() == [[30.0], [30.0]]
    assert seen == [(torch.uint8, 5, 3, [8, 9])] * 2


def test_nothing_to_finish_leaves_the_inputs_alone():
    inputs = torch.ones(2, 3)
    assert Finish()(inputs, Request(0, torch.tensor([0, 1]))) is inputs


@pytest.mark.parametrize("data", [pictures(), Plain()], ids=["resident", "workers"])
def test_channels_last_changes_the_layout_and_not_the_values(data):
    wanted = list(loader(data, channels_last=True).batches(SOME))
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x, _ in wanted)
    assert same(wanted, loader(data).batches(SOME))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("strided", [False, True])
def test_the_strides_show_channels_last_even_with_one_channel(channels, strided):
    images = torch.arange(2.0 * channels * 12).view(2, channels, 3, 4)
    given = images.to(memory_format=torch.channels_last) if strided else images
    moved = in_channels_last(given)
    assert moved.stride() == (12 * channels, 1, 4 * channels, channels)
    assert torch.equal(moved, images)
    shares = moved.data_ptr() == given.data_ptr()
    assert shares == (channels == 1 or strided)


def test_channels_last_leaves_inputs_alone_that_are_no_images():
    flat = Tensors(torch.zeros(4, 6), torch.zeros(4))
    ((inputs, _),) = loader(flat, channels_last=True).batches(requests((0, [1, 2])))
    assert inputs.shape == (2, 6)
    assert inputs.is_contiguous()


def test_inputs_and_targets_of_different_length_are_refused():
    with pytest.raises(ValueError, match="3 inputs do not go with 2 targets"):
        Tensors(torch.zeros(3), torch.zeros(2))


# When the loader is the limit


def test_a_loader_that_keeps_up_is_not_mentioned():
    assert loader_limits(starved=1.0, seconds=10.0, samples=1000, workers=2) is None


def test_no_limit_is_reported_in_the_first_seconds():
    assert loader_limits(starved=4.0, seconds=4.5, samples=10, workers=2) is None


def test_a_loader_that_is_the_limit_is_named_with_numbers():
    text = loader_limits(starved=6.0, seconds=10.0, samples=4000, workers=3)
    assert text is not None
    for part in ("60% of the time", "3 workers read 400 samples/s", "take 1,000", "--workers 6"):
        assert part in text


@pytest.mark.parametrize("workers", [0, 2])
def test_waiting_for_data_is_added_up_from_the_second_batch_on(workers: int):
    slow = loader(Plain(), workers)
    arrivals = slow.arrivals(SOME)
    next(arrivals)
    assert slow.starved == 0.0
    assert len(list(arrivals)) == len(SOME) - 1
    assert slow.starved > 0.0


class Failing(Plain):
    def __getitem__(self, index: int):
        raise DataError("photo.jpg is cut short.")


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_ours_in_a_worker_arrives_as_it_was_raised(workers: int):
    with pytest.raises(DataError, match=r"^photo.jpg is cut short\.$"):
        list(loader(Failing(), workers).batches(SOME))
