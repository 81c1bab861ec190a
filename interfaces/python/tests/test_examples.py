# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the commands in the descriptions of the examples, and compares their output."""

import ast
import shlex
import subprocess
import sys
import unittest

from test_package import COMMAND, ROOT, numpy
from test_torch import environment, torch

EXAMPLES = ROOT / "examples" / "python"


def commands(path):
    """Returns the commands of a description, each with its lines of output."""
    found = []
    for line in ast.get_docstring(ast.parse(path.read_text())).splitlines():
        text = line.strip()
        if text.startswith("$ "):
            found.append((text[2:], []))
        elif found and text:
            found[-1][1].append(text)
    return found


class Examples(unittest.TestCase):
    """Each example prints what it promises."""

    def run_example(self, name):
        path = EXAMPLES / name
        described = commands(path)
        self.assertTrue(described, name)
        for command, expected in described:
            words = {"portolan": COMMAND, "python": sys.executable}
            arguments = [words.get(word, word) for word in shlex.split(command)]
            done = subprocess.run(
                arguments, cwd=EXAMPLES, capture_output=True, text=True, check=False, env=environment()
            )
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
            self.assertEqual(done.stdout.splitlines(), expected, f"{command}\n{done.stderr}")

    def test_every_example_is_tested(self):
        tested = {name.removeprefix("test_example_") for name in dir(self)}
        for path in EXAMPLES.glob("*.py"):
            self.assertIn(path.stem, tested)

    def test_example_farm(self):
        self.run_example("farm.py")

    def test_example_wordcount(self):
        self.run_example("wordcount.py")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_example_heat(self):
        self.run_example("heat.py")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_example_sort(self):
        self.run_example("sort.py")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_example_kmeans(self):
        self.run_example("kmeans.py")

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_example_parameters(self):
        self.run_example("parameters.py")

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_example_ddp(self):
        self.run_example("ddp.py")


if __name__ == "__main__":
    unittest.main()
