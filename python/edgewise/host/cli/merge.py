"""`edgewise merge`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...errors import InputError
from .options import add_command, add_dtype

if TYPE_CHECKING:
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise merge`."""
    parser = add_command(commands, "merge", run)
    parser.add_argument("model", help="model folder (Hugging Face layout) or .onnx file")
    parser.add_argument("adapter", help="folder of an adapter in the format of PEFT")
    parser.add_argument(
        "-o", "--output", required=True, help="the file to write; the folder of safetensors and mlx"
    )
    parser.add_argument(
        "--format",
        choices=("onnx", "gguf", "safetensors", "mlx", "peft"),
        help="default: gguf for a name that ends in .gguf, else onnx",
    )
    parser.add_argument(
        "--quantization",
        metavar="TYPE",
        help="of the matrices: f32, f16, and in a GGUF file q8_0 or q4_0",
    )
    parser.add_argument(
        "--adapter-only",
        action="store_true",
        help="write the adapter for another library (gguf, mlx, peft), without its model",
    )
    add_dtype(parser)


def run(args: argparse.Namespace) -> None:
    """Merges a LoRA adapter into the weights of its language model, and writes the model as an
    .onnx file, or in the format of llama.cpp, transformers or MLX.
    """
    from ..training.merge import convert_adapter, merge_adapter

    format_, quantization = args.format, args.quantization
    if args.adapter_only and args.dtype is not None:
        raise InputError("an adapter has no precision of a model", "--dtype", "Leave it out.")
    if format_ == "peft" and not args.adapter_only:
        raise InputError("it is a format of adapters", "--format peft", "Add --adapter-only.")
    if args.adapter_only:
        convert_adapter(
            args.adapter,
            args.model,
            args.output,
            format=format_ or "gguf",
            quantization=quantization,
        )
    else:
        merge_adapter(
            args.model,
            args.adapter,
            args.output,
            dtype=args.dtype,
            format=format_,
            quantization=quantization,
        )
    print(f"wrote {args.output}")
