"""Text generation on a page's GPU."""

import re

import pytest

from ..conftest import Visit, edit_package, greedy
from ..loading import error, load
from ..test_kept import conversations

GPU = {"device": "webgpu"}


COUNTS = """() => {
    if (!globalThis.GPUDevice) return;
    globalThis.counts = { buffers: 0, submits: 0, maps: 0, bytes: 0 };
    const count = (type, name, what) => {
      const original = type.prototype[name];
      type.prototype[name] = function (...all) {
        counts[what]++;
        if (what === "maps") counts.bytes += all[2];
        return original.apply(this, all);
      };
    };
    count(GPUDevice, "createBuffer", "buffers");
    count(GPUQueue, "submit", "submits");
    count(GPUBuffer, "mapAsync", "maps");
    const { now } = performance;
    let clock = 0;
    performance.now = () => (clock += 0.001); // as a fast GPU: several tokens are read at once
    globalThis.uncount = () => (performance.now = now);
}"""
OPEN = "window[arg.device] = await ew.pipeline('text-generation', '/files/gpu.edge', arg)"
GENERATED = """
    const fields = { max_new_tokens: 26, do_sample: false, ...arg.fields };
    const [{ generated_text }] = await window[arg.on](arg.prompt ?? "Once", fields);
    return generated_text;
"""
FIELDS = (
    ("Once", {}),
    ("Once", {"do_sample": True, "top_k": 20, "seed": 3, "max_new_tokens": 6}),
    ("Once upon a time", {"num_beams": 2, "max_new_tokens": 4}),
)


@pytest.fixture(scope="module")
def both(gpu_browser, server, gpu_files):
    """A page with the pipelines `wasm` and `webgpu`, for several tests: a GPU in software takes
    longer to compile the shaders than to run them. The last test takes the GPU away.
    """
    context = gpu_browser.new_context()
    one = Visit(context, server + "/files/blank.html").start()
    for device in ("wasm", "webgpu"):
        assert one.run(OPEN, {"device": device, "threads": 1}) is None
    one.workers = list(one.page.workers)
    yield one
    one.close()
    context.close()


def in_workers(visit, *script):
    """What a script returns in the workers of both pipelines."""
    return [worker.evaluate(*script) for worker in visit.workers]


def test_formats(both):
    """A device that chooses tokens gives its logits where a format restricts them."""
    form = {"type": "regex", "regex": "[A-Z][a-z]{2,8}( [a-z]{1,7}){2,3}\\."}
    arg = {"prompt": "Once upon a time", "fields": {"response_format": form}}
    texts = [both.run(GENERATED, {"on": on, **arg}) for on in ("wasm", "webgpu")]
    assert texts[0] == texts[1]
    assert re.fullmatch(form["regex"], texts[0].removeprefix("Once upon a time"))


def test_memory_of_the_gpu_that_could_not_be_allocated(both):
    """A token waits for the answer whether there was memory for the caches of its sequence."""
    in_workers(
        both,
        """() => {
            const pop = globalThis.GPUDevice?.prototype.popErrorScope;
            if (!pop) return;
            GPUDevice.prototype.popErrorScope = async function () {
              await pop.call(this);
              await new Promise((resolve) => setTimeout(resolve, 1000));
              return new GPUOutOfMemoryError("as if");
            };
            globalThis.restore = () => (GPUDevice.prototype.popErrorScope = pop);
        }""",
    )
    two = "{max_new_tokens: 2, do_sample: true, num_return_sequences: 2}"
    for _ in range(2):  # the first caches are made with the model, and those that failed not kept
        e = error(both.run(f"return await webgpu('Once', {two})"), "OutOfMemory")
        assert "of the GPU" in e["what"]
    in_workers(both, "() => void globalThis.restore?.()")


def test_tokens_are_those_of_wasm(both):
    """Greedy, sampled and of beams, also after calls that failed. No GPUBuffer after loading, few
    submits and maps, few bytes.
    """
    in_workers(both, COUNTS)
    texts, counts = [], []
    for prompt, fields in FIELDS:
        arg = {"prompt": prompt, "fields": fields}
        texts.append([both.run(GENERATED, {**arg, "on": on}) for on in ("webgpu", "wasm")])
        found = in_workers(both, "() => globalThis.counts")
        counts += [{**c} for c in found if c and c["submits"]]
    in_workers(both, "() => void globalThis.uncount?.()")
    device, other = both.run("return [webgpu.info.device, wasm.info.device]")
    assert device["name"] == "webgpu" and device["gpu"]["adapter"] and other["name"] == "wasm"
    assert device["gpu"]["pipelines"] > 5 and device["gpu"]["onWasm"] == {}
    plain = greedy(both, "/files/model.edge", {"device": "wasm"}, "Once", max_new_tokens=26)
    assert all(on_gpu == on_wasm for on_gpu, on_wasm in texts) and texts[0][0] == plain["text"]
    assert all(text.startswith("Once ") for text, _ in texts) and len({t for t, _ in texts}) == 3

    first, second = counts[:2]
    assert first["buffers"] == second["buffers"] == 0
    assert first["maps"] <= 6 and first["submits"] <= 12 and first["bytes"] <= 26 * 12
    assert second["maps"] - first["maps"] <= 6
    assert second["bytes"] - first["bytes"] <= 6 * (2048 + 8)


LOSE = """(left) => {
    const encode = globalThis.GPUDevice?.prototype.createCommandEncoder;
    if (encode && !globalThis.original) globalThis.original = encode;
    if (encode)
      GPUDevice.prototype.createCommandEncoder = function (...all) {
        if (--left === 0 || left < -1000) this.destroy(); // as when the driver is restarted
        return original.apply(this, all);
      };
}"""


def test_a_lost_gpu(both):
    """Generation goes on with the tokens that it has: on a new device, then in WebAssembly."""
    sampled = {"do_sample": True, "top_k": 20, "seed": 3, "max_new_tokens": 8}
    for fields, left, name in (({"max_new_tokens": 12}, 12, "webgpu"), (sampled, -1000, "wasm")):
        in_workers(both, LOSE, left)
        on_gpu, on_wasm = (
            both.run(GENERATED, {"fields": fields, "on": on}) for on in ("webgpu", "wasm")
        )
        assert on_gpu == on_wasm
        device = both.run("return webgpu.info.device")
        assert device["name"] == name, device
    assert "the GPU was lost" in device["why"]


def test_a_package_without_plans_for_a_gpu(gpu_visit):
    e = error(load(gpu_visit, "/files/model.edge", device="webgpu"), "PackageError")
    assert "--target webgpu" in e["remedy"]


def test_a_gpu_in_software_is_taken_only_where_it_is_asked_for(gpu_visit):
    got = load(gpu_visit, "/files/gpu.edge", executionProviders=["webgpu", "wasm"])
    device = got["info"]["device"]
    assert device["name"] == "wasm" and "in software" in device["why"]


def test_plans_whose_values_lie_in_the_arena(gpu_visit, gpu_files):
    """A package for the processor that says that it is for a GPU."""

    def as_if(manifest):
        manifest["target"] = "webgpu"

    data = (gpu_files / "model.edge").read_bytes()
    (gpu_files / "mislabelled.edge").write_bytes(edit_package(data, as_if))
    got = greedy(gpu_visit, "/files/mislabelled.edge", GPU)
    assert "error" not in got, got
    assert "arena" in " ".join(got["info"]["device"]["gpu"]["onWasm"].values())
    assert got["ids"] == greedy(gpu_visit, "/files/model.edge", {"device": "wasm"})["ids"]


@pytest.mark.slow("browser/webgpu/test_sessions.py::test_a_session")
def test_a_model_compiled_in_the_page(gpu_visit):
    first = greedy(gpu_visit, "/demo/model/", {"dtype": "q4", **GPU}, max_new_tokens=4)
    assert "error" not in first, first
    assert first["info"]["origin"] == "compiled"
    assert first["info"]["device"]["name"] == "webgpu"
    again = greedy(gpu_visit, "/demo/model/", {"dtype": "q4", **GPU}, max_new_tokens=4)
    assert again["info"]["origin"] == "cache" and again["ids"] == first["ids"]


def test_damaged_weights_are_noticed(gpu_visit, gpu_files):
    data = (gpu_files / "gpu.edge").read_bytes()

    def other_sum(manifest):
        sums = max(manifest["weights"], key=lambda w: w["bytes"])["sums"]
        sums[-1] = "0" * 16

    (gpu_files / "gpu-damaged.edge").write_bytes(edit_package(data, other_sum))
    e = error(load(gpu_visit, "/files/gpu-damaged.edge", device="webgpu"), "PackageError")
    assert "do not match their checksum" in e["what"]


def test_without_an_adapter(visit, server, gpu_files):
    one = visit(server)
    e = error(load(one, "/files/gpu.edge", device="webgpu"), "EngineError")
    assert "GPU" in e["what"] and "'wasm'" in e["remedy"]
    got = load(one, "/files/gpu.edge", executionProviders=["webgpu", "wasm"])
    assert got["info"]["device"]["name"] == "wasm" and "GPU" in got["info"]["device"]["why"]


@pytest.mark.slow("test_a_gpu_in_software_is_taken_only_where_it_is_asked_for")
def test_auto_takes_no_gpu_in_software(gpu_visit):
    got = load(gpu_visit, "/files/gpu.edge", device="auto")["info"]["device"]
    why = got["why"]  # on a machine under load, opening it may take longer than is waited for
    assert got["name"] == "wasm" and ("in software" in why or "no measurement" in why)
    cpu = load(gpu_visit, "/files/model.edge", device="auto")["info"]["device"]
    assert cpu["name"] == "wasm" and "packages" in cpu["why"]


def test_conversations(gpu_visit):
    """States that are kept of earlier prompts, on the GPU."""
    conversations(gpu_visit, "/files/gpu.edge", 4096, GPU, count=3, least=128, tokens=3)
