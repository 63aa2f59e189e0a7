"""`edgewise merge`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .options import add_command, add_dtype

if TYPE_CHECKING:
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise merge`."""
    parser = add_command(commands, "merge", run)
    parser.add_argument("model", help="model folder (Hugging Face layout) or .onnx file")
    parser.add_argument("adapter", help="folder of an adapter in the format of PEFT")
    parser.add_argument("-o", "--output", required=True, help="the .onnx file to write")
    add_dtype(parser)


def run(args: argparse.Namespace) -> None:
    """Merges a LoRA adapter into the weights of its language model, and writes an .onnx file."""
    from ..training.merge import merge_adapter

    merge_adapter(args.model, args.adapter, args.output, dtype=args.dtype)
    print(f"wrote {args.output}")
