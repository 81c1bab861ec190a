# SPDX-License-Identifier: MIT OR Apache-2.0
"""NumPy arrays: messages without copies, and remote memory."""

import gc

import numpy as np

import portolan
from harness import check, main, raises


@check
def arrays_are_sent_and_received_in_place(node):
    after, before = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    node.open(7)
    for dtype in (np.uint8, np.int32, np.float64, np.complex128, np.float16):
        for shape in ((5,), (3, 4), (100, 200), (2, 3, 0)):
            own = (np.arange(np.prod(shape)) % 100 + node.rank).astype(dtype).reshape(shape)
            theirs = (np.arange(np.prod(shape)) % 100 + before).astype(dtype).reshape(shape)
            place = np.zeros(shape, dtype)
            request = node.isend(after, 7, own)
            status = node.recv_into(7, place)
            request.wait()
            assert status.len == own.nbytes
            assert np.array_equal(place, theirs), (dtype, shape)


@check
def parts_of_arrays_must_be_contiguous(node):
    matrix = np.arange(24.0).reshape(4, 6)
    node.open(8)
    request = node.isend(node.rank, 8, matrix[1:3])
    place = np.zeros((5, 6))
    node.recv_into(8, place[2:4])
    request.wait()
    assert np.array_equal(place[2:4], matrix[1:3]) and not place[:2].any() and not place[4:].any()
    error = raises(BufferError, lambda: node.send(node.rank, 8, matrix[:, 1]))
    assert "ascontiguousarray" in str(error)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    raises(BufferError, lambda: node.post_recv(8, frozen))


@check
def windows_put_and_get(node):
    after = (node.rank + 1) % node.size
    for group in (node, node.all):
        exposed = np.full(10 + node.rank, -1, np.int64)
        window = group.window(exposed)
        assert window.array is exposed
        assert [window.len_of(rank) for rank in range(node.size)] == [
            10 + rank for rank in range(node.size)
        ]
        window.put(after, 2, np.array([node.rank, 7], np.int64))
        window.iput(after, 9, np.array([5], np.int64)).wait()
        node.barrier()
        before = (node.rank - 1) % node.size
        assert exposed[:5].tolist() == [-1, -1, before, 7, -1] and exposed[9] == 5
        place = np.zeros(3, np.int64)
        window.get(after, 1, place)
        assert place.tolist() == [-1, node.rank, 7]
        place[:] = 0
        window.iget(after, 1, place).wait()
        assert place.tolist() == [-1, node.rank, 7]
        raises(portolan.RemoteRefused, lambda: window.put(after, 100, place))
        raises(portolan.NoSuchRank, lambda: window.get(node.size, 0, place))
        window.free()
        window.free()
        raises(portolan.Closed, lambda: window.get(after, 0, place))


@check
def windows_have_atomic_operations(node):
    for dtype in (np.int32, np.int64, np.uint32, np.uint64, np.float32, np.float64):
        counters = np.zeros(4, dtype)
        window = node.window(counters)
        for _ in range(10):
            window.fetch_add(0, 3, 2)
        while window.compare_swap(0, 1, node.rank, node.rank + 1) != node.rank:
            pass
        node.barrier()
        if node.rank == 0:
            assert counters.tolist() == [0, node.size, 0, 20 * node.size]
        window.free()
    window = node.window(np.zeros(4, np.int8))
    raises(TypeError, lambda: window.fetch_add(0, 0, 1))
    window.free()


@check
def windows_keep_their_arrays(node):
    window = node.window(np.full(1 << 16, node.rank, np.int32))
    gc.collect()
    node.barrier()
    for rank in range(node.size):
        place = np.zeros(1 << 16, np.int32)
        window.get(rank, 0, place)
        assert (place == rank).all()
    window.free()


main()
