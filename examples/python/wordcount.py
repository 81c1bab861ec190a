# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the words of a text.

Each process counts those of its lines, and sends each word's count to the process that the word's
letters select, which adds them up. The input is a file; the output has the five most frequent words.

    $ portolan run -n 4 -- python wordcount.py ../../LICENSE-APACHE
    the 100
    or 69
    of 67
    and 46
    to 40
"""

import pickle
import re
import sys
import zlib
from collections import Counter

import portolan

PORT, TOP = 1, 5

with portolan.Node() as node:
    node.open(PORT)
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = file.readlines()[node.rank :: node.size]
    counts = Counter(word for line in lines for word in re.findall("[a-z]+", line.lower()))

    parts = [Counter() for _ in range(node.size)]
    for word, count in counts.items():
        parts[zlib.crc32(word.encode()) % node.size][word] = count
    for rank, part in enumerate(parts):
        node.send(rank, PORT, pickle.dumps(part))
    own = Counter()
    for _ in parts:
        own += pickle.loads(node.recv(PORT)[0])
    node.barrier()

    node.send(0, PORT, pickle.dumps(own.most_common(TOP)))
    if node.rank == 0:
        best = [pair for _ in parts for pair in pickle.loads(node.recv(PORT)[0])]
        for word, count in sorted(best, key=lambda pair: (-pair[1], pair[0]))[:TOP]:
            print(word, count)
