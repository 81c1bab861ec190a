# SPDX-License-Identifier: MIT OR Apache-2.0
"""A process joins, leaves and joins again, and ends without leaving."""

import torch
import torch.distributed as dist

import portolan.torch  # noqa: F401  (registers the backend)

for number in range(3):
    dist.init_process_group("portolan")
    tensor = torch.full((3,), float(number))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(number * dist.get_world_size())] * 3
    if number < 2:
        dist.barrier()
        dist.destroy_process_group()
print("ok", dist.get_rank(), flush=True)
