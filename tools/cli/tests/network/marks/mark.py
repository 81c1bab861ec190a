# SPDX-License-Identifier: MIT OR Apache-2.0
# Marks a share of the datagrams that leave by eth0 as having experienced congestion, until it is
# killed. Uses an eBPF program at the interface's egress (BPF_TCX_EGRESS, Linux 6.6).
import ctypes, os, platform, socket, struct, sys, time
BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes + bytes(128))
    result = libc.syscall(BPF, command, buffer, len(attributes))
    if result < 0:
        print("cannot", os.strerror(ctypes.get_errno()), flush=True)
        sys.exit()
    return result
def step(code, to=0, source=0, jump=0, number=0):
    return struct.pack("<BBhi", code, source << 4 | to, jump, number)
threshold = min(int(float(sys.argv[1]) * 2**32), 2**32 - 1)
program = b"".join([
    step(0xbf, 6, 1),                                  # r6 = the packet
    step(0x85, number=7),                              # w0 = random
    step(0xb4, 1, number=threshold - (threshold >> 31 << 32)),
    step(0x3e, 0, 1, jump=2),                          # if w0 >= w1: leave it
    step(0xbf, 1, 6),
    step(0x85, number=97),                             # bpf_skb_ecn_set_ce
    step(0xb7, 0, number=-1),                          # TCX_NEXT
    step(0x95),
])
text, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"Dual MIT/GPL")
SCHED_CLS, PROG_LOAD, LINK_CREATE, TCX_EGRESS = 3, 5, 28, 47
loaded = bpf(PROG_LOAD, struct.pack("<IIQQIIQ", SCHED_CLS, len(program) // 8,
    ctypes.addressof(text), ctypes.addressof(licence), 0, 0, 0))
bpf(LINK_CREATE, struct.pack("<IIIIIIQ", loaded, socket.if_nametoindex("eth0"), TCX_EGRESS, 0, 0, 0, 0))
print("ready", flush=True)
time.sleep(600)
