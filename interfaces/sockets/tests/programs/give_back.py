# SPDX-License-Identifier: MIT OR Apache-2.0
"""Passes a connection with unread bytes to a program without the library, which must read them all.

    give_back.py HOW WRITER LEN BUFFER

HOW is `message` (SCM_RIGHTS), `exec` or `spawn`. WRITER is what the writing end does after its LEN bytes, and before
the connection is passed: `waits`, `shuts` its direction, or `closes` the connection. A writer that waits sends more
bytes once it was passed. BUFFER is the size of the kernel's buffers, or 0 for the default.

If WRITER is `blocks`, its LEN bytes do not fit into ring and kernel, so it still sends them when the connection is
passed. The bytes cannot return then: passing it must end, and the program with the library reads them all.
"""

import array
import fcntl
import hashlib
import os
import socket
import subprocess
import sys
import termios
import time

READER = (
    "import hashlib, socket, sys\n"
    "s = socket.socket(fileno=int(sys.argv[1])) if sys.argv[1] != '-' else None\n"
    "if s is None:\n"
    " carrier = socket.socket(fileno=0)\n"
    " s = socket.socket(fileno=socket.recv_fds(carrier, 1, 1)[1][0])\n"
    "s.setblocking(True)\n"
    "h, n = hashlib.sha256(), 0\n"
    "while b := s.recv(65536):\n"
    " h.update(b)\n"
    " n += len(b)\n"
    "print(n, h.hexdigest(), flush=True)\n"
)
ROUNDS, KEPT, MORE = 40, 990, 5000
RING = 256 * 1024


def stream(count):
    """Returns the first bytes of the stream, no two parts of which are equal."""
    return array.array("Q", range(count // 8 + 1)).tobytes()[:count]


def limit(end, buffer):
    """Sets the sizes of the kernel's buffers."""
    if buffer:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)


def write(port, writer, length, buffer, go, done):
    """The end that connects and writes."""
    end = socket.create_connection(("127.0.0.1", port))
    limit(end, buffer)
    for _ in range(ROUNDS):
        end.sendall(b"p" * 10)
        assert end.recv(10, socket.MSG_WAITALL) == b"q" * 10
    whole = stream(KEPT + length + MORE)
    # The reader takes a part of the first bytes, and from then on permits the ring.
    end.sendall(b"r" * 10 + whole[:KEPT])
    os.read(go, 1)
    if writer == "blocks":
        os.write(done, b".")
    end.sendall(whole[KEPT : KEPT + length])
    if writer == "shuts":
        end.shutdown(socket.SHUT_WR)
    if writer in ("closes", "blocks"):
        end.close()
    if writer == "blocks":
        return
    os.write(done, b".")
    os.read(go, 1)
    if writer == "waits":
        end.sendall(whole[KEPT + length :])
        end.close()


def pass_on(end, how):
    """Passes the connection; `exec` does not return."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    reader = [sys.executable, "-c", READER]
    os.set_inheritable(end.fileno(), True)
    if how == "exec":
        os.execve(reader[0], [*reader, str(end.fileno())], plain)
    if how == "spawn":
        command = [*reader, str(end.fileno())]
        return os.posix_spawn(reader[0], command, plain)
    near, far = socket.socketpair()
    with far:
        child = subprocess.Popen([*reader, "-"], stdin=far, env=plain)
    socket.send_fds(near, [b"."], [end.fileno()])
    return child.pid


def pass_in_vain(end, how):
    """Passes the connection while its writer sends, to a program that does not read it. Then reads it all here."""
    unread = array.array("i", [0])
    while unread[0] <= KEPT + RING:
        time.sleep(0.01)
        fcntl.ioctl(end, termios.FIONREAD, unread)
    if how == "spawn":
        os.set_inheritable(end.fileno(), True)
        os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)
    else:
        near, far = socket.socketpair()
        with near, far:
            socket.send_fds(near, [b"."], [end.fileno()])
    digest, count = hashlib.sha256(), 0
    while part := end.recv(65536):
        digest.update(part)
        count += len(part)
    print(count, digest.hexdigest(), flush=True)


def main(how, writer, length, buffer):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    (go_out, go), (done_out, done) = os.pipe(), os.pipe()
    shown, show = os.pipe()
    if os.fork() == 0:
        os.dup2(show, 1)
        os.close(show)
        if os.fork() == 0:
            listener.close()
            write(port, writer, length, buffer, go_out, done)
            os._exit(0)
        end, _ = listener.accept()
        limit(end, buffer)
        for _ in range(ROUNDS):
            assert end.recv(10, socket.MSG_WAITALL) == b"p" * 10
            end.sendall(b"q" * 10)
        assert end.recv(10, socket.MSG_WAITALL) == b"r" * 10
        os.write(go, b".")
        os.read(done_out, 1)
        if writer == "blocks":
            pass_in_vain(end, how)
            os._exit(0)
        # The writer goes on when it can only reach the new program: this pipe also ends with exec.
        ended, held = os.pipe()
        if os.fork() == 0:
            end.close()
            os.close(held)
            os.read(ended, 1)
            os.write(go, b".")
            os._exit(0)
        child = pass_on(end, how)
        end.close()
        os.close(held)
        os.waitpid(child, 0)
        os._exit(0)
    os.close(show)
    listener.close()
    with os.fdopen(shown) as file:
        found = file.read().split()
    wanted = stream(KEPT + length + (MORE if writer == "waits" else 0))
    expected = [str(len(wanted)), hashlib.sha256(wanted).hexdigest()]
    if found != expected:
        sys.exit(f"{found} instead of {expected}")


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
