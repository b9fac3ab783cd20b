"""Let torch.cuda and torch.accelerator answer for GPUs that are not there."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from lockstep.probes.fake_cuda.patching import Machine, answering, index, note
from lockstep.probes.patching import swap

_ZERO = (
    "memory_allocated max_memory_allocated memory_reserved max_memory_reserved memory_cached "
    "max_memory_cached device_memory_used memory_usage utilization temperature power_draw "
    "clock_rate initial_seed get_sync_debug_mode"
)
_NOTHING = (
    "init synchronize empty_cache empty_host_cache ipc_collect reset_peak_memory_stats "
    "reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached "
    "reset_peak_host_memory_stats reset_accumulated_host_memory_stats "
    "set_per_process_memory_fraction set_sync_debug_mode _sleep manual_seed manual_seed_all "
    "seed seed_all _record_memory_history _dump_snapshot"
)
_NO_PROPERTY = (
    "minor L2_cache_size is_integrated is_multi_gpu_board pci_bus_id pci_device_id pci_domain_id"
)


def install() -> None:
    """Patch both modules."""
    cuda, accelerator = torch.cuda, torch.accelerator
    homes = (cuda, cuda.memory, cuda.random, cuda.streams, cuda.graphs, accelerator)
    swap(_ZERO, answering(lambda *_, **__: 0), *homes)
    swap(_NOTHING, answering(lambda *_, **__: None), *homes, accelerator.memory)
    swap("is_available", answering(lambda: True), cuda, accelerator)
    swap("device_count", answering(lambda: Machine.gpus), cuda, cuda.random, accelerator)
    yes = answering(lambda *_, **__: True)
    swap("is_bf16_supported is_tf32_supported can_device_access_peer", yes, cuda)
    swap("is_current_stream_capturing", answering(lambda: False), cuda, cuda.graphs)
    swap("current_device", answering(lambda: Machine.current), cuda, cuda.random)
    swap("set_device", answering(_set_device), cuda)
    swap("_exchange_device _maybe_exchange_device", answering(_exchange), cuda)
    swap("device device_index", lambda _: _Device, cuda, accelerator)
    swap("device_of", lambda _: _Device, cuda)
    swap("current_device_index current_device_idx", answering(lambda: Machine.current), accelerator)
    swap("set_device_index set_device_idx", answering(_set_device), accelerator)
    swap("current_accelerator", answering(lambda *_, **__: torch.device("cuda")), accelerator)
    _describe()
    _random(homes)
    _streams(homes)
    _graphs()
    _tools()


def _set_device(device: Any) -> None:
    # A negative number leaves the current device, in torch and in `index`.
    Machine.current = index(device)
    note("cuda")


def _exchange(device: int) -> int:
    before, Machine.current = Machine.current, index(device)
    return before


class _Device:
    """Makes a device the current one for a while."""

    def __init__(self, device: Any = None) -> None:
        # device_of gets a tensor, which is on the current device.
        self.idx = Machine.current if isinstance(device, Tensor) else index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange(self.idx)

    def __exit__(self, *_: object) -> None:
        Machine.current = self.prev_idx


def _describe() -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name = "CPU standing in for a GPU"
    properties = SimpleNamespace(
        **dict.fromkeys(_NO_PROPERTY.split(), 0),
        **dict.fromkeys(("gcnArchName", "uuid"), ""),
        name=name,
        major=8,
        total_memory=memory,
        multi_processor_count=1,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=49152,
        shared_memory_per_multiprocessor=102400,
    )

    def checked(value: Any) -> Any:
        def answer(device: Any = None, *_: Any, **__: Any) -> Any:
            index(device)
            return value

        return answering(answer)

    cuda, accelerator = torch.cuda, torch.accelerator
    swap("get_device_name", checked(name), cuda)
    swap("get_device_properties", checked(properties), cuda)
    swap("get_device_capability", checked((8, 0)), cuda)
    swap("mem_get_info", checked((memory, memory)), cuda, cuda.memory)
    swap("get_memory_info", checked((memory, memory)), accelerator, accelerator.memory)
    swap("get_arch_list", answering(lambda: ["sm_80"]), cuda)
    stats = "memory_stats host_memory_stats memory_stats_as_nested_dict"
    # Scripts read single keys, so every key must exist.
    empty = answering(lambda *_, **__: defaultdict(int))
    swap(stats, empty, cuda, cuda.memory, accelerator, accelerator.memory)
    uncounted = answering(lambda *_, **__: f"{name}: its memory is not counted")
    swap("memory_summary list_gpu_processes", uncounted, cuda, cuda.memory)
    swap("memory_snapshot _snapshot", answering(lambda *_, **__: []), cuda, cuda.memory)
    swap("get_per_process_memory_fraction", answering(lambda *_: 1.0), cuda, cuda.memory)


def _random(homes: tuple[Any, ...]) -> None:
    """Let scripts save and restore random states that nothing draws from.

    Numbers drawn "on the GPU" come from the CPU's generator, which these states must not move.
    """
    blank = torch.zeros(16, dtype=torch.uint8, device="cpu")
    states: dict[int, Tensor] = {}

    def get(device: Any = None) -> Tensor:
        return states.get(index(device), blank).clone()

    def put(state: Tensor, device: Any = None) -> None:
        states[index(device)] = state.clone()

    def put_all(new: Any) -> None:
        for number, state in enumerate(new):
            put(state, number)

    swap("get_rng_state", answering(get), *homes)
    swap("set_rng_state", answering(put), *homes)
    swap("get_rng_state_all", answering(lambda: [get(n) for n in range(Machine.gpus)]), *homes)
    swap("set_rng_state_all", answering(put_all), *homes)
    generators = tuple(torch.Generator() for _ in range(Machine.gpus))
    setattr(torch.cuda, "default_generators", generators)  # noqa: B010


class _Done:
    """Work that is done: there is nothing to wait for."""

    def _nothing(self, *_: Any) -> None:
        """Return at once."""

    synchronize = wait = wait_stream = wait_event = _nothing

    def query(self) -> bool:
        """Return True: all work is done."""
        return True


class Event(_Done):
    """A moment in a stream. All work before it is done when it is recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.moment = 0.0
        self.device = torch.device("cuda", Machine.current)
        self.cuda_event = 0

    def record(self, stream: Any = None) -> None:
        """Record the present moment."""
        self.moment = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Return milliseconds of wall time."""
        return 1000.0 * (end.moment - self.moment)


class Stream(_Done):
    """A stream. On the CPU its work is done when each call returns."""

    stream_id = cuda_stream = priority = device_type = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", index(device))
        self.device_index = self.device.index
        self.priority = priority

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event recorded now."""
        event = event or Event()
        event.record()
        return event

    def is_capturing(self) -> bool:
        """Return False: nothing records a CUDA graph."""
        return False

    def __enter__(self) -> Stream:
        _entered.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _entered.pop()


_entered: list[Stream] = []
"""The streams that are current, the innermost last."""
_default_stream = cache(Stream)


def _first(device: Any = None) -> Stream:
    return _default_stream(index(device))


def _current(device: Any = None) -> Stream:
    return _entered[-1] if _entered else _first(device)


class StreamContext:
    """Makes a stream the current one for a while; None keeps the current one."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        _entered.append(self.stream or _current())

    def __exit__(self, *_: object) -> None:
        _entered.pop()


def _streams(homes: tuple[Any, ...]) -> None:
    swap("Stream ExternalStream", lambda _: Stream, torch.cuda, torch.cuda.streams)
    swap("Event", lambda _: Event, torch.cuda, torch.cuda.streams)
    swap("StreamContext", lambda _: StreamContext, torch.cuda)
    swap("stream", answering(StreamContext), torch.cuda)
    swap("current_stream", answering(_current), *homes)
    swap("default_stream", answering(_first), *homes)

    def become(stream: Stream) -> None:
        _entered[-1:] = [stream]

    swap("set_stream", answering(become), *homes)


def _graphs() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError(
            "CUDA graphs need a GPU, and this script runs on the CPU in its place. Switch the "
            "graphs off for this run, or run it on a machine with GPUs."
        )

    class NoGraph:
        """A CUDA graph, which only a GPU can record."""

        __new__ = refuse

    # torch.compile calls this before it looks at devices, and then uses no graphs.
    if not hasattr(torch._C, "_cuda_cudaCachingAllocator_is_enabled"):
        setattr(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)  # noqa: B010
    homes = [torch.cuda, torch.cuda.graphs, torch.accelerator]
    homes += [torch.accelerator.graphs] if hasattr(torch.accelerator, "graphs") else []
    swap("CUDAGraph graph Graph", lambda _: NoGraph, *homes)
    swap("make_graphed_callables graph_pool_handle", answering(refuse), *homes)


class _Mute:
    """Accepts any call and returns 0, which means success."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: 0


def _tools() -> None:
    swap("_nvtx", lambda _: _Mute(), torch.cuda.nvtx)
    swap("cudart", answering(_Mute), torch.cuda, torch.cuda.profiler)
    swap("check_error", answering(lambda *_: None), torch.cuda, torch.cuda.profiler)
    swap("version", answering(lambda: (2, 27, 5)), torch.cuda.nccl)
    swap("is_available", answering(lambda *_: True), torch.cuda.nccl)
