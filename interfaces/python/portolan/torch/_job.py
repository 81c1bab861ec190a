# SPDX-License-Identifier: MIT OR Apache-2.0
"""Nodes of process groups: joined through a store of PyTorch, or by Portolan's launcher."""

from __future__ import annotations

import atexit
import os
import sys
from datetime import timedelta
from typing import Any, Iterator

import torch.distributed as dist

import portolan

# Bytes of a store's address: host and port.
_ADDRESS_LEN = 256


class Job:
    """A node, and the store in which its groups agree on their numbers."""

    def __init__(self, joined: portolan.Node, store: dist.Store) -> None:
        self.node = joined
        self.store = store
        self.is_open = True
        self._pid = os.getpid()

    def group(self, store: dist.Store, ranks: list[int]) -> portolan.Group:
        """Returns the group of the processes `ranks`, which alone have `store`."""
        if ranks == list(range(self.node.size)):
            return self.node.all if self.node.size == 1 else self._numbered(store, ranks)
        return self._numbered(store, ranks)

    def _numbered(self, store: dist.Store, ranks: list[int]) -> portolan.Group:
        if ranks[0] == self.node.rank:
            store.set("portolan-group", str(self.store.add("portolan-groups", 1)))
        return self.node.group(int(store.get("portolan-group")), ranks)

    def is_own(self) -> bool:
        """Returns false in a forked child of the process that has joined."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """Leaves the job after everything that was sent has arrived."""
        if self.is_open:
            self.is_open = False
            _jobs.remove(self)
            self.node.close()

    def abandon(self) -> None:
        """Leaves the job at once."""
        if self.is_open:
            self.is_open = False
            _jobs.remove(self)
            self.node.abandon()


_jobs: list[Job] = []
# The job of the default group, if that has this backend.
_default: Job | None = None
# A node that Portolan's launcher has started, until the default group uses it.
_launched: portolan.Node | None = None
_join_count = 0


def of_group(store: dist.Store, rank: int, size: int, ranks: list[int]) -> tuple[Job, Any]:
    """Returns the job and the group for a process group. `ranks` is empty for the default group."""
    global _default
    if ranks and _default is not None and _default.is_open:
        return _default, _default.group(store, ranks)
    job = _join(store, rank, size, is_default=not ranks)
    if not ranks:
        _default = job
    return job, job.node.all


def _join(store: dist.Store, rank: int, size: int, is_default: bool) -> Job:
    global _launched, _join_count
    if is_default and _launched is not None:
        joined, _launched = _launched, None
    else:
        # A store may outlive a process group, and has the values of earlier ones.
        _join_count += is_default
        own = dist.PrefixStore(f"portolan-{_join_count}", store)
        joined = portolan.Node.join_over(own, rank, size)
    job = Job(joined, store)
    _jobs.append(job)
    return job


def node() -> portolan.Node:
    """Returns the node of the default group."""
    if _default is None or not _default.is_open:
        raise ValueError(
            "the default process group does not have the backend portolan; "
            "call torch.distributed.init_process_group('portolan') first"
        )
    return _default.node


def rendezvous(
    url: str, timeout: timedelta = timedelta(minutes=5), **_: object
) -> Iterator[tuple[dist.Store, int, int]]:
    """Joins the job of ``portolan run``, and opens a store at its first process."""
    global _launched
    if url.split("://")[1] not in ("", "?"):
        raise ValueError(f"{url}: write portolan:// without a host, which the launcher knows")
    joined = portolan.Node()
    address = bytearray(_ADDRESS_LEN)
    store = None
    if joined.rank == 0:
        host = joined.network_addr() or "127.0.0.1"
        store = dist.TCPStore(
            host, 0, None, is_master=True, timeout=timeout, wait_for_workers=False
        )
        text = f"{store.port} {host}".encode()
        address[: len(text)] = text
    joined.broadcast(address)
    if store is None:
        port, host = address.rstrip(b"\0").decode().split(" ")
        store = dist.TCPStore(host, int(port), None, is_master=False, timeout=timeout)
    _launched = joined
    yield store, joined.rank, joined.size


def _leave() -> None:
    """Leaves jobs that the program has not left. After an uncaught exception their other processes
    get an error at once."""
    has_failed = hasattr(sys, "last_value") or hasattr(sys, "last_exc")
    for job in filter(Job.is_own, list(_jobs)):
        if has_failed:
            job.abandon()
        else:
            job.close()


atexit.register(_leave)
