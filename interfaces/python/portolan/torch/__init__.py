# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backend ``portolan`` of ``torch.distributed``, for tensors of the CPU.

::

    import torch.distributed as dist
    import portolan.torch

    dist.init_process_group("portolan")          # started by torchrun
    dist.init_process_group("portolan", init_method="portolan://")     # started by portolan run

Processes find each other through PyTorch's store. Tensors are sent and received in place.
"""

import torch.distributed as dist

from ._group import ProcessGroup, create
from ._job import node, rendezvous
from ._work import Work

__all__ = ["ProcessGroup", "Work", "node"]

if "portolan" not in dist.Backend.backend_list:
    dist.Backend.register_backend("portolan", create, extended_api=True, devices=["cpu"])
    dist.register_rendezvous_handler("portolan", rendezvous)
