"""Pages that require Trusted Types: the library starts its scripts by the policy "edgewise"."""

import pytest
from onnx import helper

from ..conftest import BLANK_PAGE, Visit, _serve

POLICY = (
    "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self' blob:; "
    "require-trusted-types-for 'script'; trusted-types "
)


@pytest.fixture(scope="module")
def pages(built, files):
    """Servers of pages whose policies allow the name, or none."""
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "g", *[[i] for i in infos]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (files / "add.onnx").write_bytes(model.SerializeToString())
    served = {
        name: _serve(files, "--header", f"Content-Security-Policy: {POLICY}{name}")
        for name in ("edgewise", "'none'")
    }
    yield {name: url for name, (_, url) in served.items()}
    for process, _ in served.values():
        process.terminate()
        process.wait()


VIOLATIONS = """window.refused = []; document.addEventListener('securitypolicyviolation',
    (e) => refused.push(`${e.violatedDirective} ${e.sample}`));"""


@pytest.mark.parametrize("build", ["edgewise", "edgewise.inline"])
def test_models_run(context, pages, build):
    visit = Visit(context, pages["edgewise"] + BLANK_PAGE)
    visit.page.evaluate(VIOLATIONS)
    got = visit.page.evaluate(
        """async (build) => {
        const ew = await import(`/${build}.js`);
        const out = {};
        const write = await ew.pipeline('text-generation', '/files/model.edge', { threads: 2 });
        const [{ generated_text }] = await write('Once', { max_new_tokens: 3, do_sample: false });
        out.text = typeof generated_text;
        out.threads = write.info.threads;
        await write.dispose();
        const here = await ew.InferenceSession.create('/files/add.onnx', { threads: 2 });
        const y = await here.run({ x: new ew.Tensor('float32', new Float32Array([1, 2]), [2]) });
        out.y = [...y.y.data];
        await here.release();
        return { ...out, refused };
    }""",
        build,
    )
    assert got == {"text": "string", "threads": 2, "y": [2, 4], "refused": []}, got


def test_the_parts_of_a_page_share_the_policy(context, pages):
    """A policy of a name is made once, by whichever file of the library comes first."""
    visit = Visit(context, pages["edgewise"] + BLANK_PAGE)
    visit.page.evaluate(VIOLATIONS)
    got = visit.page.evaluate("""async () => {
        const ew = await import('/edgewise.js');
        const { registerServiceWorker } = await import('/offline.js');
        await registerServiceWorker('/sw.js', { reload: false });
        const write = await ew.pipeline('text-generation', '/files/model.edge');
        await write.dispose();
        const here = await ew.InferenceSession.create('/files/add.onnx', { proxy: false,
            threads: 2 });
        await here.release();
        const policy = globalThis[Symbol.for('edgewise trusted types')];
        const other = (url) => { try { return `${policy.createScriptURL(url)}`; }
            catch (e) { return e.name; } };
        return { refused, foreign: other('https://example.com/a.js'),
            code: other('data:text/javascript,1') };
    }""")
    assert got == {"refused": [], "foreign": "TypeError", "code": "TypeError"}, got


def test_where_no_policy_may_be_made_the_error_names_it(context, pages):
    visit = Visit(context, pages["'none'"] + BLANK_PAGE)
    got = visit.page.evaluate("""async () => {
        const ew = await import('/edgewise.js');
        const { registerServiceWorker } = await import('/offline.js');
        const said = (e) => ({ name: e.name, remedy: e.remedy });
        return {
            model: await ew.pipeline('text-generation', '/files/model.edge').catch(said),
            offline: await registerServiceWorker('/sw.js', { reload: false }).catch(said),
        };
    }""")
    remedy = "Add `trusted-types edgewise` to the page's Content-Security-Policy."
    assert got == {
        "model": {"name": "EngineError", "remedy": remedy},
        "offline": {"name": "StorageError", "remedy": remedy},
    }, got
