# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the programs in jobs of several sizes.

Environment: PYTHON_TEST_COMMAND, the command (default: `portolan`); PYTHON_TEST_MESSAGES, the number
of messages in the check for leaks.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).resolve().parents[3]
COMMAND = os.environ.get("PYTHON_TEST_COMMAND", "portolan")

try:
    import numpy
except ImportError:
    numpy = None


def run(program, count, *arguments, options=()):
    """Runs a program in a job of `count` processes. Returns the finished process."""
    command = [COMMAND, "run", "-n", str(count), "--timeout", "300", *options, "--", sys.executable]
    return subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


class Jobs(unittest.TestCase):
    """Programs that check themselves."""

    def run_ok(self, program, count, *arguments, options=()):
        """Checks that the job succeeds, and prints the names of its checks."""
        done = run(program, count, *arguments, options=options)
        self.assertEqual(done.returncode, 0, f"{program} {count}:\n{done.stdout}{done.stderr}")
        self.assertIn("ok", done.stdout)

    def test_messages(self):
        for count in (1, 2, 3):
            with self.subTest(processes=count):
                self.run_ok("messages.py", count)

    def test_messages_between_hosts(self):
        self.run_ok("messages.py", 2, options=("--path", "udp"))

    def test_closed_nodes(self):
        for count in (1, 2):
            with self.subTest(processes=count):
                self.run_ok("closed.py", count)

    def test_interrupts(self):
        self.run_ok("interrupted.py", 2)

    def test_peer_that_crashes(self):
        done = run("crash.py", 2, options=("--on-failure=continue",))
        self.assertIn("ok", done.stdout, done.stderr)

    def test_forked_children(self):
        for count in (1, 2):
            with self.subTest(processes=count):
                self.run_ok("forked.py", count)

    def test_asyncio(self):
        for count in (1, 2, 4):
            with self.subTest(processes=count):
                self.run_ok("asynchronous.py", count)

    def test_no_leak(self):
        for count in (1, 2):
            with self.subTest(processes=count):
                self.run_ok("leak.py", count)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_arrays(self):
        for count in (1, 2, 4):
            with self.subTest(processes=count):
                self.run_ok("arrays.py", count)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_collectives(self):
        for count in range(1, 9):
            with self.subTest(processes=count):
                self.run_ok("collectives.py", count)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_collectives_between_hosts(self):
        self.run_ok("collectives.py", 3, options=("--path", "udp"))


class Documents(unittest.TestCase):
    """Examples of the documents that are whole programs."""

    def run_examples(self, document):
        """Runs each code block that begins with an import, in a job of two."""
        text = (ROOT / document).read_text()
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        programs = [block for block in blocks if block.startswith("import")]
        self.assertTrue(programs, document)
        with tempfile.TemporaryDirectory() as folder:
            for index, program in enumerate(programs):
                path = Path(folder) / f"example{index}.py"
                path.write_text(program)
                done = run(path, 2)
                self.assertEqual(done.returncode, 0, f"{document}:\n{program}\n{done.stderr}")

    def test_readme(self):
        self.run_examples("README.md")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_guide(self):
        self.run_examples("docs/guide/python.md")


class Alone(unittest.TestCase):
    """A process without a launcher."""

    def test_job_of_one(self):
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "closed.py")], capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)

    def test_servers(self):
        for program in ("servers.py", "async_servers.py", "async_failures.py"):
            with self.subTest(program=program):
                done = subprocess.run(
                    [sys.executable, str(PROGRAMS / program)],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)

    def test_uncaught_interrupt_ends_the_program(self):
        # A command in the background of a shell ignores SIGINT, and so do its children.
        code = "import signal, portolan\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        code += "with portolan.Node() as n:\n n.open(7)\n print('waits', flush=True)\n"
        code += " n.recv(7, timeout=60)\n"
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            self.assertEqual(child.stdout.readline(), "waits\n")
            child.send_signal(signal.SIGINT)
            _, text = child.communicate()
        self.assertIn("KeyboardInterrupt", text)
        self.assertNotEqual(child.returncode, 0)

    def test_module_runs_the_command_with_this_interpreter(self):
        program = str(PROGRAMS / "closed.py")
        done = subprocess.run(
            [sys.executable, "-m", "portolan", "run", "-n", "2", program],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("ok"), 2)


if __name__ == "__main__":
    unittest.main()
