# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ctrl-C ends each kind of wait. The process sends itself the signal."""

import os
import signal
import sys
import threading
import time

import portolan


def interrupt_soon():
    """Sends SIGINT once the main thread waits."""
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(call):
    """Checks that the signal ends the call."""
    thread = threading.Thread(target=interrupt_soon)
    thread.start()
    try:
        call()
    except KeyboardInterrupt:
        thread.join()
        return
    raise AssertionError("the call has ended without KeyboardInterrupt")


# A command in the background of a shell ignores SIGINT, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

with portolan.Node() as node:
    node.open(7)
    if node.rank == 1:
        # It answers only after all interruptions.
        node.recv_tagged(1)
        assert node.recv_tagged(2)[0] == b"x" * 300_000
        node.recv_tagged(3)
        node.barrier()
        node.barrier()
        sys.exit(0)
    place = bytearray(4)
    interrupted(lambda: node.recv(7))
    interrupted(lambda: node.recv_into(7, place))
    interrupted(lambda: node.recv_tagged(9))
    interrupted(lambda: node.post_recv(7, bytearray(4)).wait())
    interrupted(lambda: node.wait_any([node.post_recv(7, bytearray(4))]))
    interrupted(lambda: node.call(1, 7, b"no server"))
    interrupted(lambda: node.probe(7))
    # The send stays under way, and its memory exported.
    data = bytearray(b"x" * 300_000)
    interrupted(lambda: node.send_tagged(1, 2, data))
    interrupted(node.barrier)
    place.extend(b"free")
    node.send_tagged(1, 1, b"")
    node.send_tagged(1, 3, b"")
    # The first barrier is the interrupted one.
    node.barrier()
    # The next call frees dropped requests that have ended.
    node.drops()
    data.extend(b"free")
print("ok")
