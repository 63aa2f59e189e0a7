"""The settings of a run, and its folder.

run.json              the settings
initial.safetensors   the weights at the beginning
state.safetensors     what the next round needs, in float64
weights.safetensors   the weights after the last round, in float32; with LoRA:
adapter/              the same as an adapter in PEFT's layout
rounds.jsonl          a line for each round: who took part, who was refused and why
privacy.json          rounds with noise that have begun, and whether the budget has ended the run
barred.json           clients that an audit has shut out: SHA-256 of their tickets, and why
ended                 empty: the clients were given the last weights
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..declare.dtypes import DOUBLE, FLOAT
from ..errors import InputError, ModelError
from ..json_text import parse_json
from ..locks import locked
from ..training.peft import Adapter, LoraConfig, save_adapter
from ..training.safetensors import load_safetensors, save_safetensors
from .codec import LEVELS, Schema, Values
from .protocol import CODECS
from .secure.crypto import SEED
from .secure.identity import decoded
from .secure.plan import FEWEST_MEMBERS, LEAST, MOST, MOST_MEMBERS
from .secure.privacy import LEAST_DRAWN, Privacy

SCHEDULES = ("constant", "cosine")
STRATEGIES = ("fedavg", "fedavgm", "fedadam", "fedprox", "krum", "median", "trimmed-mean")
LONGEST = 1e9  # seconds that clients take for a deadline
FAREWELL = 30.0  # seconds in which clients may fetch the last weights
FORMAT = "edgewise.federated.run.1"
NUMPY = {FLOAT: np.float32, DOUBLE: np.float64}


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    Attributes:
        run: its name.
        strategy: one of STRATEGIES.
        rounds: number of rounds.
        clients: a round begins when so many clients are there.
        least: updates without which a round does not count. None: 2, or 1 if `clients` is 1; at
            least what the strategy needs.
        fraction: share of the clients that a round asks, at least `clients`.
        steps: updates of the local training.
        learning_rate: of the local training; None: the client's.
        codec: of updates and of the differences that clients fetch.
        clip: see verify.Rules.
        examples: maximum weight of an update.
        uniform: all updates have the same weight.
        deadline: seconds of a round.
        malicious: Krum: number of clients that may be hostile.
        beta: trimmed-mean: share that is cut off on either side.
        mu: fedprox: weight of the squared distance.
        momentum: fedavgm: share of a round's step that the next one adds, below 1.
        server_learning_rate: fedadam.
        seed: of the run.
        host, port, origins, tickets, grace: see hub.HubOptions.
        sites: clients are Flower's nodes, each a site with tabs of its own; see site.Site.
        lora: fields of LoraConfig, or None.
        secret: key of the receipts.
        secure: secure aggregation: the server sees sums of groups alone.
        group: fewest members of a group; a robust strategy needs several groups.
        stage: seconds of each stage of secure aggregation.
        authority: Ed25519 public key (base64url) that must have certified all clients, or None.
        noise: differential privacy: standard deviation of the noise in a round's sum, in units of
            `clip`; 0: none. If the server adds it, `fraction` of `clients` are drawn by chance.
        noise_by: "server" or "clients".
        epsilon: the run ends before it spends more; None: without limit.
        delta: of epsilon.
        part: of the parameters that is trained and sent, see codec.Schema.part; None: all.
        audit: of audit.Auditor: {model: path, trainer: arguments of Trainer (lora: as here), texts,
            share, tolerance}; None: no client is audited.
        schedule: of the local learning rate over the rounds: "constant", or "cosine": half a cosine
            wave from `learning_rate` down to a tenth of it.
    """

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    strategy: str = "fedavg"
    rounds: int = 10
    clients: int = 2
    fraction: float = 1.0
    steps: int = 10
    learning_rate: float | None = None
    codec: str = "int8"
    clip: float | None = None
    examples: int = 10_000
    uniform: bool = False
    deadline: float = 300.0
    malicious: int = 0
    beta: float = 0.2
    mu: float = 0.1
    server_learning_rate: float = 0.01
    momentum: float = 0.5
    seed: int = 0
    host: str = "127.0.0.1"
    port: int = 8765
    origins: list[str] | None = None
    tickets: list[str] | None = None
    grace: float = 30.0
    least: int | None = None
    sites: bool = False
    lora: dict[str, Any] | None = None
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    secure: bool = False
    group: int = 16
    stage: float = 30.0
    authority: str | None = None
    noise: float = 0.0
    noise_by: str = "server"
    epsilon: float | None = None
    delta: float = 1e-5
    part: str | None = None
    schedule: str = "constant"
    audit: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raises InputError if a value cannot be used."""
        checks = {
            "strategy": self.strategy in STRATEGIES,
            "codec": self.codec in CODECS,
            "rounds": self.rounds >= 1,
            "clients": self.clients >= 1,
            "least": self.least is None or self.least >= 1,
            "fraction": 0 < self.fraction <= 1,
            "steps": self.steps >= 1,
            "learning_rate": self.learning_rate is None or 0 < self.learning_rate < math.inf,
            "clip": self.clip is None or 0 < self.clip < math.inf,
            "examples": self.examples >= 1,
            "deadline": 0 < self.deadline < LONGEST,
            "malicious": 0 <= self.malicious,
            "beta": 0 <= self.beta < 0.5,
            "mu": 0 <= self.mu < math.inf,
            "server_learning_rate": 0 < self.server_learning_rate < math.inf,
            "momentum": 0 <= self.momentum < 1,
            "group": FEWEST_MEMBERS <= self.group <= MOST_MEMBERS,
            "stage": 0 < self.stage < LONGEST,
            "noise": 0 <= self.noise < math.inf,
            "noise_by": self.noise_by in ("server", "clients"),
            "epsilon": self.epsilon is None or self.epsilon > 0,
            "delta": 0 < self.delta < 1,
            "part": self.part in (None, "B"),
            "schedule": self.schedule in SCHEDULES,
        }
        wrong = next((name for name, right in checks.items() if not right), None)
        if wrong is not None:
            choices = {"strategy": STRATEGIES, "codec": CODECS, "schedule": SCHEDULES}.get(wrong)
            raise InputError(
                f"{getattr(self, wrong)!r} cannot be used",
                wrong.replace("_", "-"),
                f"Use one of {', '.join(choices)}." if choices else "",
            )
        if self.sites and self.part is not None:
            raise InputError("sites exchange all parameters", "part")
        self._check_audit()
        if self.schedule != "constant" and self.learning_rate is None:
            raise InputError("a schedule needs the learning rate to begin with", "learning-rate")
        self._check_private()
        if self.secure or self.noise:
            return
        if self.clients < self.needed:
            given = {"krum": "malicious", "trimmed-mean": "beta"}.get(self.strategy, "least")
            raise InputError(
                f"{self.strategy} needs {self.needed} clients with these settings, a round begins"
                f" with {self.clients}",
                given,
                "Wait for more clients, or change this setting.",
            )

    def _check_audit(self) -> None:
        """Raises InputError if clients cannot be audited so."""
        if self.audit is None:
            return
        if self.secure or self.noise or self.sites:
            raise InputError(
                "audits need updates that this server sees, without noise",
                "audit",
                "Leave out --secure, --noise and --sites, or --audit.",
            )
        share, tolerance = self.audit.get("share", 0.0), self.audit.get("tolerance", 0.0)
        if not 0 < share <= 1:
            raise InputError(f"{share!r} cannot be used", "audit-share", "Give 0.1, or 1.")
        if not 0 < tolerance < 1:  # who does not train differs by 1
            raise InputError(f"{tolerance!r} cannot be used", "audit-tolerance", "Give 0.2.")

    def _check_private(self) -> None:
        """Raises InputError if secure aggregation or noise do not go with other settings."""
        groups = max(1, self.clients // self.group)
        demands = [
            (self.secure and self.codec not in LEVELS, "codec", "secure sums are of int8 or int4"),
            (
                bool(self.secure or self.noise) and self.clip is None,
                "clip",
                "secure sums and noise need a maximum norm of updates",
            ),
            (
                self.secure and self.clients < FEWEST_MEMBERS,
                "clients",
                f"a secure sum has at least {FEWEST_MEMBERS} members",
            ),
            (
                self.secure and groups < self._robust,
                "group",
                f"{self.strategy} needs {self._robust} groups, {self.clients} clients are {groups}",
            ),
            (
                bool(self.noise) and self._robust_strategy,
                "strategy",
                f"{self.strategy} is not the mean of all, of which noise is computed",
            ),
            (
                bool(self.noise) and self.noise_by == "clients" and not self.secure,
                "noise-by",
                "clients add noise to secure sums alone",
            ),
            (
                bool(self.noise) and self.noise_by == "clients" and not LEAST <= self.noise <= MOST,
                "noise",
                f"that of clients is {LEAST:g} to {MOST:g} times the clip",
            ),
            (
                self.sites and bool(self.secure or self.noise),
                "sites",
                "secure sums and noise are of a hub's own clients",
            ),
            (self.epsilon is not None and not self.noise, "epsilon", "it needs noise"),
            (
                0 < self.noise < LEAST_DRAWN and self.fraction < 1 and self.noise_by == "server",
                "noise",
                f"with clients drawn at random it is at least {LEAST_DRAWN}",
            ),
            (
                self.authority is not None and not self.secure,
                "authority",
                "it certifies members of secure sums",
            ),
        ]
        for wrong, where, what in demands:
            if wrong:
                raise InputError(what, where)
        if self.authority is not None:
            decoded(self.authority, SEED, "authority")

    @property
    def _robust_strategy(self) -> bool:
        return self.strategy in ("krum", "median", "trimmed-mean")

    @property
    def _robust(self) -> int:
        """Replies that the strategy needs."""
        robust = {
            "krum": 2 * self.malicious + 3,
            "trimmed-mean": math.ceil(1 / self.beta - 1e-9) if self.beta else 1,
        }
        return robust.get(self.strategy, 1)

    @property
    def privacy(self) -> Privacy | None:
        """The mechanism of the run, or None."""
        if not self.noise:
            return None
        assert self.clip is not None
        return Privacy(
            self.noise,
            self.clip,
            self.fraction,
            self.delta,
            self.epsilon,
            self.noise_by,
            amplified=not self.secure,
        )

    @property
    def needed(self) -> int:
        """Updates without which a round does not count; with secure aggregation, sums."""
        if self.secure:
            return self._robust
        least = min(2, self.clients) if self.least is None else self.least
        return max(least, self._robust)


@dataclass
class State:
    """A run after a round.

    Attributes:
        number: the round; 0: none yet.
        arrays: weights by name.
        parts: {"base": the weights that clients have, "m" and "v": FedAdam's moments,
            "m": FedAvgM's last step}, each
            {name: array}.
    """

    number: int
    arrays: dict[str, Any]
    parts: dict[str, dict[str, Any]]


class RunFolder:
    """The folder of a run. Files are replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def _replace(self, name: str, text: str) -> None:
        """Writes a file as a whole, for its owner alone: it may have tickets and keys."""
        temporary = self._file(f"{name}.part")
        with open(temporary, "w", encoding="utf-8") as file:
            os.chmod(temporary, 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._file(name))

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def exists(self) -> bool:
        """Whether a run is there."""
        return os.path.exists(self._file("run.json"))

    @property
    def ended(self) -> bool:
        """Whether all rounds were made and the clients had time to fetch the last weights."""
        return os.path.exists(self._file("ended"))

    def end(self) -> None:
        """Notes that the run has ended."""
        with open(self._file("ended"), "wb"):
            pass

    def lock(self, name: str = "serving") -> contextlib.AbstractContextManager[None]:
        """Keeps other processes out of a `with` block. What serves a run has another lock than the
        rounds, which may be in a process of their own.

        Raises:
            StorageError: another process is in.
        """
        what = "another process serves the run of this folder"
        return locked(self._file(f"{name}.lock"), what, "Stop it, or give another folder.")

    def create(self, settings: Settings, weights: Values) -> None:
        """Writes settings and first weights.

        Raises:
            InputError: there is a run already. StorageError: another process is beginning one.
        """
        os.makedirs(self.path, exist_ok=True)
        with self.lock():  # two that begin at once would mix their settings
            if self.exists:
                raise InputError("there is a run already", self.path, "Add --resume, or remove it.")
            first = {
                n: (FLOAT, x.shape, np.ascontiguousarray(x).tobytes()) for n, x in weights.items()
            }
            save_safetensors(first, self._file("initial.safetensors"))
            text = json.dumps({"format": FORMAT, **asdict(settings)}, indent=1)
            self._replace("run.json", text + "\n")

    def settings(self) -> Settings:
        """The settings.

        Raises:
            ModelError, InputError: there is no run, or its file is damaged.
        """
        if not self.exists:
            raise InputError("there is no run", self.path, "Start one with `edgewise federate`.")
        with open(self._file("run.json"), "rb") as file:
            fields = parse_json(file.read(), self._file("run.json"))
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ModelError("it is not the settings of a run", self._file("run.json"))
        return Settings(**fields)

    def state(self) -> State:
        """The state after the last round that was written.

        Raises:
            ModelError: a file is damaged.
        """
        path = self._file("state.safetensors")
        if not os.path.exists(path):
            return State(0, self._arrays("initial.safetensors")[0][""], {})
        parts, metadata = self._arrays("state.safetensors")
        weights = parts.pop("weights", {})
        if not weights or not metadata.get("round", "").isdigit():
            raise ModelError("it is not the state of a run", path)
        return State(int(metadata["round"]), weights, parts)

    def state_number(self) -> int:
        """The last round that was written."""
        path = self._file("state.safetensors")
        if not os.path.exists(path):
            return 0
        _, metadata = load_safetensors(path)
        return int(metadata["round"])

    def budget(self) -> tuple[int, bool]:
        """(rounds with noise that have begun, whether the budget has ended the run)."""
        path = self._file("privacy.json")
        if not os.path.exists(path):
            return 0, False
        with open(path, "rb") as file:
            fields = parse_json(file.read(), path)
        begun = fields.get("begun") if isinstance(fields, dict) else None
        if type(begun) is not int or begun < 0:
            raise ModelError("it is not the budget of a run", path)
        return begun, fields.get("ended") is True

    def spend(self, begun: int, ended: bool = False) -> None:
        """Writes how many rounds with noise have begun: before one begins, since a process that is
        killed may have published its result.
        """
        self._replace("privacy.json", json.dumps({"begun": begun, "ended": ended}))

    def barred(self) -> dict[str, str]:
        """{SHA-256 of a ticket: why its client was shut out}."""
        path = self._file("barred.json")
        if not os.path.exists(path):
            return {}
        with open(path, "rb") as file:
            fields = parse_json(file.read(), path)
        if not isinstance(fields, dict) or not all(isinstance(x, str) for x in fields.values()):
            raise ModelError("it does not say which clients were shut out", path)
        return fields

    def bar(self, barred: Mapping[str, str]) -> None:
        """Writes who was shut out: before the state, so that a killed run keeps it."""
        self._replace("barred.json", json.dumps(dict(barred)))

    def lines(self) -> list[dict[str, Any]]:
        """The complete lines of rounds.jsonl, the last one of each round."""
        found: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(FileNotFoundError), open(self._file("rounds.jsonl"), "rb") as file:
            for text in file:
                with contextlib.suppress(ValueError):
                    line = json.loads(text)
                    if text.endswith(b"\n") and type(line) is dict and "round" in line:
                        found[line["round"]] = line
        return [found[number] for number in sorted(found)]

    def _arrays(self, name: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """{part: {name: array}} of a file whose names are PART//NAME."""
        with open(self._file(name), "rb") as file:
            tensors, metadata = load_safetensors(file.read())
        parts: dict[str, dict[str, Any]] = {}
        for key, t in tensors.items():
            part, _, own = key.rpartition("//")
            parts.setdefault(part, {})[own] = np.frombuffer(t.bytes(), NUMPY[t.dtype]).reshape(
                t.shape
            )
        return parts, metadata

    def save(self, state: State, schema: Schema, lora: Mapping[str, Any] | None) -> None:
        """Writes the state, and the weights for users."""
        tensors = {
            f"{part}//{n}": (DOUBLE, x.shape, np.ascontiguousarray(x, np.float64).tobytes())
            for part, arrays in {"weights": state.arrays, **state.parts}.items()
            for n, x in arrays.items()
        }
        weights = {
            n: (FLOAT, shape, np.ascontiguousarray(state.arrays[n], np.float32).tobytes())
            for n, shape in schema.shapes.items()
        }
        save_safetensors(weights, self._file("weights.safetensors"))
        if lora is not None:
            config = LoraConfig.from_dict(dict(lora), "run.json")
            save_adapter(Adapter.of(config, weights), self._file("adapter"))
        save_safetensors(tensors, self._file("state.safetensors"), {"round": str(state.number)})

    def log(self, line: Mapping[str, Any]) -> None:
        """Adds a line to rounds.jsonl, in the place of one that a killed process began."""
        with open(self._file("rounds.jsonl"), "a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(line).encode() + b"\n")
