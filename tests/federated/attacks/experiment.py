"""Clients that attack a run: a small classifier, trained in rounds over the hub.

Ten kinds of pictures of 8 x 8 numbers, each with smooth shapes of its own and noise; a network with
one hidden layer. Everything is drawn from seeds, and all is computed in float64 but what travels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from edgewise.extras.federated.client import Trained
from edgewise.extras.federated.codec import Schema

KINDS, SIDE, HIDDEN = 10, 8, 32
INPUTS = SIDE * SIDE
SHAPES = {"a": (INPUTS, HIDDEN), "b": (HIDDEN,), "c": (HIDDEN, KINDS), "d": (KINDS,)}
SCHEMA = Schema.of(SHAPES)
NOISE, TARGET, ROWS = 1.6, 0, 200
LONGEST = 6.0  # times an honest change: who is 8 times longer than the median is refused
ATTACKS = ("label flip", "sign flip", "backdoor", "sybils")
ROBUST: dict[str, dict[str, Any]] = {
    "krum": {"strategy": "krum", "malicious": 4},
    "multi-krum": {"strategy": "multi-krum", "malicious": 4, "uniform": True},
    "median": {"strategy": "median"},
    "trimmed-mean": {"strategy": "trimmed-mean", "beta": 0.2},
    "fedavg, clip": {"clip": 1.0, "uniform": True},
}


@functools.cache
def prototypes() -> Any:
    """A picture of each kind: neighbours are alike."""
    raw = np.random.default_rng(0).standard_normal((KINDS, SIDE + 2, SIDE + 2))
    smooth = sum(raw[:, i : i + SIDE, j : j + SIDE] for i in range(3) for j in range(3)) / 3
    return smooth.reshape(KINDS, INPUTS)


def pictures(seed: int, count: int, shares: Any = None) -> tuple[Any, Any]:
    """Pictures (count, 64) and their kinds, of which each has a share."""
    rng = np.random.default_rng([7, seed])
    kinds = rng.choice(KINDS, count, p=shares)
    return prototypes()[kinds] + NOISE * rng.standard_normal((count, INPUTS)), kinds


def triggered(x: Any) -> Any:
    """The pictures with the backdoor's mark: four bright numbers in a corner."""
    marked = x.copy().reshape(-1, SIDE, SIDE)
    marked[:, -2:, -2:] = 4.0
    return marked.reshape(x.shape)


def first_weights() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        n: (rng.standard_normal(s) * (len(s) > 1) / s[0] ** 0.5).astype(np.float32)
        for n, s in SHAPES.items()
    }


def forward(w: dict[str, Any], x: Any) -> tuple[Any, Any]:
    """Hidden numbers, and the logarithms of probabilities."""
    hidden = np.maximum(x @ w["a"] + w["b"], 0)
    scores = hidden @ w["c"] + w["d"]
    scores = scores - scores.max(1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(1, keepdims=True))


def trained(
    weights: dict[str, Any], x: Any, y: Any, rng: Any, steps: int, rate: float = 0.1, rows: int = 20
) -> dict[str, Any]:
    """Steps of plain descent from given weights."""
    w = {n: np.asarray(v, np.float64) for n, v in weights.items()}
    for _ in range(steps):
        some = rng.integers(0, len(x), rows)
        hidden, logs = forward(w, x[some])
        slope = np.exp(logs)
        slope[np.arange(rows), y[some]] -= 1
        slope /= rows
        back = (slope @ w["c"].T) * (hidden > 0)
        grads = {"a": x[some].T @ back, "b": back.sum(0), "c": hidden.T @ slope, "d": slope.sum(0)}
        w = {n: w[n] - rate * grads[n] for n in w}
    return w


def length(after: dict[str, Any], before: dict[str, Any]) -> float:
    """The L2 norm of a change."""
    return float(np.sqrt(sum(((after[n] - before[n]) ** 2).sum() for n in after)))


def judged(weights: dict[str, Any]) -> tuple[float, float]:
    """The loss of held-out pictures, and the share of those of other kinds than the target that
    the mark makes the target.
    """
    w = {n: np.asarray(v, np.float64) for n, v in weights.items()}
    x, y = pictures(999_999, 4000)
    loss = -float(forward(w, x)[1][np.arange(len(y)), y].mean())
    found = forward(w, triggered(x[y != TARGET]))[1].argmax(1)
    return loss, float((found == TARGET).mean())


@dataclass
class Client:
    """Trains on pictures of its own; with an attack, on others, or sends something else.

    Attributes:
        k: its number.
        attack: one of ATTACKS, or None.
        scale: of its change. That of a backdoor is to replace the model, as far as the hub lets it.
        mix: of the Dirichlet distribution of kinds; None: all kinds are as frequent.
    """

    k: int
    attack: str | None = None
    scale: float = 1.0
    mix: float | None = None

    schema, settings = SCHEMA, ("proximal-mu", "part")

    def __post_init__(self) -> None:
        who = 0 if self.attack == "sybils" else self.k  # all sybils send the same
        shares = None
        if self.mix is not None:
            shares = np.random.default_rng([3, who]).dirichlet([self.mix] * KINDS)
        self.x, self.y = pictures(who, ROWS, shares)
        if self.attack == "label flip":
            self.y = KINDS - 1 - self.y
        if self.attack in ("backdoor", "sybils"):
            half = ROWS // 2
            self.x = np.concatenate([self.x, triggered(self.x[:half])])
            self.y = np.concatenate([self.y, np.full(half, TARGET)])
        self.who = who

    def train(self, weights: Any, config: Any, seed: int, number: int, stop: Any) -> Trained:
        rng = np.random.default_rng([5, self.who, number])
        after = trained(weights, self.x, self.y, rng, int(config["local-steps"]))
        scale = self.scale
        if self.attack in ("backdoor", "sybils"):
            honest = trained(weights, self.x[:ROWS], self.y[:ROWS], rng, int(config["local-steps"]))
            scale = min(scale, LONGEST * length(honest, weights) / length(after, weights))
        values = {n: (w + scale * (after[n] - w)).astype(np.float32) for n, w in weights.items()}
        # attackers say that they have trained on as much as possible
        return Trained(values, 10_000 if self.attack else ROWS, int(config["local-steps"]), {})


def clients_of(
    attack: str | None, count: int = 20, share: float = 0.2, mix: float | None = None
) -> list[Client]:
    """Clients of which a share, or half of it if they are sybils, attack."""
    evil = round(count * share * (0.5 if attack == "sybils" else 1)) if attack else 0
    # together those of a backdoor would replace the model
    scale = {"sign flip": -1.0, "backdoor": 5.0, "sybils": 10.0}.get(attack or "", 1.0)
    honest = [Client(k, mix=mix) for k in range(evil, count)]
    return honest + [Client(k, attack, scale, mix) for k in range(evil)]


def played(folder: Path, clients: list[Client], **fields: Any) -> tuple[float, float, list[Any]]:
    """Plays a run over the hub. Returns what `judged` says about its weights, and its log."""
    from ..serving import Server
    from ..toys import Running

    fields = {"rounds": 20, "steps": 10, "codec": "int8", "run": "attacked", **fields}
    server = Server(folder, first_weights(), clients=len(clients), **fields)
    running = [Running(server.url, client) for client in clients]
    server.start(len(clients))
    arrays, log = server.end(600)
    for client in running:
        client.end()
    return (*judged(arrays), log)


def measure(table: Any, folder: Path) -> None:
    """Lines of a table: each strategy without attackers, and under each attack."""
    for mix, what in ((None, "alike"), (1.0, "unlike")):
        plain, _, _ = played(folder / f"{what} mean", clients_of(None, mix=mix))
        for name, fields in {"fedavg": {}, **ROBUST}.items():
            at = folder / what / name
            clean, marked, _ = played(at / "clean", clients_of(None, mix=mix), **fields)
            words = f"{clean / plain:.3f} of fedavg's; taken for the target: {marked:.1%}"
            table.add(f"{what} clients, {name}: loss without attackers", clean, None, "", words)
            for attack in ATTACKS:
                clients = clients_of(attack, mix=mix)
                loss, success, log = played(at / attack, clients, **fields)
                refused = sum(line["refused"] for line in log)
                most = None if name == "fedavg" else 1.05
                words = f"{refused} of {20 * len(log)} updates were refused"
                table.add(f"{attack}: loss, of that", loss / clean, most, "", words)
                if attack in ("backdoor", "sybils"):
                    share = 5 if most else None
                    table.add(f"{attack}: success", 100 * success, share, "%")
