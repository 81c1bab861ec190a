# SPDX-License-Identifier: MIT OR Apache-2.0
"""A hostile user's process at a broker: hostile.py BROKER DESTINATION-MAC UID

Starts as root on a host of a lab, gives every privilege up, has the broker lend it sockets, and tries
what it should not be able to do. Prints a line for each attempt: "ok NAME" or "FAIL NAME WHY". Frames
that should leave carry HONEST, all others FORGED: somebody else watches the wire.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import struct
import sys

BROKER, DESTINATION, UID = sys.argv[1], bytes.fromhex(sys.argv[2].replace(":", "")), int(sys.argv[3])
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_RX_RING, PACKET_TX_RING, PACKET_FANOUT = 1, 5, 13, 18
PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING, PACKET_VNET_HDR, PACKET_VERSION = 20, 23, 15, 10
SO_ATTACH_FILTER, SO_DETACH_FILTER, SO_LOCK_FILTER, SO_MARK = 26, 27, 44, 36
ETH_P_ALL, OURS = 3, 0x88B5
RING_LEN = 1 << 18
# Errors that kernels return when a rule drops a frame.
DROPPED = (errno.EPERM, errno.ENOBUFS)



def witness(ours):
    """What root sees by the capture that the user tries below, in the same namespace: as long as it
    sees frames, those who do not are kept from them. Told to look, says how many HONEST ones came."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect("\0" + BROKER[1:] if BROKER.startswith("@") else BROKER)
    connection.send(struct.pack("<4sHHII16s", b"PBRK", 1, 1, RING_LEN, 0, b"eth0"))
    _, fds, _, _ = socket.recv_fds(connection, 64, 4)
    # SIOCGSKNS of linux/sockios.h, and CLONE_NEWNET.
    namespace = fcntl.ioctl(fds[0], 0x894C)
    if ctypes.CDLL(None).setns(namespace, 0x40000000):
        raise OSError("setns")
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    capture.bind(("portolan0", ETH_P_ALL))
    ours.send(b"ready")
    ours.recv(1)
    seen = 0
    while select.select([capture], [], [], 0)[0]:
        seen += b"HONEST" in capture.recv(2048)
    ours.send(struct.pack("<I", seen))


root, ours = socket.socketpair()
if os.fork() == 0:
    root.close()
    witness(ours)
    os._exit(0)
ours.close()
root.recv(5)

os.setgroups([])
os.setresgid(UID, UID, UID)
os.setresuid(UID, UID, UID)


def say(name, ok, why=""):
    print(f"{'ok' if ok else 'FAIL'} {name} {'' if ok else why}".strip(), flush=True)


def refused(name, attempt, *wanted):
    """The attempt must fail, with one of the errors wanted."""
    try:
        result = attempt()
    except OSError as error:
        say(name, error.errno in wanted, error)
    else:
        say(name, False, f"it was possible: {result}")


def connect():
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    name = "\0" + BROKER[1:] if BROKER.startswith("@") else BROKER
    connection.connect(name)
    return connection


def request(interface=b"eth0", ring_len=RING_LEN, version=1, kind=1, zero=0):
    return struct.pack("<4sHHII16s", b"PBRK", version, kind, ring_len, zero, interface)


class Lent:
    """A socket of the broker's, and the connection that stands for it."""

    def __init__(self, record=None):
        self.connection = connect()
        try:
            self.connection.send(record or request())
            reply, fds, _, _ = socket.recv_fds(self.connection, 64, 4)
        except (BrokenPipeError, ConnectionResetError):
            # Refused before the request was sent or read: the reply follows the error.
            reply, fds, _, _ = socket.recv_fds(self.connection, 64, 4)
        self.status = struct.unpack_from("<H", reply, 6)[0] if len(reply) == 48 else -1
        self.socket = None
        if fds:
            self.endpoint, self.mac = struct.unpack_from("<H6s", reply, 8)
            slot, block, count = struct.unpack_from("<III", reply, 20)
            self.ring_len = block * count
            self.socket = socket.socket(fileno=fds[0])
            self.socket.settimeout(5)

    def frame(self, text, kind=OURS, source=None, endpoint=None, destination=DESTINATION):
        endpoint = self.endpoint if endpoint is None else endpoint
        header = destination + (source or self.mac) + struct.pack(">HHH", kind, 9, endpoint)
        return header + text + bytes(60)

    def close(self):
        self.socket.close()
        self.connection.close()


lent = Lent()
say("a socket is lent", lent.socket is not None, lent.status)
one = lent.socket
refused("a socket of one's own", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), errno.EPERM)
# AF_XDP, which the rules would not see; Python has no constant for it.
refused("an AF_XDP socket", lambda: socket.socket(44, socket.SOCK_RAW), errno.EPERM, errno.EAFNOSUPPORT)
sent = one.send(lent.frame(b"HONEST"))
say("an honest frame leaves", sent > 0)


def send(frame, **kw):
    return lambda: one.send(frame)


# Every kind of frame except ours.
survivors = []
for kind in range(0x10000):
    if kind == OURS:
        continue
    try:
        one.send(lent.frame(b"FORGED", kind=kind))
        survivors.append(kind)
    except OSError as error:
        if error.errno not in DROPPED:
            raise
say("other EtherTypes", not survivors, survivors[:5])
for at in range(6):
    forged = bytearray(lent.mac)
    forged[at] ^= 1 << at
    refused(f"other source address, byte {at}", send(lent.frame(b"FORGED", source=bytes(forged))), *DROPPED)
wrong = []
for endpoint in range(0x10000):
    if endpoint == lent.endpoint:
        continue
    try:
        one.send(lent.frame(b"FORGED", endpoint=endpoint))
        wrong.append(endpoint)
    except OSError as error:
        if error.errno not in DROPPED:
            raise
say("other source endpoints", not wrong, wrong[:5])
for name, to in (("everyone", b"\xff" * 6), ("a group", b"\x01\x00\x5e\x00\x00\x01")):
    refused(f"frames to {name}", send(lent.frame(b"FORGED", destination=to)), *DROPPED)
tagged = lent.frame(b"FORGED")
tagged = tagged[:12] + struct.pack(">HH", 0x8100, 5) + tagged[12:]
refused("a VLAN tag in front", send(tagged), *DROPPED)
for length in range(0, 18):
    try:
        one.send(lent.frame(b"FORGED")[:length])
        say(f"a frame of {length} bytes", False, "it left")
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EMSGSIZE, *DROPPED):
            say(f"a frame of {length} bytes", False, error)
say("short frames", True)


def sendto(frame, interface, protocol):
    return lambda: one.sendto(frame, (interface, protocol, 0, 0, DESTINATION))


for protocol in (0x0800, 0x0806, 0, ETH_P_ALL, OURS):
    arp = lent.frame(b"FORGED", kind=0x0806)
    refused(f"ARP said to be protocol {protocol:#x}", sendto(arp, "portolan0", protocol), *DROPPED)
for interface in ("lo", "eth0"):
    refused(f"by interface {interface}", sendto(lent.frame(b"FORGED"), interface, OURS),
            errno.ENODEV, errno.ENETDOWN, errno.ENXIO, *DROPPED)

# Bypassing traffic control, with each protocol, and with a header for offloads.
one.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
for protocol in (0, ETH_P_ALL, 0x0800, OURS):
    arp = lent.frame(b"FORGED", kind=0x0806)
    refused(f"past traffic control, protocol {protocol:#x}", sendto(arp, "portolan0", protocol), *DROPPED)
    other = lent.frame(b"FORGED", endpoint=lent.endpoint + 1)
    refused(f"the same from another endpoint, {protocol:#x}", sendto(other, "portolan0", protocol), *DROPPED)
one.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 0)

# Mark, filter and ring.
for mark in (0, 0x506F0000 + lent.endpoint + 1):
    refused(f"mark {mark:#x}", lambda: one.setsockopt(socket.SOL_SOCKET, SO_MARK, mark), errno.EPERM)
program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFFFFFF))
fprog = struct.pack("HL", 1, ctypes.addressof(program))
refused("another filter", lambda: one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, fprog), errno.EPERM)
refused("no filter", lambda: one.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 1), errno.EPERM)
refused("an unlocked filter", lambda: one.setsockopt(socket.SOL_SOCKET, SO_LOCK_FILTER, 0), errno.EPERM)
ring = struct.pack("IIII", 1 << 16, 4096, 2048, 131072)
none = struct.pack("IIII", 0, 0, 0, 0)
for name, option in (("receive", PACKET_RX_RING), ("send", PACKET_TX_RING)):
    refused(f"a {name} ring of 256 MiB", lambda: one.setsockopt(SOL_PACKET, option, ring), errno.EBUSY)
    refused(f"no {name} ring", lambda: one.setsockopt(SOL_PACKET, option, none), errno.EBUSY)
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
granted = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
allowed = int(open("/proc/sys/net/core/rmem_max").read())
say("a receive buffer beyond the host's limit", granted <= 2 * allowed, granted)

# Reading foreign frames: those of the other socket, all frames, and outgoing ones.
other = Lent()
thief = Lent()
thief.socket.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 0)
thief.socket.bind(("portolan0", ETH_P_ALL))
for kind in (1, 2):  # promiscuous; all groups
    number = socket.if_nametoindex("lo") + 1
    try:
        thief.socket.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, struct.pack("iHH8s", number, kind, 6, b""))
    except OSError:
        pass
try:
    thief.socket.setsockopt(SOL_PACKET, PACKET_FANOUT, 7)
    other.socket.setsockopt(SOL_PACKET, PACKET_FANOUT, 7)
except OSError:
    pass
view = mmap.mmap(thief.socket.fileno(), thief.ring_len)
own = mmap.mmap(other.socket.fileno(), other.ring_len)
for text in (b"HONEST", b"HONEST"):
    to = lent.frame(text, destination=lent.mac)
    to = to[:14] + struct.pack(">H", other.endpoint) + to[16:]
    one.send(to)
    one.send(lent.frame(text))
readable, _, _ = select.select([thief.socket], [], [], 1)
root.send(b"?")
seen = struct.unpack("<I", root.recv(4))[0]
say("the same capture by root sees them", seen >= 4, seen)
say("frames of others", not readable and b"HONEST" not in view[:], "it read one")
view.close()
own.close()

# Access to the broker's own process and namespace.
for path in ("/proc/sys/net/ipv4/ip_forward",):
    refused("the host's settings", lambda: os.open(path, os.O_WRONLY), errno.EACCES, errno.EROFS)

# Quota: sockets per user, including those with closed connections.
lent_more, status = [], 0
while len(lent_more) < 64:
    more = Lent()
    if more.socket is None:
        status = more.status
        break
    lent_more.append(more)
say("sockets beyond the quota", status == 5, f"{len(lent_more)} more, status {status}")
kept = lent_more.pop()
kept.connection.close()
say("a kept socket counts", all(Lent().status == 5 for _ in range(3)))
endpoints = [more.endpoint for more in lent_more] + [kept.endpoint, other.endpoint, thief.endpoint]
say("no endpoint is given twice", len(set(endpoints)) == len(endpoints) and lent.endpoint not in endpoints)
refused("a kept socket forges nothing",
        lambda: kept.socket.send(kept.frame(b"FORGED", endpoint=kept.endpoint + 1)), *DROPPED)
kept.socket.close()
for more in lent_more:
    more.close()
other.close()
thief.close()

# Invalid requests: each is answered or closed, and the broker continues.
for name, record in (
    ("half a request", request()[:9]),
    ("an empty request", b"PBRK"),
    ("a long request", request() + bytes(4000)),
    ("another version", request(version=9)),
    ("another kind", request(kind=7)),
    ("rubbish", os.urandom(32)),
    ("a path for a name", request(interface=b"../../etc/passw")),
    ("another NIC", request(interface=b"lo")),
    ("a ring of 4 GiB", request(ring_len=0xFFFFFFFF)),
    ("what should be zero", request(zero=1)),
):
    refusal = Lent(record)
    say(f"request: {name}", refusal.socket is None and refusal.status != 0)
    refusal.connection.close()
with_fds = connect()
socket.send_fds(with_fds, [request()[:5]], [0, 1, 2] * 50)
with_fds.close()

# A second request on the connection of a socket; a flood that reads no reply; many connections.
lent.connection.send(request())
reply = lent.connection.recv(64)
say("a second socket by one connection", struct.unpack_from("<H", reply, 6)[0] == 1)
for _ in range(200):
    flood = connect()
    flood.setblocking(False)
    try:
        for _ in range(50):
            flood.send(request(version=9))
    except OSError:
        pass
    flood.close()
crowd = []
try:
    for _ in range(2000):
        crowd.append(connect())
except OSError:
    pass
say("thousands of connections", len(crowd) > 100, len(crowd))
for connection in crowd:
    connection.close()


def comes_back():
    for _ in range(100):
        again = Lent()
        if again.socket is not None:
            again.socket.send(again.frame(b"HONEST"))
            return True
        select.select([], [], [], 0.1)
    return False


say("after all that, a socket is lent", comes_back())
print("done", flush=True)
