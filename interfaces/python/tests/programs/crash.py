# SPDX-License-Identifier: MIT OR Apache-2.0
"""The end of a process raises PeerGone at the one that waits for it."""

import os
import signal

import portolan
from harness import raises

node = portolan.Node()
node.open(7)
node.barrier()
if node.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
error = raises(portolan.PeerGone, lambda: node.recv(7, source=1))
assert "rank 1 on" in str(error) and "SIGKILL" in str(error), error
print("ok", flush=True)
node.abandon()
