"""The report on a GPU: its results beside the engine's, and measurements."""

import json

from .test_limits import before_the_worker
from .test_self_test import BROKEN

MAKE = """
    const told = [];
    const on_progress = ({ done, total, name }) => told.push([done, total, name]);
    const report = await ew.gpuReport({ threads: 1, seconds: arg, on_progress });
    return JSON.stringify({ report, told });
"""


def test_a_report(gpu_visit):
    """Each part is begun with a word, and no measurement after the given time."""
    found = json.loads(gpu_visit.run(MAKE, 20))
    report, told = found["report"], found["told"]
    assert [done for done, _, _ in told] == list(range(told[0][1]))
    assert report["test"] and all(one["right"] for one in report["test"]), report["test"]
    assert report["cases"] and all(one["right"] for one in report["cases"]), report["cases"]
    assert len(report["cases"]) + len(report["left"]) == told[0][1] - 2
    assert set(report["left"].values()) <= {"there was no time for it"}
    assert all(one["gpu_ms"] > 0 and one["wasm_ms"] > 0 for one in report["cases"])
    assert report["adapter"]["software"] in (True, False) and report["adapter"]["limits"]
    assert report["variants"] == []  # it is one in software, which has other shaders
    assert report["dispatch_us"] > 0 and report["read_ms"] > 0 and report["growth"] == 0


def test_a_gpu_that_computes_wrongly_is_reported(gpu_visit):
    before_the_worker(gpu_visit, BROKEN, "worker-webgpu.js")
    report = json.loads(gpu_visit.run(MAKE, 0.001))["report"]
    wrong = {one["name"] for one in report["test"] if not one["right"]}
    assert "RMSNormalization" in wrong and "Gather" not in wrong
    assert not report["cases"] and report["left"]


def test_a_report_can_be_stopped(gpu_visit):
    name = gpu_visit.run("""
        const controller = new AbortController();
        const on_progress = ({ done }) => done === 1 && controller.abort();
        return ew.gpuReport({ threads: 1, signal: controller.signal, on_progress })
          .catch((e) => e.name);
    """)
    assert name == "Aborted"
    assert gpu_visit.run("return ew.gpuReport({ seconds: 0 }).catch((e) => e.where)") == (
        "options.seconds"
    )
