"""Shared memory, in which replicas on the CPUs of one machine add their gradients.

gloo moves gradients through TCP, also within a machine, with threads that compete with the replicas
for the cores. Here each replica writes its gradient into its slot and adds one share of all slots.
A barrier separates writing from reading: every replica sends one byte to every other one. A replica
that waits sleeps, one that dies closes its sockets, and the kernel orders the memory.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import torch
from torch import Tensor

from lockstep.engine.exchange.reduce import tree_sum
from lockstep.engine.group import Group

SLOT = 1 << 20
"""Bytes of each replica's slot; longer gradients are added in pieces of this size."""
SPINS = 50
"""Looks at a socket before sleeping on it: waiting for a replica that is close is faster so."""


class SharedMemory:
    """The slots of all replicas, one more for their sum, and a socket to each of the others."""

    def __init__(
        self, memory: mmap.mmap, rank: int, peers: dict[int, socket.socket], timeout: float
    ) -> None:
        self.memory, self.rank, self.peers, self.timeout = memory, rank, peers, timeout
        self.size = len(peers) + 1
        self.views: dict[torch.dtype, tuple[Tensor, ...]] = {}
        for peer in peers.values():
            # Not `settimeout`, which would ask twice every time.
            peer.setblocking(True)
            limit = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        # With more replicas than cores, looking would keep the awaited replica from working.
        self.spins = SPINS if self.size <= len(os.sched_getaffinity(0)) else 0

    def add(self, buffer: Tensor) -> None:
        """Replace `buffer` by the sum over all replicas, in tree order."""
        try:
            for piece in buffer.split(SLOT // buffer.element_size()):
                self._add(piece)
        except BaseException:
            # Bytes of this sum may still be on their way: they must not count for the next sum.
            for peer in self.peers.values():
                peer.close()
            raise

    def _add(self, piece: Tensor) -> None:
        *slots, total = (slot[: len(piece)] for slot in self._slots(piece.dtype))
        slots[self.rank].copy_(piece)
        self.meet()
        each = -(-len(piece) // self.size)
        share = slice(self.rank * each, (self.rank + 1) * each)
        total[share] = tree_sum([slot[share] for slot in slots])
        # No replica writes sums again before all have met for the next piece.
        self.meet()
        piece.copy_(total)

    def _slots(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        if dtype not in self.views:
            self.views[dtype] = torch.frombuffer(self.memory, dtype=dtype).chunk(self.size + 1)
        return self.views[dtype]

    def meet(self) -> None:
        """Wait until all replicas have come here."""
        for rank, peer in self.peers.items():
            try:
                peer.send(b".")
            except OSError:
                raise ConnectionError(f"replica {rank} is gone") from None
        for rank, peer in self.peers.items():
            try:
                came = self._hear(peer)
            except BlockingIOError:
                raise TimeoutError(
                    f"replica {rank} has not come to the exchange within {self.timeout:g} s"
                ) from None
            except ConnectionError:
                came = b""
            if not came:
                raise ConnectionError(f"replica {rank} is gone")

    def _hear(self, peer: socket.socket) -> bytes:
        for _ in range(self.spins):
            with suppress(BlockingIOError):
                return peer.recv(1, socket.MSG_DONTWAIT)
        return peer.recv(1)


JOINING = 10.0
"""Longest time to join, in seconds: less than the group waits, so that all hear of a failure."""
REFUSED = (OSError, struct.error)
"""What the system, or a stranger who connects, may raise."""


def set_up(group: Group, timeout: float) -> SharedMemory | str:
    """Return the shared memory of a group, or why there is none; all replicas get one answer."""
    if sys.platform != "linux":
        return "it needs Linux"
    patience = min(timeout / 3, JOINING)
    with ExitStack() as opened:
        listener, here, reason = None, None, None
        try:
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            listener.settimeout(patience)
            # A name that the kernel makes up, in no file system.
            listener.bind("")
            listener.listen(group.world.size)
            here = (_machine(), listener.getsockname())
        except REFUSED as error:
            reason = _described(error)
        answers = group.objects((here, reason))
        if reasons := [r for _, r in answers if r is not None]:
            return reasons[0]
        places = [place for place, _ in answers]
        if len({machine for machine, _ in places}) > 1:
            return "the replicas are on several machines"
        assert listener is not None
        memory = None
        try:
            memory = _joined(group, listener, [name for _, name in places], patience, timeout)
        except REFUSED as error:
            reason = _described(error)
        # Send away processes that still wait to connect.
        listener.close()
        reasons = [r for r in group.objects(reason) if r is not None]
        # The cause, not what followed from it on other replicas.
        causes = [r for r in reasons if not r.startswith(("Timeout", "Connection", "BrokenPipe"))]
        return memory if memory is not None and not reasons else (causes or reasons)[0]


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _machine() -> tuple[str, str]:
    """Return what is equal for processes that can reach each other's sockets, and for no others."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return boot, os.readlink("/proc/self/ns/net")


def _joined(
    group: Group, listener: socket.socket, addresses: list[bytes], patience: float, timeout: float
) -> SharedMemory:
    """Connect to the replicas before this one, accept those after it, and share the memory."""
    rank, size = group.world.rank, group.world.size
    peers: dict[int, socket.socket] = {}
    with ExitStack() as opened:
        for other in range(rank):
            peers[other] = opened.enter_context(socket.socket(socket.AF_UNIX))
            peers[other].settimeout(patience)
            peers[other].connect(addresses[other])
            peers[other].sendall(struct.pack("i", rank))
        while len(peers) < size - 1:
            caller = opened.enter_context(listener.accept()[0])
            caller.settimeout(patience)
            if not _ours(caller):
                continue
            (other,) = struct.unpack("i", caller.recv(4))
            peers[other] = caller
        memory = _memory(peers, rank, (size + 1) * SLOT)
        opened.pop_all()
    return SharedMemory(memory, rank, peers, timeout)


def _ours(caller: socket.socket) -> bool:
    """Tell whether the caller belongs to the same user: anybody on the machine can connect."""
    credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def _memory(peers: dict[int, socket.socket], rank: int, length: int) -> mmap.mmap:
    """Make the memory on the first replica and hand it to the others; it ends with the last."""
    if rank == 0:
        file = os.memfd_create("lockstep")
    else:
        _, files, _, _ = socket.recv_fds(peers[0], 1, 1)
        if not files:
            raise ConnectionError("replica 0 has no memory to share")
        file = files[0]
    try:
        if rank == 0:
            os.posix_fallocate(file, 0, length)
            for peer in peers.values():
                socket.send_fds(peer, [b"."], [file])
        return mmap.mmap(file, length)
    finally:
        os.close(file)
