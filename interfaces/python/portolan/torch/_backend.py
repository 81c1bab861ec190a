# SPDX-License-Identifier: MIT OR Apache-2.0
"""The object that PyTorch expects as the backend of a device in a process group. It passes its calls on to
the group."""

from __future__ import annotations

import weakref
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

# Operations of a backend.
_OPERATIONS = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
    "set_timeout",
)


class Backend(_Backend):
    """Backend of the CPU in a process group."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group.rank(), group.size())
        self._group = weakref.ref(group)

    def getBackendName(self) -> str:
        """Returns the name of the backend."""
        return "portolan"


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: Backend, *arguments: Any, **options: Any) -> Any:
        group = self._group()
        if group is None:
            raise RuntimeError(f"{name}: the process group was destroyed")
        return getattr(group, name)(*arguments, **options)

    call.__name__ = name
    call.__doc__ = f"Calls `{name}` of the group."
    return call


for _name in _OPERATIONS:
    setattr(Backend, _name, _passed_on(_name))

# PyTorch reads these from this class, and does not find the defaults of its own class.
for _name in (
    "supports_coalescing",
    "supports_reconfigure",
    "supports_shrinking",
    "supports_splitting",
    "supports_window",
    "_supports_time_estimate",
):
    setattr(Backend, _name, property(lambda _: False))


def register(group: dist.ProcessGroup) -> Backend:
    """Makes a backend of `group` for the CPU. The caller keeps it."""
    backend, kind = Backend(group), dist.ProcessGroup.BackendType.CUSTOM
    group._set_default_backend(kind)
    group._register_backend(torch.device("cpu"), kind, backend)
    return backend
