"""What LARS, LARC, LAMB and NovoGrad have in common."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import Tensor, nn

from layers import LAYERWISE, gradients, network, numbers, train, two_groups
from lockstep.engine.run.checkpoint import pack_optimizer, unpack_optimizer
from lockstep.scaling.optimizers.lamb import LAMB
from lockstep.scaling.optimizers.lars import LARS
from lockstep.scaling.optimizers.layerwise import Layerwise
from lockstep.scaling.optimizers.novograd import NovoGrad

pytestmark = pytest.mark.parametrize("kind", LAYERWISE, ids=lambda kind: kind.__name__)


def options(kind: type[Layerwise]) -> dict:
    return {"lr": 0.01, "weight_decay": 0.1} | ({"trust": 0.02} if issubclass(kind, LARS) else {})


def build(kind: type[Layerwise], net: nn.Module, **changes) -> Layerwise:
    return kind(net.parameters(), **options(kind) | changes)


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_training_on_one_batch_fits_it(kind):
    net = network()
    rate = {"LARS": 5.0, "LARC": 0.1, "LAMB": 0.05, "NovoGrad": 0.05}[kind.__name__]
    optimizer = build(kind, net, lr=rate, weight_decay=1e-3)
    for _ in range(40):
        gradients(net, 0)
        optimizer.step()
    outputs = net(numbers(8, 3, 7, 7, seed=0))
    assert (outputs.argmax(1) == torch.arange(8) % 5).all()


def test_by_default_vectors_do_not_decay(kind):
    # In one step, so that what decays does not change the gradients of what does not.
    with_decay, without = network(), network()
    first = train(with_decay, build(kind, with_decay, weight_decay=0.1), range(1))
    second = train(without, build(kind, without, weight_decay=0.0), range(1))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) == (a.dim() < 2)


def test_a_group_that_adapts_decays_its_vectors_too(kind):
    with_decay, without = network(), network()
    first = train(with_decay, build(kind, with_decay, adapt=True, weight_decay=0.1), range(1))
    second = train(without, build(kind, without, adapt=True, weight_decay=0.0), range(1))
    decayed = [a for a, b in zip(first, second, strict=True) if not torch.equal(a, b)]
    # All but the norm's bias, which starts at 0.
    assert len(decayed) == len(first) - 1


def test_switching_adaptation_off_leaves_the_decay_of_matrices(kind):
    with_decay, without = network(), network()
    first = train(with_decay, build(kind, with_decay, adapt=False, weight_decay=0.1), range(1))
    second = train(without, build(kind, without, adapt=False, weight_decay=0.0), range(1))
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) == (a.dim() < 2)


def test_the_rate_may_be_a_tensor_that_changes_in_place(kind):
    number, tensor = network(), network()
    first = build(kind, number, lr=0.01)
    second = build(kind, tensor, lr=torch.tensor(0.01, dtype=torch.float64))
    for step in range(3):
        first.param_groups[0]["lr"] *= 0.5
        second.param_groups[0]["lr"].mul_(0.5)
        ours = train(number, first, range(step, step + 1))
        assert equal(ours, train(tensor, second, range(step, step + 1)))


def test_a_step_reads_nothing_and_keeps_its_tensors(kind):
    # On the meta device there is nothing to read: what a CUDA graph cannot hold fails there.
    net = network().to("meta")
    for p in net.parameters():
        p.grad = torch.empty_like(p)
    optimizer = build(kind, net, lr=torch.tensor(0.01, device="meta"), weight_decay=0.1)
    before = [id(value) for p in net.parameters() for value in optimizer.state[p].values()]
    optimizer.step()
    assert before == [id(value) for p in net.parameters() for value in optimizer.state[p].values()]
    assert all(
        isinstance(value, Tensor) for p in net.parameters() for value in optimizer.state[p].values()
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_training_goes_on_from_a_state_dict_as_if_it_had_not_stopped(kind, dtype):
    def start() -> nn.Module:
        return network().to(dtype)

    through = start()
    whole = train(through, kind(two_groups(through, adapt=True), **options(kind)), range(5))
    net = start()
    optimizer = kind(two_groups(net, adapt=True), **options(kind))
    train(net, optimizer, range(2))
    saved = copy.deepcopy(optimizer.state_dict())
    again = kind(two_groups(net), **options(kind))
    again.load_state_dict(saved)
    assert equal(train(net, again, range(2, 5)), whole)
    assert again.param_groups[1]["adapt"] is True
    # What was loaded is a copy.
    for number, values in saved["state"].items():
        for name, value in values.items():
            assert torch.equal(value, optimizer.state_dict()["state"][number][name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(kind, dtype):
    def start() -> nn.Module:
        net = network().to(dtype)
        return net.to(memory_format=torch.channels_last)

    through = start()
    whole = train(through, build(kind, through), range(4))
    net = start()
    optimizer = build(kind, net)
    train(net, optimizer, range(2))
    tensors, facts = pack_optimizer(optimizer)
    again = build(kind, net)
    unpack_optimizer(again, tensors, json.loads(json.dumps(facts)))
    assert equal(train(net, again, range(2, 4)), whole)


def test_loading_keeps_the_tensors_that_a_recording_knows(kind):
    net = network()
    optimizer, other = build(kind, net), build(kind, network())
    train(net, optimizer, range(1))
    before = {p: dict(optimizer.state[p]) for p in net.parameters()}
    optimizer.load_state_dict(other.state_dict())
    for p, state in before.items():
        assert all(optimizer.state[p][name] is tensor for name, tensor in state.items())
        assert not any(tensor.any() for tensor in state.values())


def test_the_state_of_another_optimizer_is_refused_by_name(kind):
    net = network()
    other = torch.optim.RMSprop(net.parameters())
    train(net, other, range(1))
    with pytest.raises(ValueError, match=f"not that of {kind.__name__}"):
        build(kind, net).load_state_dict(other.state_dict())


def test_gradients_of_nothing_move_nothing_and_are_no_nan(kind):
    net = network()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = build(kind, net, weight_decay=0.0, eps=0.0 if kind is not LAMB else 1e-6)
    for _ in range(2):
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
    assert equal([p.detach() for p in net.parameters()], before)


def test_weights_of_nothing_take_the_plain_step(kind):
    nets = network(), network()
    for net in nets:
        nn.init.zeros_(net[3].weight)
    ours, plain = (
        train(net, build(kind, net, adapt=adapt), range(1))
        for net, adapt in zip(nets, (None, False), strict=True)
    )
    place = [name for name, _ in nets[0].named_parameters()].index("3.weight")
    assert ours[place].any()
    assert ours[place].isfinite().all()
    if kind is not NovoGrad:  # which looks at no weights
        assert torch.equal(ours[place], plain[place])


def test_frozen_weights_and_those_without_a_gradient_stay(kind):
    net = network()
    net[0].weight.requires_grad_(False)
    optimizer = build(kind, net)
    optimizer.step()
    assert equal(
        [p.detach() for p in net.parameters()], [p.detach() for p in network().parameters()]
    )
    # Frozen later, with a gradient left over.
    gradients(net, 0)
    net[-1].weight.requires_grad_(False)
    optimizer.step()
    assert torch.equal(net[0].weight, network()[0].weight)
    assert torch.equal(net[-1].weight, network()[-1].weight)
    assert not torch.equal(net[3].weight, network()[3].weight)


def test_a_thawed_layer_is_trained(kind):
    net = network()
    net[0].weight.requires_grad_(False)
    optimizer = build(kind, net)
    train(net, optimizer, range(1))
    net[0].weight.requires_grad_(True)
    train(net, optimizer, range(1, 2))
    assert not torch.equal(net[0].weight, network()[0].weight)


def test_a_group_may_be_added_later(kind):
    net = network()
    first, second = two_groups(net)
    optimizer = kind([first], **options(kind))
    optimizer.add_param_group(second | {"lr": 0.02})
    before = net[-1].weight.detach().clone()
    train(net, optimizer, range(1))
    assert not torch.equal(net[-1].weight, before)


def test_a_sparse_gradient_is_refused_with_what_to_do(kind):
    table = nn.Embedding(4, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        build(kind, table).step()


def test_nan_spreads_through_its_layer_and_no_further(kind):
    net = network()
    optimizer = build(kind, net)
    gradients(net, 0)
    net[3].weight.grad[0, 0, 0, 0] = torch.nan
    optimizer.step()
    assert net[3].weight.isnan().all()
    assert not any(p.isnan().any() for p in net.parameters() if p is not net[3].weight)


def test_a_closure_is_called_with_gradients_on(kind):
    net = network()

    def closure() -> float:
        gradients(net, 0)
        return 7.0

    assert build(kind, net).step(closure) == 7.0
    assert not torch.equal(net[3].weight, network()[3].weight)


@pytest.mark.parametrize("adapt", [None, True, False])
def test_a_large_model_in_pieces_takes_the_same_steps(kind, adapt, monkeypatch):
    whole, cut = network(), network()
    first = train(whole, build(kind, whole, adapt=adapt), range(3))
    # Pieces of one layer, of two, and of a matrix with vectors.
    monkeypatch.setattr("lockstep.scaling.optimizers.layerwise._CACHED", 150)
    assert equal(train(cut, build(kind, cut, adapt=adapt), range(3)), first)


def test_memory_layout_does_not_matter(kind):
    plain, strided = network(), network().to(memory_format=torch.channels_last)
    first = train(plain, build(kind, plain), range(3))
    second = train(strided, build(kind, strided), range(3))
    state = build(kind, strided).state[strided[3].weight]
    shapes = [t for t in state.values() if t.dim() == 4]
    assert all(t.is_contiguous(memory_format=torch.channels_last) for t in shapes)
    # Convolutions and norms of another layout add in another order.
    assert all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 2**-24), (torch.bfloat16, 2**-9)])
def test_lower_precision_takes_the_same_step_to_its_rounding(kind, dtype, rounding):
    low, high = network().to(dtype), network()
    high.load_state_dict({name: t.double() for name, t in low.state_dict().items()})
    optimizers = build(kind, low), build(kind, high)
    for a, b in zip(low.parameters(), high.parameters(), strict=True):
        a.grad = torch.linspace(-1, 2, a.numel()).view(a.shape).to(dtype)
        b.grad = a.grad.double()
    for optimizer in optimizers:
        optimizer.step()
    for a, b, start in zip(
        low.parameters(), high.parameters(), network().to(dtype).parameters(), strict=True
    ):
        # The new weight is rounded once; the step before it, some ten times.
        step = (b - start).abs()
        assert ((a - b).abs() <= 2 * rounding * b.abs() + 12 * rounding * step.max()).all()


def test_one_model_may_hold_several_types(kind):
    net = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 3))
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer = build(kind, net)
    optimizer.step()
    assert all(p.isfinite().all() for p in net.parameters())
    assert [p.dtype for p in net.parameters()] == [torch.float64] * 2 + [torch.float32] * 2


def test_complex_weights_are_refused(kind):
    with pytest.raises(ValueError, match=r"torch\.complex64"):
        kind([nn.Parameter(torch.zeros(2, dtype=torch.complex64))])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"lr": -1.0}, "lr is -1.0; it must be a number from 0 on"),
        ({"lr": torch.zeros(2)}, "lr is a tensor of shape"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"eps": "small"}, "eps is 'small'"),
        ({"adapt": 1}, "adapt is 1; use True"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_for_all_and_for_a_group(kind, wrong, message):
    with pytest.raises(ValueError, match=message):
        kind(network().parameters(), **wrong)
    with pytest.raises(ValueError, match=message):
        kind(two_groups(network(), **wrong))


def test_momenta_that_cannot_work_are_refused(kind):
    net = network()
    if issubclass(kind, LARS):
        wrong = [
            ({"momentum": 1.0}, "momentum is 1.0; it must be a number from 0 to below 1"),
            ({"trust": -1.0}, "trust is -1.0"),
            ({"nesterov": True, "momentum": 0.0}, "use momentum=0.9"),
        ]
    else:
        wrong = [
            ({"betas": 0.9}, "betas is 0.9; it must be a pair"),
            ({"betas": (0.9, 1.0)}, "the second of betas is 1.0"),
            ({"betas": (-0.1, 0.9)}, "the first of betas is -0.1"),
        ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            kind(net.parameters(), **settings)
