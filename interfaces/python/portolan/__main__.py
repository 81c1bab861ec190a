# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the command ``portolan`` that belongs to this package.

``python -m portolan run -n 4 prog.py`` starts a Python program with this interpreter.
"""

import os
import shutil
import sys
import sysconfig


def command() -> str:
    """Returns the path of the command: of this environment, else of the user, else on the path."""
    schemes = [sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")]
    for scheme in schemes:
        path = os.path.join(sysconfig.get_path("scripts", scheme), "portolan")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("portolan")
    if found is None:
        sys.exit("portolan: the command is not installed; run 'pip install portolan' or 'make install'")
    return found


def with_interpreter(arguments: list[str]) -> list[str]:
    """Puts this interpreter in front of a Python program."""
    for index, argument in enumerate(arguments):
        if argument.endswith(".py") and os.path.isfile(argument):
            options = arguments[:index]
            if "--" not in options:
                options = [*options, "--"]
            return [*options, sys.executable, *arguments[index:]]
        if argument == "--" and not arguments[index + 1 : index + 2] == []:
            if not arguments[index + 1].endswith(".py"):
                return arguments
    return arguments


def main() -> None:
    """Replaces this process by the command."""
    path = command()
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        arguments = with_interpreter(arguments)
    os.execv(path, [path, *arguments])


if __name__ == "__main__":
    main()
