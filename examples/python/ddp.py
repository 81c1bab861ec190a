# SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains a network of PyTorch to add two numbers, by DistributedDataParallel.

Each process has its own examples, and the backend portolan averages the gradients of all while the next
ones are computed. The input is the number of steps; the output is the network's sum of 0.3 and 0.4.

    $ portolan run -n 2 -- python ddp.py 200
    0.3 + 0.4 = 0.7
    $ python -m torch.distributed.run --standalone --nproc-per-node 2 ddp.py 200
    0.3 + 0.4 = 0.7
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import portolan.torch  # registers the backend

# torchrun sets variables; portolan run needs none.
dist.init_process_group("portolan", init_method=None if "RANK" in os.environ else "portolan://")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(int(sys.argv[1])):
    examples = torch.rand(32, 2)
    loss = (model(examples).squeeze(1) - examples.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"0.3 + 0.4 = {model(torch.tensor([[0.3, 0.4]])).item():.1f}")
dist.destroy_process_group()
