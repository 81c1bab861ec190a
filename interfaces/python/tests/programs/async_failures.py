# SPDX-License-Identifier: MIT OR Apache-2.0
"""Coroutines at the end of their node."""

import asyncio

import portolan
from portolan import aio

# Time after which a coroutine hangs, in seconds.
LIMIT = 60


async def closed_nodes():
    """Checks that the end of a node ends the coroutines that wait for it."""
    for close in [lambda node: node.close(), lambda node: node.__aexit__(ValueError, None, None)]:
        node = aio.Node.standalone()
        node.open(7)
        waiting = [
            asyncio.create_task(node.recv(7)),
            asyncio.create_task(node.recv_into(7, bytearray(4))),
            asyncio.create_task(node.next_peer_event()),
        ]
        await asyncio.sleep(0)
        await close(node)
        ended = asyncio.gather(*waiting, return_exceptions=True)
        for error in await asyncio.wait_for(ended, LIMIT):
            assert isinstance(error, portolan.Closed), error


for check in [
    closed_nodes,
]:
    asyncio.run(check())
print("ok")
