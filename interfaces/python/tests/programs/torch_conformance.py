# SPDX-License-Identifier: MIT OR Apache-2.0
"""Documented semantics of `torch.distributed`, each against a serial oracle."""

import functools
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_harness import BACKEND, check, check_own, main, raises, same

import portolan.torch

ReduceOp = dist.ReduceOp

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8]
if BACKEND != "gloo":
    INTEGERS.append(torch.int16)
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
SIZES = [0, 1, 7, 1000, 40_000]

all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)


def values(rank, shape, dtype, seed=0):
    """Returns small numbers that differ between ranks, whose sums and products are exact."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if dtype.is_complex:
        parts = torch.randint(-4, 5, (*shape, 2), generator=generator).to(torch.float64)
        return torch.view_as_complex(parts).to(dtype)
    low = 0 if dtype in UNSIGNED or dtype is torch.uint8 else -2
    return torch.randint(low, 3, shape, generator=generator).to(dtype)


def of_all(size, shape, dtype, seed=0):
    return [values(rank, shape, dtype, seed) for rank in range(size)]


def wide(tensors):
    """Returns the tensors with a type that has all operations."""
    if tensors[0].dtype.is_complex:
        return [tensor.to(torch.complex128) for tensor in tensors]
    if tensors[0].dtype.is_floating_point:
        return [tensor.to(torch.float64) for tensor in tensors]
    return [tensor.to(torch.int64) for tensor in tensors]


ORACLES = {
    ReduceOp.SUM: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}


def reduced(op, tensors):
    dtype = tensors[0].dtype
    return functools.reduce(ORACLES[op], wide(tensors)).to(dtype)


@check
def group_has_ranks_and_backend(rank, size):
    assert dist.is_initialized() and dist.get_rank() == rank and dist.get_world_size() == size
    group = dist.group.WORLD
    assert group.rank() == rank and group.size() == size
    assert dist.get_process_group_ranks(group) == list(range(size))


@check_own
def backend_is_named(rank, size):
    assert dist.get_backend() == "portolan"
    assert portolan.torch.node().rank == rank and portolan.torch.node().size == size


@check
def all_reduce_combines_in_place(rank, size):
    arithmetic = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
    for dtype in FLOATS + INTEGERS:
        for op in arithmetic:
            for length in SIZES:
                tensor = values(rank, (length,), dtype)
                before = tensor.data_ptr()
                assert dist.all_reduce(tensor, op) is None
                same(tensor, reduced(op, of_all(size, (length,), dtype)))
                assert tensor.data_ptr() == before


@check
def all_reduce_has_bitwise_operations(rank, size):
    for dtype in INTEGERS:
        for op in [ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR]:
            tensor = values(rank, (100,), dtype)
            dist.all_reduce(tensor, op)
            same(tensor, reduced(op, of_all(size, (100,), dtype)))


@check_own
def bitwise_operations_refuse_floats(rank, size):
    error = raises(RuntimeError, lambda: dist.all_reduce(torch.ones(3), ReduceOp.BAND))
    assert "bitwise" in str(error), error


@check_own
def all_reduce_has_unsigned_types(rank, size):
    for dtype in UNSIGNED:
        tensor = values(rank, (500,), dtype)
        dist.all_reduce(tensor)
        same(tensor, reduced(ReduceOp.SUM, of_all(size, (500,), dtype)))


@check_own
def all_reduce_of_truth_values_is_logical(rank, size):
    stacked = torch.stack(of_all(size, (50,), torch.bool))
    expected = {
        ReduceOp.SUM: stacked.any(0),
        ReduceOp.MAX: stacked.any(0),
        ReduceOp.BOR: stacked.any(0),
        ReduceOp.PRODUCT: stacked.all(0),
        ReduceOp.MIN: stacked.all(0),
        ReduceOp.BAND: stacked.all(0),
        ReduceOp.BXOR: stacked.sum(0) % 2 == 1,
    }
    for op, result in expected.items():
        tensor = values(rank, (50,), torch.bool)
        dist.all_reduce(tensor, op)
        same(tensor, result)


@check
def all_reduce_sums_complex_numbers(rank, size):
    for dtype in COMPLEX:
        tensor = values(rank, (30,), dtype)
        dist.all_reduce(tensor)
        same(tensor, reduced(ReduceOp.SUM, of_all(size, (30,), dtype)))
        raises(ValueError, lambda: dist.all_reduce(tensor, ReduceOp.MAX))


@check_own
def averages_are_divided_sums(rank, size):
    for dtype in FLOATS:
        tensor = values(rank, (200,), dtype) * size
        dist.all_reduce(tensor, ReduceOp.AVG)
        same(tensor, reduced(ReduceOp.SUM, of_all(size, (200,), dtype)))
    tensor = torch.tensor([-3, 7 + rank])
    dist.all_reduce(tensor, ReduceOp.AVG)
    same(tensor, torch.tensor([-3, (7 * size + size * (size - 1) // 2) // size]))
    values_of_all = torch.cat([values(rank, (4,), torch.float32) for _ in range(size)])
    own = torch.empty(4)
    reduce_scatter_single(own, values_of_all * size, ReduceOp.AVG)
    same(own, reduced(ReduceOp.SUM, of_all(size, (4,), torch.float32)))


@check_own
def sums_have_factors(rank, size):
    from torch._C._distributed_c10d import _make_nccl_premul_sum as premul_sum

    for factor in (0.5, torch.tensor([2.0])):
        tensor = values(rank, (200,), torch.float32)
        dist.all_reduce(tensor, premul_sum(factor))
        same(tensor, reduced(ReduceOp.SUM, of_all(size, (200,), torch.float32)) * factor)
    source = values(rank, (3 * size,), torch.float32)
    kept, own = source.clone(), torch.empty(3)
    reduce_scatter_single(own, source, premul_sum(2.0))
    expected = reduced(ReduceOp.SUM, of_all(size, (3 * size,), torch.float32)) * 2
    same(own, expected[3 * rank : 3 * rank + 3])
    same(source, kept)


@check
def all_members_get_the_same_bits(rank, size):
    for length in (3, 20_000):
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.rand(length, generator=torch.Generator().manual_seed(rank)).to(dtype)
            dist.all_reduce(tensor)
            gathered = [torch.empty_like(tensor) for _ in range(size)]
            dist.all_gather(gathered, tensor)
            for other in gathered:
                same(tensor, other)


@check_own
def tensors_without_gaps_are_not_required(rank, size):
    for make in (
        lambda tensor: tensor.t(),
        lambda tensor: tensor[:, ::2],
        lambda tensor: tensor[3:, 1:5],
        lambda tensor: tensor.to(memory_format=torch.contiguous_format)[::3],
    ):
        base = values(rank, (12, 8), torch.float32)
        kept = base.clone()
        view = make(base)
        dist.all_reduce(view)
        every = [make(tensor) for tensor in of_all(size, (12, 8), torch.float32)]
        same(view.contiguous(), reduced(ReduceOp.SUM, every).contiguous())
        # Elements beside the view are unchanged.
        view.copy_(make(kept))
        same(base, kept)


@check_own
def results_go_into_tensors_with_gaps(rank, size):
    base = torch.zeros(6, 4)
    column = base[:, 1]
    if rank == size - 1:
        column.copy_(torch.arange(6.0))
    dist.broadcast(column, size - 1)
    same(column.clone(), torch.arange(6.0))
    assert base.sum() == 15
    outputs = [torch.zeros(5, 2)[:, 0] for _ in range(size)]
    dist.all_gather(outputs, torch.full((10,), float(rank))[::2])
    for other, output in enumerate(outputs):
        same(output.clone(), torch.full((5,), float(other)))
    own = torch.zeros(4, 2)[:, 1]
    dist.reduce_scatter(own, [torch.full((4,), float(other)) for other in range(size)])
    same(own.clone(), torch.full((4,), float(rank * size)))
    whole = torch.zeros(size * 2, 3).t()
    all_gather_single(whole, torch.full((3, 2), float(rank)))


@check
def reduce_gives_the_root_the_result(rank, size):
    for root in range(size):
        for length in SIZES[1:]:
            for op in (ReduceOp.SUM, ReduceOp.MAX):
                tensor = values(rank, (length,), torch.float32, root)
                dist.reduce(tensor, root, op)
                if rank == root:
                    same(tensor, reduced(op, of_all(size, (length,), torch.float32, root)))


@check_own
def reduce_keeps_the_tensors_of_others(rank, size):
    tensor = values(rank, (50,), torch.float32)
    dist.reduce(tensor, 0)
    if rank != 0:
        same(tensor, values(rank, (50,), torch.float32))


@check
def broadcast_copies_from_each_root(rank, size):
    for root in range(size):
        for dtype in FLOATS + INTEGERS + COMPLEX + [torch.bool]:
            for length in SIZES:
                tensor = values(rank, (length,), dtype, root)
                dist.broadcast(tensor, root)
                same(tensor, values(root, (length,), dtype, root))


@check_own
def types_without_arithmetic_are_moved(rank, size):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.complex32, *UNSIGNED):
        source = torch.arange(16, dtype=torch.uint8).add_(rank)
        tensor = source.view(dtype)
        outputs = [torch.empty_like(tensor) for _ in range(size)]
        dist.all_gather(outputs, tensor)
        for other, output in enumerate(outputs):
            same(output.view(torch.uint8), torch.arange(16, dtype=torch.uint8).add_(other))


@check
def scalars_are_tensors(rank, size):
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.dim() == 0 and scalar.item() == size * (size - 1) / 2
    outputs = [torch.tensor(0.0) for _ in range(size)]
    dist.all_gather(outputs, torch.tensor(float(rank)))
    assert [output.item() for output in outputs] == list(range(size))


@check
def all_gather_fills_the_list(rank, size):
    for dtype in FLOATS + INTEGERS + COMPLEX + [torch.bool]:
        for shape in [(1,), (3, 5), (20_000,)]:
            outputs = [torch.empty(shape, dtype=dtype) for _ in range(size)]
            dist.all_gather(outputs, values(rank, shape, dtype))
            for output, expected in zip(outputs, of_all(size, shape, dtype)):
                same(output, expected)


@check_own
def all_gather_has_parts_of_different_sizes(rank, size):
    outputs = [torch.empty(3 * other + 1) for other in range(size)]
    dist.all_gather(outputs, torch.full((3 * rank + 1,), float(rank)))
    for other, output in enumerate(outputs):
        same(output, torch.full((3 * other + 1,), float(other)))


@check
def all_gather_single_concatenates(rank, size):
    output = torch.empty(4 * size, 3)
    all_gather_single(output, values(rank, (4, 3), torch.float32))
    same(output, torch.cat(of_all(size, (4, 3), torch.float32)))


@check_own
def all_gather_single_stacks(rank, size):
    output = torch.empty(size, 4, 3)
    all_gather_single(output, values(rank, (4, 3), torch.float32))
    same(output, torch.stack(of_all(size, (4, 3), torch.float32)))


@check
def all_gather_single_of_long_tensors(rank, size):
    output = torch.empty(size * 100_000)
    all_gather_single(output, torch.full((100_000,), float(rank)))
    same(output, torch.arange(float(size)).repeat_interleave(100_000))


@check
def gather_and_scatter_have_any_root(rank, size):
    for root in range(size):
        for shape in [(1,), (3, 4), (20_000,)]:
            every = of_all(size, shape, torch.float32, root)
            outputs = [torch.empty(shape) for _ in range(size)] if rank == root else None
            dist.gather(every[rank], outputs, root)
            if rank == root:
                for output, expected in zip(outputs, every):
                    same(output, expected)
            own = torch.empty(shape)
            dist.scatter(own, every if rank == root else None, root)
            same(own, every[rank])


@check
def reduce_scatter_gives_each_its_part(rank, size):
    for shape in [(1,), (3, 4), (20_000,)]:
        for op in (ReduceOp.SUM, ReduceOp.MIN):
            every = [of_all(size, shape, torch.float32, other) for other in range(size)]
            own = torch.empty(shape)
            dist.reduce_scatter(own, [every[other][rank] for other in range(size)], op)
            same(own, reduced(op, every[rank]))


@check
def reduce_scatter_single_takes_one_tensor(rank, size):
    for rows in (1, 5, 3000):
        every = of_all(size, (rows * size, 3), torch.float32)
        expected = reduced(ReduceOp.SUM, every)[rank * rows : (rank + 1) * rows]
        kept = every[rank].clone()
        own = torch.empty(rows, 3)
        reduce_scatter_single(own, every[rank])
        same(own, expected)
        same(every[rank], kept)


@check
def all_to_all_single_exchanges_rows(rank, size):
    for rows in (1, 4000):
        source = torch.arange(rows * size * 2).reshape(rows * size, 2) + 10_000_000 * rank
        output = torch.empty_like(source)
        dist.all_to_all_single(output, source)
        parts = [
            torch.arange(rows * size * 2).reshape(rows * size, 2)[rank * rows : (rank + 1) * rows]
            + 10_000_000 * other
            for other in range(size)
        ]
        same(output, torch.cat(parts))
    # Rank i sends i + j rows to rank j.
    sent, received = [rank + other for other in range(size)], [rank + other for other in range(size)]
    source = torch.cat([torch.full((count, 2), rank * 100 + other) for other, count in enumerate(sent)])
    output = torch.empty(sum(received), 2, dtype=torch.int64)
    dist.all_to_all_single(output, source, received, sent)
    expected = [torch.full((count, 2), other * 100 + rank) for other, count in enumerate(received)]
    same(output, torch.cat(expected))


@check_own
def all_to_all_exchanges_lists(rank, size):
    inputs = [torch.full((rank + other + 1,), rank * 100 + other) for other in range(size)]
    outputs = [torch.empty(rank + other + 1, dtype=torch.int64) for other in range(size)]
    dist.all_to_all(outputs, inputs)
    for other, output in enumerate(outputs):
        same(output, torch.full((rank + other + 1,), other * 100 + rank))


@check
def barrier_waits_for_all(rank, size):
    for late in range(size):
        store = dist.PrefixStore(f"barrier{late}", dist.distributed_c10d._get_default_store())
        if rank == late:
            store.set("here", "yes")
        dist.barrier()
        assert store.check(["here"])


@check
def monitored_barrier_succeeds(rank, size):
    dist.monitored_barrier(timeout=timedelta(seconds=60))


@check_own
def monitored_barrier_names_the_missing(rank, size):
    if size == 1:
        return
    group = dist.new_group(range(size))
    if rank == 0:
        error = raises(
            RuntimeError,
            lambda: dist.monitored_barrier(group, timedelta(seconds=0.3), wait_all_ranks=True),
        )
        assert f"[{size - 1}]" in str(error), error
        for other in range(1, size - 1):
            dist.send(torch.zeros(1), other, tag=5)
    elif rank < size - 1:
        raises(RuntimeError, lambda: dist.monitored_barrier(group, timedelta(seconds=0.3)))
        dist.recv(torch.zeros(1), 0, tag=5)


@check
def messages_match_by_source_and_tag(rank, size):
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for length in SIZES:
        sends = [
            dist.isend(torch.full((length,), float(10 * rank + tag)), after, tag=tag)
            for tag in range(3)
        ]
        for tag in (2, 0, 1):
            tensor = torch.empty(length)
            assert dist.recv(tensor, before, tag=tag) == before
            same(tensor, torch.full((length,), float(10 * before + tag)))
        for send in sends:
            send.wait()


@check
def messages_of_one_tag_keep_their_order(rank, size):
    if size == 1:
        return
    if rank == 0:
        for number in range(50):
            dist.send(torch.tensor([number]), 1)
    elif rank == 1:
        for number in range(50):
            tensor = torch.tensor([-1])
            dist.recv(tensor, 0)
            assert tensor.item() == number


@check
def receives_from_any_source_name_it(rank, size):
    if size == 1:
        return
    if rank > 0:
        dist.send(torch.full((3,), float(rank)), 0, tag=7)
        return
    seen = set()
    for _ in range(size - 1):
        tensor = torch.empty(3)
        source = dist.recv(tensor, tag=7)
        same(tensor, torch.full((3,), float(source)))
        seen.add(source)
    assert seen == set(range(1, size))


@check
def receives_are_posted_before_sends(rank, size):
    if size == 1:
        return
    after, before = (rank + 1) % size, (rank - 1) % size
    for length in (1, 100_000):
        source, target = torch.full((length,), float(rank)), torch.empty(length)
        operations = [
            dist.P2POp(dist.irecv, target, before),
            dist.P2POp(dist.isend, source, after),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(target, torch.full((length,), float(before)))


@check_own
def messages_of_another_size_are_refused(rank, size):
    if size == 1:
        return
    if rank == 0:
        dist.send(torch.zeros(4), 1)
        dist.send(torch.zeros(4), 1)
    elif rank == 1:
        error = raises(RuntimeError, lambda: dist.recv(torch.zeros(8), 0))
        assert "32 bytes" in str(error) and "16" in str(error), error
        raises(RuntimeError, lambda: dist.recv(torch.zeros(2), 0))


@check
def objects_are_exchanged(rank, size):
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(size)]
    shared = [f"from {rank}", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    assert shared == ["from 0", 0]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object((rank, "x" * rank), gathered, 0)
    if rank == 0:
        assert gathered == [(other, "x" * other) for other in range(size)]
    own = [None]
    dist.scatter_object_list(own, [f"for {other}" for other in range(size)] if rank == 0 else None)
    assert own == [f"for {rank}"]


@check
def asynchronous_work_completes(rank, size):
    for length in (10, 300_000):
        tensor = torch.full((length,), float(rank))
        work = dist.all_reduce(tensor, async_op=True)
        assert work.wait() is True
        assert work.is_completed() and work.is_success()
        same(tensor, torch.full((length,), size * (size - 1) / 2))
        tensor = torch.full((length,), float(rank))
        work = dist.all_reduce(tensor, async_op=True)
        while not work.is_completed():
            pass
        same(tensor, torch.full((length,), size * (size - 1) / 2))


@check
def many_operations_are_pending_at_once(rank, size):
    tensors = [torch.full((1 + 5000 * (number % 3),), float(rank + number)) for number in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    works.append(dist.barrier(async_op=True))
    for work in reversed(works):
        work.wait()
    for number, tensor in enumerate(tensors):
        same(tensor, torch.full_like(tensor, size * (size - 1) / 2 + size * number))


@check
def futures_complete_without_a_wait(rank, size):
    tensor = torch.full((100_000,), float(rank))
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), torch.full((100_000,), float(size * (size - 1))))
    assert future.done()


@check_own
def futures_complete_while_the_program_computes(rank, size):
    is_done = threading.Event()
    tensor = torch.full((50_000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    work.get_future().add_done_callback(lambda _: is_done.set())
    # No call of the backend: its own thread makes the progress.
    assert is_done.wait(60)
    same(tensor, torch.full((50_000,), size * (size - 1) / 2))
    assert work.result()[0] is tensor


@check
def threads_wait_for_different_messages(rank, size):
    if size == 1 or rank > 1:
        return
    other = 1 - rank

    def echo(tag, first):
        tensor = torch.zeros(1)
        for _ in range(20):
            if first:
                dist.send(torch.ones(1), other, tag=tag)
            dist.recv(tensor, other, tag=tag)
            if not first:
                dist.send(torch.ones(1), other, tag=tag)

    threads = [threading.Thread(target=echo, args=(tag, rank == tag % 2)) for tag in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@check
def groups_have_their_own_ranks(rank, size):
    every = dist.new_group(list(range(size)))
    halves = [dist.new_group(list(range(part, size, 2))) for part in range(min(2, size))]
    tensor = torch.full((1000,), float(rank))
    dist.all_reduce(tensor, group=every)
    same(tensor, torch.full((1000,), size * (size - 1) / 2))
    mine = halves[rank % 2]
    ranks = list(range(rank % 2, size, 2))
    assert dist.get_world_size(mine) == len(ranks)
    assert dist.get_group_rank(mine, rank) == ranks.index(rank)
    tensor = torch.full((10,), float(rank))
    dist.all_reduce(tensor, group=mine)
    same(tensor, torch.full((10,), float(sum(ranks))))
    # Roots and sources are global ranks.
    tensor = torch.full((10,), float(rank))
    dist.broadcast(tensor, ranks[-1], group=mine)
    same(tensor, torch.full((10,), float(ranks[-1])))
    if len(ranks) > 1 and rank in ranks[:2]:
        if rank == ranks[0]:
            dist.send(torch.tensor([5]), ranks[1], group=mine)
        else:
            tensor = torch.zeros(1, dtype=torch.int64)
            assert dist.recv(tensor, group=mine) == ranks[0]
            assert tensor.item() == 5
    if size > 1:
        other = halves[1 - rank % 2]
        assert other == dist.GroupMember.NON_GROUP_MEMBER
    dist.destroy_process_group(every)


@check
def groups_do_not_mix_messages(rank, size):
    if size == 1 or rank > 1:
        # All processes create a group.
        dist.new_group(list(range(min(2, size))))
        return
    pair = dist.new_group([0, 1])
    if rank == 0:
        dist.send(torch.tensor([1]), 1)
        dist.send(torch.tensor([2]), 1, group=pair)
    else:
        tensor = torch.zeros(1, dtype=torch.int64)
        dist.recv(tensor, 0, group=pair)
        assert tensor.item() == 2
        dist.recv(tensor, 0)
        assert tensor.item() == 1


@check
def coalesced_operations_end_together(rank, size):
    tensors = [torch.full((length,), float(rank)) for length in (1, 30_000)]
    with dist.distributed_c10d._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, size * (size - 1) / 2))
    outputs = [torch.empty(size * length) for length in (2, 20_000)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for output in outputs:
            all_gather_single(output, torch.full((output.numel() // size,), float(rank)))
    manager.wait()
    for output in outputs:
        same(output, torch.arange(float(size)).repeat_interleave(output.numel() // size))


@check_own
def operations_of_a_device_are_coalesced(rank, size):
    # Averages are divided and gaps are filled after the requests.
    average, gaps = torch.full((100,), float(rank * size)), torch.zeros(50, 2)[:, 0]
    cpu = torch.device("cpu")
    with dist.distributed_c10d._coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.all_reduce(average, ReduceOp.AVG)
    manager.wait()
    same(average, torch.full((100,), size * (size - 1) / 2))
    with dist.distributed_c10d._coalescing_manager(device=cpu, async_ops=True) as manager:
        dist.broadcast(gaps.fill_(rank + 1.0), size - 1, async_op=True)
    manager.wait()
    same(gaps.clone(), torch.full((50,), float(size)))


@check_own
def functional_collectives_return_tensors(rank, size):
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    tensor = torch.full((6,), float(rank))
    total = functional.all_reduce(tensor, "sum", group)
    same(total + 0, torch.full((6,), size * (size - 1) / 2))
    same(tensor, torch.full((6,), float(rank)))
    gathered = functional.all_gather_tensor(tensor, 0, group)
    same(gathered + 0, torch.arange(float(size)).repeat_interleave(6))
    part = functional.reduce_scatter_tensor(torch.ones(size * 2), "sum", 0, group)
    same(part + 0, torch.full((2,), float(size)))


@check_own
def distributed_tensors_are_sharded(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(16.0 * size).reshape(4 * size, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    same(sharded.to_local(), whole[4 * rank : 4 * rank + 4])
    same(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert sharded.sum().full_tensor().item() == whole.sum().item()


@check_own
def operations_without_partners_time_out(rank, size):
    if size == 1:
        return
    group = dist.new_group(list(range(size)), timeout=timedelta(seconds=0.3))
    if rank == 0:
        error = raises(RuntimeError, lambda: dist.all_reduce(torch.ones(1), group=group))
        assert "all_reduce has not ended after 0.3 s" in str(error), error
        work = dist.barrier(group, async_op=True)
        raises(RuntimeError, lambda: work.get_future().wait())
        assert not work.is_success() and work.exception() is not None
        error = raises(RuntimeError, lambda: dist.irecv(torch.ones(1), 1, group=group).wait())
        for other in range(1, size):
            dist.send(torch.ones(1), other)
    else:
        dist.recv(torch.ones(1), 0)


@check_own
def different_operations_are_an_error(rank, size):
    if size == 1:
        return
    group = dist.new_group(list(range(size)))
    if rank == 0:
        raises(RuntimeError, lambda: dist.broadcast(torch.ones(4), 0, group=group) or dist.barrier(group))
    else:
        error = raises(RuntimeError, lambda: dist.all_reduce(torch.ones(4), group=group))
        assert "all" in str(error), error


@check_own
def other_devices_and_layouts_are_refused(rank, size):
    raises(ValueError, lambda: dist.all_reduce(torch.ones(3).to_sparse()))
    raises(ValueError, lambda: dist.all_reduce(torch.ones(3, device="meta")))


if __name__ == "__main__":
    main()
