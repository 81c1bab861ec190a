# SPDX-License-Identifier: MIT OR Apache-2.0
"""Coroutines that wait for messages, beside other work of the event loop."""

import asyncio
import contextlib

import portolan
from portolan import aio


async def ring(node):
    after, before = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    for len_ in [0, 5, 5000, 200_000]:
        _, (data, source) = await asyncio.gather(
            node.send(after, 7, bytes([node.rank]) * len_), node.recv(7)
        )
        assert (data, source) == (bytes([before]) * len_, before)


async def tags(node):
    after = (node.rank + 1) % node.size
    # Receives that begin before their messages, in another order.
    places = [bytearray(4) for _ in range(8)]
    receives = [
        asyncio.create_task(node.recv_tagged_into(place, tag)) for tag, place in enumerate(places)
    ]
    await asyncio.sleep(0)
    for tag in reversed(range(8)):
        await node.send_tagged(after, tag, bytes([tag] * 4))
    statuses = await asyncio.gather(*receives)
    assert [status.tag for status in statuses] == list(range(8))
    assert [place[0] for place in places] == list(range(8))


async def other_work(node):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1
            if ticks == 3:
                await node.send(node.rank, 8, b"after three ticks")

    task = asyncio.create_task(tick())
    data, source = await node.recv(8)
    assert (data, source) == (b"after three ticks", node.rank) and ticks >= 3
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def cancelled(node):
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(node.recv(8), 0.02)
        raise AssertionError("nothing was sent")
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(node.recv_into(8, bytearray(4)), 0.02)
        raise AssertionError("nothing was sent")
    await node.send(node.rank, 8, b"kept")
    assert (await node.recv(8))[0] == b"kept"


async def calls(node):
    after = (node.rank + 1) % node.size
    node.serve(9, lambda call: bytes(call.data).upper())
    await node.barrier()
    assert await node.call(after, 9, b"ahoy") == (0, b"AHOY")


async def errors(node):
    try:
        await node.recv(4000)
    except portolan.PortClosed:
        return
    raise AssertionError("the port is closed")


async def events(node):
    """Checks that coroutines that wait for events get one of each rank that leaves, and an error at
    the end."""
    kinds = {}
    for _ in range(node.size - 1):
        rank, kind = await node.next_peer_event()
        kinds[rank] = kind
    assert kinds == {rank: "left" for rank in range(1, node.size)}, kinds
    waiting = [asyncio.create_task(node.next_peer_event()) for _ in range(2)]
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, portolan.NobodyLeft), error


async def main():
    async with aio.Node() as node:
        node.open(7)
        node.open(8)
        for check in [ring, tags, other_work, cancelled, calls, errors]:
            await check(node)
            values = bytearray((node.rank + 1).to_bytes(4, "little"))
            await node.allreduce(memoryview(values).cast("i"))
            assert int.from_bytes(values, "little") == node.size * (node.size + 1) // 2
            await node.barrier()
            if node.rank == 0:
                print("ok", check.__name__, flush=True)
        if node.rank == 0 and node.size > 1:
            await events(node)
            print("ok events", flush=True)


asyncio.run(main())
