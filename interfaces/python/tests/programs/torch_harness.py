# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the checks of a program in one process group, as `harness` does for a node.

The group is that of torchrun, or else that of ``portolan run``. TORCH_TEST_BACKEND is the backend
(default: portolan); the checks hold for gloo too, except those that are marked.
"""

import os
import sys
import traceback

import torch
import torch.distributed as dist

import portolan.torch

BACKEND = os.environ.get("TORCH_TEST_BACKEND", "portolan")
CHECKS = []
has_gloo = BACKEND == "gloo"


def check(function):
    """Adds a check."""
    CHECKS.append(function)
    return function


def check_own(function):
    """Adds a check of properties that other backends do not have."""
    return check(function) if BACKEND == "portolan" else function


def init():
    """Joins the default group."""
    torch.set_num_threads(1)
    method = "env://" if "RANK" in os.environ else "portolan://"
    dist.init_process_group(BACKEND, init_method=method)


def main():
    """Joins, runs the checks that the arguments name, or all, and leaves."""
    wanted = sys.argv[1:]
    init()
    rank, size = dist.get_rank(), dist.get_world_size()
    for function in CHECKS:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function(rank, size)
        except BaseException:
            print(f"rank {rank}: {function.__name__}", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
            # Other processes are ended by the launcher.
            os._exit(1)
        dist.barrier()
        if rank == 0:
            print("ok", function.__name__, flush=True)
    dist.destroy_process_group()
    if has_gloo:
        # Gloo may wait for ever at the end of the interpreter.
        os._exit(0)


def new_gloo_group():
    """Returns a group of Gloo of all processes of this host."""
    global has_gloo
    has_gloo = True
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return dist.new_group(backend="gloo")


def raises(kind, call):
    """Returns the exception of `kind` that `call` raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def same(one, other):
    """Checks that two tensors have the same type, shape and values."""
    assert one.dtype == other.dtype and one.shape == other.shape, (one, other)
    assert torch.equal(one, other), (one, other)
