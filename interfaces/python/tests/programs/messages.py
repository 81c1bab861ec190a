# SPDX-License-Identifier: MIT OR Apache-2.0
"""Messages, requests, probes and calls, between neighbours of a ring."""

import array
import contextlib
import gc
import threading
import time

import portolan
from harness import check, main, pattern, raises

LENGTHS = [0, 1, 8, 1000, 1024, 1025, 5000, 16384, 65536, 65537, 300_000]


def neighbours(node):
    return (node.rank + 1) % node.size, (node.rank - 1) % node.size


@check
def messages_to_ports_arrive_in_order(node):
    after, before = neighbours(node)
    node.open(7)
    for index, len_ in enumerate(LENGTHS):
        request = node.isend(after, 7, pattern(len_, index + node.rank))
        data, source = node.recv(7)
        assert source == before
        assert data == pattern(len_, index + before), len_
        assert request.wait().len == len_
    node.barrier()
    for len_ in LENGTHS:
        if len_ <= 65536 or node.size == 1:
            node.send(after, 7, pattern(len_, node.rank))
            assert node.recv(7, source=before)[0] == pattern(len_, before)


@check
def buffers_of_all_kinds_are_sent_and_received_in_place(node):
    after, before = neighbours(node)
    node.open(8)
    sources = [
        b"ahoy",
        bytearray(b"ahoy"),
        memoryview(b"-ahoy-")[1:5],
        array.array("b", b"ahoy"),
    ]
    for source in sources:
        request = node.isend(after, 8, source)
        place = bytearray(b"\xa5" * 6)
        status = node.recv_into(8, memoryview(place)[1:], source=before)
        assert (status.len, status.source) == (4, before)
        assert place == b"\xa5ahoy\xa5"
        request.wait()
    raises(BufferError, lambda: node.recv_into(8, b"read-only"))
    raises(BufferError, lambda: node.send(after, 8, memoryview(b"123456")[::2]))
    raises(TypeError, lambda: node.send(after, 8, "text"))


@check
def tagged_messages_match_by_tag_and_source(node):
    after, before = neighbours(node)
    node.send_tagged(after, 5, b"five", imm=77)
    node.send_tagged(after, 6, b"six")
    data, status = node.recv_tagged(6)
    assert (data, status.source, status.tag, status.imm) == (b"six", before, 6, None)
    place = bytearray(4)
    status = node.recv_tagged_into(place, source=before)
    assert (place, status.tag, status.imm, status.len) == (b"five", 5, 77, 4)
    request = node.isend_tagged(after, 0x1234, b"masked")
    assert node.probe_tagged(0x1200, ignore=0xFF).len == 6
    posted = node.post_recv_tagged(bytearray(6), 0x1200, ignore=0xFF, source=before)
    assert posted.wait().tag == 0x1234
    request.wait()


@check
def timeouts_return_none_and_lose_nothing(node):
    after, before = neighbours(node)
    node.open(9)
    assert node.recv(9, timeout=0) is None
    assert node.recv_into(9, bytearray(4), timeout=0.01) is None
    assert node.recv_tagged(99, timeout=0) is None
    assert node.probe(9, timeout=0) is None
    request = node.post_recv(9, bytearray(4))
    assert request.wait(timeout=0.01) is None
    node.barrier()
    assert node.send(after, 9, b"late", timeout=60)
    assert request.wait(timeout=60).source == before
    raises(ValueError, lambda: node.recv(9, timeout=float("nan")))


@check
def requests_are_waited_for_together(node):
    after, _ = neighbours(node)
    ports = range(20, 24)
    for port in ports:
        node.open(port)
    buffers = [bytearray(8) for _ in ports]
    posted = [node.post_recv(port, buffer) for port, buffer in zip(ports, buffers)]
    node.barrier()
    for port in reversed(ports):
        node.send(after, port, bytes([port] * 8))
    first = node.wait_any(posted)
    assert first.done and first.wait().len == 8
    rest = []
    while posted:
        rest += node.wait_some(posted)
    assert len(rest) == 3 and all(one.done for one in rest)
    assert node.wait_any([]) is None
    assert [buffer[0] for buffer in buffers] == list(ports)
    posted = [node.post_recv(port, buffer) for port, buffer in zip(ports, buffers)]
    assert node.test_any(posted) is None
    assert node.wait_any(posted, timeout=0) is None
    assert node.wait_all(posted, timeout=0) is None
    node.barrier()
    sends = [node.isend(after, port, b"x" * 8) for port in ports]
    assert [status.len for status in node.wait_all(posted + sends)] == [8] * 8
    # A result can be read again.
    assert posted[0].wait().len == posted[0].test().len == 8


@check
def cancelled_and_dropped_receives_take_no_message(node):
    after, before = neighbours(node)
    node.open(30)
    cancelled = node.post_recv(30, bytearray(8))
    assert cancelled.cancel() and not cancelled.cancel()
    raises(portolan.Cancelled, cancelled.wait)
    dropped = bytearray(8)
    node.post_recv(30, dropped)
    gc.collect()
    node.progress()
    # The memory is no longer exported.
    dropped.extend(b"more")
    node.barrier()
    node.send(after, 30, b"for recv")
    assert node.recv(30) == (b"for recv", before)


@check
def pending_buffers_cannot_be_resized(node):
    after, _ = neighbours(node)
    node.open(31)
    place = bytearray(8)
    request = node.post_recv(31, place)
    raises(BufferError, lambda: place.extend(b"more"))
    node.barrier()
    node.send(after, 31, b"12345678")
    request.wait()
    place.extend(b"more")
    # The request keeps the object alive.
    request = node.post_recv(31, bytearray(8))
    gc.collect()
    node.barrier()
    node.send(after, 31, b"abcdefgh")
    assert request.wait().len == 8


@check
def errors_are_exceptions_with_the_library_text(node):
    after, before = neighbours(node)
    error = raises(portolan.NoSuchRank, lambda: node.send(node.size, 7, b""))
    assert f"rank {node.size} does not exist" in str(error)
    assert isinstance(error, portolan.Error)
    raises(portolan.PortClosed, lambda: node.recv(4000))
    raises(portolan.PortInUse, lambda: node.open(7))
    raises(ValueError, lambda: node.send(after, 7, b"", lane="middle"))
    raises(OverflowError, lambda: node.send(after, 70_000, b""))
    node.open(32)
    node.send(after, 32, b"much too long")
    error = raises(portolan.Truncated, lambda: node.recv_into(32, bytearray(4)))
    assert f"message of 13 bytes from rank {before} on port 32" in str(error)


@check
def handlers_run_in_calls_and_raise_there(node):
    after, before = neighbours(node)
    got = []

    def handler(source, data):
        got.append((source, data))
        if data == b"raise":
            raise RuntimeError("raised in a handler")
        if data == b"answer":
            node.send(source, 41, b"answered")
        if data == b"wait":
            raises(portolan.Closed, lambda: node.recv(41))

    node.open(41)
    node.open_active(40, handler)
    node.barrier()
    node.send(after, 40, b"answer")
    assert node.recv(41) == (b"answered", after)
    node.send(after, 40, b"wait")
    while len(got) < 2:
        node.progress()
    node.barrier()
    node.send(node.rank, 40, b"raise")

    def wait():
        while True:
            node.recv(41, timeout=0.05)

    error = raises(RuntimeError, wait)
    assert str(error) == "raised in a handler"
    assert got == [(before, b"answer"), (before, b"wait"), (node.rank, b"raise")]


@check
def calls_have_replies(node):
    after, before = neighbours(node)

    def serve(call):
        assert call.source in (before, node.rank)
        if call.data == b"fail":
            raise KeyError("no such thing")
        if call.data == b"status":
            return 3, b"three"
        return bytes(call.data).upper()

    node.serve(50, serve)
    node.barrier()
    assert node.call(after, 50, b"ahoy") == (0, b"AHOY")
    assert node.call(after, 50, b"status", timeout=60) == (3, b"three")
    long = b"x" * 200_000
    assert node.call(after, 50, long) == (0, long.upper())
    status = node.begin_call(after, 50, b"later").wait()
    assert (status.imm, status.data) == (0, b"LATER")
    node.barrier()

    def failing():
        # The exception of the own handler is raised by a call, too.
        status, text = node.call(node.rank, 50, b"fail")
        assert (status, text) == (65535, b"KeyError: 'no such thing'")
        while True:
            node.recv(7, timeout=0.05)

    raises(KeyError, failing)
    node.barrier()
    node.open(51)
    pending = node.begin_call(after, 51, b"question")
    call = node.recv_call(51)
    node.reply(call, b"answer", status=9)
    status = pending.wait()
    assert (status.imm, status.data) == (9, b"answer")
    raises(portolan.TimedOut, lambda: node.call(after, 51, b"", timeout=0.01))


@check
def windows_that_were_not_freed_stay_in_use(node):
    after, _ = neighbours(node)
    got = []

    def handler(source, data):
        got.append(data)
        raise ValueError("raised in a handler")

    window = node.window(array.array("q", [node.rank]))
    node.open_active(52, handler)
    node.open(53)
    pending = node.post_recv(53, bytearray(1))
    node.isend(node.rank, 52, b"raise")
    # The call in which the handler runs has a result, so that the next one raises the exception.
    while not got:
        node.test_any([pending])
    raises(ValueError, window.free)
    assert pending.cancel()
    place = array.array("q", [0])
    window.get(after, 0, place)
    assert place[0] == after
    window.free()
    raises(portolan.Closed, lambda: window.get(after, 0, place))


@check
def facts_about_the_job(node):
    assert node.host_name(0) and node.host_name(node.size) is None
    assert len(node.job_id) == 16
    assert raises(KeyError, lambda: node.option("absent"))
    assert isinstance(node.drops(), dict) and isinstance(node.paths(0), list)
    assert f"rank {node.rank} of {node.size}" in repr(node)


@check
def other_threads_take_turns(node):
    after, before = neighbours(node)
    node.open(60)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(node.recv(60, timeout=60)))
    thread.start()
    time.sleep(0.05)
    node.send(after, 60, b"to a thread")
    thread.join()
    assert seen == [(b"to a thread", before)]


@check
def threads_wait_for_messages_at_once(node):
    # Each answers the other's messages, so that every wait is ended by the other thread's call.
    after, before = neighbours(node)
    ports = (61, 62)
    for port in ports:
        node.open(port)

    def answer(own, other):
        for number in range(50):
            assert node.recv(own, timeout=60)[0] == bytes([number])
            node.send(after, other, bytes([number + (other == ports[0])]))

    threads = [
        threading.Thread(target=answer, args=pair) for pair in (ports, tuple(reversed(ports)))
    ]
    node.send(after, ports[0], bytes([0]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert node.recv(ports[0], timeout=60)[0] == bytes([50])


@check
def requests_complete_while_the_program_waits_for_something_else(node):
    after, before = neighbours(node)
    node.open(63)
    ended = []
    is_done = threading.Event()

    def on_end(request):
        ended.append(request)
        if len(ended) == 3:
            is_done.set()

    sum_, place = array.array("q", [node.rank] * 2000), bytearray(5)
    requests = [node.iallreduce(sum_), node.post_recv(63, place), node.ibarrier()]
    for request in requests:
        request.then(on_end)
    node.isend(after, 63, b"later").then()
    # Without another call of the node.
    assert is_done.wait(60)
    assert set(map(id, ended)) == set(map(id, requests))
    assert all(request.done for request in requests)
    assert set(sum_) == {node.size * (node.size - 1) // 2} and place == b"later"
    assert requests[1].wait().source == before


@contextlib.contextmanager
def thread_that_runs(function):
    """Calls `function` again and again in a thread, which competes for Python's lock."""
    is_over = threading.Event()

    def run():
        while not is_over.is_set():
            function()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@check
def failures_are_read_by_several_threads(node):
    node.open(65)
    for _ in range(50):
        request = node.post_recv(65, bytearray(1))
        with thread_that_runs(lambda: request.done):
            assert request.cancel()
            raises(portolan.Cancelled, request.wait)


@check
def requests_that_a_thread_watches_are_waited_for_together(node):
    node.open(66)

    def send_soon(length):
        time.sleep(0.002)
        node.send(node.rank, 66, bytes(length))

    for length in range(20):
        requests = [node.post_recv(66, bytearray(20))]
        requests[0].then()
        sender = threading.Thread(target=send_soon, args=(length,))
        with thread_that_runs(lambda: None):
            sender.start()
            done = node.wait_any(requests, 60) if length % 2 else node.wait_some(requests, 60)[0]
        assert done.wait().len == length and not requests
        sender.join()


@check
def requests_that_do_not_end_are_reported_at_their_timeout(node):
    node.open(64)
    late = threading.Event()
    request = node.post_recv(64, bytearray(1))
    request.then(lambda _: late.set(), 0.05)
    assert late.wait(60) and not request.done
    assert request.cancel()


@check
def exceptions_after_requests_are_printed(node):
    import sys

    seen = threading.Event()
    before, sys.unraisablehook = sys.unraisablehook, lambda _: seen.set()
    node.ibarrier().then(lambda _: 1 // 0)
    assert seen.wait(60)
    sys.unraisablehook = before


main()
