"""The client of pages, in Node, in one secure sum with native clients."""

import pytest

pytest.importorskip("websockets")
pytest.importorskip("flwr")

import json
import os
import subprocess
from pathlib import Path

import numpy as np
from edgewise.extras.federated.client_secure import ClientTerms
from edgewise.federated.secure.identity import Authority, Identity, encoded
from edgewise.logic.federated.budget import epsilon_of

from ..environment import FOLDER
from ..serving import WEIGHTS, Server
from ..serving import identity as flower  # noqa: F401 (a fixture)
from ..toys import PATIENCE, Running, Toy

ROOT = Path(__file__).parents[3]
ESBUILD = ROOT / "web/node_modules/.bin/esbuild"
PYTHON = FOLDER / "bin/python"


class Same(Toy):
    """Adds what the page adds."""

    def change(self, number):
        return {n: np.full(x.shape, 0.01, np.float32) for n, x in WEIGHTS.items()}


@pytest.mark.skipif(
    not (ESBUILD.exists() and PYTHON.exists()),
    reason="make .build/stamp/node .build/stamp/venv-federated",
)
@pytest.mark.usefixtures("flower")
def test_pages_and_native_clients_are_one_sum(tmp_path):
    script = tmp_path / "take-part.mjs"
    source = ROOT / "web/test/federated/take-part.ts"
    options = ["--bundle", "--platform=node", "--format=esm", "--log-level=error"]
    subprocess.run([ESBUILD, source, *options, f"--outfile={script}"], check=True)
    key = tmp_path / "authority.key"
    authority = Authority.load(key)
    fields = {"secure": True, "codec": "int8", "clip": 1.0, "noise": 0.5, "noise_by": "clients"}
    fields["deadline"] = PATIENCE
    server = Server(
        tmp_path / "run", clients=4, rounds=2, authority=encoded(authority.public), **fields
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    arguments = [encoded(authority.public), PYTHON, key]
    pages = [
        subprocess.Popen(
            ["node", "--experimental-websocket", script, server.url, f"page-{k}", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in range(2)
    ]
    natives = []
    for k in range(2):
        private = bytes([k]) * 32
        known = authority.certify(Identity(private).public, f"native-{k}")
        terms = ClientTerms(4, "required", authority.public, 50.0)
        natives.append(Running(server.url, Same(k), terms=terms, identity=Identity(private, known)))
    server.start(4)
    _, log = server.end()
    server.hub.stop = lambda: None
    outputs = [page.communicate(timeout=PATIENCE) for page in pages]
    for client in natives:
        client.end()
    assert [line["participants"] for line in log] == [4, 4], (log, outputs)
    for out, _ in outputs:
        entries = json.loads(out.strip().split("\n")[-1])
        assert [(e["codec"], e["members"], e["noise"]) for e in entries] == [("masked", 4, 0.5)] * 2
        spent = [epsilon_of([0.5]), epsilon_of([0.5] * 2)]
        assert [e["epsilon"] for e in entries] == pytest.approx(spent, abs=1e-6)
        assert {e["sha256"] for e in entries} <= {d for line in log for d in line["digests"]}
    # clip 1, noise 0.5 of three at least in the sum of four
    for number in (1, 2):
        before, after = server.states[number - 1], server.states[number]
        moved = np.concatenate([(after[n] - before[n]).ravel() for n in before])
        assert (
            abs(moved.mean() - 0.01) < 0.05 and 0.8 < moved.std() / (0.5 * (4 / 3) ** 0.5 / 4) < 1.2
        )
