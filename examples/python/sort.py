# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sorts numbers that are spread over all processes, by sample sort.

Each process sorts its numbers and picks samples, which divide the values into one range for each
process; one all-to-all exchange brings each number to the process of its range. The input is the count
of random numbers; the output has the smallest one, the quartiles and the largest one.

    $ portolan run -n 4 -- python sort.py 100000
    11 249366 499805 750885 999990
"""

import sys

import numpy as np

import portolan

with portolan.Node() as node:
    count, size = int(sys.argv[1]), node.size
    everything = np.random.default_rng(1).integers(0, 1_000_000, count)
    mine = np.sort(everything[node.rank :: size])

    # Samples of all processes give the limits of the ranges.
    samples = np.zeros((size, size), np.int64)
    node.allgather(mine[np.arange(size) * len(mine) // size], samples)
    limits = np.sort(samples, axis=None)[size // 2 :: size][1:] if size > 1 else samples[0, :0]
    cuts = np.concatenate(([0], np.searchsorted(mine, limits), [len(mine)]))
    sent = np.diff(cuts)

    received = np.zeros(size, np.int64)
    node.alltoall(sent, received)
    own = np.zeros(received.sum(), np.int64)
    node.alltoallv(mine, sent.tolist(), own, received.tolist())
    own.sort()

    counts = np.zeros(size, np.int64)
    node.allgather(np.array([len(own)]), counts)
    result = np.zeros(count, np.int64)
    node.gatherv(own, result, counts.tolist())
    if node.rank == 0:
        assert (result == np.sort(everything)).all()
        print(*result[[0, count // 4, count // 2, count * 3 // 4, -1]])
