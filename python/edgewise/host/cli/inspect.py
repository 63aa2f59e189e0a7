"""`edgewise inspect`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ...errors import InputError
from .options import add_command, add_input_sizes, parse_dims, parse_shapes, parse_values

if TYPE_CHECKING:
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise inspect`."""
    parser = add_command(commands, "inspect", run)
    parser.add_argument("model", help=".onnx file")
    add_input_sizes(
        parser,
        "sizes of the inputs' symbolic dimensions, for which memory is computed:"
        " batch=1,sequence=128",
        "numbers of an input that shapes or branches depend on: use_cache_branch=true",
    )
    parser.add_argument(
        "--length", type=int, help="capacity of a language model's cache in tokens (default 1024)"
    )
    parser.add_argument(
        "--parameters", action="store_true", help="also list the trainable parameters"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Describes a model without running it: operators, inputs, outputs, parameters and memory."""
    from ...compiler.inspect import inspect

    if args.model.endswith(".edge"):
        raise InputError(
            "it is a package", args.model, "Give the .onnx file that it was built from."
        )
    report = inspect(
        args.model,
        parse_dims(args.dims, args.command),
        parse_shapes(args),
        parse_values(args),
        args.length,
    )
    if args.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        print(report)
        for name, dtype, shape in report.parameters.trainable if args.parameters else ():
            print(f"  parameter {name}: {dtype} {shape}")
    return 1 if report.unsupported or report.problem and not report.needs else 0
