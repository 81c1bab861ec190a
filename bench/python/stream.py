# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures the bandwidth of NumPy arrays from rank 0 to rank 1, with four messages in flight::

    portolan run -n 2 -- python bench/python/stream.py [BYTES [COUNT]]

`stream.c` does the same in C.
"""

import sys
import time

import numpy

import portolan

PORT, IN_FLIGHT = 7, 4


def play(begin, arrays, count):
    """Transfers `count` messages."""
    requests = [begin(array) for array in arrays]
    for index in range(IN_FLIGHT, count):
        slot = index % IN_FLIGHT
        requests[slot].wait()
        requests[slot] = begin(arrays[slot])
    for request in requests:
        request.wait()


def main():
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    arrays = [numpy.zeros(length // 8) for _ in range(IN_FLIGHT)]
    with portolan.Node() as node:
        node.open(PORT)

        def begin(array):
            return node.isend(1, PORT, array) if node.rank == 0 else node.post_recv(PORT, array)

        node.barrier()
        play(begin, arrays, 100)
        node.barrier()
        start = time.perf_counter()
        play(begin, arrays, count)
        if node.rank == 1:
            print(f"{length} bytes: {1e-6 * length * count / (time.perf_counter() - start):.0f} MB/s")
        node.barrier()


main()
