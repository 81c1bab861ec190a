# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts prime numbers with a task farm.

Rank 0 has the tasks, intervals of numbers, and gives the next one to each worker that asks for it, so
that fast workers do more. The input is the limit; the output is the number of primes below it.

    $ portolan run -n 3 -- python farm.py 100000
    9592 primes below 100000
"""

import sys

import portolan

PORT, STEP = 1, 1000


def is_prime(number):
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def manage(node, limit):
    """Gives tasks to workers, with their requests for the next. Returns the sum of their results."""
    total, begin, active = 0, 0, node.size - 1
    while active:
        request = node.recv_call(PORT)
        total += int(request.data or 0)
        node.reply(request, str(begin).encode() if begin < limit else b"")
        active -= begin >= limit
        begin += STEP
    return total


def work(node, limit):
    """Asks for tasks until there are none."""
    result = b""
    while True:
        _, task = node.call(0, PORT, result)
        if not task:
            return
        begin = int(task)
        result = str(sum(map(is_prime, range(begin, min(begin + STEP, limit))))).encode()


with portolan.Node() as node:
    limit = int(sys.argv[1])
    if node.rank == 0:
        node.open(PORT)
        print(manage(node, limit), "primes below", limit)
    else:
        work(node, limit)
