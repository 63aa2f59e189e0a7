"""A GPU that is lost while a model loads: the call ends in words, and the next one writes."""

import pytest
from tiers import slow_unless

from ..conftest import Visit

# In a worker, before its script: takes the GPU away at a call of a method.
LOSE = """(([prototype, method, left]) => {
    const { prototype: of } = globalThis[prototype];
    const real = of[method];
    of[method] = function (...all) {
        if (!--left) (globalThis.gpus.at(-1))?.destroy();
        return real.apply(this, all);
    };
    globalThis.gpus = [];
    const ask = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...all) {
        const device = await ask.apply(this, all);
        globalThis.gpus.push(device);
        return device;
    };
})"""
PHASES = [
    ("GPUDevice", "createBuffer", 1),
    ("GPUDevice", "createComputePipelineAsync", 1),
    ("GPUQueue", "writeBuffer", 3),
    ("GPUQueue", "submit", 1),  # the first run
]


QUICK = "createComputePipelineAsync"


@pytest.mark.parametrize("of, method, left", slow_unless(lambda *phase: QUICK in phase, PHASES))
def test_the_call_ends(gpu_browser, server, gpu_files, of, method, left):
    context = gpu_browser.new_context()
    context.set_default_timeout(120_000)
    v = Visit(context, server + "/files/blank.html").start()
    seen = []

    def before(route):
        response = route.fetch()
        seen.append(1)
        route.fulfill(
            response=response, body=f"{LOSE}({[of, method, left]!r});\n" + response.text()
        )

    v.page.route("**/worker.js", before)
    body = """
        try {
            const p = await ew.pipeline('text-generation', '/files/gpu.edge', { device: 'webgpu' });
            const [{ generated_text }] = await p('Once upon a time',
                { max_new_tokens: 3, do_sample: false });
            await p.dispose();
            return generated_text;
        } catch (e) {
            return `${e.name}: ${e.message}`;
        }"""
    lost = v.run(body)
    assert seen
    v.page.unroute("**/worker.js")
    text = v.run(body)
    assert text.startswith("Once upon a time,"), text
    if method == "submit":
        assert lost == text
    else:
        assert lost.startswith("EngineError: webgpu: the GPU was lost"), lost
    v.close()
    context.close()
