"""Device and cloud in a page: what is private makes no request, and a text goes on elsewhere."""

import numpy as np
import pytest

from tests.serve import environment  # noqa: F401

from ..conftest import MODEL

START = """
    const { hybrid, openAI } = await import("/hybrid.js");
    const pipe = await ew.pipeline("text-generation", "/files/model.edge");
    const greedy = { max_new_tokens: 24, do_sample: false };
    const prompt = "Once upon a time";
    const [{ generated_text: whole }] = await pipe(prompt, greedy);
"""


def test_private_calls_make_no_request(visit, server):
    """Under a policy with which the browser itself refuses all requests, and tells them."""
    v = visit(server)
    got = v.run(
        START
        + """
        const meta = document.createElement("meta");
        meta.httpEquiv = "Content-Security-Policy";
        meta.content = "connect-src 'none'";
        document.head.append(meta);
        const refused = [];
        addEventListener("securitypolicyviolation", (e) => refused.push(e.blockedURI));
        const write = hybrid({
          device: pipe,
          cloud: openAI({ baseURL: "https://cloud.example/v1", model: "m" }),
        });
        let told = "";
        const streamer = (text) => (told += text);
        const [here] = await write(prompt, { ...greedy, private: true, streamer });
        const silent = [refused.length, write.ledger().length, write.last.decision.where];
        const policy = () => ({ where: "cloud", why: [] });
        const open = hybrid({
          device: pipe,
          cloud: openAI({ baseURL: "https://cloud.example/v1", model: "m" }),
          policy,
        });
        const [there] = await open(prompt, greedy);
        await pipe.dispose();
        const texts = [here, there].map((r) => r.generated_text === whole);
        return { texts, told: prompt + told === whole, silent, refused, left: open.ledger() };
        """
    )
    assert "error" not in got, got
    assert got["texts"] == [True, True] and got["told"]
    assert got["silent"] == [0, 0, "device"]
    assert len(got["refused"]) == len(got["left"]) == 1
    assert "cloud.example" in got["left"][0]["url"]


def test_a_text_goes_on_elsewhere(visit, server):
    """`edgewise serve` and the page have the same model: wherever the connection or the device
    breaks, the text is that of either side alone.
    """
    pytest.importorskip("uvicorn")
    from edgewise.extras.serve.catalog import Catalog
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions

    v = visit(server)
    catalog = Catalog({"stories": str(MODEL)})
    with Server(catalog, ServeOptions(port=0, origins=(server,))) as served:
        got = v.run(
            START
            + """
            const cloud = openAI({ baseURL: arg, model: "stories" });
            const fetched = fetch;
            const cut = async (...given) => {
              const response = await fetched(...given);
              const events = (await response.text()).split("\\n\\n");
              return new Response(events.slice(0, 6).join("\\n\\n") + "\\n\\n", response);
            };
            const fails = async (input, options) => {
              let n = 0;
              const streamer = (text) => (++n > 4 ? undefined : options.streamer(text));
              await pipe(input, { ...options, streamer });
              throw new Error("the device is gone");
            };
            fails.tokenizer = pipe.tokenizer;
            const outcomes = [];
            for (const [where, device, network] of [
              ["cloud", undefined, fetched],
              ["cloud", pipe, cut],
              ["device", fails, fetched],
              ["race", pipe, fetched],
            ]) {
              globalThis.fetch = network;
              const policy = () => ({ where, why: [] });
              const write = hybrid({ device, cloud, policy, keep: null });
              let told = "";
              const streamer = (text) => (told += text);
              const [{ generated_text: text }] = await write(prompt, { ...greedy, streamer });
              const switches = write.last.switches.map((s) => s.to);
              outcomes.push([text === whole && prompt + told === whole, ...switches]);
            }
            await pipe.dispose();
            return outcomes;
            """,
            served.url,
        )
    assert got == [[True], [True, "device"], [True, "cloud"], [True]]


def test_a_model_in_two_parts(visit, server, files, tmp_path):
    """The first part in the page, the second one behind `edgewise serve`."""
    pytest.importorskip("uvicorn")
    from edgewise.compiler.compile import compile_inference
    from edgewise.compiler.compile.halves import split_file
    from edgewise.extras.serve.catalog import Catalog
    from edgewise.extras.serve.launch import Server
    from edgewise.extras.serve.options import ServeOptions
    from edgewise.onnx import FileSource

    from tests.serve.test_halves import model, run

    path = model(tmp_path / "model.onnx")
    split_file(path, ["encoder"], tmp_path)
    for name in ("first", "model"):
        source = {f"{name}.onnx": FileSource(str(tmp_path / f"{name}.onnx"))}
        package = compile_inference(source, [{"n": 2}], f"{name}.onnx")
        package.save(str(files / f"{name}-part.edge"))
    feeds = {
        "x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4),
        "y": np.arange(6, dtype=np.float32),
    }
    expected = run(path, feeds)
    v = visit(server)
    catalog = Catalog({}, parts={"m": str(tmp_path / "second.onnx")})
    with Server(catalog, ServeOptions(port=0, origins=(server,))) as served:
        got = v.run(
            """
            const { splitSession } = await import("/split.js");
            const { InferenceSession, Tensor } = ew;
            const [first, whole] = await Promise.all(
              ["first", "model"].map((n) => InferenceSession.create(`/files/${n}-part.edge`)),
            );
            const session = splitSession({
              first,
              whole: async () => whole,
              rest: `${arg.url}/split/m`,
              tensors: ["hidden", "e1", "y"],
              Tensor,
            });
            const feeds = () => ({
              x: new Tensor("float32", arg.x, [2, 4]),
              y: new Tensor("float32", arg.y, [6]),
            });
            const found = [];
            for (const options of [{}, { private: true }]) {
              const outputs = await session.run(feeds(), options);
              const values = Object.entries(outputs).map(([n, t]) => [n, Array.from(t.data)]);
              found.push([session.last.where, session.ledger().length, Object.fromEntries(values)]);
            }
            await Promise.all([first.release(), whole.release()]);
            return found;
            """,
            {"url": served.url, "x": feeds["x"].ravel().tolist(), "y": feeds["y"].tolist()},
        )
    assert "error" not in got, got
    assert [g[:2] for g in got] == [["split", 1], ["device", 1]]
    for _, _, outputs in got:
        assert outputs.keys() == expected.keys()
        for name, values in outputs.items():
            np.testing.assert_allclose(values, expected[name].ravel(), rtol=1e-5, atol=1e-6)
