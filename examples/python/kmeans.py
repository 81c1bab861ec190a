# SPDX-License-Identifier: MIT OR Apache-2.0
"""Finds the centres of clusters by k-means.

Each process assigns its points to the nearest centre, and one allreduce adds the sums and numbers of
points, from which all processes get the same new centres. The input is the number of points around
three hidden centres; the output has the centres that were found.

    $ portolan run -n 4 -- python kmeans.py 6000
    -2.0 3.0
    0.0 0.0
    4.0 1.0
"""

import sys

import numpy as np

import portolan

HIDDEN = np.array([[0.0, 0.0], [4.0, 1.0], [-2.0, 3.0]])

with portolan.Node() as node:
    count, clusters = int(sys.argv[1]), len(HIDDEN)
    random = np.random.default_rng(2)
    points = HIDDEN[random.integers(clusters, size=count)] + 0.3 * random.normal(size=(count, 2))
    centres = points[:clusters] + np.arange(clusters)[:, None]
    mine = points[node.rank :: node.size]
    for _ in range(20):
        nearest = np.linalg.norm(mine[:, None] - centres, axis=2).argmin(axis=1)
        # For each cluster the sum of its points, and their number.
        sums = np.zeros((clusters, 3))
        np.add.at(sums, nearest, np.column_stack([mine, np.ones(len(mine))]))
        node.allreduce(sums)
        centres = sums[:, :2] / np.maximum(sums[:, 2:], 1)
    if node.rank == 0:
        for centre in sorted(centres.tolist()):
            print(*(f"{round(value, 1) + 0:.1f}" for value in centre))
