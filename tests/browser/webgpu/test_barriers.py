"""A page's GPU runs the shaders of GPUs that are none in software: with barriers, and with steps
that take results of the products before them.
"""

import json
import re
import shutil

import pytest
from bench import models
from edgewise.compiler.compile import compile_package
from edgewise.compiler.gpu.tuned import tunings
from edgewise.compiler.targets import target_named
from edgewise.host.session.open import folder_files

from tests.gpu.printed import Printed
from tests.gpu.test_arenas import ForeignEngine
from tests.gpu.test_programs import plans_of

from ..conftest import MODEL, greedy

SHAPE = {"layers": 1, "width": 128, "heads": 2, "kv_heads": 1, "head_dim": 64, "inner": 32}
# before the worker asks for the adapter
HARDWARE = """
Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false });
"""


@pytest.fixture(scope="module")
def one_layer(gpu_files, tmp_path_factory):
    """/files/one-layer.edge: a model of the vocabulary of the demo's, with a plan for one token."""
    folder = tmp_path_factory.mktemp("models") / "one"
    shutil.copytree(MODEL, folder, ignore=shutil.ignore_patterns("onnx"))
    model = models.language_model(**{**models.SMOLLM2, **SHAPE, "vocab": 4096})
    path = folder / "model.onnx"
    path.write_bytes(models.in_4_bits(model).SerializeToString())
    files, _ = folder_files(path)
    made = compile_package(
        files, capacity=32, chunks=(1,), model_file=path.name, target=target_named("webgpu")
    )
    with (gpu_files / "one-layer.edge").open("wb") as out:
        made.write(out)
    return Printed(ForeignEngine(threads=1).load(plans_of(models.in_4_bits(model), chunks=(1,))[0]))


def before_the_worker(route):
    answer = route.fetch()
    route.fulfill(response=answer, body=HARDWARE + answer.text())


def test_tokens_are_those_of_wasm(gpu_visit, one_layer):
    launches = [x for x in one_layer.launches if x is not None]
    assert any(x.takers == 3 for x in launches) and any(x.chain for x in launches)

    gpu_visit.page.context.route("**/worker.js", before_the_worker)
    on_gpu, on_wasm = (
        greedy(gpu_visit, "/files/one-layer.edge", {"device": device}, max_new_tokens=6)
        for device in ("webgpu", "wasm")
    )
    assert on_gpu["ids"] == on_wasm["ids"] and len(on_gpu["ids"]) == 5 + 6  # with the prompt
    assert on_gpu["info"]["device"]["name"] == "webgpu"
    assert not gpu_visit.asked("worker-webgpu-serial.js")


KEPT = """
    const root = await navigator.storage.getDirectory();
    const folder = await (await root.getDirectoryHandle("edgewise")).getDirectoryHandle("gpu");
    for await (const [name, file] of folder.entries())
      if (name.startsWith("tuned-")) {
        if (arg) {
          const to = await file.createWritable();
          await to.write(JSON.stringify(arg));
          await to.close();
        }
        return JSON.parse(await (await file.getFile()).text());
      }
"""


def test_tunables_are_chosen(gpu_visit, one_layer):
    """Before the first plan with their kernels. Each visit keeps what it had time for, at least one
    more; what is kept is used.
    """
    gpu_visit.page.context.route("**/worker.js", before_the_worker)
    values = {t.name: t.values for t in tunings()}

    def visit():
        got = greedy(gpu_visit, "/files/one-layer.edge", {"device": "webgpu"}, max_new_tokens=2)
        return got["ids"], got["info"]["device"]["gpu"]["tuned"]

    kept = {}
    while len(kept) < len(values):
        ids, tuned = visit()
        before, kept = kept, gpu_visit.run(KEPT)
        assert kept.keys() > before.keys() and before.items() <= kept.items()
        assert list(tuned) == list(values) and kept.items() <= tuned.items()
        assert all(value in values[name] for name, value in kept.items())
        assert all(tuned[name] == values[name][0] for name in tuned.keys() - kept.keys())
    last = {name: of[-1] for name, of in values.items()}
    assert gpu_visit.run(KEPT, last) == last
    assert visit() == (ids, last)


def test_a_report_has_each_variant(gpu_visit):
    """All that there is time for, beside the engine's results; also one that a compiler refuses."""

    def refused(route):
        answer = route.fetch()
        text = re.sub(r"(rows_of_a: ?array<)vec4f", r"\1vec5f", answer.text())
        assert text != answer.text()
        route.fulfill(response=answer, body=text)

    gpu_visit.page.context.route("**/worker-webgpu.js", refused)
    gpu_visit.page.context.route("**/worker.js", before_the_worker)
    report = json.loads(
        gpu_visit.run("return JSON.stringify(await ew.gpuReport({ threads: 1, seconds: 15 }))")
    )
    names = [f"{t.name} {value}" for t in tunings() for value in t.values]
    found = [one["name"] for one in report["variants"]]
    assert found == [name for name in names if name.split()[0] not in report["left"]]
    assert found[0].endswith(" 0") and report["variants"][0]["ms"] > 0
    tried = [one for one in report["variants"] if not one["refused"]]
    assert all(one["right"] and one["difference"] is not None for one in tried), tried
    assert all(one["ms"] > 0 for one in tried), tried
    assert {"TILE 32", "TILE 64"} == set(found) - {one["name"] for one in tried}
    assert report["test"] and report["dispatch_us"] > 0  # which read what is computed after that
    for name in {name.split()[0] for name in found}:
        ours = [one for one in report["variants"] if one["name"].split()[0] == name]
        (chosen,) = (one["name"] for one in ours if one["chosen"])
        assert chosen == f"{name} {report['tuned'][name]}"  # with which cases are measured
