# SPDX-License-Identifier: MIT OR Apache-2.0
"""A closed node refuses calls. A node that is dropped leaves the job."""

import portolan
from harness import raises

node = portolan.Node()
node.open(7)
request = node.post_recv(7, bytearray(4))
node.close()
node.close()
raises(portolan.Closed, lambda: node.recv(7))
raises(portolan.Closed, request.test)
del request, node
print("ok")
