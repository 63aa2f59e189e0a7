"""`edgewise generate`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .options import add_command

if TYPE_CHECKING:
    from .options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise generate`."""
    parser = add_command(commands, "generate", run)
    parser.add_argument("model", help="model folder, .onnx file or .edge package")
    parser.add_argument("prompt")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument(
        "--sample", action="store_true", help="sample instead of choosing the most likely token"
    )
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int)


def run(args: argparse.Namespace) -> None:
    """Writes a continuation of a prompt to the terminal."""
    from ..pipelines import pipeline
    from ..text.streamers import TextStreamer

    pipe = pipeline("text-generation", args.model)
    sampling = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
    options = {"max_new_tokens": args.max_new_tokens, **sampling, "seed": args.seed}
    options = {name: value for name, value in options.items() if value is not None}
    if args.sample or any(value is not None for value in sampling.values()):
        options["do_sample"] = True
    sys.stdout.write(args.prompt)
    pipe(args.prompt, streamer=TextStreamer(pipe.tokenizer, skip_prompt=True), **options)
