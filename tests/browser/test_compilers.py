"""Integer dot products of the relaxed flavour under each of Chromium's WebAssembly compilers.

Browsers run the baseline compiler first and the optimizing one later, so both must be correct. Node
20 has relaxed SIMD behind a flag, and its baseline compiler gets the dot product wrong
(tests/engines/node_engine.py runs without it).
"""

import io

import pytest

from .chromium import CHROMIUM, FLAGS
from .conftest import ROOT, Visit

MODEL = (
    ROOT / "tests" / "zoo" / "models" / "genai_llama_int4_webgpu"
)  # MatMulNBits with accuracy_level 4


@pytest.fixture(scope="module")
def expected(files):
    """Greedy text of the native engine; the model's package is written to the served files."""
    import edgewise
    from edgewise.host.session.decoder import open_package

    out = io.BytesIO()
    open_package(MODEL, capacity=64).write(out)
    (files / "accuracy4.edge").write_bytes(out.getvalue())
    return edgewise.pipeline("text-generation", str(files / "accuracy4.edge"))(
        "abc", max_new_tokens=24, do_sample=False
    )[0]["generated_text"]


@pytest.mark.parametrize("compiler", ["--liftoff-only", "--no-liftoff"])
@pytest.mark.parametrize("flavour", ["simd128", "relaxed-threads"])
def test_int8_dot_products(playwright, server, expected, compiler, flavour):
    chromium = playwright.chromium.launch(
        executable_path=CHROMIUM, args=[*FLAGS, f"--js-flags={compiler}"]
    )
    try:
        v = Visit(chromium.new_context(), server + "/files/blank.html").start()
        got = v.run(
            """
                const p = await ew.pipeline("text-generation", "/files/accuracy4.edge", {
                  flavour: arg,
                  threads: 1,
                });
                const [{ generated_text }] = await p("abc", {
                  max_new_tokens: 24,
                  do_sample: false,
                });
                await p.dispose();
                return generated_text;
            """,
            flavour,
        )
        v.close()
    finally:
        chromium.close()
    assert got == expected
