# SPDX-License-Identifier: MIT OR Apache-2.0
"""Coroutines at the end of their node, and after they were cancelled."""

import asyncio

import portolan
from portolan import aio

SECRET = b"16 random bytes or more"
# Time after which a coroutine hangs, in seconds.
LIMIT = 60


async def wait_in(node, coroutine):
    """Returns a task that waits at the node."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    assert not task.done()
    # From now on, the next turn of the loop completes the task.
    node.drops()
    return task


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


async def cancelled_late(node, task):
    """Cancels a task between the arrival of its result and its next turn."""
    asyncio.get_running_loop().call_soon(task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("the task was not cancelled")


async def cancelled_receives():
    """Checks that coroutines that are cancelled after a message has arrived do not take it."""
    async with aio.Node.standalone() as node:
        node.open(7)
        sends = {
            node.recv: lambda: node.node.isend(node.rank, 7, b"kept"),
            node.recv_tagged: lambda: node.node.isend_tagged(node.rank, 7, b"kept"),
            node.recv_call: lambda: node.node.begin_call(node.rank, 7, b"kept"),
        }
        for receive, send in sends.items():
            task = await wait_in(node, receive(7))
            # It is pending until the end.
            sent = send()
            await cancelled_late(node, task)
            got = await asyncio.wait_for(receive(7), LIMIT)
            data = got.data if isinstance(got, portolan.Call) else got[0]
            assert data == b"kept", (receive, got)
            del sent


async def cancelled_waits_for_events():
    """Checks the same for the events of peers."""
    async with aio.Node.standalone() as server:
        client = portolan.Node.standalone()
        address = server.listen("127.0.0.1:0", SECRET)
        task = await wait_in(server, server.next_peer_event())
        attempt = client.begin_connect(address, SECRET)
        while attempt.test() is None:
            server.node.progress()
        await cancelled_late(server, task)
        closing = asyncio.get_running_loop().run_in_executor(None, client.close)
        kinds = [(await asyncio.wait_for(server.next_peer_event(), LIMIT))[1] for _ in range(2)]
        assert kinds == ["joined", "left"], kinds
        await closing


async def two_receivers():
    """Checks that each of two coroutines at one port gets a message."""
    async with aio.Node.standalone() as node:
        node.open(7)
        tasks = [asyncio.create_task(node.recv(7)) for _ in range(2)]
        await asyncio.sleep(0)
        for data in [b"one", b"two"]:
            await node.send(node.rank, 7, data)
        got = await asyncio.wait_for(asyncio.gather(*tasks), LIMIT)
        assert [data for data, _ in got] == [b"one", b"two"], got


for check in [
    closed_nodes,
    cancelled_receives,
    cancelled_waits_for_events,
    two_receivers,
]:
    asyncio.run(check())
print("ok")
