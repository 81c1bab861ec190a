# SPDX-License-Identifier: MIT OR Apache-2.0
"""A forked child is not part of the job: its calls fail, also while a thread of its parent waits."""

import os
import signal
import sys
import threading
import time

import portolan
from harness import raises

# Time after which a child hangs, in seconds.
LIMIT = 60


def in_child(node, request):
    """Checks the calls of a child."""
    calls = [
        node.drops,
        node.barrier,
        node.close,
        request.test,
        request.wait,
        request.cancel,
        request.then,
        lambda: node.recv(7, timeout=0),
        lambda: node.wait_any([request]),
        lambda: node.post_recv(7, bytearray(4)),
    ]
    for call in calls:
        error = raises(portolan.Error, call)
        assert "forked" in str(error), error
    assert not request.done
    node.abandon()


def forked(node, request):
    """Forks a child, and checks that it ends with status 3."""
    child = os.fork()
    if child == 0:
        # It would end a child that hangs.
        signal.alarm(LIMIT)
        in_child(node, request)
        # The end of the `with` block.
        sys.exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3, status


with portolan.Node() as node:
    node.open(7)
    forked(node, node.post_recv(7, bytearray(4)))
    ended = threading.Event()
    request = node.post_recv(7, bytearray(4))
    request.then(lambda _: ended.set())
    # The thread of the package then has the node.
    time.sleep(0.1)
    for _ in range(3):
        forked(node, request)
    node.send(node.rank, 7, b"ahoy")
    assert ended.wait(LIMIT) and request.wait().len == 4
    # Every process receives before the first one leaves.
    node.barrier()
print("ok", flush=True)
