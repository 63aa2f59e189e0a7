"""The settings of a run of rounds."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import Any

from ...errors import InputError
from ...logic.federated.layout import CODECS, LEVELS
from ...logic.federated.plan import MAX, MAX_MEMBERS, MIN, MIN_MEMBERS
from .secure.crypto import SEED
from .secure.identity import decoded
from .secure.privacy import MIN_DRAWN, Privacy

SCHEDULES = ("constant", "cosine", "cooldown")
KRUM = ("krum", "multi-krum")
ROBUST = (*KRUM, "median", "trimmed-mean")
STRATEGIES = ("fedavg", "fedavgm", "fedadam", "fedprox", *ROBUST)
LONGEST = 1e9  # seconds that clients take for a deadline
FAREWELL = 30.0  # seconds in which clients may fetch the last weights


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
        keep_optimizer: clients go on with the optimizer of their last round.
        learning_rate: of the local training; None: the client's.
        codec: of updates and of the differences that clients fetch.
        clip: see verify.Rules.
        examples: maximum weight of an update.
        uniform: all updates have the same weight.
        deadline: seconds of a round.
        malicious: krum, multi-krum: number of clients that may be hostile.
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
        schedule: of the local learning rate over the rounds: "constant", "cosine" (half a cosine
            wave from `learning_rate` down to a tenth of it), or "cooldown" (`learning_rate`, and in
            the last two fifths of the rounds linearly down to a twentieth of it).
    """

    run: str = field(default_factory=lambda: secrets.token_hex(8))
    strategy: str = "fedavg"
    rounds: int = 10
    clients: int = 2
    fraction: float = 1.0
    steps: int = 10
    keep_optimizer: bool = False
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
            "group": MIN_MEMBERS <= self.group <= MAX_MEMBERS,
            "stage": 0 < self.stage < LONGEST,
            "noise": 0 <= self.noise < math.inf,
            "noise_by": self.noise_by in ("server", "clients"),
            "epsilon": self.epsilon is None or self.epsilon > 0,
            "delta": 0 < self.delta < 1,
            "part": self.part in (None, "B"),
            "port": 0 <= self.port < 1 << 16,
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
            given = {"trimmed-mean": "beta"}.get(self.strategy, "least")
            given = "malicious" if self.strategy in KRUM else given
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
                self.secure and self.clients < MIN_MEMBERS,
                "clients",
                f"a secure sum has at least {MIN_MEMBERS} members",
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
                bool(self.noise) and self.noise_by == "clients" and not MIN <= self.noise <= MAX,
                "noise",
                f"that of clients is {MIN:g} to {MAX:g} times the clip",
            ),
            (
                self.sites and bool(self.secure or self.noise),
                "sites",
                "secure sums and noise are of a hub's own clients",
            ),
            (self.epsilon is not None and not self.noise, "epsilon", "it needs noise"),
            (
                0 < self.noise < MIN_DRAWN and self.fraction < 1 and self.noise_by == "server",
                "noise",
                f"with clients drawn at random it is at least {MIN_DRAWN}",
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
        return self.strategy in ROBUST

    @property
    def _robust(self) -> int:
        """Replies that the strategy needs."""
        robust = {
            **dict.fromkeys(KRUM, 2 * self.malicious + 3),
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
