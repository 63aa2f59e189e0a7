"""`edgewise bench`."""

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
    """Declares the arguments of `edgewise bench`."""
    parser = add_command(commands, "bench", run)
    parser.add_argument(
        "model",
        help=".onnx file, model folder (Hugging Face layout), or .edge package of a language model",
    )
    add_input_sizes(
        parser,
        "sizes of the inputs' symbolic dimensions: batch=1,sequence=128; a language model is then"
        " measured as one run instead of as prompt and decoding",
        "numbers of an input (one number: for all elements); other inputs are generated",
    )
    add_dtype(parser)
    parser.add_argument(
        "--prompt",
        type=int,
        help="tokens of a language model's prompt (default 256, at most half of its capacity)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=16,
        help="tokens that are decoded after the prompt (default 16)",
    )
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument(
        "--seconds", type=float, default=10, help="duration of the measurement (default 10)"
    )
    parser.add_argument("--alone", action="store_true", help="do not measure onnxruntime")
    parser.add_argument("--profile", action="store_true", help="also profile single steps")
    parser.add_argument(
        "--trace", metavar="FILE", help="write the profile as a trace for https://ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> None:
    """Measures the speed of a model on this machine, compared with onnxruntime if that is
    installed.
    """
    from ..bench import bench

    report = bench(
        args.model,
        parse_dims(args.dims, args.command),
        parse_shapes(args),
        parse_values(args),
        dtype=args.dtype,
        prompt=args.prompt,
        tokens=args.tokens,
        threads=args.threads,
        seconds=args.seconds,
        profile=args.profile or bool(args.trace),
        against=not args.alone,
    )
    if args.trace and report.profile is not None:
        report.profile.save(args.trace)
    if args.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        print(report)
