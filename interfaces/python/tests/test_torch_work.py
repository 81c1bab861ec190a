# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs checks of the backend's pending operations and jobs without PyTorch, on requests and nodes that
they control."""

import importlib.util
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

import portolan


def load(name):
    """Returns a module of the backend, with as much of PyTorch as it needs."""
    torch = types.ModuleType("torch")
    torch.distributed = types.ModuleType("torch.distributed")
    torch.distributed.Work = type("Work", (), {})
    path = Path(portolan.__file__).parent / "torch" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"portolan.torch.{name}", path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributed": torch.distributed}):
        spec.loader.exec_module(module)
    return module


class Request:
    """A request that is pending until its result is set: a status, or an error."""

    def __init__(self, result=None, raised=None):
        self.result = result
        # Error of a handler, or of the node, which `test` raises.
        self.raised = raised

    @property
    def done(self):
        return self.result is not None

    def test(self):
        if self.raised is not None:
            raise self.raised
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def wait(self):
        if not self.done and self.raised is None:
            raise AssertionError("a test waits for a pending request")
        return self.test()


class Tests(unittest.TestCase):
    """Tests of pending operations."""

    def work(self, *requests):
        return load("_work").Work("an operation", [(one, None) for one in requests], [], 1)

    def test_pending_part_before_a_failed_one(self):
        first, last = Request(), Request(portolan.PeerGone("the peer has ended"))
        work = self.work(first, last)
        self.assertFalse(work.is_completed())
        first.result = object()
        self.assertTrue(work.is_completed())
        self.assertFalse(work.is_success())
        self.assertIsInstance(work.exception().__cause__, portolan.PeerGone)

    def test_failed_part_before_a_pending_one(self):
        work = self.work(Request(object()), Request(portolan.PeerGone("the peer has ended")), Request())
        self.assertTrue(work.is_completed())
        self.assertIsInstance(work.exception().__cause__, portolan.PeerGone)

    def test_complete_parts(self):
        first, last = Request(object()), Request()
        work = self.work(first, last)
        self.assertFalse(work.is_completed())
        last.result = object()
        self.assertTrue(work.is_success())

    def test_error_of_a_handler(self):
        request = Request(raised=portolan.Error("a handler has failed"))
        work = self.work(request)
        self.assertRaises(portolan.Error, work.is_completed)
        request.raised = None
        self.assertFalse(work.is_completed())

    def test_closed_node(self):
        work = self.work(Request(raised=portolan.Closed("the node was closed")))
        self.assertTrue(work.is_completed())
        self.assertIsInstance(work.exception().__cause__, portolan.Closed)

    def test_forked_child_leaves_no_job(self):
        module = load("_job")
        node = mock.Mock()
        module._jobs.append(module.Job(node, None))
        with mock.patch("os.getpid", return_value=0):
            module._leave()
        node.close.assert_not_called()
        module._leave()
        node.close.assert_called_once_with()


if __name__ == "__main__":
    unittest.main()
