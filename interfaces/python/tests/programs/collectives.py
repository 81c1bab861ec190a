# SPDX-License-Identifier: MIT OR Apache-2.0
"""Collective operations, compared with a serial computation by NumPy."""

import numpy as np

import portolan
from harness import check, main, raises

COUNTS = [0, 1, 3, 100, 1000, 40_000]
DTYPES = [np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64]
SERIAL = {
    "sum": lambda rows: rows.sum(axis=0, dtype=rows.dtype),
    "product": lambda rows: rows.prod(axis=0, dtype=rows.dtype),
    "min": lambda rows: rows.min(axis=0),
    "max": lambda rows: rows.max(axis=0),
}


def values_of(rank, count, dtype):
    """Returns the values of a process: small integers, whose sums are exact in all types."""
    return ((np.arange(count) * 7 + rank * 3) % 5 + 1).astype(dtype)


def rows_of(size, count, dtype):
    """Returns the values of all processes."""
    return np.array([values_of(rank, count, dtype) for rank in range(size)]).reshape(size, count)


def groups(node):
    """Returns the node, and a group of all processes in reverse order."""
    reverse = list(reversed(range(node.size)))
    return [node, node.group(1, reverse)]


@check
def broadcasts(node):
    for where in groups(node):
        for root in {0, node.size - 1}:
            for count in COUNTS:
                values = values_of(where.rank, count, np.float64)
                where.broadcast(values, root)
                assert np.array_equal(values, values_of(root, count, np.float64))
                values = values_of(where.rank, count, np.float64)
                where.ibroadcast(values, root).wait()
                assert np.array_equal(values, values_of(root, count, np.float64))


@check
def reductions(node):
    for where in groups(node):
        for count in COUNTS:
            for dtype in DTYPES:
                for op, serial in SERIAL.items():
                    expected = serial(rows_of(node.size, count, dtype))
                    values = values_of(where.rank, count, dtype)
                    where.allreduce(values, op)
                    assert np.array_equal(values, expected), (op, dtype, count)
                    values = values_of(where.rank, count, dtype)
                    root = count % node.size
                    where.ireduce(values, op, root).wait()
                    if where.rank == root:
                        assert np.array_equal(values, expected), (op, dtype, count)


@check
def invalid_arguments_are_refused(node):
    raises(TypeError, lambda: node.allreduce(np.zeros(3, np.int16)))
    raises(ValueError, lambda: node.allreduce(np.zeros(3), "median"))
    raises(BufferError, lambda: node.allreduce(bytes(8)))
    raises(portolan.NoSuchRank, lambda: node.broadcast(bytearray(8), node.size))


@check
def groups_split(node):
    part = node.all.split(node.rank % 2, node.size - node.rank)
    expected = [rank for rank in reversed(range(node.size)) if rank % 2 == node.rank % 2]
    assert part.ranks == expected and part.size == len(expected)
    assert part.ranks[part.rank] == node.rank
    values = np.array([node.rank])
    part.allreduce(values)
    assert values[0] == sum(expected)
    assert (node.all.split(None) is None) if node.rank else True
    if node.rank == 0:
        node.all.split(0)


@check
def differences_raise_at_all_members(node):
    if node.size == 1:
        return
    group = node.all.split(0)
    values = np.zeros(3 if node.rank == 0 else 4)
    error = raises(portolan.CollectiveMismatch, lambda: [group.allreduce(values) for _ in range(9)])
    assert "different collective operations" in str(error)


main()
