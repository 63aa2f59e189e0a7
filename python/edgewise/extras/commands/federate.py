"""`edgewise federate`: serve, simulate, join, certify."""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...host.cli.options import add_dtype, add_training, set_training_defaults
from ...host.cli.train import read_texts
from . import federate_private as private

if TYPE_CHECKING:
    from ...host.cli.options import Commands
    from ...host.training.trainer import Trainer
    from ..federated.codec import Values
    from ..federated.local_training import LocalTraining

KRUM = ("krum", "multi-krum")
STRATEGIES = ("fedavg", "fedavgm", "fedadam", "fedprox", *KRUM, "median", "trimmed-mean")
CODECS = ("float32", "float16", "int8", "int4")
EXTRA = ("cryptography", "flwr", "websockets")

SITES = "write the run's folder alone, for `flwr run` with SuperNodes that are sites"
SCHEDULES = ("constant", "cosine", "cooldown")
SCHEDULE = "of the learning rate over the rounds; cosine: down to a tenth; cooldown: constant, and"
SCHEDULE += " down to a twentieth in the last two fifths of the rounds"
AGGREGATE = "what is trained and sent; B: LoRA's matrices B alone, half the bytes"
MOMENTUM = "fedavgm: of the last step, how much is added (default %(default)s)"
KEEP = "clients go on with the optimizer of their last round"
AUDIT = "public texts: some clients train on them, and the server compares"
EXAMPLES = "maximum weight of an update: clients that say more count as many (default %(default)s)"
ORIGINS = "origin of pages that may connect, or * (default: this machine's, all with --tickets)"


def _installed(action: Callable[[argparse.Namespace], None]) -> Callable[..., None]:
    """An action that says how to install the packages that it needs."""

    @functools.wraps(action)
    def run(args: argparse.Namespace) -> None:
        try:
            action(args)
        except ModuleNotFoundError as e:
            if str(e.name).partition(".")[0] not in EXTRA:
                raise
            what, remedy = f"`{e.name}` is not installed", "pip install 'edgewise[federated]'."
            raise InputError(what, "edgewise federate", remedy) from None

    return run


def add_parser(commands: Commands) -> None:
    """Declares the arguments of `edgewise federate`."""
    text = "Trains one model with many clients, whose data stays with them."
    parser = commands.add_parser("federate", help=text, description=text)
    actions = parser.add_subparsers(dest="action", required=True)
    for name, action in (("serve", serve), ("simulate", simulate), ("join", join), ("site", site)):
        own = actions.add_parser(name, help=action.__doc__, description=action.__doc__)
        own.set_defaults(run=_installed(action))
        if name == "join":
            own.add_argument("url", help="of the server, such as ws://127.0.0.1:8765")
        own.add_argument("model", help="model folder (Hugging Face layout) or .onnx file")
        if name not in ("serve", "site"):
            own.add_argument("data", nargs="+", help="text files, or .jsonl")
        own.add_argument(
            "--full", action="store_true", help="train all parameters instead of adapters"
        )
        own.add_argument("--target-modules", nargs="+", help="layers to adapt (default: all)")
        add_dtype(own)
        add_training(own)
        if name == "join":
            _add_join(own)
            private.add_join_options(own)
        elif name == "site":
            _add_site(own)
        else:
            _add_rounds(own)
            private.add_round_options(own)
        if name == "serve":
            own.add_argument("--sites", action="store_true", help=SITES)
            again = "begin another run when one has ended, each in its own folder within --folder"
            own.add_argument("--again", action="store_true", help=again)
        if name == "simulate":
            own.add_argument("--tabs", type=int, default=4, help="clients (default %(default)s)")
    about = private.certify.__doc__
    own = actions.add_parser("certify", help=about, description=about)
    own.set_defaults(run=_installed(private.certify))
    private.add_certify(own)


def _add_join(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="", help="shown in the server's log")
    parser.add_argument("--ticket", help="for a server that needs one")
    parser.add_argument("--state", help="folder that keeps the client's state")
    parser.add_argument("--part", help="use part K of N of the data, as K/N")
    parser.add_argument(
        "--minimum-cohort", type=int, default=1, help="decline tasks for fewer clients"
    )
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--save", help="folder for the adapter at the end; with --full: a file")


def _add_address(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    add("--port", type=int, default=8765, help="default %(default)s")
    add("--origin", action="append", help=ORIGINS)
    add("--tickets", help="file with a ticket in each line; clients must have one of them")


def _add_site(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--socket", default="site.socket", help="file for its SuperNode (default %(default)s)")
    add("--min", type=int, default=1, help="a round begins, and counts, with so many clients")
    add("--codec", default="int8", choices=CODECS, help="of updates (default %(default)s)")
    add("--clip", type=float, help="maximum norm of an update")
    _add_address(parser)


def _add_rounds(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--folder", default="federated", help="of the run (default %(default)s)")
    add("--resume", action="store_true", help="continue the run in the folder")
    add("--strategy", default="fedavg", choices=STRATEGIES)
    add("--rounds", type=int, default=10, help="default %(default)s")
    add("--min", type=int, default=None, help="a round begins with so many clients (default 2)")
    add("--least", type=int, help="a round counts with so many updates (default: 2)")
    add("--fraction", type=float, default=1.0, help="share of the clients that a round asks")
    add("--steps", type=int, default=10, help="updates of a client in a round")
    add("--keep-optimizer", action="store_true", help=KEEP)
    add("--codec", default="int8", choices=CODECS, help="of updates (default %(default)s)")
    add("--clip", type=float, help="maximum norm of an update")
    add("--uniform", action="store_true", help="all clients have the same weight")
    add("--max-examples", type=int, default=10_000, help=EXAMPLES)
    add("--deadline", type=float, default=300.0, help="seconds of a round (default %(default)s)")
    add("--malicious", type=int, default=0, help="krums: hostile clients that are assumed")
    add("--beta", type=float, default=0.2, help="trimmed-mean: share cut off on either side")
    add("--mu", type=float, default=0.1, help="fedprox: weight of the distance")
    add("--momentum", type=float, default=0.5, help=MOMENTUM)
    add("--server-learning-rate", type=float, default=0.01, help="fedadam (default %(default)s)")
    add("--seed", type=int, default=0, help="of the local training")
    add("--audit", nargs="+", metavar="FILE", help=AUDIT)
    add("--audit-share", type=float, default=0.1, help="of the clients, by chance, in each round")
    add("--audit-tolerance", type=float, default=0.2, help="how far updates may differ")
    add("--schedule", default="constant", choices=SCHEDULES, help=SCHEDULE)
    add("--aggregate", default="all", choices=("all", "B"), help=AGGREGATE)
    add("--evaluation", nargs="+", help="text files whose loss is computed after each round")
    _add_address(parser)


def _trainer(args: argparse.Namespace) -> Trainer:
    from ...compiler.training.peft import LoraConfig
    from ...host.engine import open_engine
    from ...host.training.trainer import Trainer

    set_training_defaults(args)
    threads = getattr(args, "threads", None)
    return Trainer(
        args.model,
        adapters=None if args.full else LoraConfig.from_dict(_lora(args), "--lora"),
        learning_rate=args.learning_rate,
        batch_size=args.batch_size,
        sequence_length=args.sequence_length,
        seed=getattr(args, "seed", 0),
        dtype=args.dtype,
        engine=None if threads is None else open_engine(threads),
    )


def _lora(args: argparse.Namespace) -> dict[str, Any]:
    from ...compiler.schema.training import LANGUAGE_MODEL

    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": args.lora_r or LANGUAGE_MODEL.lora_r,
        "lora_alpha": args.lora_alpha or LANGUAGE_MODEL.lora_alpha,
        "target_modules": args.target_modules or LANGUAGE_MODEL.target_modules,
    }


def serve(args: argparse.Namespace) -> None:
    """Serves federated rounds to pages and to `edgewise federate join`."""
    if args.again and args.resume:
        raise InputError("it begins new runs", "--again", "Leave --resume out.")
    root = args.folder
    numbers = (n for n in itertools.count(1) if not os.path.exists(os.path.join(root, str(n))))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends, too
    try:
        while True:
            if args.again:
                args.folder = os.path.join(root, str(next(numbers)))
            _rounds(args, 0)
            if not args.again:
                return
    except KeyboardInterrupt:
        print(f"{args.folder}: stopped" + ("" if args.again else "; continue with --resume"))


def site(args: argparse.Namespace) -> None:
    """Serves the clients of a site, which is a node of Flower: its SuperNode asks here."""
    from ..federated.admission import HubOptions
    from ..federated.hub import Hub
    from ..federated.local_training import LocalTraining
    from ..federated.site import Site
    from ..federated.verify import Rules

    training = LocalTraining(_trainer(args), None)
    schema = training.schema
    training.close()
    tickets = _tickets(args)
    options = HubOptions(
        args.host,
        args.port,
        None if args.origin is None else tuple(args.origin),
        None if tickets is None else frozenset(tickets),
        terms={"clients": args.min, "lora": None if args.full else _lora(args)},
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with Hub(schema, args.codec, options) as hub:
        service = Site(hub, args.socket, args.min, Rules(args.clip, least=args.min))
        print(f"{args.socket}: site with clients at ws://{args.host}:{hub.port}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(f"{args.socket}: stopped")
        finally:
            service.close()


def simulate(args: argparse.Namespace) -> None:
    """Runs federated rounds with clients in processes of this machine, each with its part of the
    data.
    """
    if args.tabs < 1:
        raise InputError(f"{args.tabs} clients", "--tabs", "Give at least 1.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends, too
    args.min = args.tabs if args.min is None else args.min
    _rounds(args, args.tabs)


def _rounds(args: argparse.Namespace, tabs: int) -> None:
    from ..federated.audit import Auditor
    from ..federated.launch import Clients
    from ..federated.launch import serve as play
    from ..federated.local_training import LocalTraining
    from ..federated.run_folder import RunFolder
    from ..federated.settings import Settings

    folder = RunFolder(args.folder)
    training = None
    members: list[list[str]] = []
    if tabs and args.secure and args.authority is None:
        keys = os.path.join(args.folder, "members")
        args.authority, members = private.simulated_members(keys, tabs)
    if not args.resume:
        training = LocalTraining(_trainer(args), None)
        given = _settings(args, Settings)
        training.schema.part(given.part)  # what cannot be served is refused before it begins
        if given.audit is not None:
            Auditor(training, *(given.audit[n] for n in ("texts", "share", "tolerance")))
        folder.create(given, training.weights())
    elif args.evaluation:
        training = LocalTraining(_trainer(args), None)
    settings = folder.settings()
    if settings.sites:
        print(f"{args.folder}: run {settings.run}, for `flwr run` with this folder")
        return
    texts = [text for path in args.evaluation or () for text in read_texts(path)]

    def after(line: dict[str, Any]) -> None:
        loss = "" if line["loss"] is None else f", loss {line['loss']:.4f}"
        if texts and training is not None:
            loss += f", held out {training.evaluate(folder.state().arrays, texts):.4f}"
        print(
            f"round {line['round']}/{settings.rounds}: {line['participants']} updates,"
            f" {line['refused']} refused{_audited(line)}{loss}{_spent(line)},"
            f" {line['seconds']:.1f} s",
            flush=True,
        )

    print(f"{args.folder}: run {settings.run}, clients at ws://{settings.host}:{settings.port}")
    commands = _join_commands(args, settings.port, tabs, settings.tickets)
    if members:
        required = ["--require-secure", "--authority", str(settings.authority)]
        commands = [[*c, *required, *m] for c, m in zip(commands, members, strict=True)]
    with folder.lock(), Clients(commands) as clients:
        play(args.folder, after, clients.check)
    if folder.budget()[1]:
        print(
            f"{args.folder}: the privacy budget ended the run after {folder.state_number()} rounds"
        )
    print(f"{args.folder}: {'weights' if settings.lora is None else 'adapter'} of the last round")


def _audited(line: dict[str, Any]) -> str:
    found = line.get("audited")
    return f", {len(found)} audited" if found else ""


def _spent(line: dict[str, Any]) -> str:
    told = line.get("privacy")
    return f", epsilon {told['epsilon']:.4g}" if told and told["epsilon"] is not None else ""


def _audit(args: argparse.Namespace) -> dict[str, Any] | None:
    """What --audit says."""
    if not args.audit:
        return None
    names = ("learning_rate", "batch_size", "sequence_length", "dtype")
    trainer = {name: getattr(args, name) for name in names}
    return {
        "model": os.path.abspath(args.model),
        "trainer": {**trainer, "lora": None if args.full else _lora(args)},
        "texts": [text for path in args.audit for text in read_texts(path)],
        "share": args.audit_share,
        "tolerance": args.audit_tolerance,
    }


def _tickets(args: argparse.Namespace) -> list[str] | None:
    """The lines of the file of --tickets."""
    if not args.tickets:
        return None
    with open(args.tickets, encoding="utf-8") as file:
        return [line.strip() for line in file if line.strip()]


def _settings(args: argparse.Namespace, settings: Any) -> Any:
    tickets = _tickets(args)
    return settings(
        strategy=args.strategy,
        rounds=args.rounds,
        clients=2 if args.min is None else args.min,
        least=args.least,
        fraction=args.fraction,
        steps=args.steps,
        keep_optimizer=args.keep_optimizer,
        learning_rate=args.learning_rate,
        codec=args.codec,
        clip=args.clip,
        uniform=args.uniform,
        examples=args.max_examples,
        deadline=args.deadline,
        malicious=args.malicious,
        beta=args.beta,
        mu=args.mu,
        momentum=args.momentum,
        server_learning_rate=args.server_learning_rate,
        seed=args.seed,
        schedule=args.schedule,
        audit=_audit(args),
        part=None if args.aggregate == "all" else args.aggregate,
        host=args.host,
        port=args.port,
        origins=args.origin,
        tickets=tickets,
        sites=getattr(args, "sites", False),
        lora=None if args.full else _lora(args),
        **private.round_settings(args),
    )


def _join_commands(
    args: argparse.Namespace, port: int, tabs: int, tickets: list[str] | None
) -> list[list[str]]:
    """Arguments of `edgewise federate join` for each simulated client."""
    if not tabs:
        return []
    if tickets is not None and len(tickets) < tabs:
        raise InputError(
            f"it has {len(tickets)} tickets for {tabs} clients",
            "--tickets",
            "Each client needs a ticket of its own.",
        )
    options: list[str] = ["--full"] if args.full else []
    for name in ("lora_r", "lora_alpha", "batch_size", "sequence_length", "dtype"):
        if getattr(args, name) is not None:
            options += ["--" + name.replace("_", "-"), str(getattr(args, name))]
    if args.target_modules:
        options += ["--target-modules", *args.target_modules]
    return [
        [
            "join",
            f"ws://127.0.0.1:{port}",
            args.model,
            *args.data,
            *options,
            *("--part", f"{k}/{tabs}", "--name", f"tab {k}", "--threads", "1"),
            *([] if tickets is None else [f"--ticket={tickets[k - 1]}"]),
        ]
        for k in range(1, tabs + 1)
    ]


def join(args: argparse.Namespace) -> None:
    """Takes part in federated rounds with texts that stay on this machine."""
    from ..federated.client import FederatedClient
    from ..federated.local_training import LocalTraining

    texts = _part([text for path in args.data for text in read_texts(path)], args.part)
    training = LocalTraining(_trainer(args), texts)
    client = FederatedClient(
        args.url,
        training,
        name=args.name,
        ticket=args.ticket,
        folder=args.state,
        terms=private.client_terms(args),
        identity=private.client_identity(args),
        on_result=lambda result: print(
            f"round {result['round']}: {'counted' if result['counted'] else 'not counted'}",
            flush=True,
        ),
        on_decline=lambda reason: print(f"declined: {reason}", file=sys.stderr),
        attempts=200,
        on_weights=lambda weights: _save(training, weights, args),
    )
    try:
        client.run()
    finally:
        training.close()
    print(f"sent {client.sent_bytes} bytes, received {client.received_bytes}")


def _save(training: LocalTraining, weights: Values, args: argparse.Namespace) -> None:
    """Writes the weights after the last round where --save says."""
    if args.save is None:
        return
    training.put(weights)
    (training.trainer.save if args.full else training.trainer.save_adapter)(args.save)
    print(f"{args.save}: the weights after the last round")


def _part(texts: list[str], part: str | None) -> list[str]:
    """The texts of one client: whole texts if there are enough, else slices of each."""
    if part is None:
        return texts
    number, _, of = part.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise InputError(f"{part!r} is not a part", "--part", "Give K/N with 1 <= K <= N.")
    k, n = int(number), int(of)
    if len(texts) >= n:
        return texts[k - 1 :: n]
    return [text[len(text) * (k - 1) // n : len(text) * k // n] for text in texts]
