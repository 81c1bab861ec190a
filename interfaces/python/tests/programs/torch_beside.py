# SPDX-License-Identifier: MIT OR Apache-2.0
"""A group of Portolan beside a default group of Gloo."""

import os

import torch
import torch.distributed as dist

import portolan.torch  # noqa: F401  (registers the backend)

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
for ranks in (range(size), range(1, size)):
    group = dist.new_group(list(ranks), backend="portolan")
    if rank in ranks:
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [float(sum(ranks))] * 3
dist.barrier()
dist.destroy_process_group()
print("ok", rank, flush=True)
# Gloo may wait for ever at the end of the interpreter.
os._exit(0)
