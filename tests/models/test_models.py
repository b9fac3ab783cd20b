"""The small zoo: the published sizes, and models that can be trained."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lockstep.models import gpt, line, mlp, quicknet, resnet50, wideresnet

Build = Callable[[], nn.Module]

small_gpt = partial(gpt, layers=2, width=32, vocabulary=11, length=8)
small_wide = partial(wideresnet, depth=10, width=1, channels=1)


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def tokens(batch: int = 3, length: int = 8, vocabulary: int = 11) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (batch, length), generator=generator)


ZOO = {
    "line": (line, images(4, 1), (4, 1)),
    "mlp": (partial(mlp, (12, 5, 3)), images(4, 3, 2, 2), (4, 3)),
    "wideresnet": (small_wide, images(4, 1, 8, 8), (4, 10)),
    "quicknet": (partial(quicknet, (8, 16, 16), whiten=False), images(4, 3, 12, 12), (4, 10)),
    "resnet50": (partial(resnet50, classes=7), images(2, 3, 32, 32), (2, 7)),
    "gpt": (small_gpt, tokens(), (3, 8, 11)),
}
each = pytest.mark.parametrize(("build", "inputs", "shape"), ZOO.values(), ids=ZOO)


def parameters(build: Build) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build().parameters())


@each
def test_outputs_have_the_shape_that_a_loss_expects(build, inputs, shape):
    assert build()(inputs).shape == shape


@pytest.mark.parametrize(
    ("build", "shape", "classes"),
    [
        (partial(wideresnet, 10, 1, channels=3, classes=100), (2, 3, 32, 32), 100),
        (partial(wideresnet, 16, 1, channels=1), (2, 1, 28, 28), 10),
        (partial(wideresnet, 10, 2, channels=2), (2, 2, 9, 14), 10),
        (partial(resnet50, classes=5, channels=1), (1, 1, 64, 48), 5),
        (partial(quicknet, (4, 8), classes=7), (2, 3, 9, 14), 7),
        (partial(quicknet, (4, 8, 8), channels=1, whiten=False), (2, 1, 28, 28), 10),
    ],
)
def test_image_models_take_any_channels_sizes_and_classes(build: Build, shape, classes: int):
    assert build().eval()(images(*shape)).shape == (shape[0], classes)


@pytest.mark.parametrize(
    ("build", "published"),
    [
        # Zagoruyko & Komodakis 2016, tables 2 to 5, on CIFAR-10 (in millions, to one digit).
        (partial(wideresnet, 40, 1), 0.6),
        (partial(wideresnet, 40, 2), 2.2),
        (partial(wideresnet, 40, 4), 8.9),
        (partial(wideresnet, 16, 4), 2.7),
        (partial(wideresnet, 16, 8), 11.0),
        (partial(wideresnet, 16, 10), 17.1),
        (partial(wideresnet, 22, 8), 17.2),
        (partial(wideresnet, 28, 10), 36.5),
    ],
)
def test_wide_residual_networks_have_the_published_size(build: Build, published: float):
    assert abs(parameters(build) / 1e6 - published) <= 0.05 + 1e-9


@pytest.mark.parametrize(
    ("build", "published"),
    [
        (partial(wideresnet, 28, 10), 36_479_194),  # the authors' code
        (resnet50, 25_557_032),  # torchvision
        (quicknet, 1_971_640),  # Jordan 2024, table 1: 1.97 million
        (partial(gpt, 12, 768, vocabulary=50257, length=1024), 124_439_808),  # GPT-2
        (partial(gpt, 24, 1024, vocabulary=50257, length=1024), 354_823_168),  # GPT-2 medium
        (partial(gpt, 48, 1600, vocabulary=50257, length=1024), 1_557_611_200),  # GPT-2 XL
        (partial(mlp, (784, 128, 10)), 784 * 128 + 128 + 128 * 10 + 10),
        (line, 2),
    ],
)
def test_models_have_exactly_the_known_number_of_weights(build: Build, published: int):
    assert parameters(build) == published


@pytest.mark.parametrize("depth", [4, 9, 11, 12, 20, -2, 0])
def test_wide_residual_networks_refuse_depths_that_do_not_divide(depth: int):
    with pytest.raises(ValueError, match=f"depth {depth} is not 6n \\+ 4: use 10, 16"):
        wideresnet(depth)


@pytest.mark.parametrize("depth", [10, 16, 22, 28, 40])
def test_wide_residual_networks_accept_the_depths_of_the_message(depth: int):
    with torch.device("meta"):
        layers = [m for m in wideresnet(depth, 1).modules() if isinstance(m, nn.Conv2d)]
    # The depth counts the 3x3 convolutions, the head and, as in the paper, three projections.
    assert len([m for m in layers if m.kernel_size == (3, 3)]) == depth - 3


def test_a_gpt_cannot_see_what_comes_later():
    model = small_gpt().double().eval()
    before = tokens()
    for place in range(8):
        after = before.clone()
        after[:, place] = (after[:, place] + 1) % 11
        changed = (model(after) != model(before)).any(-1)
        assert not changed[:, :place].any()
        assert changed[:, place:].all()


def test_a_gpt_computes_a_prefix_as_it_computes_the_whole():
    model = small_gpt().double().eval()
    # Equal to rounding: a shorter product may be added in another order. Values are about 1.
    assert torch.allclose(model(tokens()[:, :5]), model(tokens())[:, :5], rtol=0, atol=1e-12)


def test_a_gpt_knows_where_a_token_stands():
    out = small_gpt().eval()(torch.zeros(1, 8, dtype=torch.long))[0]
    assert not torch.allclose(out[0], out[1])


def test_the_samples_of_a_batch_do_not_see_each_other():
    model = small_gpt().double().eval()
    # A batch of one may take another kernel: rounding of values about 1.
    assert torch.allclose(model(tokens())[1], model(tokens()[1:2])[0], rtol=0, atol=1e-12)


def test_a_gpt_reads_and_writes_tokens_with_the_same_weights():
    model = small_gpt()
    assert model.head.weight is model.tokens.weight
    model(tokens()).sum().backward()
    # Every row is written with, so every row has a gradient, not only those of the tokens read.
    assert model.tokens.weight.grad.abs().sum(1).gt(0).all()


def test_a_gpt_refuses_a_width_that_does_not_cut_into_heads():
    with pytest.raises(ValueError, match="width 30 does not cut into 4 heads"):
        gpt(width=30, heads=4)


@pytest.mark.parametrize(("width", "heads"), [(16, 1), (64, 2), (128, 4), (256, 4), (768, 12)])
def test_the_heads_of_a_gpt_have_64_channels_or_32_if_narrow(width: int, heads: int):
    assert gpt(layers=1, width=width).blocks[0].heads == heads


def test_paths_into_the_residual_stream_start_smaller():
    torch.manual_seed(0)
    model = gpt(layers=8, width=128)
    block = model.blocks[3]
    # 16,384 numbers or more: their deviation is known to 0.6%, five times that is 3%.
    assert block.project.weight.std().item() == pytest.approx(0.02 / 4, rel=0.03)
    assert block.narrow.weight.std().item() == pytest.approx(0.02 / 4, rel=0.03)
    assert block.widen.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert model.tokens.weight.std().item() == pytest.approx(0.02, rel=0.03)
    assert not block.widen.bias.any()


@each
def test_the_seed_decides_the_weights(build, inputs, shape):
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(build().state_dict())
    first, again, other = states
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@each
def test_the_outputs_are_a_function_of_weights_and_inputs(build, inputs, shape):
    model = build().eval()
    assert torch.equal(model(inputs), model(inputs))


@each
def test_gradients_reach_all_parameters(build, inputs, shape):
    torch.manual_seed(0)
    model = build()
    for name, weight in model.named_parameters():
        # ResNet's blocks start as the identity: through a zero there is no gradient yet.
        if "norm3" in name and name.endswith("weight"):
            nn.init.ones_(weight)
    out = model(inputs)
    (out * images(*out.shape)).sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert silent == []


def test_the_blocks_of_a_resnet_start_as_the_identity():
    block = resnet50()[1][1]
    x = images(2, 256, 4, 4).relu()
    assert torch.equal(block(x), x)


@each
@torch.no_grad()
def test_models_compute_in_double_precision(build, inputs, shape):
    torch.manual_seed(0)
    model = build().eval()
    single = model(inputs)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    double = model.double()(inputs)
    assert double.dtype == torch.float64
    # float32 keeps 7 digits; fifty layers may lose two or three of them.
    assert torch.allclose(double.float(), single, rtol=1e-3, atol=1e-4 * float(single.abs().max()))


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (partial(mlp, (12, 50, 3), dropout=0.5), images(4, 12)),
        (partial(small_wide, dropout=0.5), images(4, 1, 8, 8)),
        (partial(small_gpt, dropout=0.5), tokens()),
    ],
    ids=["mlp", "wideresnet", "gpt"],
)
def test_dropout_acts_in_training_and_rests_in_evaluation(build: Build, inputs: Tensor):
    model = build()
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_an_mlp_is_dense_layers_with_relu_between_them():
    model = mlp((3, 4, 2))
    first, last = (m for m in model if isinstance(m, nn.Linear))
    x = images(5, 3)
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    # Sums of four float32 products.
    assert torch.allclose(model(x), hidden @ last.weight.T + last.bias, atol=1e-6)
