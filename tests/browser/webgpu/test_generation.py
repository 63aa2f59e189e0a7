"""Text generation on a page's GPU."""

from ..conftest import edit_package, greedy
from ..loading import error, load

GPU = {"device": "webgpu"}


def test_greedy_tokens_are_those_of_wasm(gpu_visit):
    on_gpu = greedy(gpu_visit, "/files/gpu.edge", GPU)
    assert "error" not in on_gpu, on_gpu
    device = on_gpu["info"]["device"]
    assert device["name"] == "webgpu" and device["gpu"]["adapter"]
    assert device["gpu"]["pipelines"] > 5 and device["gpu"]["onWasm"] == {}
    on_wasm = greedy(gpu_visit, "/files/gpu.edge", {"device": "wasm"})
    assert on_wasm["info"]["device"]["name"] == "wasm"
    plain = greedy(gpu_visit, "/files/model.edge", {"device": "wasm"})
    assert on_gpu["ids"] == on_wasm["ids"] == plain["ids"]


SAMPLED = """
    const p = await ew.pipeline("text-generation", "/files/gpu.edge", arg.options);
    const fields = { max_new_tokens: 8, do_sample: true, top_k: 20, seed: 7 };
    const [{ generated_text }] = await p("Once upon a time", fields);
    const beams = await p("One day", { max_new_tokens: 4, num_beams: 2, do_sample: false });
    await p.dispose();
    return [generated_text, beams[0].generated_text];
"""


def test_samples_and_beams_are_those_of_wasm(gpu_visit):
    texts = [gpu_visit.run(SAMPLED, {"options": {"device": d}}) for d in ("webgpu", "wasm")]
    assert texts[0] == texts[1] and len(texts[0][0]) > 20


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
    let clock = 0;
    performance.now = () => (clock += 0.001); // as a fast GPU: several tokens are read at once
}"""
GENERATED = """
    const fields = { max_new_tokens: 26, do_sample: false, ...arg.fields };
    const [{ generated_text }] = await p("Once", fields);
    return generated_text;
"""


def test_what_tokens_cost(gpu_visit):
    """No GPUBuffer after loading, few submits and maps, few bytes; and the tokens of wasm."""
    sampled = {"do_sample": True, "top_k": 20, "seed": 3, "max_new_tokens": 6}
    texts = []
    for device in ("wasm", "webgpu"):
        options = {"options": {"device": device, "threads": 1}}
        opened = "window.p = await ew.pipeline('text-generation', '/files/gpu.edge', arg.options)"
        gpu_visit.run(opened, options)
        for worker in gpu_visit.page.workers:
            worker.evaluate(COUNTS)
        counts = []
        for fields in ({}, sampled):
            texts.append(gpu_visit.run(GENERATED, {"fields": fields}))
            found = [w.evaluate("globalThis.counts") for w in gpu_visit.page.workers]
            counts += [c for c in found if c and c["submits"]]
        gpu_visit.run("await p.dispose()")
    assert texts[:2] == texts[2:]
    greedy, both = counts
    assert greedy["buffers"] == both["buffers"] == 0
    assert greedy["maps"] <= 6 and greedy["submits"] <= 12 and greedy["bytes"] <= 26 * 12
    assert both["maps"] - greedy["maps"] <= 6
    assert both["bytes"] - greedy["bytes"] <= 6 * (2048 + 8)


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


def test_memory_of_the_gpu_that_could_not_be_allocated(gpu_visit):
    """A token waits for the answer whether there was memory for the caches of its sequence."""
    gpu_visit.run(
        "const options = {device: 'webgpu', threads: 1};"
        "window.p = await ew.pipeline('text-generation', '/files/gpu.edge', options);"
    )
    for worker in gpu_visit.page.workers:
        worker.evaluate("""() => {
            const pop = globalThis.GPUDevice?.prototype.popErrorScope;
            if (pop)
              GPUDevice.prototype.popErrorScope = async function () {
                await pop.call(this);
                await new Promise((resolve) => setTimeout(resolve, 3000));
                return new GPUOutOfMemoryError("as if");
              };
        }""")
    two = "{max_new_tokens: 2, do_sample: true, num_return_sequences: 2}"
    for _ in range(2):  # the first caches are made with the model, and those that failed not kept
        e = error(gpu_visit.run(f"return await p('Once', {two})"), "OutOfMemory")
        assert "of the GPU" in e["what"]
    gpu_visit.run("await p.dispose()")


def test_a_model_compiled_in_the_page(gpu_visit):
    first = greedy(gpu_visit, "/demo/model/", {"dtype": "q4", **GPU})
    assert "error" not in first, first
    assert first["info"]["origin"] == "compiled"
    assert first["info"]["device"]["name"] == "webgpu"
    again = greedy(gpu_visit, "/demo/model/", {"dtype": "q4", **GPU})
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


def test_auto_takes_no_gpu_in_software(gpu_visit):
    got = load(gpu_visit, "/files/gpu.edge", device="auto")["info"]["device"]
    why = got["why"]  # on a machine under load, opening it may take longer than is waited for
    assert got["name"] == "wasm" and ("in software" in why or "no measurement" in why)
    cpu = load(gpu_visit, "/files/model.edge", device="auto")["info"]["device"]
    assert cpu["name"] == "wasm" and "packages" in cpu["why"]


LOSE = """(left) => {
    const encode = globalThis.GPUDevice?.prototype.createCommandEncoder;
    if (encode && !globalThis.original) globalThis.original = encode;
    if (encode)
      GPUDevice.prototype.createCommandEncoder = function (...all) {
        if (--left === 0 || left < -1000) this.destroy(); // as when the driver is restarted
        return original.apply(this, all);
      };
}"""


def test_a_lost_gpu(gpu_visit):
    """Generation goes on with the tokens that it has: on a new device, then in WebAssembly."""
    opened = "window.p = await ew.pipeline('text-generation', '/files/gpu.edge', arg.options)"
    sampled = {"do_sample": True, "top_k": 20, "seed": 3, "max_new_tokens": 8}
    texts, devices = [], []
    for device, lost in (("wasm", ()), ("webgpu", (12, -1000))):
        gpu_visit.run(opened, {"options": {"device": device, "threads": 1}})
        for fields, left in zip(({"max_new_tokens": 12}, sampled), lost or (0, 0)):
            for worker in gpu_visit.page.workers if lost else ():
                worker.evaluate(LOSE, left)
            texts.append(gpu_visit.run(GENERATED, {"fields": fields}))
            devices.append(gpu_visit.run("return p.info.device"))
        gpu_visit.run("await p.dispose()")
    assert texts[:2] == texts[2:]
    assert [d["name"] for d in devices] == ["wasm", "wasm", "webgpu", "wasm"]
    assert "the GPU was lost" in devices[-1]["why"]
