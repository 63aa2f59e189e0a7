"""What federated rounds must hold at scale. Minutes; not part of `make test`.

    make goals                   # all
    make goals GOALS="idle kills"

dropouts: 100 clients, of which 30 vanish in each round, in five phases.
idle: 1,000 connected clients without a task: the hub's memory, and how soon a task reaches them.
kills: clients and servers that are killed 50 times end with the bits of a run that was not.
learning: 20 clients whose texts differ, beside one trainer with all texts and as many steps.
learning-b: the same, of LoRA's matrices B alone.
attacks: a fifth of 20 clients attack a small classifier: what strategies let through.

A result is a line of a table. The exit status is 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

from tests.federated import environment  # noqa: E402, F401, I001
import numpy as np  # noqa: E402
from edgewise.extras.federated.codec import Schema  # noqa: E402
from edgewise.extras.federated.run_folder import RunFolder  # noqa: E402
from edgewise.extras.federated.settings import Settings  # noqa: E402

LORA = {f"layer{k}.lora_A.weight": (8, 970) for k in range(21)}
LORA |= {f"layer{k}.lora_B.weight": (970, 8) for k in range(21)}
LARGE = Schema.of(LORA)  # 325,920 numbers
ROUND = Schema.of({f"layer{k}.lora_A.weight": (8, 969) for k in range(21)})  # 162,792 numbers
ALONE = Path(__file__).with_name("serve_alone.py")
KILLS = 50


class Table:
    """Lines of results, and whether all limits are kept."""

    def __init__(self) -> None:
        self.kept = True

    def add(self, goal: str, value: float, limit: float | None, unit: str, more: str = "") -> None:
        good = limit is None or value <= limit
        self.kept &= good
        most = "" if limit is None else f"{limit:g} {unit}"
        mark = "" if good else " (exceeded)"
        print(f"| {goal} | {value:.3g} {unit}{mark} | {most} | {more} |", flush=True)


def client_of(url: str, k: int, folder: str | None, seconds: float, schema: Schema = ROUND):
    """A client that adds a fixed difference."""
    from edgewise.extras.federated.client import FederatedClient

    from tests.federated.toys import Toy, random_values

    class Adding(Toy):
        @functools.cache  # noqa: B019
        def change(self, number):
            return random_values(1000 * self.k + number, schema, 0.01)

    toy = Adding(k, seconds)
    toy.schema = schema
    return FederatedClient(url, toy, name=f"toy {k}", folder=folder, attempts=500)


def clients_in_processes(url: str, count: int, processes: int = 2) -> list[subprocess.Popen]:
    """Threads of processes of their own, so that their work does not count as the hub's."""
    parts = [range(count)[k::processes] for k in range(processes)]
    return [part_process(url, part) for part in parts]


def part_process(url: str, part, folder: str = "", seconds: float = 0.0) -> subprocess.Popen:
    given = [json.dumps({"url": url, "part": list(part), "folder": folder, "seconds": seconds})]
    return subprocess.Popen([sys.executable, __file__, "--clients", *given])


def run_clients(text: str) -> None:
    """The main function of such a process."""
    given = json.loads(text)
    threads = []
    for k in given["part"]:
        folder = f"{given['folder']}/{k}" if given["folder"] else None
        client = client_of(given["url"], k, folder, given["seconds"])
        threads.append(threading.Thread(target=client.run, daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join()


# ---- 100 clients, 30 of which vanish in each round


class Vanishing:
    """Clients that end in a phase of each round, and are replaced."""

    PHASES = ("before", "download", "training", "upload", "after")

    def __init__(self, url: str, count: int) -> None:
        from tests.federated.toys import random_values

        self.url, self.ended = url, False
        self.change = random_values(1, ROUND, 0.01)
        for k in range(count):
            threading.Thread(target=self._again, args=(self.PHASES[k % 5],), daemon=True).start()

    def _again(self, phase: str) -> None:
        from websockets.exceptions import ConnectionClosed

        while not self.ended:
            try:
                self._once(phase)
            except (ConnectionClosed, OSError, TimeoutError):
                time.sleep(0.05)

    def _once(self, phase: str) -> None:
        from tests.federated.raw import Raw

        client = Raw(self.url, ROUND)
        try:
            task = self._task(client)
            if phase == "download":
                client.send("fetch", run=task["run"], round=task["round"], offset=0)
            elif phase == "training":
                client.send("progress", run=task["run"], round=task["round"], step=1, steps=2)
            elif phase != "before":
                data = client.file(task, self.change)
                if phase == "upload":
                    client.announce(task, data)
                    client.receive("ack")
                else:
                    client.upload(task, data)
        finally:
            client.socket.socket.close()

    def _task(self, client) -> dict:
        while not self.ended:
            try:
                return client.receive("task")
            except TimeoutError:
                continue
        raise TimeoutError


def dropouts(table: Table, folder: Path) -> None:
    from tests.federated.serving import Server
    from tests.federated.toys import random_values, wait_for

    set_identity()
    grace, rounds = 1.0, 5
    fields = {"rounds": rounds, "clients": 60, "grace": grace, "deadline": 120.0, "codec": "int4"}
    server = Server(folder / "run", random_values(0, ROUND), **fields)
    processes = clients_in_processes(server.url, 70)
    vanishing = subprocess.Popen([sys.executable, __file__, "--vanishing", server.url])
    wait_for(lambda: len(server.hub.nodes()) == 100, 120)
    server.start(len(server.hub.nodes()), 120)
    server.thread.join(600)
    vanishing.kill()
    vanishing.wait()
    _, log = server.end(600)
    for process in processes:
        process.wait(60)
    over = [line["seconds"] - grace for line in log]
    counted = [line["participants"] for line in log]
    asked = [line["participants"] + line["refused"] for line in log]
    words = f"{rounds} rounds asked {asked}, counted {counted}; grace of {grace:g} s not included"
    table.add("100 clients, 30 vanish: mean overhead of a round", np.mean(over), 2, "s", words)
    table.add("the same: longest round", max(over), None, "s")
    if min(counted) < 70:
        table.add("the same: clients that stayed and did not count", 70 - min(counted), 0, "")


def set_identity() -> None:
    """What Flower sets within `flwr run`."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = 1


# ---- 1,000 clients without a task


def idle(table: Table, folder: Path, count: int = 1000) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    command = [sys.executable, __file__, "--hub", str(count)]
    hub = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert hub.stdin and hub.stdout
    port, empty = json.loads(hub.stdout.readline())
    arrived = asyncio.run(_idle_clients(f"ws://127.0.0.1:{port}", count, hub))
    memory, processor, told = json.loads(hub.stdout.readline())
    hub.wait(30)
    late = np.sort(np.array(arrived) - told)
    words = f"{memory - empty:.0f} MB above the hub without clients"
    table.add(f"{count:,} idle clients: memory of the hub", memory, 300, "MB", words)
    table.add("the same: processor time of one core", 100 * processor, 5, "%", "over 20 s")
    words = f"median {np.median(late):.2f} s; all tasks are given at once"
    table.add("the same: a task arrives, 99th percentile", late[int(0.99 * count)], 1, "s", words)


async def _idle_clients(url: str, count: int, hub: subprocess.Popen) -> list[float]:
    from edgewise.extras.federated.protocol import encode
    from edgewise.logic.federated.tasks import SUBPROTOCOL
    from websockets.asyncio.client import connect

    hello = encode("hello", protocols=[1], schema=ROUND.sha256, codecs=["int4"])
    arrived: list[float] = []
    slots = asyncio.Semaphore(50)
    there = itertools.count(1)
    ready, over = asyncio.Event(), asyncio.Event()

    async def one() -> None:
        async with slots:
            socket = await connect(url, subprotocols=[SUBPROTOCOL], compression=None)
            await socket.send(hello)
            await socket.recv()
            if next(there) == count:
                ready.set()
        while json.loads(await socket.recv())["kind"] != "task":
            pass
        arrived.append(time.monotonic())
        if len(arrived) == count:
            over.set()
        await over.wait()  # what closing takes is no part of the delivery
        await socket.close()

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    await ready.wait()
    assert hub.stdin
    print("measure", file=hub.stdin, flush=True)
    await asyncio.gather(*tasks)
    return arrived


def run_hub(count: int) -> None:
    """A hub whose memory and time are measured: its own process."""
    from edgewise.extras.federated.broadcast import Broadcast
    from edgewise.extras.federated.hub import Hub, HubOptions
    from edgewise.extras.federated.sessions import Task

    from tests.federated.toys import random_values, wait_for

    base = Broadcast(ROUND, "int4", "run").next(random_values(0, ROUND), 1)
    with Hub(ROUND, "int4", HubOptions(port=0)) as hub:
        print(json.dumps([hub.port, resident()]), flush=True)
        sys.stdin.readline()
        wait_for(lambda: len(hub.nodes()) == count, 60)
        begun, used = time.monotonic(), time.process_time()
        time.sleep(20)
        share = (time.process_time() - used) / (time.monotonic() - begun)
        memory, told = resident(), time.monotonic()
        for node in hub.nodes():
            hub.assign(node, Task("run", 1, base, "int4", {}, 7, 60.0, count))
        wait_for(lambda: not any(s.socket for s in list(hub.sessions.values())), 60)
        print(json.dumps([memory, share, told]), flush=True)


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


# ---- kills


def kills(table: Table, folder: Path) -> None:
    """The server, with Flower's strategy in its process, and clients, at random moments."""
    from edgewise.extras.federated.launch import free_port

    from tests.federated.toys import random_values

    weights = random_values(0, ROUND)
    fields = {"clients": 3, "run": "same", "codec": "int4", "deadline": 60.0}
    states, done = {}, {}
    for name in ("whole", "killed"):
        run, port = RunFolder(folder / name), free_port()
        run.create(Settings(port=port, rounds=40, **fields), weights)
        begun = time.monotonic()
        done[name] = _play_with_kills(run, port, folder / f"{name} clients", name == "killed")
        seconds = time.monotonic() - begun
        states[name] = run.state()
    same = all(np.array_equal(states["whole"].arrays[n], states["killed"].arrays[n]) for n in LORA
               if n in ROUND.shapes)  # fmt: skip
    words = f"{done['killed']}, in {seconds:.0f} s and 40 rounds of 4 bits"
    table.add(f"{KILLS} kills: runs with other bits", 0 if same else 1, 0, "", words)
    missing = KILLS - sum(done["killed"].values())
    table.add("the same: kills for which the run was too short", missing, 0, "")


def _play_with_kills(run: RunFolder, port: int, states: Path, kill: bool) -> dict[str, int]:
    moments = random.Random(3)
    url = f"ws://127.0.0.1:{port}"

    def start(name: str) -> subprocess.Popen:
        if name == "server":
            return subprocess.Popen([sys.executable, ALONE, run.path])
        return part_process(url, [int(name.split()[1])], str(states), 0.1)

    names = ["server", "client 0", "client 1", "client 2"]
    processes = {name: start(name) for name in names}
    counts = dict.fromkeys(names, 0)
    left = KILLS if kill else 0
    while not run.ended:
        time.sleep(moments.uniform(0.05, 2.0) if left else 0.1)
        if left and not run.ended:
            name = moments.choice(names)
            processes[name].kill()
            processes[name].wait()
            counts[name] += 1
            left -= 1
        for name, process in processes.items():
            if process.poll() not in (None, 0) and not run.ended:
                processes[name] = start(name)
    for process in processes.values():
        process.wait(60)
    return counts


# ---- learning


def texts_of(clients: int, topics: int = 8) -> tuple[list[list[str]], list[str]]:
    """Non-IID texts: parts of the longest topics of Python's documentation, in shares of a
    Dirichlet distribution (0.3); and held-out parts of all.
    """
    from pydoc_data.topics import topics as known

    rng = np.random.default_rng(0)
    parts: list[list[str]] = [[] for _ in range(clients)]
    held = []
    for text in sorted(known.values(), key=len, reverse=True)[:topics]:
        text = text[:24_000]
        pieces = [text[at : at + 600] for at in range(0, len(text), 600)]
        held += pieces[::10]
        rest = [p for i, p in enumerate(pieces) if i % 10]
        shares = rng.dirichlet([0.3] * clients)
        for piece in rest:
            parts[rng.choice(clients, p=shares)].append(piece)
    for part in parts:  # nobody has nothing
        if not part:
            part.append(max(parts, key=len).pop())
    return parts, held


# Batches have one row: an optimizer that goes on, or momentum, takes noise out of the mean. The
# mean of many is shorter than a step of one, whose learning rate is 4e-3.
KEEP = {"strategy": "fedavg", "keep_optimizer": True, "schedule": "cooldown"}
MOMENTUM = {"strategy": "fedavgm", "momentum": 0.5, "schedule": "cosine"}
RECIPES: dict[str | None, dict[str, Any]] = {
    None: {"learning_rate": 20e-3, **KEEP},
    "B": {"learning_rate": 12e-3, **MOMENTUM},
}


def learning(table: Table, folder: Path, part: str | None = None, rounds: int = 30) -> None:
    from edgewise import LoraConfig, Trainer
    from edgewise.extras.federated.client import FederatedClient
    from edgewise.extras.federated.local_training import LocalTraining

    from tests.federated.serving import Server

    set_identity()
    count, steps = 20, 5
    parts, held = texts_of(count)
    options = {"batch_size": 1, "sequence_length": 64, "learning_rate": 4e-3}
    trainer = Trainer(ROOT / "web/demo/model", adapters=LoraConfig(r=8, lora_alpha=16), **options)
    lock = threading.Lock()

    class Shared(LocalTraining):
        """All clients have the same trainer, one after the other."""

        def train(self, *given):
            with lock:
                return super().train(*given)

    own = [Shared(trainer, part) for part in parts]
    first = own[0].weights()
    before = own[0].evaluate(first, held)
    fields = {"rounds": rounds, "clients": count, "steps": steps, "codec": "int4"}
    fields |= {"uniform": True, **RECIPES[part]}
    server = Server(folder / "run", first, deadline=1200.0, part=part, **fields)
    clients = [FederatedClient(server.url, one, name=str(k)) for k, one in enumerate(own)]
    threads = [threading.Thread(target=c.run, daemon=True) for c in clients]
    for thread in threads:
        thread.start()
    server.start(count, 120)
    arrays, _ = server.end(3600)
    for thread in threads:
        thread.join(60)
    after = own[0].evaluate(arrays, held)
    trainer.free()
    # the best of the schedules and learning rates that were tried
    trainer = Trainer(
        ROOT / "web/demo/model",
        adapters=LoraConfig(r=8, lora_alpha=16),
        schedule="cosine",
        **options,
    )
    trainer.fit([t for part in parts for t in part], max_steps=count * steps * rounds, epochs=1000,
                progress=False)  # fmt: skip
    central = trainer.evaluate(held)
    share = 100 * (before - after) / (before - central)
    words = f"held-out loss {before:.3f} before, {after:.3f} after, {central:.3f} of one trainer"
    which = "A and B" if part is None else part
    table.add(f"20 clients, {rounds} rounds, {which}: not gained", 100 - share, 10, "%", words)
    up = clients[0].sent_bytes / rounds / 1e3
    down = clients[0].received_bytes / (rounds + 1) / 1e3
    table.add("the same: sent in a round", up, 85, "kB", "LoRA r = 8, 4 bits")
    table.add("the same: received in a round", down, None, "kB", "with the first weights")


def learning_b(table: Table, folder: Path) -> None:
    learning(table, folder, "B")


def attacks(table: Table, folder: Path) -> None:
    from tests.federated.attacks.experiment import measure

    set_identity()
    measure(table, folder)


GOALS = {"dropouts": dropouts, "idle": idle, "kills": kills, "learning": learning}
GOALS |= {"learning-b": learning_b, "attacks": attacks}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("goals", nargs="*", default=list(GOALS))
    parser.add_argument("--clients", help=argparse.SUPPRESS)
    parser.add_argument("--vanishing", help=argparse.SUPPRESS)
    parser.add_argument("--hub", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.vanishing:
        Vanishing(args.vanishing, 30)
        threading.Event().wait()
    if args.clients or args.hub:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        run_clients(args.clients) if args.clients else run_hub(args.hub)
        return 0
    import flwr.serverapp  # noqa: F401 (sets the level)

    logging.getLogger("flwr").setLevel(logging.ERROR)  # else Flower's lines tear the table apart
    print("| goal | measured | at most | |\n|---|---|---|---|", flush=True)
    table = Table()
    for name in args.goals:
        with tempfile.TemporaryDirectory() as folder:
            GOALS[name](table, Path(folder))
    return 0 if table.kept else 1


if __name__ == "__main__":
    sys.exit(main())
