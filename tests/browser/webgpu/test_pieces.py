"""Launches that run in pieces on a page's GPU, with a wait for each: the same bits as in one
dispatch.
"""

import re

import pytest

from ..conftest import greedy
from ..training.harness import TEXT
from .test_limits import SESSION
from .test_sessions import sessions  # noqa: F401
from .test_training import TUNE, trainable  # noqa: F401

# The bound at first, and no other one: each wait seems to take as long as it should.
STEADY = """
const now = performance.now.bind(performance);
let later = 0;
performance.now = () => now() + later;
const done = GPUQueue.prototype.onSubmittedWorkDone;
globalThis.waits = 0;
GPUQueue.prototype.onSubmittedWorkDone = async function () {
  globalThis.waits++;
  await done.call(this);
  later += 50;
};
"""


@pytest.fixture
def in_pieces(gpu_visit):
    """Has workers that are made from now on give their GPU so many operations at once."""

    def begin(bound):
        def change(route):
            answer = route.fetch()
            body, found = re.subn(r"\b5e8\b", str(bound), answer.text())
            assert found == 1
            route.fulfill(response=answer, body=STEADY + body)

        gpu_visit.page.route("**/worker-webgpu.js", change)

    return begin


def test_a_session(gpu_visit, sessions, in_pieces):  # noqa: F811
    keep = SESSION.replace("const s =", "const s = globalThis.kept =")
    whole = gpu_visit.run(keep, {"device": "webgpu"})
    before = set(gpu_visit.page.workers)
    in_pieces(1)
    pieces = gpu_visit.run(keep, {"device": "webgpu", "runs": 2})
    assert "error" not in pieces, pieces["error"]
    assert pieces["y"] == whole["y"] and pieces["device"]["gpu"]["onWasm"] == {}
    new = [worker for worker in gpu_visit.page.workers if worker not in before]
    assert max(worker.evaluate("() => globalThis.waits ?? 0") for worker in new) > 20


def test_tokens(gpu_visit, in_pieces):
    whole = greedy(gpu_visit, "/files/gpu.edge", {"device": "webgpu"})
    in_pieces(20_000)
    pieces = greedy(gpu_visit, "/files/gpu.edge", {"device": "webgpu"})
    assert pieces["ids"] == whole["ids"] and pieces["info"]["device"]["name"] == "webgpu"


def test_training(gpu_visit, in_pieces, trainable):  # noqa: F811
    whole = gpu_visit.run(TUNE, {"text": TEXT, "device": "webgpu"})
    in_pieces(50_000)
    pieces = gpu_visit.run(
        TUNE.replace("name: device", "name: 'p'"), {"text": TEXT, "device": "webgpu"}
    )
    assert "error" not in pieces, pieces["error"]["message"]
    assert pieces["info"]["device"]["name"] == "webgpu"
    for what in ("losses", "evaluations", "texts"):
        assert pieces[what] == whole[what], what
