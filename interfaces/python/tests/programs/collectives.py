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


def block(source, target, count):
    """Returns what member `source` has for member `target`."""
    return (np.arange(count) * 7 + source * 89 + target * 31) % 1009


def joined(blocks):
    """Returns the blocks as one array."""
    return np.concatenate([np.zeros(0, np.int64), *blocks])


# Elements of a block: inline, and too long for one message.
BLOCKS = [0, 1, 30, 200, 6000]


@check
def blocks_are_gathered_and_scattered(node):
    for where in groups(node):
        rank, size = where.rank, where.size
        for count in BLOCKS:
            everything = joined(block(source, 0, count) for source in range(size))
            all_ = np.full(size * count, -1)
            where.allgather(block(rank, 0, count), all_)
            assert np.array_equal(all_, everything)
            # In place.
            all_[:] = -1
            mine = all_[rank * count : (rank + 1) * count]
            mine[:] = block(rank, 0, count)
            where.allgather(mine, all_)
            assert np.array_equal(all_, everything)
            all_[:] = -1
            where.iallgather(block(rank, 0, count), all_).wait()
            assert np.array_equal(all_, everything)
            root = count % size
            all_ = np.full(size * count, -1) if rank == root else None
            where.gather(block(rank, 0, count), all_, root)
            assert rank != root or np.array_equal(all_, everything)
            mine = np.full(count, -1)
            where.scatter(all_, mine, root)
            assert np.array_equal(mine, block(rank, 0, count))


@check
def blocks_of_different_lengths_are_gathered_and_scattered(node):
    for where in groups(node):
        rank, size = where.rank, where.size
        for unit in (1, 50, 3000):
            counts = [(index * 5 + 3) % 4 * unit for index in range(size)]
            everything = joined(block(source, 0, counts[source]) for source in range(size))
            all_ = np.full(sum(counts), -1)
            where.allgatherv(block(rank, 0, counts[rank]), all_, counts)
            assert np.array_equal(all_, everything)
            root = unit % size
            all_ = np.full(sum(counts), -1) if rank == root else None
            known = counts if rank == root else None
            where.gatherv(block(rank, 0, counts[rank]), all_, known, root)
            assert rank != root or np.array_equal(all_, everything)
            mine = np.full(counts[rank], -1)
            where.iscatterv(all_, known, mine, root).wait()
            assert np.array_equal(mine, block(rank, 0, counts[rank]))


@check
def blocks_are_exchanged(node):
    for where in groups(node):
        rank, size = where.rank, where.size
        for count in BLOCKS:
            mine = joined(block(rank, target, count) for target in range(size))
            theirs = np.full(size * count, -1)
            where.alltoall(mine, theirs)
            assert np.array_equal(theirs, joined(block(one, rank, count) for one in range(size)))
        counts = [(rank * 3 + target) % 5 * 60 for target in range(size)]
        their_counts = [(source * 3 + rank) % 5 * 60 for source in range(size)]
        mine = joined(block(rank, target, counts[target]) for target in range(size))
        theirs = np.full(sum(their_counts), -1)
        where.ialltoallv(mine, counts, theirs, their_counts).wait()
        expected = joined(block(source, rank, their_counts[source]) for source in range(size))
        assert np.array_equal(theirs, expected)


@check
def reductions_leave_parts_and_prefixes(node):
    for where in groups(node):
        rank, size = where.rank, where.size
        for op, serial in SERIAL.items():
            for count in (0, 3, 100, 3000):
                rows = rows_of(size, count * size, np.float64)
                own = np.full(count, -1.0)
                where.reduce_scatter(rows[rank], own, op)
                assert np.array_equal(own, serial(rows)[rank * count : (rank + 1) * count])
                counts = [(index + 1) % 3 * count for index in range(size)]
                rows = rows_of(size, sum(counts), np.int32)
                own = np.full(counts[rank], -1, np.int32)
                where.ireduce_scatterv(rows[rank], own, counts, op).wait()
                start = sum(counts[:rank])
                assert np.array_equal(own, serial(rows)[start : start + counts[rank]])
                rows = rows_of(size, count, np.int64)
                values = rows[rank].copy()
                where.scan(values, op)
                assert np.array_equal(values, serial(rows[: rank + 1]))
                values = rows[rank].copy()
                where.exscan(values, op)
                assert np.array_equal(values, serial(rows[: max(1, rank)]))


@check
def short_types_and_bits_are_reduced(node):
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.float16):
        for count in (1, 50_000):
            rows = rows_of(node.size, count, np.int64).astype(dtype)
            values = rows[node.rank].copy()
            node.allreduce(values, "max")
            assert np.array_equal(values, rows.max(axis=0))
            values = rows[node.rank].copy()
            node.allreduce(values)
            assert np.array_equal(values, rows.sum(axis=0, dtype=dtype))
    bits = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    for op, serial in bits.items():
        rows = rows_of(node.size, 100, np.int64)
        values = rows[node.rank].copy()
        node.allreduce(values, op)
        assert np.array_equal(values, serial.reduce(rows))


@check
def many_collectives_are_queued(node):
    values = [np.full(1 + 9000 * (number % 2), number + node.rank) for number in range(12)]
    requests = [node.iallreduce(one) for one in values]
    for request in reversed(requests):
        request.wait()
    total = node.size * (node.size - 1) // 2
    for number, one in enumerate(values):
        assert (one == number * node.size + total).all()


@check
def functions_reduce_in_the_order_of_the_members(node):
    # A product of matrices is associative, but not commutative.
    def product(lower, upper):
        lower, upper = (np.asarray(one).reshape(-1, 2, 2) for one in (lower, upper))
        return lower @ upper

    def matrices(rank):
        return np.array([[[rank + 1, 1], [0, 1]], [[1, rank], [1, 2]]], np.int64)

    for where in groups(node):
        rank, size = where.rank, where.size
        prefixes = [matrices(0)]
        for other in range(1, size):
            prefixes.append(prefixes[-1] @ matrices(other))
        for call in (where.allreduce, where.reduce, where.scan, where.exscan):
            values = matrices(rank)
            call(values, product)
            if call == where.scan:
                assert np.array_equal(values, prefixes[rank])
            elif call == where.exscan:
                assert np.array_equal(values, prefixes[max(0, rank - 1)])
            elif call == where.allreduce or rank == 0:
                assert np.array_equal(values, prefixes[-1])
        values = np.concatenate([matrices(rank)] * size)
        own = np.zeros((2, 2, 2), np.int64)
        where.ireduce_scatter(values, own, product).wait()
        assert np.array_equal(own, prefixes[-1])


@check
def functions_that_fail_raise(node):
    def fails(lower, upper):
        raise ZeroDivisionError("in a reduction")

    def calls(lower, upper):
        raises(portolan.Closed, node.barrier)
        return upper

    group = node.all.split(0)
    if node.size > 1:
        group.allreduce(np.zeros(3), calls)

        def until_raised():
            group.allreduce(np.zeros(3), fails if node.rank == node.size - 1 else calls)
            node.recv_tagged(99, timeout=0.3)
            node.progress()

        # The last member combines values in every size.
        if node.rank == node.size - 1:
            error = raises(ZeroDivisionError, until_raised)
            assert str(error) == "in a reduction"
        else:
            until_raised()


@check
def invalid_arguments_are_refused(node):
    size = node.size
    raises(portolan.Error, lambda: node.allgather(np.zeros(3), np.zeros(3 * size + 1)))
    raises(portolan.Error, lambda: node.allgatherv(np.zeros(3), np.zeros(3), [3] * (size + 1)))
    raises(portolan.Error, lambda: node.reduce_scatterv(np.zeros(3), np.zeros(3), [1] * size))
    raises(portolan.NoSuchRank, lambda: node.gather(np.zeros(3), None, size))
    raises(TypeError, lambda: node.allreduce(np.zeros(3, np.complex64)))
    raises(portolan.Error, lambda: node.allreduce(np.zeros(3), "xor"))
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
    # The lengths of gatherv are compared by the root alone.
    all_ = np.zeros(node.size * 3) if node.rank == 0 else None
    counts = [3] * node.size if node.rank == 0 else None
    mine = np.zeros(4 if node.rank == 1 else 3)
    error = raises(
        portolan.CollectiveMismatch,
        lambda: [group.gatherv(mine, all_, counts) or group.barrier() for _ in range(9)],
    )
    assert "gatherv of 24 bytes" in str(error) and "gatherv of 32 bytes" in str(error), error
    group = node.all.split(0)
    values = np.zeros(3 if node.rank == 0 else 4)
    error = raises(portolan.CollectiveMismatch, lambda: [group.allreduce(values) for _ in range(9)])
    assert "different collective operations" in str(error)


main()
