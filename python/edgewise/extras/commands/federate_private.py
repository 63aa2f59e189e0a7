"""Options of `edgewise federate` for secure aggregation and differential privacy, and `certify`."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from ...errors import InputError

if TYPE_CHECKING:
    from ..federated.client_secure import ClientTerms
    from ..federated.secure.identity import Certificate, Identity

DAYS = 30.0


def add_round_options(parser: argparse.ArgumentParser) -> None:
    """Options of serve and simulate."""
    add = parser.add_argument
    add("--secure", action="store_true", help="secure aggregation: see sums of groups alone")
    add("--group", type=int, default=16, help="fewest members of a group (default %(default)s)")
    add("--stage", type=float, default=30.0, help="seconds of each stage of a secure sum")
    add("--authority", help="public key of who must have certified all clients")
    add("--noise", type=float, default=0.0, help="differential privacy: noise in units of --clip")
    add("--noise-by", default="server", choices=("server", "clients"), help="who adds the noise")
    add("--epsilon", type=float, help="the run ends before it spends more")
    add("--delta", type=float, default=1e-5, help="of epsilon (default %(default)s)")


def add_join_options(parser: argparse.ArgumentParser) -> None:
    """Options of join."""
    add = parser.add_argument
    add("--require-secure", action="store_true", help="decline tasks without secure aggregation")
    add("--authority", help="public key of who certifies members")
    add("--identity", help="file with this client's key; it is made if it does not exist")
    add("--certificate", help="file with the certificate for this key")
    add("--maximum-epsilon", type=float, help="decline tasks that spend more")
    add("--noise-by", default="clients", choices=("server", "clients"), help="whose noise counts")


def round_settings(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of Settings."""
    names = ("secure", "group", "stage", "authority", "noise", "noise_by", "epsilon", "delta")
    return {name: getattr(args, name) for name in names}


def client_terms(args: argparse.Namespace) -> ClientTerms:
    """The terms of a client. Raises InputError."""
    from ..federated.client_secure import ClientTerms
    from ..federated.secure.crypto import SEED
    from ..federated.secure.identity import decoded

    return ClientTerms(
        args.minimum_cohort,
        "required" if args.require_secure else "optional",
        None if args.authority is None else decoded(args.authority, SEED, "--authority"),
        args.maximum_epsilon,
        args.noise_by,
    )


def client_identity(args: argparse.Namespace) -> Identity:
    """The key of a client, with its certificate. Raises InputError."""
    from ..federated.secure.identity import Identity

    certificate = None if args.certificate is None else _certificate(args.certificate)
    if args.identity is not None:
        return Identity.load(args.identity, certificate)
    if certificate is not None:
        raise InputError("it is for a key that is not given", "--certificate", "Add --identity.")
    return Identity.new()


def _certificate(path: str) -> Certificate:
    from ...json_text import parse_json
    from ..federated.secure.identity import Certificate

    try:
        with open(path, "rb") as file:
            fields = parse_json(file.read(10_000), path, InputError)
    except OSError as e:
        raise InputError(e.strerror or str(e), path) from None
    if not isinstance(fields, dict):
        raise InputError("it is no certificate", path)
    return Certificate.of(fields, path)


def add_certify(parser: argparse.ArgumentParser) -> None:
    """Arguments of certify."""
    parser.add_argument("key", help="the authority's key file; it is made if it does not exist")
    parser.add_argument("identity", nargs="?", help="public key of a client, or its key file")
    parser.add_argument("--subject", help="who the client is: one name for each user")
    parser.add_argument("--days", type=float, default=DAYS, help="default %(default)s")


def certify(args: argparse.Namespace) -> None:
    """Certifies the key of a client; without one, prints the authority's public key."""
    from ..federated.secure.crypto import SEED
    from ..federated.secure.identity import DAY, Authority, Identity, decoded, encoded

    authority = Authority.load(args.key)
    if args.identity is None:
        print(encoded(authority.public))
        return
    if not args.subject:
        raise InputError("it is missing", "--subject", "Give each user one name.")
    if os.path.exists(args.identity):
        public = Identity.load(args.identity).public
    else:
        public = decoded(args.identity, SEED, "identity")
    assert isinstance(authority, Authority)
    print(json.dumps(authority.certify(public, args.subject, args.days * DAY).fields))


def simulated_members(folder: str, count: int) -> tuple[str, list[list[str]]]:
    """An authority and members for a simulation, in files of a folder.

    Returns:
        (the authority's public key, the arguments of `join` for each client)
    """
    from ..federated.secure.identity import Authority, Identity, encoded

    os.makedirs(folder, exist_ok=True)
    authority = Authority.load(os.path.join(folder, "authority.key"))
    assert isinstance(authority, Authority)
    out = []
    for k in range(1, count + 1):
        path = os.path.join(folder, f"member-{k}")
        made = authority.certify(Identity.load(f"{path}.key").public, f"tab-{k}")
        with open(f"{path}.json", "w", encoding="utf-8") as file:
            json.dump(made.fields, file)
        out.append(["--identity", f"{path}.key", "--certificate", f"{path}.json"])
    return encoded(authority.public), out
