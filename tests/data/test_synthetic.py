import pytest
import torch

from lockstep.data.dataset import Resident
from lockstep.data.synthetic import Synthetic, line, synthetic
from lockstep.errors import DataError

SHAPE = (3, 9, 16)


def small(**changes):
    return synthetic(**{"samples": 40, "test_samples": 10, "shape": SHAPE, "classes": 5} | changes)


def test_synthetic_images_have_the_shape_and_the_classes_that_were_asked_for():
    data = small()
    assert (len(data.train), len(data.test)) == (40, 10)
    assert isinstance(data.train, Resident)
    inputs, targets = data.train.take(torch.arange(40))
    assert (inputs.shape, inputs.dtype) == ((40, *SHAPE), torch.float32)
    assert (targets.dtype, set(targets.tolist())) == (torch.int64, {0, 1, 2, 3, 4})
    assert float(inputs.abs().max()) <= 1.5


def test_a_sample_depends_on_its_index_alone():
    data = small().train
    inputs, targets = data.take(torch.tensor([7, 3, 7]))
    for place, index in enumerate([7, 3, 7]):
        image, target = data[index]
        assert torch.equal(inputs[place], image)
        assert torch.equal(targets[place], target)
    assert torch.equal(small(samples=1000).train[7][0], data[7][0])


def test_another_seed_and_the_test_set_give_other_images():
    images = [small().train[0][0], small().test[0][0], small(seed=1).train[0][0]]
    assert not any(torch.equal(images[a], images[b]) for a, b in [(0, 1), (0, 2), (1, 2)])


def test_test_images_do_not_change_with_the_training_samples():
    assert torch.equal(small().test[3][0], small(samples=7).test[3][0])


def test_iterating_ends_after_the_last_sample():
    assert len(list(small().test)) == 10
    with pytest.raises(IndexError, match="sample 10 of 10"):
        small().test[10]


def test_the_classes_can_be_told_apart_by_the_means_of_training_images():
    data = small(samples=400, test_samples=200)
    inputs, targets = data.train.take(torch.arange(400))
    means = torch.stack([inputs[targets == label].mean(0) for label in range(5)])
    images, expected = data.test.take(torch.arange(200))
    nearest = (images[:, None] - means).square().sum((2, 3, 4)).argmin(1)
    # The patterns are about 8 apart (432 pixels, variance 1/6), the noise deviates by 0.6.
    assert float((nearest == expected).float().mean()) > 0.99


def test_memory_does_not_grow_with_the_samples():
    assert small(samples=10**9).train.nbytes == small().train.nbytes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_makes_the_bits_of_the_cpu():
    data, indices = synthetic().train, torch.arange(64)
    on_gpu = data.to(torch.device("cuda")).take(indices.cuda())
    for here, there in zip(data.take(indices), on_gpu, strict=True):
        assert there.is_cuda
        assert torch.equal(here, there.cpu())


def test_moving_leaves_the_original_where_it_was():
    data = small().train
    moved = data.to(torch.device("meta"))
    assert moved.take(torch.arange(2, device="meta"))[0].device.type == "meta"
    assert data[0][0].device.type == "cpu"


@pytest.mark.parametrize(
    "changes", [{"samples": 0}, {"classes": 0}, {"shape": (3, 0, 4)}, {"shape": (4, 4)}]
)
def test_impossible_images_are_refused(changes):
    with pytest.raises(DataError, match=r"describe no images: .* such as samples=1280"):
        Synthetic(**{"samples": 1, "shape": SHAPE, "classes": 2, "seed": 0} | changes)


def test_the_line_is_recovered_by_least_squares():
    data = line(samples=1000)
    x, y = data.train.inputs, data.train.targets
    assert (x.shape, y.shape, x.dtype) == ((1000, 1), (1000, 1), torch.float32)
    found = torch.linalg.lstsq(torch.cat([x, torch.ones_like(x)], 1), y).solution.flatten()
    # Deviations of the estimates: sqrt(3 / 1000) and sqrt(1 / 1000); five of the larger.
    torch.testing.assert_close(found, torch.tensor([10.0, 2.0]), rtol=0, atol=0.28)


def test_the_test_points_lie_on_the_line():
    data = line(w=3.0, b=-1.0)
    assert len(data.test) == 100
    assert torch.equal(data.test.targets, 3.0 * data.test.inputs - 1.0)


def test_a_line_follows_from_its_seed():
    assert torch.equal(line(seed=4).train.targets, line(seed=4).train.targets)
    assert not torch.equal(line(seed=4).train.targets, line(seed=5).train.targets)


def test_a_line_without_points_is_refused():
    with pytest.raises(DataError, match="samples=0: give 1 or more"):
        line(samples=0)
