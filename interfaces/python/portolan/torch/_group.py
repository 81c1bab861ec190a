# SPDX-License-Identifier: MIT OR Apache-2.0
"""The process group of the backend."""

from __future__ import annotations

import functools
import time
from datetime import timedelta
from typing import Any, Callable, ParamSpec, Sequence, TypeVar

import torch
import torch.distributed as dist

from .._portolan import Error
from . import _backend, _job
from ._tensor import (
    Reduction,
    counts,
    dense,
    gathered,
    is_dense,
    memory,
    place,
    row_counts,
    scattered,
)
from ._work import DistError, Part, Work

# Bits of a tag: 32 are the program's, the upper ones the group's number. Barriers that report missing
# members have tags that programs cannot have.
_TAG_BITS = 32
_ARRIVED = 1 << 32
_RELEASED = 2 << 32
_GROUP_SHIFT = 48

Tensors = list[torch.Tensor]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _raising(operation: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Converts errors of the library to those of PyTorch."""

    @functools.wraps(operation)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return operation(*arguments, **options)
        except Error as error:
            raise DistError(f"portolan: {operation.__name__}: {error}") from error

    return call


class ProcessGroup(dist.ProcessGroup):
    """A process group over a job of the library. `dist.init_process_group` makes it."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, ranks: list[int]
    ) -> None:
        super().__init__(store, rank, size)
        self._job, self._group = _job.of_group(store, rank, size, ranks)
        self._is_default = not ranks
        self._ranks = self._group.ranks
        self._members = size
        self._own = rank
        self._timeout = timeout.total_seconds()
        self._tag = self._group.id << _GROUP_SHIFT
        self._name = self._description = ""
        self._cpu = _backend.register(self)
        self._coalesced: list[Work] | None = None

    # Facts.

    def getBackendName(self) -> str:
        """Returns the name of the backend."""
        return "portolan"

    name = getBackendName

    def getGroupName(self) -> str:
        """Returns the name that PyTorch has given to the group."""
        return self._name

    def setGroupName(self, name: str) -> None:
        """Sets the name of the group."""
        self._name = name

    def getGroupDesc(self) -> str:
        """Returns the description of the group."""
        return self._description

    def setGroupDesc(self, description: str) -> None:
        """Sets the description of the group."""
        self._description = description

    def rank(self) -> int:
        """Returns the rank of this process in the group."""
        return self._own

    def size(self) -> int:
        """Returns the number of members."""
        return self._members

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of later operations."""
        self._timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        """Leaves the job, if this is the group with which it was joined."""
        if self._is_default or self._job is not _job._default:
            self._job.close()

    def abort(self) -> None:
        """Leaves the job without waiting for anything."""
        self._job.abandon()

    # Operations.

    def _start(
        self, what: str, parts: list[Part], result: Tensors, opts: Any, is_async: bool = True
    ) -> Work:
        timeout = getattr(opts, "timeout", None)
        limit = timeout.total_seconds() if isinstance(timeout, timedelta) else -1.0
        work = Work(what, parts, result, limit if limit > 0 else self._timeout)
        if is_async and getattr(opts, "asyncOp", True) and opts is not None:
            work.watch()
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def start_coalescing(self, device: object = None) -> None:
        """Collects the following operations for `end_coalescing`."""
        self._coalesced = []

    def end_coalescing(self, device: object = None) -> Work:
        """Returns the work of all operations since `start_coalescing`."""
        works, self._coalesced = self._coalesced or [], None
        return Work.of_all(works, self._timeout)

    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing

    @_raising
    def allreduce(self, tensors: Tensors | torch.Tensor, opts: Any = None, timeout: Any = None) -> Work:
        """Combines a tensor of all members, in place."""
        tensor = _single(tensors)
        part = self._allreduce_part(tensor, _op_of(opts))
        return self._start("all_reduce", [part], [tensor], _options(opts, timeout))

    @_raising
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Combines several tensors."""
        op = _op_of(opts)
        parts = [self._allreduce_part(tensor, op) for tensor in tensors]
        return self._start("all_reduce_coalesced", parts, tensors, opts)

    def _allreduce_part(self, tensor: torch.Tensor, op: Any) -> Part:
        reduction = Reduction(op, tensor.dtype, self._members)
        values = dense(tensor)
        if reduction.before is not None:
            reduction.before(values)
        request = self._group.iallreduce(memory(values), reduction.name)
        return request, _after(tensor, values, reduction)

    @_raising
    def reduce(
        self, tensors: Tensors | torch.Tensor, opts: Any = None, op: Any = None, timeout: Any = None
    ) -> Work:
        """Combines a tensor of all members at one of them."""
        tensor, root = _single(tensors), _root_of(opts)
        reduction = Reduction(_op_of(opts) if op is None else op, tensor.dtype, self._members)
        values = dense(tensor)
        if self._own != root:
            # Members between leaves and root combine in place, and the tensor is not theirs to change.
            if values is tensor and (self._members > 2 or reduction.before is not None):
                values = tensor.clone()
        if reduction.before is not None:
            reduction.before(values)
        request = self._group.ireduce(memory(values), reduction.name, root)
        finish = _after(tensor, values, reduction) if self._own == root else None
        return self._start("reduce", [(request, finish)], [tensor], _options(opts, timeout))

    @_raising
    def broadcast(self, tensors: Tensors | torch.Tensor, opts: Any = None, timeout: Any = None) -> Work:
        """Copies a tensor of one member to all."""
        tensor, root = _single(tensors), _root_of(opts)
        values = dense(tensor) if self._own == root else place(tensor)
        request = self._group.ibroadcast(memory(values), root)
        finish = _copy_back(tensor, values) if self._own != root else None
        return self._start("broadcast", [(request, finish)], [tensor], _options(opts, timeout))

    @_raising
    def allgather(
        self, outputs: list[Tensors] | Tensors, inputs: Tensors | torch.Tensor, opts: Any = None
    ) -> Work:
        """Copies a tensor of each member to all."""
        tensor, places = _single(inputs), _single_list(outputs)
        part = self._allgather_part(places, tensor)
        return self._start("all_gather", [part], places, _options(opts))

    @_raising
    def allgather_coalesced(
        self, output_lists: list[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """Copies several tensors of each member to all."""
        parts = [
            self._allgather_part([outputs[index] for outputs in output_lists], tensor)
            for index, tensor in enumerate(inputs)
        ]
        result = [tensor for outputs in output_lists for tensor in outputs]
        return self._start("all_gather_coalesced", parts, result, opts)

    def _allgather_part(self, places: Tensors, tensor: torch.Tensor) -> Part:
        self._check_count(places, "output tensors")
        self._check_type(places[0], tensor)
        if places[self._own].numel() != tensor.numel():
            raise ValueError(
                f"the own output has {places[self._own].numel()} elements, and the input "
                f"{tensor.numel()}; they must have the same number"
            )
        into, move = scattered(places)
        mine = memory(dense(tensor))
        if all(one.numel() == tensor.numel() for one in places):
            request = self._group.iallgather(mine, into)
        else:
            request = self._group.iallgatherv(mine, into, counts(places))
        return request, _then(move)

    @_raising
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Copies a tensor of each member to one output tensor of all."""
        part = self._gather_single_part(output, input)
        return self._start("all_gather_single", [part], [output], opts)

    _allgather_base = all_gather_single

    @_raising
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Copies several tensors like `all_gather_single`."""
        parts = [self._gather_single_part(*pair) for pair in zip(outputs, inputs)]
        return self._start("all_gather_single_coalesced", parts, outputs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def _gather_single_part(self, output: torch.Tensor, input: torch.Tensor) -> Part:
        self._check_type(output, input)
        self._check_single(output, input)
        into = place(output)
        request = self._group.iallgather(memory(dense(input)), memory(into))
        return request, _copy_back(output, into)

    @_raising
    def gather(
        self,
        outputs: list[Tensors] | Tensors,
        inputs: Tensors | torch.Tensor,
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        """Copies a tensor of each member to one of them."""
        tensor, root = _single(inputs), _root_of(opts)
        mine, move, all_ = memory(dense(tensor)), None, None
        places: Tensors = []
        if self._own == root:
            places = _single_list(outputs)
            self._check_equal(places, tensor, "output tensors")
            all_, move = scattered(places)
        request = self._group.igather(mine, all_, root)
        return self._start("gather", [(request, _then(move))], places, _options(opts, timeout))

    @_raising
    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Copies a tensor of each member to one output tensor of one of them."""
        root, into = _root_of(opts), None
        if self._own == root:
            self._check_type(output, input)
            self._check_single(output, input)
            into = place(output)
        request = self._group.igather(
            memory(dense(input)), None if into is None else memory(into), root
        )
        finish = None if into is None else _copy_back(output, into)
        return self._start("gather_single", [(request, finish)], [output], opts)

    gather_into_tensor = gather_single

    @_raising
    def scatter(
        self,
        outputs: Tensors | torch.Tensor,
        inputs: list[Tensors] | Tensors,
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        """Copies a tensor of one member to each."""
        tensor, root, all_ = _single(outputs), _root_of(opts), None
        if self._own == root:
            sources = _single_list(inputs)
            self._check_equal(sources, tensor, "input tensors")
            all_ = gathered(sources)
        into = place(tensor)
        request = self._group.iscatter(all_, memory(into), root)
        part = request, _copy_back(tensor, into)
        return self._start("scatter", [part], [tensor], _options(opts, timeout))

    @_raising
    def reduce_scatter(
        self, outputs: Tensors | torch.Tensor, inputs: list[Tensors] | Tensors, opts: Any = None
    ) -> Work:
        """Combines the tensors of all members, and gives each member one of the results."""
        tensor, sources = _single(outputs), _single_list(inputs)
        self._check_count(sources, "input tensors")
        self._check_type(sources[0], tensor)
        reduction = Reduction(_op_of(opts), tensor.dtype, self._members)
        if reduction.before is None:
            values = gathered(sources)
        else:
            flat = torch.cat([dense(source).view(-1) for source in sources])
            reduction.before(flat)
            values = memory(flat)
        into = place(tensor)
        request = self._group.ireduce_scatterv(
            values, memory(into), counts(sources), reduction.name
        )
        part = request, _after(tensor, into, reduction)
        return self._start("reduce_scatter", [part], [tensor], opts)

    @_raising
    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = None
    ) -> Work:
        """Combines one tensor of all members, and gives each member an equal part of the result."""
        part = self._reduce_scatter_part(output, input, _op_of(opts))
        return self._start("reduce_scatter_single", [part], [output], opts)

    _reduce_scatter_base = reduce_scatter_single

    @_raising
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        """Combines several tensors like `reduce_scatter_single`."""
        op = _op_of(opts)
        parts = [self._reduce_scatter_part(*pair, op) for pair in zip(outputs, inputs)]
        return self._start("reduce_scatter_single_coalesced", parts, outputs, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduce_scatter_part(self, output: torch.Tensor, input: torch.Tensor, op: Any) -> Part:
        self._check_type(input, output)
        self._check_single(input, output)
        reduction = Reduction(op, output.dtype, self._members)
        values, into = dense(input), place(output)
        if reduction.before is not None:
            values = values.clone() if values is input else values
            reduction.before(values)
        request = self._group.ireduce_scatter(memory(values), memory(into), reduction.name)
        return request, _after(output, into, reduction)

    @_raising
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Copies a tensor of each member to each member."""
        self._check_count(outputs, "output tensors")
        self._check_count(inputs, "input tensors")
        into, move = scattered(outputs)
        request = self._group.ialltoallv(gathered(inputs), counts(inputs), into, counts(outputs))
        return self._start("all_to_all", [(request, _then(move))], outputs, opts)

    @_raising
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
    ) -> Work:
        """Copies some rows of each member's tensor to each member."""
        self._check_type(output, input)
        into, members = place(output), self._members
        request = self._group.ialltoallv(
            memory(dense(input)),
            row_counts(input, input_splits, members),
            memory(into),
            row_counts(output, output_splits, members),
        )
        part = request, _copy_back(output, into)
        return self._start("all_to_all_single", [part], [output], opts)

    alltoall_base = all_to_all_single

    @_raising
    def barrier(self, opts: Any = None) -> Work:
        """Waits for all members."""
        return self._start("barrier", [(self._group.ibarrier(), None)], [], opts)

    @_raising
    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Waits for all members. Rank 0 names those that are missing at the timeout."""
        node = self._job.node
        limit = self._timeout if timeout is None else timeout.total_seconds()
        deadline = time.monotonic() + limit
        if self._own != 0:
            node.send_tagged(self._ranks[0], self._tag | _ARRIVED, b"")
            released = node.recv_tagged(
                self._tag | _RELEASED, source=self._ranks[0], timeout=limit
            )
            if released is None:
                raise DistError(
                    f"portolan: rank {self._own} was not released from monitored_barrier in "
                    f"{limit:g} s; see the error of rank 0"
                )
            return
        missing = []
        for rank in range(1, self._members):
            left = max(0.0, deadline - time.monotonic())
            got = node.recv_tagged(self._tag | _ARRIVED, source=self._ranks[rank], timeout=left)
            if got is None:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if missing:
            raise DistError(
                f"portolan: ranks {missing} have not reached monitored_barrier in {limit:g} s"
            )
        for rank in range(1, self._members):
            node.send_tagged(self._ranks[rank], self._tag | _RELEASED, b"")

    # Messages between two members.

    @_raising
    def send(self, tensors: Tensors, dst: int, tag: int = 0) -> Work:
        """Sends a tensor to a member."""
        tensor = _single(tensors)
        request = self._job.node.isend_tagged(
            self._ranks[dst], self._tag_of(tag), memory(dense(tensor))
        )
        return self._start(f"send to rank {dst}", [(request, None)], [tensor], None)

    @_raising
    def recv(self, tensors: Tensors, src: int, tag: int = 0) -> Work:
        """Receives a tensor from a member."""
        return self._receive(_single(tensors), self._ranks[src], tag, f"recv from rank {src}")

    @_raising
    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Work:
        """Receives a tensor from any member."""
        return self._receive(_single(tensors), None, tag, "recv from any rank")

    recvAnysource = recv_anysource

    def _receive(self, tensor: torch.Tensor, source: int | None, tag: int, what: str) -> Work:
        into = place(tensor)
        request = self._job.node.post_recv_tagged(memory(into), self._tag_of(tag), source=source)
        copy = _copy_back(tensor, into)
        work: Work

        def finish(status: Any) -> None:
            work._source = self._ranks.index(status.source)
            if status.len != tensor.nbytes:
                raise DistError(
                    f"portolan: {what}: the tensor has {tensor.nbytes} bytes, and the received one "
                    f"{status.len}; pass tensors of the same size and type"
                )
            if copy is not None:
                copy(status)

        work = self._start(what, [(request, finish)], [tensor], None)
        return work

    def _tag_of(self, tag: int) -> int:
        return self._tag | tag & (1 << _TAG_BITS) - 1

    # Checks of arguments.

    def _check_count(self, tensors: Tensors, what: str) -> None:
        if len(tensors) != self._members:
            raise ValueError(f"there are {len(tensors)} {what} for {self._members} members")

    def _check_equal(self, tensors: Tensors, like: torch.Tensor, what: str) -> None:
        self._check_count(tensors, what)
        for tensor in tensors:
            self._check_type(tensor, like)
            if tensor.numel() != like.numel():
                raise ValueError(
                    f"{what} of {tensor.numel()} and {like.numel()} elements; they must be equal"
                )

    def _check_type(self, one: torch.Tensor, other: torch.Tensor) -> None:
        if one.dtype != other.dtype:
            raise ValueError(f"tensors of the types {one.dtype} and {other.dtype}; pass one type")

    def _check_single(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        if whole.numel() != part.numel() * self._members:
            raise ValueError(
                f"{whole.numel()} elements are not {self._members} times {part.numel()} elements"
            )


def create(opts: Any, _: object = None) -> ProcessGroup:
    """Creates a process group, as `init_process_group` and `new_group` request it."""
    return ProcessGroup(
        opts.store, opts.group_rank, opts.group_size, opts.timeout, opts.global_ranks_in_group
    )


def _single(tensors: Tensors | torch.Tensor) -> torch.Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} tensors in one operation; pass one for each call")
    return tensors[0]


def _single_list(lists: list[Tensors] | Tensors) -> Tensors:
    if lists and isinstance(lists[0], torch.Tensor):
        return lists  # type: ignore[return-value]
    if len(lists) != 1:
        raise ValueError(f"{len(lists)} lists of tensors in one operation; pass one for each call")
    return lists[0]  # type: ignore[return-value]


def _options(opts: Any, timeout: Any = None) -> Any:
    """Returns the options object, if the caller has passed one."""
    return opts if hasattr(opts, "timeout") else None


def _op_of(opts: Any) -> Any:
    if opts is None:
        return dist.ReduceOp.SUM
    return getattr(opts, "reduceOp", opts)


def _root_of(opts: Any) -> int:
    if opts is None:
        return 0
    return getattr(opts, "rootRank", opts)


def _then(move: Callable[[], object] | None) -> Callable[[Any], object] | None:
    return None if move is None else lambda _: move()


def _copy_back(tensor: torch.Tensor, values: torch.Tensor) -> Callable[[Any], object] | None:
    """Returns the step that copies received values into a tensor that could not receive them."""
    if values is tensor:
        return None
    return lambda _: tensor.copy_(values)


def _after(
    tensor: torch.Tensor, values: torch.Tensor, reduction: Reduction
) -> Callable[[Any], object] | None:
    after = reduction.after
    if after is None:
        return _copy_back(tensor, values)

    def finish(_: Any) -> None:
        after(values)
        if values is not tensor:
            tensor.copy_(values)

    return finish
