"""`edgewise release`: init, add, rollout, publish, rotate, prune, verify, apply."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    from ...host.cli.options import Commands
    from ..release.repository import Repository

EXTRA = "Install it: pip install 'edgewise[release]'."
SCHEMES = ("ed25519", "ecdsa")
ROUNDINGS = ("none", "q4", "bfloat16")
ROLES = ("root", "targets", "snapshot", "timestamp")


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise release`."""
    text = "Publishes new versions of packages, models and adapters, signed and as deltas."
    parser = commands.add_parser("release", help=text, description=text)
    actions = parser.add_subparsers(dest="action", required=True)
    for action in (init, add, rollout, publish, rotate, prune, verify, apply):
        name = action.__name__
        own = actions.add_parser(name, help=action.__doc__, description=action.__doc__)
        own.set_defaults(run=action)
        if name == "apply":
            _add_apply(own)
            continue
        own.add_argument("repository", help="folder to be served")
        if name == "add":
            own.add_argument(
                "model", help="package, .onnx file, or folder of a model, adapter or federated run"
            )
        if name in ("add", "rollout"):
            own.add_argument("name", help="of the release")
            own.add_argument(
                "--fraction", type=float, default=1.0, help="of the devices (default %(default)s)"
            )
        if name in ("init", "publish", "rotate"):
            own.add_argument("--keys", required=True, help="folder of the private keys")
            for role in ROLES:
                own.add_argument(
                    f"--{role}-days", type=float, help=f"until the signature of {role} expires"
                )
    _add_more(actions.choices)


def _add_more(parsers: dict[str, argparse.ArgumentParser]) -> None:
    parsers["init"].add_argument(
        "--scheme", choices=SCHEMES, default=SCHEMES[0], help="of the keys (default %(default)s)"
    )
    parsers["rotate"].add_argument(
        "--scheme", choices=SCHEMES, help="of the new keys (default: that of the old ones)"
    )
    parsers["init"].add_argument("--roots", type=int, default=1, help="keys of root (default 1)")
    parsers["init"].add_argument(
        "--threshold", type=int, default=1, help="keys of root that must sign (default 1)"
    )
    parsers["rotate"].add_argument("role", choices=ROLES)
    parsers["publish"].add_argument(
        "--all", action="store_true", help="sign targets again, even if nothing was added"
    )
    parsers["add"].add_argument(
        "--round",
        choices=ROUNDINGS,
        default=ROUNDINGS[0],
        help="float32 weights: q4: the last version plus a change in 4 bits; bfloat16",
    )
    parsers["add"].add_argument(
        "--keep", type=int, default=2, help="versions with a delta to this one (default 2)"
    )


def _add_apply(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="of the release")
    parser.add_argument("origin", nargs="+", help="folders or addresses of the repository")
    parser.add_argument("--root", help="trusted root.json; needed the first time")
    parser.add_argument("--state", required=True, help="folder of this client")
    parser.add_argument("-o", "--output", help="copy what is installed to this path")


def _repository(args: argparse.Namespace) -> Repository:
    try:
        from ..release.repository import Repository
    except ModuleNotFoundError as e:
        raise InputError(f"the library {e.name} is missing", "release", EXTRA) from None
    return Repository(args.repository)


def _days(args: argparse.Namespace) -> dict[str, float]:
    found = {role: getattr(args, f"{role}_days") for role in ROLES}
    return {role: days for role, days in found.items() if days is not None}


def _keep_apart(args: argparse.Namespace) -> None:
    keys, served = (os.path.realpath(p) for p in (args.keys, args.repository))
    if os.path.join(keys, "").startswith(os.path.join(served, "")):
        raise InputError(
            "the keys would be served with the repository", args.keys, "Choose another folder."
        )


def init(args: argparse.Namespace) -> None:
    """Makes the keys and an empty repository."""
    repository = _repository(args)
    from ..release.keys import Keys
    from ..release.metadata import DAYS

    _keep_apart(args)
    days = {**DAYS, **_days(args)}
    repository.metadata.create(Keys(args.keys), args.scheme, args.roots, args.threshold, days)
    print(f"{args.repository}/metadata/1.root.json: what clients trust first")
    print(f"{args.keys}: keep the keys of root offline")


def add(args: argparse.Namespace) -> None:
    """Adds a version; `publish` makes it visible."""
    manifest = _repository(args).add(args.model, args.name, args.fraction, args.round, args.keep)
    base = manifest.earlier[0] if manifest.earlier else None
    print(f"{args.name} version {manifest.version}: {manifest.bytes} bytes")
    if base is None:
        return
    before = set(_repository(args).released()[args.name][0].offsets())
    needed = 0
    for chunk in manifest.chunks:
        if chunk.sha256 not in before:
            sizes = [d.bytes for d in chunk.deltas if d.base in before]
            needed += min([*sizes, chunk.file.bytes])
    print(f"from version {base.version}: {needed} bytes")


def rollout(args: argparse.Namespace) -> None:
    """Changes the share of devices that get the latest version; `publish` makes it visible."""
    manifest = _repository(args).roll_out(args.name, args.fraction)
    print(f"{args.name} version {manifest.version}: {manifest.fraction:.0%} of the devices")


def publish(args: argparse.Namespace) -> None:
    """Signs what was added. Call it at least weekly: clients refuse old signatures."""
    repository = _repository(args)
    from ..release.keys import Keys

    names = repository.publish(Keys(args.keys), _days(args), args.all)
    print(f"{args.repository}: signed, {', '.join(names) or 'nothing new'}")


def rotate(args: argparse.Namespace) -> None:
    """Replaces the keys of a role by new ones."""
    repository = _repository(args)
    from ..release.keys import Keys

    _keep_apart(args)
    version = repository.rotate(args.role, Keys(args.keys), args.scheme, _days(args))
    print(f"{args.repository}: root version {version} has new keys for {args.role}")


def prune(args: argparse.Namespace) -> None:
    """Removes what neither the latest versions nor deltas to them need."""
    count, nbytes = _repository(args).prune()
    print(f"{args.repository}: {count} files removed, {nbytes} bytes")


def verify(args: argparse.Namespace) -> None:
    """Reads all that is published, and compares it with its digests."""
    releases, chunks = _repository(args).check()
    print(f"{args.repository}: {releases} releases, {chunks} chunks")


def apply(args: argparse.Namespace) -> None:
    """Installs or updates a release on this machine."""
    try:
        from ..release.client import Client
    except ModuleNotFoundError as e:
        raise InputError(f"the library {e.name} is missing", "release", EXTRA) from None
    root = None
    if args.root:
        with open(args.root, "rb") as file:
            root = file.read()
    client = Client(args.origin, args.name, args.state, root)
    installed = client.update()
    if installed is None:
        print(f"{args.name}: no version is for this device yet")
        return
    print(f"{args.name} version {installed.version}: {client.received} bytes received")
    if args.output:
        for path in client.export(args.output):
            print(path)
