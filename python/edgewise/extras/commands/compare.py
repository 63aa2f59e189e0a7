"""`edgewise compare`."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ...host.cli.options import (
    add_command,
    add_dtype,
    add_input_sizes,
    parse_dims,
    parse_shapes,
    parse_values,
)

if TYPE_CHECKING:
    from ...host.cli.options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise compare`."""
    parser = add_command(commands, "compare", run)
    parser.add_argument("model", help=".onnx file or model folder (Hugging Face layout)")
    add_input_sizes(
        parser,
        "sizes of the inputs' symbolic dimensions: batch=1,sequence=128",
        "numbers of an input (one number: for all elements); other inputs are generated",
    )
    add_dtype(parser)
    parser.add_argument("--device", default="webgpu", help="default: webgpu")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Runs a model step by step on a GPU and on the processor, each step on the processor's inputs,
    and lists the steps whose results differ by more than their bounds.
    """
    from ..bench.devices import compare_devices

    report = compare_devices(
        args.model,
        parse_dims(args.dims, args.command),
        parse_shapes(args),
        parse_values(args),
        args.dtype,
        args.device,
    )
    print(json.dumps(report.as_dict(), indent=1) if args.json else report)
    return 1 if report.differences else 0
