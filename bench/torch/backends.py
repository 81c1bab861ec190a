# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the backend portolan of torch.distributed with Gloo: all_reduce, all_gather and broadcast.

Both backends have a group in the same processes. They take turns, five times by default, and the table
has the medians of the times per call and their ratio. Start it by ``portolan run``, on one host or
several::

    portolan run -n 2 -- python bench/torch/backends.py
    portolan run -n 4 --new-lab 2 -- python bench/torch/backends.py --max 16M
"""

import argparse
import fcntl
import os
import socket
import statistics
import struct
import time

import torch
import torch.distributed as dist

import portolan.torch

# Seconds of each measurement, and bounds of its calls.
SECONDS, CALLS_MIN, CALLS_MAX = 0.3, 3, 2000
SIOCGIFADDR = 0x8915


def size_of(text):
    """Converts a size such as 64K."""
    factors = {"K": 1 << 10, "M": 1 << 20}
    return int(text.rstrip("KM")) * factors.get(text[-1], 1)


def interface_of(address):
    """Returns the interface with an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return "lo"


def operations(group, length):
    """Returns the operations on `length` bytes of each process, by name."""
    members = dist.get_world_size(group)
    values = torch.ones(max(1, length // 4))
    parts = [torch.empty_like(values) for _ in range(members)]
    return {
        "all_reduce": lambda: dist.all_reduce(values, dist.ReduceOp.MAX, group=group),
        "all_gather": lambda: dist.all_gather(parts, values, group=group),
        "broadcast": lambda: dist.broadcast(values, 0, group=group),
    }


def timed(call, count, group):
    """Returns the seconds of one call, of the slowest process."""
    dist.barrier(group)
    begin = time.perf_counter()
    for _ in range(count):
        call()
    taken = torch.tensor([(time.perf_counter() - begin) / count])
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.item()


def count_of(call, group):
    """Returns the same number of calls for all processes."""
    timed(call, CALLS_MIN, group)
    return max(CALLS_MIN, min(CALLS_MAX, int(SECONDS / timed(call, CALLS_MIN, group))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--min", type=size_of, default=4, help="shortest tensor (default: 4 bytes)")
    parser.add_argument("--max", type=size_of, default="64M", help="longest tensor (default: 64M)")
    parser.add_argument("--rounds", type=int, default=5, help="alternations (default: 5)")
    parser.add_argument("--only", help="one operation")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("portolan", init_method="portolan://")
    interface = interface_of(portolan.torch.node().network_addr() or "127.0.0.1")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    groups = {"gloo": dist.new_group(backend="gloo"), "portolan": dist.group.WORLD}
    is_first = dist.get_rank() == 0
    if is_first:
        print(f"{'operation':12}{'bytes':>10}{'gloo µs':>12}{'portolan µs':>13}{'ratio':>8}")
    length = arguments.min
    while length <= arguments.max:
        calls = {name: operations(group, length) for name, group in groups.items()}
        for operation in calls["gloo"]:
            if arguments.only not in (None, operation):
                continue
            counts = {name: count_of(calls[name][operation], groups[name]) for name in groups}
            times = {name: [] for name in groups}
            for _ in range(arguments.rounds):
                for name, group in groups.items():
                    times[name].append(timed(calls[name][operation], counts[name], group))
            gloo, own = (1e6 * statistics.median(times[name]) for name in groups)
            if is_first:
                print(f"{operation:12}{length:>10}{gloo:>12.1f}{own:>13.1f}{gloo / own:>8.2f}", flush=True)
        length *= 4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
