"""`python -m edgewise.cli`: the command `edgewise`, host/cli with the subcommands of extras/."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .extras.commands import bench, compare, federate, release, serve
from .host import cli
from .host.cli import build, generate, info, inspect, merge, split, train

COMMANDS = (
    *(build, train, merge, generate, inspect, info, bench, federate, release, serve, split),
    compare,
)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command, without the program's name. Ends the process at wrong ones."""
    return cli.parse(argv, COMMANDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; default: those of the process.

    Returns:
        The exit status. Errors are printed to stderr as one line and give status 1.
    """
    return cli.main(argv, COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
