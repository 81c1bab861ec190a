# SPDX-License-Identifier: MIT OR Apache-2.0
"""Heat spreads in a bar whose left end is kept at 100 degrees and whose right end is kept at 0.

Each process has a part of the bar, and exchanges the temperatures at its ends with its neighbours. The
input is the number of cells; in the end the temperatures fall evenly from left to right.

    $ portolan run -n 4 -- python heat.py 24
    96.0 80.0 64.0 48.0 32.0
"""

import sys

import numpy as np

import portolan

STEPS, PORT = 3000, 1

with portolan.Node() as node:
    cells = int(sys.argv[1])
    first, end = (cells * part // node.size for part in (node.rank, node.rank + 1))
    # The own cells, between one cell of each neighbour or an end of the bar.
    bar = np.zeros(end - first + 2)
    left, right = node.rank - 1, node.rank + 1
    if left < 0:
        bar[0] = 100
    node.open(PORT)
    for _ in range(STEPS):
        if left >= 0:
            node.send(left, PORT, bar[1:2])
        if right < node.size:
            node.send(right, PORT, bar[-2:-1])
            node.recv_into(PORT, bar[-1:], source=right)
        if left >= 0:
            node.recv_into(PORT, bar[:1], source=left)
        bar[1:-1] += 0.4 * (bar[:-2] - 2 * bar[1:-1] + bar[2:])
    counts = [cells * (rank + 1) // node.size - cells * rank // node.size for rank in range(node.size)]
    whole = np.zeros(cells)
    node.gatherv(bar[1:-1], whole, counts)
    if node.rank == 0:
        print(*np.round(whole[:: max(1, cells // 5)], 1)[:5])
