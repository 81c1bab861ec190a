# SPDX-License-Identifier: MIT OR Apache-2.0
"""The last rank is killed. Operations of the others raise an exception that names it."""

import os
import signal

import torch
import torch.distributed as dist
from torch_harness import init, raises

init()
rank, size = dist.get_rank(), dist.get_world_size()
dist.barrier()
if rank == size - 1:
    os.kill(os.getpid(), signal.SIGKILL)
error = raises(RuntimeError, lambda: dist.recv(torch.zeros(1), size - 1))
assert f"rank {size - 1}" in str(error), error
error = raises(RuntimeError, lambda: dist.all_reduce(torch.zeros(100_000)))
assert f"rank {size - 1}" in str(error), error
print("ok", rank, flush=True)
dist.distributed_c10d._get_default_group().abort()
