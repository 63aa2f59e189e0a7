"""The rounds of a folder in a thread of the test's process."""

import json
import threading

import pytest
from edgewise.extras.federated.codec import Schema
from edgewise.extras.federated.hub import Hub
from edgewise.extras.federated.rounds import hub_options, play
from edgewise.extras.federated.run_folder import RunFolder
from edgewise.extras.federated.settings import Settings
from flwr.supercore.task_identity import TaskIdentity

from .toys import PATIENCE, random_values, wait_for

WEIGHTS = random_values(0)


@pytest.fixture
def identity(monkeypatch):
    """Within `flwr run` Flower sets what a Message reads."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, "_" + name, 1)


class Server:
    """Keeps the weights after each round, and the updates that counted."""

    def __init__(self, folder, weights=WEIGHTS, **fields):
        self.folder = RunFolder(folder)
        if not self.folder.exists:
            settings = Settings(**{"codec": "float32", "port": 0, "deadline": PATIENCE, **fields})
            self.folder.create(settings, weights)
        self.settings, self.state = self.folder.settings(), self.folder.state()
        self.schema = Schema.of({n: x.shape for n, x in self.state.arrays.items()})
        options, part = hub_options(self.settings), self.settings.part
        self.hub = Hub(self.schema, self.settings.codec, options, part=part).start()
        self.url = f"ws://127.0.0.1:{self.hub.port}"
        self.thread = threading.Thread(target=self._play, daemon=True)
        self.states = {self.state.number: self.state.arrays}
        self.outcomes = {}  # by round
        assign = self.hub.assign_all

        def kept(tasks):
            outcomes = assign(tasks)
            for node, outcome in outcomes.items():
                self.outcomes.setdefault(tasks[node].number, []).append(outcome)
            return outcomes

        self.hub.assign_all = kept

    def start(self, clients):
        """Begins the rounds when so many clients are there."""
        wait_for(lambda: len(self.hub.nodes()) == clients)
        self.thread.start()

    def _play(self):
        save = self.folder.save

        def kept(state, *rest):
            self.states[state.number] = state.arrays
            save(state, *rest)

        self.folder.save = kept
        play(self.hub, self.folder, self.settings, self.state, self.schema)

    def end(self, seconds=PATIENCE):
        """Waits for the end; returns {name: weights} and the lines of the log."""
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        self.hub.stop()
        with open(self.folder._file("rounds.jsonl")) as file:
            return self.folder.state().arrays, [json.loads(line) for line in file]
