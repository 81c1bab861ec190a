# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pending operations on tensors."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any, Callable, Literal, Sequence

import torch
import torch.distributed as dist

from .._portolan import Closed, Error, Request, Status

# A request of the library, and the work after it.
Part = tuple[Request, Callable[[Status], object] | None]

DistError: type[Exception] = getattr(dist, "DistBackendError", RuntimeError)


class Work(dist.Work):
    """An operation on tensors. It has ended when all its requests have, and the work after them."""

    def __init__(
        self, what: str, parts: Sequence[Part], result: list[torch.Tensor], timeout: float
    ) -> None:
        super().__init__()
        self._what = what
        self._parts: Sequence[Part] = parts
        self._result = result
        self._timeout = timeout
        self._lock = threading.Lock()
        self._has_ended = False
        self._error: Exception | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._is_watched = False
        self._source = -1

    @classmethod
    def of_all(cls, works: Sequence[Work], timeout: float) -> Work:
        """Returns the work that has ended when all of `works` have."""
        requests = [request for work in works for request, _ in work._parts]
        parts: list[Part] = [(request, None) for request in requests]
        result = [tensor for work in works for tensor in work._result]
        if parts:
            # They do the work after their requests, or raise their failures.
            parts[-1] = (requests[-1], lambda _: [work.wait() for work in works])
        else:
            # All have ended already.
            for work in works:
                work.wait()
        return cls("coalesced operations", parts, result, timeout)

    def watch(self) -> Work:
        """Completes the operation while the program computes."""
        self._is_watched = True
        for request, _ in self._parts:
            request.then(self._on_ended, self._timeout)
        return self

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the operation has ended, at most for `timeout`, or that of the operation."""
        if not self._has_ended:
            limit = timeout.total_seconds() or self._timeout
            parts = self._parts
            try:
                if len(parts) == 1:
                    is_over = parts[0][0].wait(limit) is None
                else:
                    is_over = not _wait_all(parts, limit)
            except Error:
                # The failure is recorded below.
                is_over = False
            if is_over:
                raise self._late(limit)
            self._end()
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Makes progress, and tests whether the operation has ended."""
        if not self._has_ended and _have_ended(self._parts):
            self._end()
        return self._has_ended

    def is_success(self) -> bool:
        """Tests whether the operation has ended without a failure."""
        return self.is_completed() and self._error is None

    def exception(self) -> Exception | None:
        """Returns the failure of the operation."""
        return self._error

    def synchronize(self) -> None:
        """Waits like `wait`."""
        self.wait()

    def result(self) -> list[torch.Tensor]:
        """Returns the tensors with the result."""
        self.wait()
        return self._result

    def source_rank(self) -> int:
        """Returns the sender of a received tensor, as a rank of the group."""
        self.wait()
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future of the tensors with the result."""
        with self._lock:
            future = self._future
            is_new = future is None
            if future is None:
                future = self._future = torch.futures.Future()
            has_ended = self._has_ended
        if is_new and has_ended:
            self._complete(future)
        elif is_new and not self._is_watched:
            self.watch()
        return future

    def _complete(self, future: torch.futures.Future[Any]) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)

    def _late(self, limit: float) -> Exception:
        return DistError(
            f"portolan: {self._what} has not ended after {limit:g} s; check that all members of the "
            "group call it, and that their processes are alive"
        )

    def _on_ended(self, request: Request) -> None:
        """Handles the end of a request, or its timeout, in the thread of the package."""
        if self._has_ended:
            return
        if not request.done:
            self._end(self._late(self._timeout))
        elif all(part[0].done for part in self._parts):
            self._end()

    def _end(self, error: Exception | None = None) -> None:
        """Performs the work after the requests, once."""
        with self._lock:
            if self._has_ended:
                return
            try:
                if error is not None:
                    raise error
                for request, finish in self._parts:
                    status = request.wait()
                    if finish is not None and status is not None:
                        finish(status)
            except Error as failed:
                self._error = DistError(f"portolan: {self._what}: {failed}")
                self._error.__cause__ = failed
            except Exception as failed:  # The work after a request may raise anything.
                self._error = failed
            self._has_ended = True
            self._parts = ()
            future = self._future
        if future is not None:
            self._complete(future)


def _have_ended(parts: Sequence[Part]) -> bool:
    """Makes progress, and tests whether a wait for the requests in their order would end at once: all
    are complete, or all before the first that has failed."""
    # All are tested, so that all advance.
    states = [_state(request) for request, _ in parts]
    return next((state for state in states if state != "complete"), "complete") != "pending"


def _state(request: Request) -> Literal["pending", "complete", "failed"]:
    try:
        return "pending" if request.test() is None else "complete"
    except Error as error:
        # No call of a closed node waits. Another error is that of a handler, unless it is the
        # request's.
        if request.done or isinstance(error, Closed):
            return "failed"
        raise


def _wait_all(parts: Sequence[Part], limit: float) -> bool:
    """Waits for all requests. Returns False at the limit."""
    deadline = time.monotonic() + limit
    return all(
        request.wait(max(0.0, deadline - time.monotonic())) is not None for request, _ in parts
    )
