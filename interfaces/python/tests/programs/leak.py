# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sends many messages of each kind, and checks that memory and references do not grow."""

import gc
import os
import sys

import portolan

MESSAGES = int(os.environ.get("PYTHON_TEST_MESSAGES", "100000"))


def resident():
    """Returns the resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


with portolan.Node() as node:
    other = (node.rank + 1) % node.size
    node.open(7)
    handled = []
    node.open_active(8, lambda source, data: handled.append(source))
    place, data = bytearray(64), bytes(64)

    def round_of(count):
        for _ in range(count // 4):
            send = node.isend(other, 7, data)
            node.recv_into(7, place)
            send.wait()
            posted = node.post_recv(7, place)
            node.send(other, 7, data)
            posted.wait()
            node.send_tagged(other, 5, data)
            node.recv_tagged(5)
            node.send(other, 8, data)
            while not handled:
                node.progress()
            handled.clear()

    round_of(2000)
    gc.collect()
    before, references = resident(), (sys.getrefcount(place), sys.getrefcount(data))
    round_of(MESSAGES)
    gc.collect()
    assert (sys.getrefcount(place), sys.getrefcount(data)) == references
    grown = resident() - before
    # One leaked object of 32 bytes for each message exceeds this from 2^17 messages on.
    assert grown < 4 << 20, f"{grown} bytes more after {MESSAGES} messages"
print("ok")
