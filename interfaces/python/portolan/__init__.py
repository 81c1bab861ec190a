# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fast messages between the processes of parallel programs, over plain Ethernet and shared memory.

A program that ``portolan run`` has started joins its job and exchanges messages with the others::

    import portolan

    with portolan.Node() as node:
        node.open(7)
        node.send((node.rank + 1) % node.size, 7, b"ahoy")
        data, source = node.recv(7)
        print(f"rank {node.rank} got {data} from rank {source}")

Data is everything with the buffer protocol: bytes, bytearray, memoryview, NumPy arrays. It is sent
and received in place. ``portolan.aio`` has the same node for asyncio.
"""

from ._portolan import (
    Call,
    Cancelled,
    Closed,
    CollectiveMismatch,
    Connecting,
    Error,
    Group,
    Memory,
    Node,
    NobodyLeft,
    NoSuchRank,
    PeerGone,
    PortClosed,
    PortInUse,
    RemoteRefused,
    Request,
    Status,
    TimedOut,
    Truncated,
    Window,
    __version__,
)

__all__ = [
    "Call",
    "Cancelled",
    "Closed",
    "CollectiveMismatch",
    "Connecting",
    "Error",
    "Group",
    "Memory",
    "Node",
    "NobodyLeft",
    "NoSuchRank",
    "PeerGone",
    "PortClosed",
    "PortInUse",
    "RemoteRefused",
    "Request",
    "Status",
    "TimedOut",
    "Truncated",
    "Window",
    "__version__",
]
