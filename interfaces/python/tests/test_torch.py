# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the checks of the backend for PyTorch, if that is installed. TORCH=1 makes it a failure that it
is not.
"""

import importlib
import os
import socket
import subprocess
import sys
import unittest

from test_package import COMMAND, PROGRAMS

try:
    torch = None if os.environ.get("TORCH") == "0" else importlib.import_module("torch")
except ImportError:
    torch = None

if torch is None and os.environ.get("TORCH") == "1":
    raise SystemExit("TORCH=1: PyTorch is not installed for this Python; install it by 'pip install torch'")

TIMEOUT = "500"


def environment(**variables):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **variables}


def run(program, count, *arguments, options=(), variables=None):
    """Runs a program in a job of `count` processes."""
    command = [COMMAND, "run", "-n", str(count), "--timeout", TIMEOUT, *options, "--", sys.executable]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**(variables or {})),
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_by_store(program, count, *arguments):
    """Starts processes that find each other by the variables of torchrun. Returns their statuses and
    outputs."""
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(RANK=str(rank), **common),
        )
        for rank in range(count)
    ]
    outputs = [process.communicate(timeout=int(TIMEOUT))[0] for process in started]
    return [process.returncode for process in started], outputs


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Torch(unittest.TestCase):
    """The backend `portolan`."""

    def run_ok(self, program, count, *arguments, **others):
        done = run(program, count, *arguments, **others)
        self.assertEqual(done.returncode, 0, f"{program} {count}:\n{done.stdout}{done.stderr}")
        self.assertIn("ok", done.stdout)

    def test_conformance(self):
        for count in (1, 2, 4):
            with self.subTest(processes=count):
                self.run_ok("torch_conformance.py", count)

    def test_conformance_over_the_network(self):
        self.run_ok("torch_conformance.py", 2, options=("--path", "udp"))

    def test_conformance_on_two_hosts(self):
        probe = subprocess.run(
            [COMMAND, "run", "-n", "2", "--new-lab", "2", "--", "true"],
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode != 0:
            self.skipTest("no lab of two hosts can be made here")
        for count in (2, 4):
            with self.subTest(processes=count):
                self.run_ok("torch_conformance.py", count, options=("--new-lab", "2"))

    def test_torchrun(self):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", "2", str(PROGRAMS / "torch_conformance.py")),
            ],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
        self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}")
        self.assertIn("ok barrier_waits_for_all", done.stdout)

    def test_training(self):
        for count in (1, 2, 4):
            with self.subTest(processes=count):
                self.run_ok("torch_train.py", count)

    def test_process_joins_again(self):
        statuses, outputs = run_by_store("torch_again.py", 2)
        self.assertEqual(statuses, [0, 0], outputs)

    def test_group_beside_gloo(self):
        statuses, outputs = run_by_store("torch_beside.py", 3)
        self.assertEqual(statuses, [0, 0, 0], outputs)

    def test_dead_process_is_named(self):
        done = run("torch_dead.py", 3, options=("--on-failure=continue",))
        self.assertEqual(done.stdout.count("ok"), 2, f"{done.stdout}{done.stderr}")
        # Without a launcher that reports it.
        statuses, outputs = run_by_store("torch_dead.py", 3)
        self.assertEqual(statuses, [0, 0, -9], outputs)


if __name__ == "__main__":
    unittest.main()
