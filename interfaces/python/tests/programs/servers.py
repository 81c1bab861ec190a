# SPDX-License-Identifier: MIT OR Apache-2.0
"""A client of a server without a launcher, which is restarted. With arguments, the server."""

import subprocess
import sys
import time

import portolan

SECRET = b"16 random bytes or more"
PORT = 7


def serve(address):
    """Answers a call, and ends once the client has left."""
    with portolan.Node.standalone() as node:
        node.open(PORT)
        print(node.listen(address, SECRET), flush=True)
        call = node.recv_call(PORT)
        node.reply(call, call.data.upper())
        event = None
        while event is None or event[1] == "joined":
            node.progress()
            time.sleep(0.001)
            event = node.next_peer_event()
        assert event == (call.source, "left"), event


def call_once(node, address):
    """Calls a server at `address`, which it starts. Returns the server's address."""
    command = [sys.executable, __file__, address]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().strip()
    rank = node.connect(address, SECRET)
    assert node.next_peer_event() == (rank, "joined")
    assert node.call(rank, PORT, b"ahoy") == (0, b"AHOY")
    node.disconnect(rank)
    assert server.wait() == 0
    return address


def refused(node, address):
    """Checks that the node cannot connect. Returns the text of the error."""
    try:
        node.connect(address, SECRET, timeout=0.2)
    except portolan.Error as error:
        return str(error)
    raise AssertionError("connected to no server")


def ended(attempt):
    """Returns the result of an attempt, or the text of its error."""
    while True:
        try:
            rank = attempt.test()
        except portolan.Error as error:
            return str(error)
        if rank is not None:
            return rank
        time.sleep(0.001)


def attempts():
    """Checks that an attempt keeps its result."""
    with portolan.Node.standalone() as server, portolan.Node.standalone() as client:
        address = server.listen("127.0.0.1:0", SECRET)
        attempt = client.begin_connect(address, SECRET)
        rank = ended(attempt)
        assert [ended(attempt) for _ in range(2)] == [rank] * 2
        client.disconnect(rank)
        attempt = client.begin_connect("127.0.0.1:1", SECRET, timeout=0.1)
        error = ended(attempt)
        assert "127.0.0.1:1" in error and ended(attempt) == error, error


if len(sys.argv) > 1:
    serve(sys.argv[1])
else:
    with portolan.Node.standalone() as node:
        address = call_once(node, "127.0.0.1:0")
        call_once(node, address)
        assert address in refused(node, address)
    attempts()
    print("ok")
