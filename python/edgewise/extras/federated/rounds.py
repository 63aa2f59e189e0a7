"""The rounds of a run: a Flower strategy over the hub's clients, within a ServerApp."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower

from .admission import HubOptions
from .audit import Auditor
from .broadcast import Broadcast
from .codec import Schema
from .grid import TabGrid
from .hub import Hub
from .last import Last
from .private_grid import PrivateGrid, Secure
from .run_folder import RunFolder, State
from .secure.crypto import SEED
from .secure.identity import decoded
from .secure.suspects import Suspects
from .settings import FAREWELL, Settings
from .site_grid import SiteGrid, give_last
from .verify import Rules

ORPHANS_END = 15.0  # seconds in which Flower's processes notice that their parent is gone
LAST_RATE = {"cosine": 0.1, "cooldown": 0.05}  # of schedules, as shares of the first one
COOLDOWN = 0.4  # share of the rounds, the last ones


class Momentum(flower.FedAvg):
    """FedAvgM (https://arxiv.org/abs/1909.06335): each round the weights go on by the mean change
    and `momentum` times the step before: m = momentum * m + mean - w; w = w + m.

    The same as Flower's FedAvgM with a server learning rate of 1, but for its state: m_t has names,
    so that it can be written, and does not depend on the order of a reply's arrays.

    Args:
        momentum: 0: FedAvg.
        options: of FedAvg.
    """

    def __init__(self, momentum: float, **options: Any) -> None:
        super().__init__(**options)
        self.momentum = momentum
        self.m_t: dict[str, Any] | None = None
        self._sent: dict[str, Any] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Any:
        self._sent = {n: array.numpy() for n, array in arrays.items()}
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        mean, metrics = super().aggregate_train(server_round, replies)
        if mean is None:  # the round does not count
            return mean, metrics
        last = self.m_t or {n: np.zeros_like(w) for n, w in self._sent.items()}
        self.m_t = {
            n: self.momentum * last[n] + (mean[n].numpy() - w) for n, w in self._sent.items()
        }
        after = {n: Array(np.asarray(w + self.m_t[n])) for n, w in self._sent.items()}
        return ArrayRecord(after), metrics


class MultiKrum(flower.MultiKrum):
    """Flower's Multi-Krum (https://arxiv.org/abs/1703.02757): the mean of all updates of a round
    but the `num_malicious_nodes` that are farthest from their neighbours.
    """

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        replies = list(replies)
        there = sum(not reply.has_error() for reply in replies)
        self.num_nodes_to_select = max(1, there - self.num_malicious_nodes)
        return super().aggregate_train(server_round, replies)


def strategy_of(settings: Settings, first: int = 0) -> Any:
    """The Flower strategy that settings name.

    Args:
        settings: of the run.
        first: rounds that were made before; the strategy's numbers of rounds follow them.
    """
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "fedavg": (flower.FedAvg, {}),
        "fedavgm": (Momentum, {"momentum": settings.momentum}),
        "fedadam": (flower.FedAdam, {"eta": settings.server_learning_rate}),
        "fedprox": (flower.FedProx, {"proximal_mu": settings.mu}),
        "krum": (flower.Krum, {"num_malicious_nodes": settings.malicious}),
        "multi-krum": (MultiKrum, {"num_malicious_nodes": settings.malicious}),
        "median": (flower.FedMedian, {}),
        "trimmed-mean": (flower.FedTrimmedAvg, {"beta": settings.beta}),
    }
    kind, own = kinds[settings.strategy]

    class Later(kind):  # type: ignore[misc, valid-type]
        """Flower counts the rounds of each `start` from 1."""

        def configure_train(
            self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
        ) -> Any:
            number = server_round + first
            if (rate := rate_of(settings, number)) is not None:
                config["learning-rate"] = rate
            return super().configure_train(number, arrays, config, grid)

        def aggregate_train(self, server_round: int, *rest: Any, **named: Any) -> Any:
            return super().aggregate_train(server_round + first, *rest, **named)

    draws = settings.noise > 0 and settings.noise_by == "server"  # then PrivateGrid draws
    common: dict[str, Any] = {
        "fraction_train": 1.0 if draws else settings.fraction,
        "fraction_evaluate": 0.0,
        "min_train_nodes": settings.clients,
        "min_available_nodes": settings.clients,
    }
    return Later(**own, **common)


def hub_options(settings: Settings) -> HubOptions:
    """The hub's options of a run, with what clients are told about it."""
    authority = None
    if settings.authority is not None:
        authority = decoded(settings.authority, SEED, "authority")
    return HubOptions(
        settings.host,
        settings.port,
        None if settings.origins is None else tuple(settings.origins),
        None if settings.tickets is None else frozenset(settings.tickets),
        grace=settings.grace,
        terms={
            "run": settings.run,
            "rounds": settings.rounds,
            "clients": settings.clients,
            "lora": settings.lora,
            "secureAggregation": settings.secure,
            "privacy": settings.privacy and settings.privacy.told(math.inf),
        },
        secure=settings.secure,
        authority=authority,
    )


def train_config(settings: Settings) -> ConfigRecord:
    """What clients get with each task."""
    keeps = {"keep-optimizer": 1} if settings.keep_optimizer else {}
    return ConfigRecord({"local-steps": settings.steps, **keeps})


def rate_of(settings: Settings, number: int) -> float | None:
    """The learning rate of the local training in a round; None: the client's own."""
    rate = settings.learning_rate
    if rate is None or settings.schedule == "constant":
        return rate
    done, last = min(1.0, (number - 1) / max(1, settings.rounds - 1)), LAST_RATE[settings.schedule]
    if settings.schedule == "cosine":
        high = (1 + math.cos(math.pi * done)) / 2
    else:  # https://arxiv.org/abs/2405.18392
        high = min(1.0, (1 - done) / COOLDOWN)
    return rate * (last + (1 - last) * high)


def run_rounds(path: str, grid: Grid | None = None) -> None:
    """Runs the remaining rounds of a run folder, and gives its clients the last weights. Called
    within a Flower ServerApp, whose grid is for runs with sites.

    Raises:
        EdgewiseError: the folder is damaged, another process makes its rounds, or the hub's address
            cannot be used.
    """
    folder = RunFolder(path)
    settings = folder.settings()
    secret, part = bytes.fromhex(settings.secret), settings.part
    # another process may be writing a state that is read here, or is ending: its server was killed
    with folder.lock("rounds", ORPHANS_END):
        folder.clean()
        state = folder.state()
        over = state.number >= settings.rounds or folder.budget()[1]
        if over and folder.ended:
            return
        schema = Schema.of({n: x.shape for n, x in state.arrays.items()})
        if settings.sites and grid is not None:
            play_sites(grid, folder, settings, state, schema)
            return
        with Hub(schema, settings.codec, hub_options(settings), secret, part) as hub:
            play(hub, folder, settings, state, schema)


def play(hub: Hub, folder: RunFolder, settings: Settings, state: State, schema: Schema) -> None:
    """Runs the rounds after a state; writes the state after each. Then clients get the last
    weights.
    """
    first = state.number
    frozen = {n: x for n, x in state.arrays.items() if n not in hub.changing.shapes}
    broadcast = Broadcast(schema, settings.codec, settings.run, settings.part, frozen)
    if "base" in state.parts:
        broadcast.restore(state.parts["base"], first)
    lines: list[dict[str, Any]] = []  # of the log, until the round's state is written
    count = affordable(folder, settings, settings.rounds - first)
    auditor = None
    if settings.audit is not None:
        auditor = Auditor.of(settings.audit, bytes.fromhex(settings.secret))
    suspects = Suspects()
    # without tickets, clients have other numbers after a resume
    barred = suspects.out if settings.secure and settings.tickets else hub.barred
    barred.update(folder.barred())

    def note(line: dict[str, Any]) -> None:
        if barred:
            folder.bar(barred)
        lines.append(line)

    grid = grid_of(hub, broadcast, folder, settings, note, auditor, suspects)

    def base() -> dict[str, Any]:
        return {} if broadcast.base is None else {"base": broadcast.base.values}

    config = train_config(settings)
    try:
        newest = make_rounds(folder, settings, state, schema, grid, count, lines, base, config)
    finally:
        if auditor is not None:
            auditor.close()
    if count < settings.rounds - first:
        folder.spend(folder.budget()[0], ended=True)
    following = first + count + 1
    hub.publish(Last(settings.run, following, broadcast.next(newest, following)), FAREWELL)
    folder.end()


def make_rounds(
    folder: RunFolder,
    settings: Settings,
    state: State,
    schema: Schema,
    grid: Grid,
    count: int,
    lines: list[dict[str, Any]],
    base: Callable[[], dict[str, Any]],
    config: ConfigRecord,
) -> dict[str, Any]:
    """Runs `count` rounds after a state with the strategy of the settings.

    Args:
        folder, settings, state, schema: of the run.
        grid: asks the clients, or the sites.
        count: of rounds.
        lines: of the log, which the grid adds; they are written after the state of their round.
        base: the state's part of the weights that clients have.
        config: settings that clients get with each task.

    Returns:
        The last weights, {name: array of float64}.
    """
    strategy, first, newest = strategy_of(settings, state.number), state.number, state.arrays
    for part in ("m", "v"):  # v: of FedAdam alone
        if part in state.parts:
            setattr(strategy, f"{part}_t", state.parts[part])

    def after(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        nonlocal newest
        if number:
            newest = {**state.arrays, **{n: array.numpy() for n, array in arrays.items()}}
            parts = base()
            for part in ("m", "v"):  # None until a round has counted updates
                if getattr(strategy, f"{part}_t", None):
                    parts[part] = getattr(strategy, f"{part}_t")
            folder.save(State(first + number, newest, parts), schema, settings.lora)
        while lines:
            folder.log(lines.pop(0))
        return None

    if count:
        changing = schema.part(settings.part).shapes
        initial = {n: Array(np.asarray(state.arrays[n], np.float64)) for n in changing}
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(initial),
            num_rounds=count,
            timeout=settings.deadline,
            train_config=config,
            evaluate_fn=after,
        )
    return newest


def play_sites(
    grid: Grid, folder: RunFolder, settings: Settings, state: State, schema: Schema
) -> None:
    """As `play`, but the clients are Flower's nodes, each a site with tabs of its own."""
    lines: list[dict[str, Any]] = []
    common = {"run": settings.run, "seed": settings.seed}
    asked = {**train_config(settings), **common, "seconds": 0.9 * settings.deadline}
    count = settings.rounds - state.number
    sites = SiteGrid(grid, schema, settings.clip, lines.append, settings.needed)
    config = ConfigRecord(asked)
    newest = make_rounds(folder, settings, state, schema, sites, count, lines, dict, config)
    arrays = ArrayRecord({n: Array(np.asarray(x, np.float64)) for n, x in newest.items()})
    give_last(grid, arrays, {**common, "server-round": settings.rounds + 1, "seconds": FAREWELL})
    folder.end()


def affordable(folder: RunFolder, settings: Settings, rounds: int) -> int:
    """Of the next rounds, those for which the privacy budget is enough."""
    if settings.privacy is None:
        return rounds
    begun, _ = folder.budget()
    return max(0, settings.privacy.affordable(begun + rounds) - begun)


def grid_of(
    hub: Hub,
    broadcast: Broadcast,
    folder: RunFolder,
    settings: Settings,
    on_round: Callable[[dict[str, Any]], object],
    auditor: Auditor | None = None,
    suspects: Suspects | None = None,
) -> TabGrid:
    """The grid that settings need."""
    rules = Rules(settings.clip, settings.examples, settings.uniform, settings.needed)
    common = (hub, broadcast, rules, settings.deadline, settings.seed, on_round)
    if not settings.secure and not settings.noise:
        return TabGrid(*common, auditor)

    def begin() -> int:
        begun = folder.budget()[0] + 1
        folder.spend(begun)
        return begun

    return PrivateGrid(
        *common,
        secure=Secure(settings.group, settings.stage) if settings.secure else None,
        privacy=settings.privacy,
        population=settings.clients,
        begin=begin,
        suspects=suspects,
    )
