# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors as memory of the library, and reductions of them."""

from __future__ import annotations

import math
from typing import Callable, Sequence

import torch
import torch.distributed as dist

from .._portolan import Memory

# Format and length of the numbers in a tensor. A complex number is two of them.
_FORMATS = {
    torch.float64: ("d", 8),
    torch.float32: ("f", 4),
    torch.float16: ("e", 2),
    torch.bfloat16: ("bf16", 2),
    torch.int64: ("q", 8),
    torch.int32: ("i", 4),
    torch.int16: ("h", 2),
    torch.int8: ("b", 1),
    torch.uint64: ("Q", 8),
    torch.uint32: ("I", 4),
    torch.uint16: ("H", 2),
    torch.uint8: ("B", 1),
    torch.bool: ("B", 1),
    torch.complex128: ("d", 8),
    torch.complex64: ("f", 4),
    torch.complex32: ("e", 2),
}

# Types without reductions are bytes.
_BYTES = ("x", 1)

Step = Callable[[torch.Tensor], object]


def memory(tensor: torch.Tensor) -> Memory:
    """Returns the memory of a tensor for which `is_dense` holds."""
    format_, length = _FORMATS.get(tensor.dtype, _BYTES)
    return Memory(tensor, tensor.data_ptr(), tensor.nbytes, format_, length)


def is_dense(tensor: torch.Tensor) -> bool:
    """Tests whether the elements of a tensor are in its memory, in order and without gaps."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def check(tensor: torch.Tensor) -> None:
    """Raises an error for a tensor that is not in the memory of this process."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        raise ValueError(
            f"the backend portolan supports strided tensors on the CPU, not {tensor.layout} on "
            f"{tensor.device}; convert the tensor by .cpu() or .to_dense(), or use another backend"
        )


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor with the same values in order: the same one, if possible."""
    check(tensor)
    if is_dense(tensor):
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()


def place(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor to receive the values of `tensor`: the same one, if possible."""
    check(tensor)
    if is_dense(tensor):
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def are_adjacent(tensors: Sequence[torch.Tensor]) -> bool:
    """Tests whether tensors of one type follow each other in memory."""
    at, storage = tensors[0].data_ptr(), tensors[0].untyped_storage().data_ptr()
    for tensor in tensors:
        if (
            tensor.dtype != tensors[0].dtype
            or not is_dense(tensor)
            or tensor.data_ptr() != at
            or tensor.untyped_storage().data_ptr() != storage
        ):
            return False
        at += tensor.nbytes
    return True


def adjacent(tensors: Sequence[torch.Tensor]) -> Memory:
    """Returns the memory of tensors that follow each other."""
    format_, length = _FORMATS.get(tensors[0].dtype, _BYTES)
    total = sum(tensor.nbytes for tensor in tensors)
    return Memory(list(tensors), tensors[0].data_ptr(), total, format_, length)


def gathered(tensors: Sequence[torch.Tensor]) -> Memory:
    """Returns the values of tensors one after the other: in place, or in a copy."""
    for tensor in tensors:
        check(tensor)
    if are_adjacent(tensors):
        return adjacent(tensors)
    return memory(torch.cat([dense(tensor).view(-1) for tensor in tensors]))


def scattered(tensors: Sequence[torch.Tensor]) -> tuple[Memory, Callable[[], None] | None]:
    """Returns memory for the values of tensors one after the other, and the function that moves them
    to their tensors, if they are not received in place."""
    for tensor in tensors:
        check(tensor)
    if are_adjacent(tensors):
        return adjacent(tensors), None
    sizes = [tensor.numel() for tensor in tensors]
    flat = torch.empty(sum(sizes), dtype=tensors[0].dtype)

    def move() -> None:
        for tensor, part in zip(tensors, flat.split(sizes)):
            tensor.copy_(part.view(tensor.shape))

    return memory(flat), move


def counts(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Returns the number of elements of `memory` in each tensor."""
    _, length = _FORMATS.get(tensors[0].dtype, _BYTES)
    return [tensor.nbytes // length for tensor in tensors]


def row_counts(tensor: torch.Tensor, splits: Sequence[int], members: int) -> list[int]:
    """Returns the number of elements of `memory` for each member, which gets `splits` rows, or all of
    which get the same number of rows."""
    _, length = _FORMATS.get(tensor.dtype, _BYTES)
    rows = tensor.shape[0] if tensor.dim() > 0 else 1
    per_row = tensor.nbytes // length // rows if rows else 0
    if not splits:
        if rows % members:
            raise ValueError(f"{rows} rows are not divisible by {members} members; pass split sizes")
        splits = [rows // members] * members
    if len(splits) != members or sum(splits) != rows:
        raise ValueError(f"split sizes {list(splits)} are not those of {rows} rows and {members} members")
    return [split * per_row for split in splits]


_NAMES = {
    dist.ReduceOp.SUM: "sum",
    dist.ReduceOp.AVG: "sum",
    dist.ReduceOp.PREMUL_SUM: "sum",
    dist.ReduceOp.PRODUCT: "product",
    dist.ReduceOp.MIN: "min",
    dist.ReduceOp.MAX: "max",
    dist.ReduceOp.BAND: "and",
    dist.ReduceOp.BOR: "or",
    dist.ReduceOp.BXOR: "xor",
}
_BOOL_NAMES = {"sum": "or", "max": "or", "product": "and", "min": "and"}
_COMPLEX = (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM)


class Reduction:
    """A reduction of tensors: its name in the library, and steps before and after it."""

    __slots__ = ("after", "before", "name")

    def __init__(self, op: object, dtype: torch.dtype, members: int) -> None:
        kind = getattr(op, "op", op)
        name = _NAMES.get(kind)
        self.before: Step | None = None
        self.after: Step | None = None
        if name is None:
            raise ValueError(f"the backend portolan does not support the reduction {op}")
        if dtype.is_complex and kind not in _COMPLEX:
            raise ValueError(f"complex tensors support only sums and averages, not {kind}")
        if dtype is torch.bool:
            if kind == dist.ReduceOp.AVG or kind == dist.ReduceOp.PREMUL_SUM:
                raise ValueError("bool tensors support neither averages nor factors; convert the tensor")
            name = _BOOL_NAMES.get(name, name)
        if kind == dist.ReduceOp.AVG:
            self.after = _divider(dtype, members)
        elif kind == dist.ReduceOp.PREMUL_SUM:
            factor = _factor(op)
            self.before = lambda tensor: tensor.mul_(factor)
        self.name = name


def _divider(dtype: torch.dtype, members: int) -> Step:
    if dtype.is_floating_point or dtype.is_complex:
        return lambda tensor: tensor.div_(members)
    return lambda tensor: tensor.div_(members, rounding_mode="trunc")


def _factor(op: object) -> object:
    factor = getattr(op, "factor", None)
    if factor is None:
        # Releases without that attribute have it in the state for pickling.
        factor = op.__getstate__()[1]  # type: ignore[attr-defined]
    if not isinstance(factor, torch.Tensor) and not math.isfinite(factor):
        raise ValueError(f"the factor of a sum is {factor}; pass a finite number")
    return factor
