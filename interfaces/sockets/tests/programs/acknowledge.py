# SPDX-License-Identifier: MIT OR Apache-2.0
"""Requests by the kernel with replies by memory, in a network namespace of its own: `acknowledge.py LIBRARY`.

Prints the number of delayed acknowledgements. A request waits for each of them, because the client's kernel holds
back a short segment until the one before was acknowledged.
"""

import os
import socket
import subprocess
import sys

EXCHANGES = 400


def serve(listener):
    end, _ = listener.accept()
    # A buffer that is never filled: the server expects nothing, and sleeps.
    while bytes := end.recv(4096):
        end.sendall(bytes)


def exchange(port):
    end = socket.create_connection(("127.0.0.1", port))
    for number in range(EXCHANGES):
        request = b"%099d " % number
        end.sendall(request)
        assert end.recv(100, socket.MSG_WAITALL) == request


def delayed():
    """Returns the namespace's number of delayed acknowledgements."""
    with open("/proc/net/netstat") as file:
        names, values = (line.split() for line in file if line.startswith("TcpExt:"))
    return int(values[names.index("DelayedACKs")])


def main(library):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.set_inheritable(True)
    before = delayed()
    common = dict(os.environ, LD_PRELOAD=library, PORTOLAN_SOCKETS_CALLS="2")
    script = [sys.executable, __file__]
    server = subprocess.Popen([*script, "server", str(listener.fileno())], env=common, pass_fds=[listener.fileno()])
    spinning = dict(common, PORTOLAN_SOCKETS_SPIN_NS="50000000")
    subprocess.run([*script, "client", str(listener.getsockname()[1])], env=spinning, check=True, timeout=100)
    assert server.wait(20) == 0
    print(delayed() - before)


if sys.argv[1] == "server":
    serve(socket.socket(fileno=int(sys.argv[2])))
elif sys.argv[1] == "client":
    exchange(int(sys.argv[2]))
else:
    main(sys.argv[1])
