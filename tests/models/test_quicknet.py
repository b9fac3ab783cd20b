"""The fast network: its whitening is that of photographs, its biases learn fast, its tests look
at six views.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from lockstep.data.images import cifar10
from lockstep.errors import DataError
from lockstep.models import quicknet
from lockstep.models.quicknet import BIAS_SCALE, NOISE, Bias, _halved, whitening


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def patches(x: Tensor) -> Tensor:
    return functional.unfold(x, 2).transpose(1, 2).flatten(0, 1)


def test_the_whitening_is_the_same_in_every_model_and_is_not_trained():
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(quicknet(widths=(4, 8)))
    first, second = (model.patches.weight for model in models)
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert torch.equal(first[:12], -first[12:])


def test_without_whitening_the_first_layer_is_trained():
    assert quicknet(widths=(4, 8), whiten=False).patches.weight.requires_grad


def test_the_whitening_refuses_images_that_have_not_three_channels():
    with pytest.raises(ValueError, match=r"not for 1 channel\(s\): use whiten=False"):
        quicknet(channels=1)


def test_the_filters_of_the_whitening_stand_at_right_angles():
    filters = whitening().flatten(1)
    products = filters @ filters.T
    lengths = products.diagonal()
    # Rounding of float64, relative to the lengths.
    assert (products - lengths.diag()).abs().max() < 1e-12 * lengths.max()
    # No filter is stronger than the noise that was added allows.
    assert lengths.max() <= 1 / NOISE


def test_the_signs_of_the_filters_are_not_left_to_chance():
    colours = whitening()[:, :, 0, 0]
    strongest = colours.abs().topk(2).values
    assert (colours.gather(1, colours.abs().argmax(1, keepdim=True)) > 0).all()
    # Far from a tie, so that rounding on another machine does not turn a filter around.
    opposed = colours.amax(1) * colours.amin(1) < 0
    assert ((strongest[:, 0] - strongest[:, 1])[opposed] > 1e-3 * strongest[opposed, 0]).all()


def test_outputs_of_the_whitening_on_cifar10_are_uncorrelated(monkeypatch):
    def absent(*args, **kwargs):
        raise DataError("no download in tests")

    monkeypatch.setattr("lockstep.data.images.fetch", absent)
    try:
        data = cifar10(samples=5000, test_samples=1)
    except DataError:
        pytest.skip("CIFAR-10 is not on this machine")
    assert data.prepare is not None
    outputs = patches(data.prepare(data.train.inputs).double()) @ whitening().flatten(1).T
    covariance = outputs.T @ outputs / len(outputs)
    off = covariance - covariance.diag().diag()
    # A tenth of the images; the four corners of a patch are not quite alike.
    assert off.abs().max() < 0.1
    # Only the faintest two, whose variance is near that of the noise, end well below one.
    assert (covariance.diag().sort().values[2:] > 0.8).all()
    assert (covariance.diag() < 1.25).all()


def test_the_first_filters_hand_their_input_on():
    conv = quicknet(widths=(32, 40)).double().blocks[0].conv1
    x = images(2, 24, 5, 5)
    assert torch.equal(conv(x)[:, :24], x)
    assert not torch.equal(conv(x)[:, 24:32], x[:, :8])


def test_a_bias_learns_faster_by_the_square_of_its_scale():
    bias = Bias(3).double()
    x, pull = images(4, 3, 2, 2), images(4, 3, 2, 2)
    optimizer = torch.optim.SGD(bias.parameters(), lr=0.1)
    before = bias(x)
    (before * pull).sum().backward()
    optimizer.step()
    moved = (bias(x) - before)[0, :, 0, 0]
    expected = -0.1 * BIAS_SCALE**2 * pull.sum((0, 2, 3))
    assert torch.allclose(moved, expected, rtol=1e-12, atol=1e-12)


def test_scores_in_evaluation_are_a_mean_over_six_views():
    torch.manual_seed(0)
    model = quicknet(widths=(4, 8)).double().eval()
    x = images(2, 3, 10, 12)
    padded = functional.pad(x, (1, 1, 1, 1), mode="reflect")
    views = {0.5: [x], 0.25: [padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]]}
    with torch.no_grad():
        expected = sum(
            share * (model.scores(view) + model.scores(view.flip(3))) / 2
            for share, several in views.items()
            for view in several
        )
        # Rounding of numbers about 1.
        assert torch.allclose(model(x), expected, rtol=0, atol=1e-13)
        assert not torch.allclose(model(x), model.scores(x), rtol=0, atol=1e-3)


def test_scores_in_training_are_those_of_the_image_alone():
    torch.manual_seed(0)
    model = quicknet(widths=(4, 8)).double()
    x = images(4, 3, 10, 12)
    assert torch.equal(model(x), model.scores(x))


@pytest.mark.parametrize("size", [(4, 4), (5, 7), (31, 31)], ids=str)
def test_the_deterministic_halving_is_the_other_one(size: tuple[int, int]):
    pull = images(2, 3, size[0] // 2, size[1] // 2)
    results = []
    for deterministic in (False, True):
        x = images(2, 3, *size).requires_grad_()
        torch.use_deterministic_algorithms(deterministic)
        try:
            out = _halved(x)
        finally:
            torch.use_deterministic_algorithms(False)
        (out * pull).sum().backward()
        assert x.grad is not None
        results.append((out, x.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_in_half_precision_no_layer_widens_what_it_hands_on():
    model = quicknet(widths=(4, 8))
    kinds = []
    for layer in model.modules():
        layer.register_forward_hook(lambda _, __, out: kinds.append(out.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        model(images(2, 3, 12, 12).float())
    assert set(kinds) == {torch.bfloat16}


def test_the_whole_network_compiles_into_one_graph():
    torch.manual_seed(0)
    model = quicknet(widths=(4, 8)).double()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for mode in (True, False):
        model.train(mode)
        # The same operations in the same order.
        assert torch.equal(compiled(images(2, 3, 12, 12)), model(images(2, 3, 12, 12)))
