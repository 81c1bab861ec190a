# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures half a round trip of Python between ranks 0 and 1, like `examples/c/pingpong.c`::

    portolan run -n 2 -- python bench/python/pingpong.py [BYTES [ROUNDS]]

Messages are NumPy arrays if NumPy is installed and they have whole numbers of 8 bytes, and otherwise
bytearrays.
"""

import sys
import time

import portolan

try:
    import numpy
except ImportError:
    numpy = None

PORT = 7


def play(node, buffer, rounds):
    """Exchanges `rounds` messages in each direction. Returns the seconds of rank 0."""
    other = 1 - node.rank
    send, receive = node.send, node.recv_into
    begin = time.perf_counter()
    if node.rank == 0:
        for _ in range(rounds):
            send(other, PORT, buffer)
            receive(PORT, buffer)
    else:
        for _ in range(rounds):
            receive(PORT, buffer)
            send(other, PORT, buffer)
    return time.perf_counter() - begin


def main():
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    if numpy is not None and length % 8 == 0:
        buffer = numpy.zeros(length // 8)
    else:
        buffer = bytearray(length)
    with portolan.Node() as node:
        node.open(PORT)
        node.barrier()
        if node.rank < 2:
            play(node, buffer, max(1, rounds // 20))
            half = 1e6 * play(node, buffer, rounds) / (2 * rounds)
            if node.rank == 0:
                print(f"{length} bytes: {half:.3f} µs")
        node.barrier()


main()
