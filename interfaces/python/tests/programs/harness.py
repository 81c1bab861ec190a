# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the checks of a program in one job: every process runs each function, in order.

A failure in one process ends the job, because the library reports the failure to all others.
"""

import sys
import traceback

import portolan

CHECKS = []


def check(function):
    """Adds a check."""
    CHECKS.append(function)
    return function


def main():
    """Joins, runs the checks that the arguments name, or all, and leaves."""
    wanted = sys.argv[1:]
    with portolan.Node() as node:
        for function in CHECKS:
            if wanted and function.__name__ not in wanted:
                continue
            try:
                function(node)
            except BaseException:
                print(f"rank {node.rank}: {function.__name__}", file=sys.stderr)
                traceback.print_exc()
                raise
            node.barrier()
            if node.rank == 0:
                print("ok", function.__name__, flush=True)


def pattern(len_, seed):
    """Returns bytes that differ between messages."""
    return bytes((seed * 31 + index * 7) & 0xFF for index in range(len_))


def raises(kind, call):
    """Returns the exception of `kind` that `call` raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")
