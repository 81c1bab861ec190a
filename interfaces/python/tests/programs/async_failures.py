# SPDX-License-Identifier: MIT OR Apache-2.0
"""Coroutines beside handlers that fail, at the end of their node, and after they were cancelled."""

import asyncio
import contextlib

import portolan
from harness import raises
from portolan import aio

SECRET = b"16 random bytes or more"
# Time after which a coroutine hangs, in seconds.
LIMIT = 60


@contextlib.asynccontextmanager
async def pair():
    """Yields two nodes, and the rank of the first at the second."""
    async with aio.Node.standalone() as server, aio.Node.standalone() as client:
        # The loop makes progress on a node from its first coroutine that waits.
        event = await wait_in(server, server.next_peer_event())
        address = server.listen("127.0.0.1:0", SECRET)
        rank = await client.connect(address, SECRET)
        assert (await event)[1] == "joined"
        yield server, client, rank
        await client.disconnect(rank)


@contextlib.contextmanager
def reported():
    """Yields the exceptions that the event loop reports."""
    loop = asyncio.get_running_loop()
    seen = []
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    yield seen
    loop.set_exception_handler(None)


async def wait_in(node, coroutine):
    """Returns a task that waits at the node."""
    task = asyncio.create_task(coroutine)
    await asyncio.sleep(0)
    assert not task.done()
    # From now on, the next turn of the loop completes the task.
    node.drops()
    return task


async def handlers_of_calls():
    """Checks that coroutines run on after a handler has failed between them."""

    def answer(call):
        if call.data == b"fail":
            raise ValueError("a handler fails")
        return call.data

    async with pair() as (server, client, rank):
        server.serve(7, answer)
        with reported() as seen:
            for _ in range(3):
                # The server then sleeps, and its handler runs when the loop wakes it up.
                await asyncio.sleep(0.05)
                reply = await asyncio.wait_for(client.call(rank, 7, b"fail"), LIMIT)
                assert reply == (65535, b"ValueError: a handler fails"), reply
                assert await asyncio.wait_for(client.call(rank, 7, b"ahoy"), LIMIT) == (0, b"ahoy")
            assert [str(error) for error in seen] == ["a handler fails"] * 3, seen


async def handlers_without_coroutines():
    """Checks that a handler runs on after it has raised errors of the library, while none waits."""

    def fail(_, data):
        raise portolan.NoSuchRank("a handler fails")

    async def send():
        count = len(seen)
        # The handler then runs when the loop makes progress.
        await asyncio.sleep(0.01)
        node.drops()
        node.node.isend(node.rank, 8, b"")
        while len(seen) == count:
            await asyncio.sleep(0)

    async with aio.Node.standalone() as node:
        node.open(7)
        node.open_active(8, fail)
        (await wait_in(node, node.recv(7))).cancel()
        with reported() as seen:
            for _ in range(3):
                await asyncio.wait_for(send(), LIMIT)
        assert [type(error) for error in seen] == [portolan.NoSuchRank] * 3, seen


async def handlers_in_tests_of_requests():
    """Checks the same for a handler that fails while the last coroutine is polled."""

    def fail(_, data):
        raise ValueError("a handler fails")

    async with aio.Node.standalone() as node:
        node.open(7)
        node.open_active(8, fail)
        place = bytearray(4)
        with reported() as seen:
            task = await wait_in(node, node.recv_into(7, place))
            node.node.isend(node.rank, 8, b"")
            while not seen:
                await asyncio.sleep(0)
            await node.send(node.rank, 7, b"ahoy")
            await asyncio.wait_for(task, LIMIT)
        assert place == b"ahoy" and [type(error) for error in seen] == [ValueError], seen


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


async def nodes_closed_elsewhere():
    """Checks the same for a node that is not closed by a coroutine."""
    node = aio.Node.standalone()
    node.open(7)
    waiting = [asyncio.create_task(node.recv(7)), asyncio.create_task(node.next_peer_event())]
    await asyncio.sleep(0.01)
    node.node.close()
    raises(portolan.Closed, lambda: node.drops())
    ended = asyncio.gather(*waiting, return_exceptions=True)
    for error in await asyncio.wait_for(ended, LIMIT):
        assert isinstance(error, portolan.Closed), error


def two_loops():
    """Checks that a node can be used in a loop after another one has ended."""

    async def start():
        task = await wait_in(node, node.recv(7))
        task.cancel()

    async def receive():
        task = await wait_in(node, node.recv(7))
        await node.send(node.rank, 7, b"ahoy")
        assert (await asyncio.wait_for(task, LIMIT))[0] == b"ahoy"

    node = aio.Node.standalone()
    node.open(7)
    for _ in range(2):
        asyncio.run(start())
        node.drops()
        asyncio.run(receive())
    node.node.close()


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
    handlers_of_calls,
    handlers_without_coroutines,
    handlers_in_tests_of_requests,
    closed_nodes,
    nodes_closed_elsewhere,
    cancelled_receives,
    cancelled_waits_for_events,
    two_receivers,
]:
    asyncio.run(check())
two_loops()
print("ok")
