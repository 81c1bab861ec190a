#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether the JSON of `portolan profile` holds what must hold for any program that ended well, and, with
NetPIPE's output, the messages by size that it says it sent. Prints what does not, and nothing else.

    profile-counts.py PROFILE PROCESSES [NETPIPE_OUTPUT ITERATIONS]
"""

import json
import re
import sys


def tallies(world, what):
    """Messages and bytes that all processes exchanged with all others."""
    peers = [peer[what] for process in world["processes"] for peer in process["peers"]]
    return [sum(tally[part] for tally in peers) for part in ("count", "bytes")]


def wrong(world, count):
    """What cannot be."""
    if world["process_count"] != count or world["missing"]:
        yield f"{world['process_count']} processes, without {world['missing']}"
    ends = {process["end"] for process in world["processes"]}
    if ends != {"finalized"}:
        yield f"processes ended: {ends}"
    # None of these programs ends with a message in flight.
    sent, received = tallies(world, "sent"), tallies(world, "received")
    if sent != received or sent[0] == 0:
        yield f"sent {sent}, received {received} (messages, bytes)"
    by_size = [sum(each[part] for each in world["sizes"]["messages"]) for part in ("count", "bytes")]
    if by_size != sent:
        yield f"{by_size} by size, {sent} by peer"
    for process in world["processes"]:
        if not 0 <= process["computing_s"] <= process["seconds"]:
            yield f"rank {process['rank']} computes {process['computing_s']} of {process['seconds']} s"


def netpipe_wrong(world, output, times):
    """Each size went there and back as often as NetPIPE was told; those of one digit are those of its
    own talk, too."""
    sizes = [int(size) for size in re.findall(r"^ *\d+: +(\d+) bytes ", output, re.M)]
    if max(sizes, default=0) < 1000:
        yield f"NetPIPE says the sizes {sizes}"
    for each in world["sizes"]["messages"][1:]:
        end = each["to"] if each["to"] is not None else sys.maxsize
        expected = 2 * times * sum(each["from"] <= size <= end for size in sizes)
        if each["count"] != expected:
            yield f"{each['count']} messages from {each['from']} bytes on, not {expected}"


def main(profile, processes, output=None, iterations=0):
    with open(profile, encoding="utf-8") as file:
        profile = json.load(file)
    worlds = profile["worlds"]
    if len(worlds) != 1 or profile["notes"]:
        print(f" {len(worlds)} programs, notes {profile['notes']}")
        return
    found = list(wrong(worlds[0], int(processes)))
    if output is not None:
        with open(output, encoding="utf-8", errors="replace") as file:
            found += netpipe_wrong(worlds[0], file.read(), int(iterations))
    if found:
        print(" " + "; ".join(found))


main(*sys.argv[1:])
