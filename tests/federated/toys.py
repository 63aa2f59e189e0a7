"""Clients without a model: client k adds a fixed difference to every parameter."""

import threading
import time

import numpy as np
from edgewise.errors import Aborted
from edgewise.extras.federated.client import FederatedClient, Trained
from edgewise.extras.federated.codec import Schema

SHAPES = {"m.lora_A.weight": (4, 6), "m.lora_B.weight": (5, 4), "dense": (3, 50)}
SCHEMA = Schema.of(SHAPES)
BIG = Schema.of({"dense": (300, 1000)})
PATIENCE = 240.0  # seconds after which what must happen has not: on a loaded machine it takes long


def random_values(seed, schema=SCHEMA, scale=1.0):
    rng = np.random.default_rng(seed)
    return {
        n: (scale * rng.standard_normal(s)).astype(np.float32) for n, s in schema.shapes.items()
    }


class Toy:
    """Training that takes `seconds` and adds random_values of (k, round)."""

    schema, settings = SCHEMA, ("proximal-mu", "part")

    def __init__(self, k, seconds=0.0, scale=1.0):
        self.k, self.seconds, self.scale, self.calls = k, seconds, scale, 0

    def change(self, number):
        return random_values(1000 * self.k + number, scale=self.scale)

    def train(self, weights, config, seed, number, stop):
        self.calls += 1
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            if stop():
                raise Aborted("too late")
            time.sleep(0.01)
        change = self.change(number)
        values = {n: w + change[n] for n, w in weights.items()}
        return Trained(values, 10 * (self.k + 1), 3, {"loss": 1.0 / number})


class Running:
    """A client in a thread."""

    def __init__(self, url, training, **options):
        self.client = FederatedClient(url, training, attempts=50, **options)
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.client.run()
        except Exception as e:
            self.error = e

    def end(self):
        self.client.leave()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def wait_for(condition, seconds=PATIENCE):
    """Waits until condition() is true; returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
    return value
