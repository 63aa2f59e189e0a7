"""`edgewise split`."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .options import add_command, parse_dims

if TYPE_CHECKING:
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise split`."""
    parser = add_command(commands, "split", run)
    add = parser.add_argument
    add("model", help=".onnx file")
    add(
        "--at",
        required=True,
        help="names of the tensors that cross, with commas between them; or encoder: what leaves"
        " the module of this name",
    )
    add("-o", "--output", required=True, help="folder for first.onnx and second.onnx")
    add(
        "--send",
        default="",
        help="inputs of the model that the second part may read although the first one does",
    )
    add(
        "--dims",
        action="append",
        default=[],
        metavar="NAME=SIZE,...",
        help="sizes with which types of inner tensors are found, where the file lacks them",
    )


def run(args: argparse.Namespace) -> None:
    """Splits an .onnx file in two: the first part for a page, the second for `edgewise serve`."""
    from ...compiler.compile.halves import NAMES, split_file

    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    dims = parse_dims(args.dims, args.command)
    parts = split_file(args.model, names(args.at), args.output, names(args.send), dims)
    for file, editor in zip(NAMES, (parts.first, parts.second)):
        path = os.path.join(args.output, file)
        count = f"{len(editor.graph.nodes)} nodes, {os.path.getsize(path) / 1e6:.2f} MB"
        print(f"{path}: {count}")
    inputs = [i.name for i in parts.second.graph.input_names()]
    print(f"what the second part gets: {', '.join(inputs)}")
