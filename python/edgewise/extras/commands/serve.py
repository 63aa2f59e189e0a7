"""`edgewise serve`."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import TYPE_CHECKING

from ...errors import InputError
from ...host.cli.options import add_command, add_prompt_lookup, checked_prompt_lookup

if TYPE_CHECKING:
    from ...host.cli.options import Commands


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise serve`."""
    parser = add_command(commands, "serve", run)
    add = parser.add_argument
    add(
        "model",
        nargs="*",
        metavar="[NAME=]MODEL",
        help="model folder, .onnx file or .edge package (default name: that of the file)",
    )
    add(
        "--adapter",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="adapter of the language model, served as a model of this name",
    )
    add(
        "--split",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="second part of a split model (`edgewise split`), served as /v1/split/NAME",
    )
    add_prompt_lookup(parser)
    add(
        "--assistant-model",
        metavar="MODEL",
        help="smaller model with the same tokenizer that guesses tokens of the language model",
    )
    add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    add("--port", type=int, default=8000, help="default %(default)s; 0: a free one")
    add("--api-key", help="what clients must send (default: $EDGEWISE_API_KEY)")
    add(
        "--origin",
        action="append",
        default=[],
        help="origin of pages that may send requests, or * (default: none)",
    )
    add(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name under which a proxy passes requests on; others are refused",
    )
    add("--max-tokens", type=int, help="new tokens of a sequence at most (default 4096)")
    add("--queue", type=int, help="requests that may wait (default 32)")


def run(args: argparse.Namespace) -> None:
    """Serves models to OpenAI's clients, and to `hybrid` in pages."""
    from ..serve.options import Limits, ServeOptions

    given = {"tokens": args.max_tokens, "waiting": args.queue}
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{value} {name}", "edgewise serve", "Give at least 1.")
    key = args.api_key
    if key is None:  # an empty option is refused: whoever gives it means a key
        key = os.environ.get("EDGEWISE_API_KEY") or None
    options = ServeOptions(
        host=args.host,
        port=args.port,
        api_key=key,
        origins=tuple(args.origin),
        hosts=tuple(args.allowed_host),
        limits=Limits(**{name: value for name, value in given.items() if value is not None}),
    )
    options.check()
    try:
        from ..serve.launch import Server
    except ImportError as e:
        raise InputError(
            f"`{e.name}` is not installed", "edgewise serve", "pip install edgewise[serve,text]"
        ) from None
    from ..serve.catalog import Catalog

    models = _all_named(args.model, "model")
    adapters = _all_named(args.adapter, "--adapter")
    parts = _all_named(args.split, "--split")
    if not models and not parts:
        raise InputError("there is nothing to serve", "edgewise serve", "Name a model.")
    lookup = checked_prompt_lookup(args)
    catalog = Catalog(models, adapters, parts, lookup, args.assistant_model)
    server = Server(catalog, options)
    names = ", ".join([*(name for name, _ in catalog.names()), *parts])
    print(f"{server.url}: {names}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        server.run()


def _all_named(texts: list[str], option: str) -> dict[str, str]:
    """{name: path} of NAME=PATH, where models may do without a name."""
    found: dict[str, str] = {}
    for text in texts:
        name, path = _named(text, option == "model", option)
        if name in found:
            what = f"the name {name!r} is given to {found[name]} and to {path}"
            raise InputError(what, option, "Write NAME=PATH with different names.")
        found[name] = path
    return found


def _named(text: str, default: bool, option: str) -> tuple[str, str]:
    """(name, path) of NAME=PATH."""
    name, equals, path = text.partition("=")
    if equals and name and path and not os.path.exists(text):
        return name, path
    if not default or not text:
        raise InputError(f"{text!r} is not NAME=PATH", option, "Give it a name.")
    return os.path.basename(os.path.normpath(text)).removesuffix(".edge"), text
