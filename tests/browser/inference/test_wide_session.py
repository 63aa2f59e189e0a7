"""First sessions of .onnx files of more than 4 GB: the engine has 64-bit addresses."""

import base64

import pytest

from .test_inference_session import FEED, models  # noqa: F401

# external data of so many bytes, of which the model reads the first ones
OPEN = (
    FEED
    + """
        const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
        const rest = new Blob([new Uint8Array(1 << 24)]);
        const parts = [bytes(arg.external), ...Array(arg.megabytes >> 4).fill(rest)];
        const data = new File(parts, "outside.onnx.data");
        if (arg.engines)
          ew.env.engineUrl = Object.fromEntries(arg.engines.map((name) =>
            [name, new URL(`/engine/edgewise-${name}.wasm`, location.href).href]));
        const options = { externalData: [{ path: data.name, data }] };
        const s = await ew.InferenceSession.create(bytes(arg.model), options);
        const out = plain(await s.run({ x: x(1, 6, 6) }));
        await s.release();
        return out;
    """
)


def given(models, megabytes):  # noqa: F811
    model, external = (
        base64.b64encode((models / name).read_bytes()).decode()
        for name in ("outside.onnx", "outside.onnx.data")
    )
    return {"model": model, "external": external, "megabytes": megabytes}


@pytest.mark.parametrize("megabytes, wide", [(3072, False), (4352, True)])
def test_first_session(visit, server, models, megabytes, wide):  # noqa: F811
    v, engines = visit(server, alone=True), []
    v.page.on("request", lambda r: engines.append(r.url) if "/engine/" in r.url else None)
    small = v.run(OPEN, given(models, 16))
    assert "error" not in small, small
    del engines[:]
    got = v.run(OPEN, given(models, megabytes))
    assert got == small
    assert any("relaxed-threads-64" in url for url in engines) == wide, engines


def test_without_that_engine(visit, server, models):  # noqa: F811
    names = ["relaxed-threads", "relaxed-threads-full", "simd128", "simd128-full"]
    names += ["simd128-threads", "simd128-threads-full"]
    got = visit(server, alone=True).run(OPEN, {**given(models, 4352), "engines": names})
    error = got["error"]
    assert error["name"] == "OutOfMemory", error
    assert "more than 4096 MB" in error["what"] and "relaxed-threads-64" in error["what"], error
