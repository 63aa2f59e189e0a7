"""Many clients, of which some vanish in every phase; servers and clients that are killed."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from edgewise.extras.federated.launch import free_port
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.settings import Settings

from .raw import Raw
from .serving import WEIGHTS, Server, identity  # noqa: F401 (a fixture)
from .test_flower import finish, mean_of_round, ulps
from .toys import PATIENCE, SCHEMA, Running, Toy, random_values, wait_for

SCRIPT = Path(__file__).with_name("serve_alone.py")


def vanish(url, phase, joined):
    """A client that ends in a phase of its first task. joined: gets the phase after the welcome."""
    client = Raw(url, SCHEMA)
    joined.append(phase)
    if phase != "before":
        task = client.receive("task")
        if phase == "download":
            client.send("fetch", run=task["run"], round=task["round"], offset=0)
        if phase == "training":
            client.send("progress", run=task["run"], round=task["round"], step=1, steps=2)
        if phase == "upload":
            client.announce(task, client.file(task, random_values(1)))
            client.receive("ack")
    client.socket.socket.close() if phase == "training" else client.close()


@pytest.mark.usefixtures("identity")
def test_a_third_of_many_clients_vanish(tmp_path):
    """28 clients stay, 12 vanish in four phases: rounds end without them, and means are exact."""
    toys = [Toy(k) for k in range(28)]
    fields = {"rounds": 2, "clients": 20, "grace": 0.5, "deadline": PATIENCE}
    server = Server(tmp_path / "run", **fields)
    clients = [Running(server.url, toy) for toy in toys]
    wait_for(lambda: len(server.hub.nodes()) == len(toys))
    phases, joined = ["before", "download", "training", "upload"] * 3, []
    threads = [threading.Thread(target=vanish, args=(server.url, p, joined)) for p in phases]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(joined) == len(phases))  # who joins later would be asked in round 2
    begun = time.monotonic()
    server.start(len(server.hub.nodes()))
    _, log = server.end()
    assert time.monotonic() - begun < fields["deadline"]
    assert [line["participants"] for line in log] == [28, 28]
    assert log[0]["refused"] >= 9 and log[1]["refused"] == 0
    for number in (1, 2):
        expected = mean_of_round(server.states[number - 1], toys, number)
        assert ulps(server.states[number], expected) <= 1
    for client in clients:
        client.end()
    for thread in threads:
        thread.join(PATIENCE)


@pytest.mark.usefixtures("identity")
def test_killed_servers_end_with_the_same_bits(tmp_path):
    """A server that is killed at a random moment and started again, with the same three clients."""
    toys = [Toy(k, seconds=0.1) for k in range(3)]
    fields = {"rounds": 4, "clients": 3, "run": "same", "codec": "int4", "deadline": PATIENCE}
    whole, _ = finish(Server(tmp_path / "whole", **fields), toys)
    port = free_port()
    folder = RunFolder(tmp_path / "killed")
    folder.create(Settings(port=port, **fields), WEIGHTS)
    url, states = f"ws://127.0.0.1:{port}", tmp_path / "clients"
    clients = [Running(url, t, folder=str(states / str(t.k))) for t in toys]
    moments = random.Random(7)
    for kill in (True, False):
        before = folder.state_number()
        process = subprocess.Popen([sys.executable, SCRIPT, folder.path])
        if kill:
            wait_for(lambda: folder.state_number() > before or process.poll() is not None)
            time.sleep(moments.uniform(0, 0.2))
            process.kill()
        assert process.wait(PATIENCE) == 0 or kill
    state = folder.state()
    assert state.number == 4
    assert all(np.array_equal(state.arrays[n], whole[n]) for n in whole)
    for client in clients:
        client.end()
