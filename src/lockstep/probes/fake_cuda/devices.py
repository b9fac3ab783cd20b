"""Accept "cuda" wherever a script names a device, and use the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.probes.fake_cuda.patching import CPU, answering, cpu, given, index, note, without
from lockstep.probes.patching import calling, replaces, swap

_LIKE = (
    "empty_like full_like ones_like rand_like randint_like randn_like zeros_like normal "
    "as_nested_tensor"
)
_NEW = "new new_empty new_empty_strided new_full new_ones new_tensor new_zeros"


def install() -> None:
    """Patch every function of torch that takes a device."""
    _factories()
    _tensors()
    _modules()
    _generators()
    _files()
    # There is no memory to pin, and no need for a thread that pins it.
    swap("__init__", without("pin_memory", "pin_memory_device"), torch.utils.data.DataLoader)
    _precision()


def _with_device(original: Any, *args: Any, **kwargs: Any) -> Any:
    if "device" in kwargs:
        kwargs["device"] = cpu(kwargs["device"])
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False
    return original(*args, **kwargs)


def _from_outside(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function that shares memory, which would be a copy on a GPU."""
    moves = cpu(kwargs.get("device")) is not kwargs.get("device")
    result = _with_device(original, *args, **kwargs)
    return _own(result) if moves else result


def _factories() -> None:
    from torch.jit._builtins import _find_builtin, _register_builtin
    from torch.utils._device import _device_constructors

    homes = (torch, torch.fft, torch.nested)
    # Torch builds this set once, at the first call. It must hold the originals, because
    # `with torch.device("meta")` looks them up.
    names = {function.__name__.removeprefix("fft_") for function in _device_constructors()}
    names |= set(_LIKE.split())
    for home in homes:
        for name in sorted(name for name in names if hasattr(home, name)):
            original = getattr(home, name)
            make = _from_outside if name in ("as_tensor", "asarray") else _with_device
            swap(name, calling(make), home)
            # Otherwise torch.jit.script would compile our source instead of the operator.
            if operator := _find_builtin(original):
                _register_builtin(getattr(home, name), operator)
    swap("set_default_device", given(_translate("device")), torch)
    # `with torch.device("cuda"):` comes here too.
    swap("__init__", given(_translate("device")), torch.utils._device.DeviceContext)


def _translate(name: str) -> Callable[[dict[str, Any]], None]:
    def change(arguments: dict[str, Any]) -> None:
        if name in arguments:
            arguments[name] = cpu(arguments[name])

    return change


def _own(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy if it shares its memory, for example with a NumPy array.

    A copy on a GPU does not change when the script fills its array again.
    """
    if torch.compiler.is_compiling() or tensor.layout is not torch.strided:
        return tensor
    return tensor if tensor.untyped_storage().resizable() else tensor.clone()


def _tensors() -> None:
    swap(_NEW, calling(_with_device), Tensor)
    swap("pin_memory", answering(lambda self, *_, **__: self), Tensor)
    swap("record_stream", answering(lambda *_, **__: None), Tensor)
    for name in [name for name in vars(torch.cuda) if name.endswith("Tensor")]:
        if hasattr(torch, name):
            setattr(torch.cuda, name, getattr(torch, name))

    @replaces("to", Tensor)
    def to(original: Any, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        device = args[0] if args else kwargs.get("device")
        target = cpu(device)
        if target is device:
            result = original(self, *args, **kwargs)
            # The script wrote a string itself; a device object may come from another tensor.
            return self.clone() if result is self and type(device) is str else result
        if args:
            return _own(original(self, target, *args[1:], **kwargs))
        return _own(original(self, **kwargs | {"device": target}))

    @replaces("cpu", Tensor)
    def to_host(original: Any, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        # From a GPU this is a copy. Scripts keep their best weights this way.
        return self.clone() if result is self else result

    @replaces("cuda", Tensor)
    def to_cuda(_: Any, self: Tensor, device: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        note("cuda")
        index(device)
        if kwargs.get("memory_format") is not None:
            return self.to(memory_format=kwargs["memory_format"])
        return _own(self)

    @replaces("type", Tensor)
    def to_type(original: Any, self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str) and args[0].startswith("torch.cuda."):
            note("cuda")
            args = (args[0].replace("torch.cuda.", "torch."), *args[1:])
        return original(self, *args, **kwargs)


def _modules() -> None:
    @replaces("to", nn.Module)
    def to(module_to: Any, self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args:
            args = (cpu(args[0]), *args[1:])
        if "device" in kwargs:
            kwargs["device"] = cpu(kwargs["device"])
        return module_to(self, *args, **kwargs)

    def cuda(self: nn.Module, device: Any = None) -> nn.Module:
        note("cuda")
        index(device)
        return nn.Module.to(self, CPU)

    swap("cuda", answering(cuda), nn.Module)
    swap("to_empty", given(_translate("device")), nn.Module)

    # import_module, because torch.nn.parallel.data_parallel is also a function.
    home = importlib.import_module("torch.nn.parallel.data_parallel")
    # DataParallel splits a batch over GPUs and computes what the module alone computes.
    swap("_get_available_device_type", answering(lambda *_: note("DataParallel")), home)


def _generators() -> None:
    original = torch.Generator

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return original(cpu(device))

    Generator.__module__, Generator.__qualname__ = "torch", "Generator"
    Generator.__doc__ = original.__doc__
    setattr(torch, "Generator", Generator)  # noqa: B010


def _files() -> None:
    def restore(storage: Any, location: str) -> Any:
        return storage if cpu(location) is not location else None

    # Before torch's own for the CPU (10) and for CUDA (20), so that every location that torch.load
    # reads or is given comes here first.
    torch.serialization.register_package(5, lambda _: None, restore)
    swap("load", given(_translate("map_location")), torch.jit, torch.jit._serialization)
    for storage in (torch.UntypedStorage, torch.TypedStorage):
        swap("cuda pin_memory", answering(lambda self, *_, **__: self), storage)
        swap("to", given(_translate("device")), storage)


def _precision() -> None:
    """Record autocast for CUDA. It casts CUDA tensors only, so here float32 stays float32."""

    @replaces("__init__", torch.amp.autocast)
    def init(begin: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        if self.device == "cuda" and self._enabled:
            note(f"autocast {str(self.fast_dtype).removeprefix('torch.')} ran in float32")

    def on_the_cpu(arguments: dict[str, Any]) -> None:
        if arguments.get("use_device") == "cuda":
            arguments["use_device"] = None
        arguments.pop("use_cuda", None)

    swap("__init__", given(on_the_cpu), torch.autograd.profiler.profile)
