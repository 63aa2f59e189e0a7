"""The command `edgewise`: one module per subcommand. edgewise/cli.py adds those of extras/.

A module has `add_parser(commands)`, which declares the subcommand's arguments, and `run(args)`,
which may return an exit status. Models, engines and training are imported inside `run`, so that
`--help` and argument errors do not wait for them.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from ... import __version__
from ...errors import EdgewiseError, memory_in_words

KEY = re.compile(r"-[A-Za-z0-9_-]{42}")
"""A public key or ticket (base64url of 32 bytes) that begins like an option: one of 64 does."""


def parse(argv: Sequence[str], modules: Iterable[ModuleType]) -> argparse.Namespace:
    """The arguments of a command, without the program's name. Ends the process at wrong ones.

    Args:
        argv: arguments without the program's name.
        modules: those of the subcommands, in the order of the help.
    """
    parser = argparse.ArgumentParser(
        prog="edgewise", description="Runs and trains ONNX models, in a web page as on a desktop."
    )
    parser.add_argument("--version", action="version", version=f"edgewise {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for module in modules:
        module.add_parser(commands)
    # argparse takes no argument with a space for an option
    args = parser.parse_args([f" {a}" if KEY.fullmatch(a) else a for a in argv])
    for name, value in vars(args).items():
        setattr(args, name, [_key(v) for v in value] if type(value) is list else _key(value))
    return args


def _key(value: Any) -> Any:
    """An argument without the space that `parse` has put before a key."""
    found = type(value) is str and value[:1] == " " and KEY.fullmatch(value[1:])
    return value[1:] if found else value


def main(argv: Sequence[str] | None, modules: Iterable[ModuleType]) -> int:
    """Runs the command line.

    Args:
        argv: arguments without the program's name; None: those of the process.
        modules: those of the subcommands.

    Returns:
        The exit status. Errors are printed to stderr as one line and give status 1.
    """
    args = parse(sys.argv[1:] if argv is None else argv, modules)
    try:
        return memory_in_words(args.run)(args) or 0
    except EdgewiseError as e:
        print(f"edgewise: {e}", file=sys.stderr)
        return 1
    except OSError as e:
        print(
            f"edgewise: {e.filename or args.command}: {e.strerror or e}. Check the path, its"
            " permissions and the free disk space.",
            file=sys.stderr,
        )
        return 1
