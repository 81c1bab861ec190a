# SPDX-License-Identifier: MIT OR Apache-2.0
"""Trains a small transformer to predict the next letter of a text: by DistributedDataParallel over
Gloo and over Portolan, and sharded by FSDP. All must have the same losses."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch_harness import check, main, new_gloo_group

TEXT = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity. "
) * 8
LETTERS = sorted(set(TEXT))
LENGTH, BATCH, STEPS = 24, 4, 12


class Model(nn.Module):
    """A transformer of two layers over letters."""

    def __init__(self, width=32):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Parameter(torch.zeros(LENGTH, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(2)
        )
        self.out = nn.Linear(width, len(LETTERS))

    def forward(self, letters):
        hidden = self.letters(letters) + self.places
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask)
        return self.out(hidden)


def make_model():
    torch.manual_seed(1)
    return Model()


def batch(step, rank):
    """Returns letters and their successors, which differ between steps and ranks."""
    numbers = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    generator = torch.Generator().manual_seed(1000 * step + rank)
    begins = torch.randint(0, len(numbers) - LENGTH - 1, (BATCH,), generator=generator)
    rows = torch.stack([numbers[begin : begin + LENGTH + 1] for begin in begins.tolist()])
    return rows[:, :-1], rows[:, 1:]


def train(model, rank, parameters=None):
    """Trains, and returns the loss of each step."""
    optimizer = torch.optim.Adam(parameters or model.parameters(), lr=3e-3)
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(step, rank)
        outputs = model(inputs)
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_replicas(rank, group):
    # Small buckets, so that several are reduced while the gradients of others are computed.
    model = DistributedDataParallel(make_model(), process_group=group, bucket_cap_mb=0.02)
    losses = train(model, rank)
    # All replicas are equal.
    for parameter in model.parameters():
        first = parameter.detach().clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, parameter.detach())
    return losses


@check
def replicas_learn_like_those_of_gloo(rank, size):
    own = train_replicas(rank, dist.group.WORLD)
    theirs = train_replicas(rank, new_gloo_group())
    if size <= 2:
        # Sums of two numbers do not depend on their order.
        assert own == theirs, (own, theirs)
    assert torch.allclose(torch.tensor(own), torch.tensor(theirs), atol=2e-4), (own, theirs)
    assert own[-1] < 0.8 * own[0], own


@check
def shards_learn_like_replicas(rank, size):
    replicas = train_replicas(rank, dist.group.WORLD)
    mesh = init_device_mesh("cpu", (size,))
    model = make_model()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    shards = train(model, rank)
    assert torch.allclose(torch.tensor(replicas), torch.tensor(shards), atol=2e-4), (
        replicas,
        shards,
    )


@check
def fully_sharded_data_parallel_learns_too(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    replicas = train_replicas(rank, dist.group.WORLD)
    model = FullyShardedDataParallel(
        make_model(),
        auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}),
        device_id=torch.device("cpu"),
    )
    shards = train(model, rank)
    assert torch.allclose(torch.tensor(replicas), torch.tensor(shards), atol=2e-4), (
        replicas,
        shards,
    )


if __name__ == "__main__":
    main()
