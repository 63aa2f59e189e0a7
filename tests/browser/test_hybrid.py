"""Device and cloud in a page: what is private makes no request, and a text goes on elsewhere."""

import pytest

from tests.serve import environment  # noqa: F401

from .conftest import MODEL

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
    from edgewise.serve.catalog import Catalog
    from edgewise.serve.launch import Server
    from edgewise.serve.options import ServeOptions

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
