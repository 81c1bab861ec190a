# SPDX-License-Identifier: MIT OR Apache-2.0
"""The node for asyncio: calls that wait are coroutines.

::

    import asyncio
    from portolan import aio

    async def main():
        async with aio.Node() as node:
            node.open(7)
            await node.send((node.rank + 1) % node.size, 7, b"ahoy")
            data, source = await node.recv(7)

    asyncio.run(main())

The event loop waits for the node's descriptor, beside everything else that it waits for. From the
first coroutine that waits, the loop makes progress on the node and runs its handlers.

Other calls block the loop. Those with a non-blocking form have coroutines by `wait`, such as
``await node.wait(node.iallgather(mine, all))``.
"""

from __future__ import annotations

import asyncio
import collections
import os
import socket
from typing import Any, Callable, Literal, TypeVar

from . import _portolan

__all__ = ["Node"]

_Lane = Literal["low", "high"]
_Result = TypeVar("_Result")


class _Waiter:
    """A coroutine that waits: its future, and the function whose result wakes it, unless that is
    None."""

    __slots__ = ("future", "poll")

    def __init__(self, future: asyncio.Future[Any], poll: Callable[[], Any]) -> None:
        self.future = future
        self.poll = poll


def _first_connected(attempts: list[_portolan.Connecting]) -> int | None:
    """Returns the rank of the first attempt that has succeeded. Raises the error of the last that
    fails."""
    for attempt in list(attempts):
        try:
            rank = attempt.test()
        except _portolan.Error:
            attempts.remove(attempt)
            if not attempts:
                raise
            continue
        if rank is not None:
            return rank
    return None


class Node:
    """A node whose waiting calls are coroutines. All other calls are those of ``portolan.Node``."""

    def __init__(self, node: _portolan.Node | None = None) -> None:
        self._node = _portolan.Node() if node is None else node
        self._waiters: list[_Waiter] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        # The loop owns a duplicate, because closing the node closes the descriptor.
        self._fd = -1
        self._is_armed = False
        self._is_scheduled = False
        self._takes_events = False
        self._events: collections.deque[tuple[int, str]] = collections.deque()

    @classmethod
    def standalone(cls, *, encrypt: bool = False) -> Node:
        """Creates a process without a launcher. See ``portolan.Node.standalone``."""
        return cls(_portolan.Node.standalone(encrypt=encrypt))

    def __getattr__(self, name: str) -> Any:
        # The call that follows may leave work behind, which nothing does while the node is armed.
        self._resume()
        return getattr(self._node, name)

    @property
    def node(self) -> _portolan.Node:
        """The node itself."""
        return self._node

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._fail_all(_portolan.Closed("the node was closed while a coroutine waited"))
        self._stop()
        if kind is not None and kind is not SystemExit:
            self._node.abandon()
        else:
            await asyncio.get_running_loop().run_in_executor(None, self._node.close)

    async def close(self) -> None:
        """Leaves the job after everything that was sent has arrived."""
        await self.__aexit__(None, None, None)

    async def connect(self, address: str, secret: bytes, *, timeout: float | None = None) -> int:
        """Connects to the process that listens at ``address``, "HOST:PORT", which may start later.
        Returns its rank."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
        hosts = dict.fromkeys(info[4][0] for info in found)
        attempts = [
            self._node.begin_connect(
                f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}", secret, timeout=timeout
            )
            for host in hosts
        ]
        return await self._until(lambda: _first_connected(attempts))

    async def disconnect(self, rank: int) -> None:
        """Ends the relation with the peer ``rank`` after everything that was sent has arrived."""
        await self._until(lambda: self._node.disconnect(rank, timeout=0) or None)

    async def next_peer_event(self) -> tuple[int, str]:
        """Waits for the next event of a peer. Returns its rank, and "joined", "left" or "lost"."""
        self._takes_events = True
        return await self._take(self._next_event, self._has_event)

    async def wait(self, request: _portolan.Request) -> _portolan.Status:
        """Waits until the request has ended."""
        return await self._until(request.test)

    async def send(self, rank: int, port: int, data: Any, *, lane: _Lane = "low") -> None:
        """Sends ``data`` to ``port`` of process ``rank``."""
        await self.wait(self._node.isend(rank, port, data, lane=lane))

    async def send_tagged(
        self, rank: int, tag: int, data: Any, *, imm: int | None = None, lane: _Lane = "low"
    ) -> None:
        """Sends ``data`` with a tag."""
        await self.wait(self._node.isend_tagged(rank, tag, data, imm=imm, lane=lane))

    async def recv(self, port: int, *, source: int | None = None) -> tuple[bytes, int]:
        """Waits for the next message to ``port``. Returns its bytes and its sender."""
        return await self._take(
            lambda: self._node.recv(port, source=source, timeout=0),
            lambda: self._node.probe(port, source=source, timeout=0),
        )

    async def recv_into(
        self, port: int, buffer: Any, *, source: int | None = None
    ) -> _portolan.Status:
        """Waits for the next message to ``port``, and receives it into ``buffer``. A cancelled
        coroutine may have received it."""
        return await self._receive(self._node.post_recv(port, buffer, source=source))

    async def recv_tagged(
        self, tag: int | None = None, *, ignore: int = 0, source: int | None = None
    ) -> tuple[bytes, _portolan.Status]:
        """Waits for the first message that matches. Returns its bytes and its status."""
        return await self._take(
            lambda: self._node.recv_tagged(tag, ignore=ignore, source=source, timeout=0),
            lambda: self._node.probe_tagged(tag, ignore=ignore, source=source, timeout=0),
        )

    async def recv_tagged_into(
        self, buffer: Any, tag: int | None = None, *, ignore: int = 0, source: int | None = None
    ) -> _portolan.Status:
        """Waits for the first message that matches, and receives it into ``buffer``. A cancelled
        coroutine may have received it."""
        request = self._node.post_recv_tagged(buffer, tag, ignore=ignore, source=source)
        return await self._receive(request)

    async def call(self, rank: int, port: int, data: Any) -> tuple[int, bytes]:
        """Calls ``port`` of process ``rank``. Returns the status and the bytes of the reply."""
        status = await self._receive(self._node.begin_call(rank, port, data))
        return status.imm or 0, status.data or b""

    async def recv_call(self, port: int) -> _portolan.Call:
        """Waits for the next call to ``port``."""
        return await self._take(
            lambda: self._node.recv_call(port, timeout=0),
            lambda: self._node.probe(port, timeout=0),
        )

    async def barrier(self) -> None:
        """Waits until every process has called this."""
        await self.wait(self._node.ibarrier())

    async def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Copies ``buffer`` of process ``root`` to those of all others."""
        await self.wait(self._node.ibroadcast(buffer, root))

    async def allreduce(self, values: Any, op: Any = "sum") -> None:
        """Combines the ``values`` of all processes in place."""
        await self.wait(self._node.iallreduce(values, op))

    async def reduce(self, values: Any, op: Any = "sum", root: int = 0) -> None:
        """Combines the ``values`` of all processes at process ``root``."""
        await self.wait(self._node.ireduce(values, op, root))

    def _next_event(self) -> tuple[int, str] | None:
        return self._events.popleft() if self._events else self._node.next_peer_event()

    def _has_event(self) -> bool | None:
        """Tests whether events were taken, which happens before coroutines are woken."""
        return True if self._events else None

    def _take_events(self) -> None:
        """Takes events that no coroutine waits for. They would prevent the node from being armed."""
        while self._takes_events and (event := self._node.next_peer_event()) is not None:
            self._events.append(event)

    async def _receive(self, request: _portolan.Request) -> _portolan.Status:
        try:
            return await self.wait(request)
        except asyncio.CancelledError:
            request.cancel()
            raise

    async def _until(self, poll: Callable[[], _Result | None]) -> _Result:
        """Waits until ``poll`` returns something, which it must be able to return again: the result of
        a coroutine that is cancelled meanwhile is discarded."""
        self._resume()
        result = poll()
        if result is not None:
            return result
        woken: _Result = await self._woken(poll)
        return woken

    async def _take(
        self, take: Callable[[], _Result | None], is_ready: Callable[[], object | None]
    ) -> _Result:
        """Waits until ``take`` returns something. That is called by the coroutine itself, when
        ``is_ready`` has returned something: a coroutine that is cancelled takes nothing."""
        while True:
            self._resume()
            result = take()
            if result is not None:
                return result
            # Another coroutine, or another thread, may be the first to take it.
            await self._woken(is_ready)

    async def _woken(self, poll: Callable[[], Any]) -> Any:
        """Waits until the loop gets a result from ``poll``, and returns it."""
        loop = asyncio.get_running_loop()
        self._start(loop)
        waiter = _Waiter(loop.create_future(), poll)
        self._waiters.append(waiter)
        self._schedule()
        try:
            return await waiter.future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Adds the node's descriptor to the loop."""
        if self._loop is loop:
            return
        self._stop()
        self._fd = os.dup(self._node.event_fd())
        loop.add_reader(self._fd, self._advance)
        self._loop = loop

    def _stop(self) -> None:
        if self._loop is None:
            return
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._loop, self._fd = None, -1
        # A closed loop does not run what it has scheduled.
        self._is_armed = self._is_scheduled = False

    def _fail_all(self, error: Exception) -> None:
        """Raises ``error`` in all coroutines that wait."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def _disarm(self) -> None:
        if self._is_armed:
            # If this raises the exception of an earlier handler, the node stays armed.
            self._node.disarm()
            self._is_armed = False

    def _resume(self) -> None:
        """Disarms the node for a call. The loop arms it again for the coroutines that wait."""
        if self._is_armed:
            self._schedule()
            self._disarm()

    def _schedule(self) -> None:
        """Lets the loop make progress after the coroutines that can run."""
        if self._is_scheduled or self._loop is None or self._loop.is_closed():
            return
        self._is_scheduled = True
        self._loop.call_soon(self._on_scheduled)

    def _on_scheduled(self) -> None:
        self._is_scheduled = False
        if self._loop is not None:
            self._advance()

    def _advance(self) -> None:
        """Makes progress. A handler's exception that no coroutine gets must not end that."""
        try:
            self._disarm()
            self._take_events()
            self._advance_waiters()
        except _portolan.NobodyLeft as error:
            # Each coroutine gets its own error, except those that wait for events.
            for waiter in [one for one in self._waiters if one.poll == self._has_event]:
                self._waiters.remove(waiter)
                if not waiter.future.done():
                    waiter.future.set_exception(error)
            if not self._waiters:
                self._stop()
            self._schedule()
        except Exception as error:
            if self._is_unusable():
                self._fail_all(error)
                self._stop()
            else:
                self._report(error)
                self._schedule()

    def _is_unusable(self) -> bool:
        """Returns whether all calls fail, because the program has closed the node itself."""
        try:
            self._node.host_name(0)
        except _portolan.Error:
            return True
        return False

    def _advance_waiters(self) -> None:
        """Wakes the coroutines whose results are here, and arms the descriptor for the rest."""
        is_any_woken = False
        for waiter in list(self._waiters):
            if waiter.future.done():
                continue
            try:
                result = waiter.poll()
            except BaseException as error:
                self._waiters.remove(waiter)
                waiter.future.set_exception(error)
                continue
            if result is not None:
                self._waiters.remove(waiter)
                waiter.future.set_result(result)
                is_any_woken = True
        if is_any_woken:
            # They take their messages first.
            self._schedule()
            return
        if not self._waiters and not self._make_progress():
            return
        self._is_armed = self._node.arm()
        if not self._is_armed:
            self._schedule()

    def _make_progress(self) -> bool:
        """Runs handlers, and answers peers, while no coroutine waits. Returns whether more can follow."""
        try:
            self._node.progress()
        except _portolan.NobodyLeft:
            # All other processes have ended. The next coroutine that waits gets the error.
            self._stop()
            return False
        return True

    def _report(self, error: Exception) -> None:
        if self._loop is not None:
            text = "a handler of portolan has failed"
            self._loop.call_exception_handler({"message": text, "exception": error})
