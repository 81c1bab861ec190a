# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server and clients without a launcher, as coroutines of one event loop."""

import asyncio
import socket

import portolan
from portolan import aio

SECRET = b"16 random bytes or more"
PORT = 7


async def serve(node):
    """Answers calls."""
    while True:
        call = await node.recv_call(PORT)
        node.reply(call, call.data.upper())


async def visit(address):
    """Connects as a client, makes calls, and leaves. Returns the last reply."""
    async with aio.Node.standalone() as node:
        rank = await node.connect(address, SECRET)
        assert await node.next_peer_event() == (rank, "joined")
        for index in range(20):
            status, reply = await node.call(rank, PORT, b"ahoy %d" % index)
            assert (status, reply) == (0, b"AHOY %d" % index)
        await node.disconnect(rank)
        return reply


async def clients(server, address):
    """Checks that several clients are served at once, and that the server gets their events."""
    replies = await asyncio.gather(*(visit(address) for _ in range(3)))
    assert replies == [b"AHOY 19"] * 3
    events = [await server.next_peer_event() for _ in range(6)]
    assert sorted(kind for _, kind in events) == ["joined"] * 3 + ["left"] * 3, events


async def late_server(address):
    """Checks that a client waits for a server that starts later, beside other work."""
    async with aio.Node.standalone() as client:
        connecting = asyncio.create_task(client.connect(address, SECRET))
        await asyncio.sleep(0.05)
        assert not connecting.done()
        async with aio.Node.standalone() as server:
            server.open(PORT)
            server.listen(address, SECRET)
            rank = await connecting
            await client.send(rank, PORT, b"late")
            assert (await server.recv(PORT))[0] == b"late"
            await client.disconnect(rank)


async def failures(address):
    """Checks the errors of attempts, and that a cancelled one is given up."""
    async with aio.Node.standalone() as node:
        try:
            await node.connect(address, SECRET, timeout=0.1)
            raise AssertionError("connected to no server")
        except portolan.Error as error:
            assert address in str(error), error
        try:
            await asyncio.wait_for(node.connect(address, SECRET), 0.1)
            raise AssertionError("connected to no server")
        except asyncio.TimeoutError:
            pass


def unused_address():
    """Returns an address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def main():
    async with aio.Node.standalone() as server:
        server.open(PORT)
        address = server.listen("127.0.0.1:0", SECRET)
        serving = asyncio.create_task(serve(server))
        await clients(server, address)
        serving.cancel()
    await late_server(unused_address())
    await failures(unused_address())
    print("ok")


asyncio.run(main())
