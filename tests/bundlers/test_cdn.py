"""Pages that load the npm package from a CDN of npm, without configuration."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from playwright.sync_api import Route
from tiers import slow_unless

from .conftest import BUNDLERS, HTML, ROOT, Handler

PACKAGE = json.loads((ROOT / "web" / "package.json").read_text())
VERSION = PACKAGE["version"]
# A CDN serves the files of a package as they were published, and nothing else.
PACKAGES = {
    f"{name}@{VERSION}": BUNDLERS / "node_modules" / name
    for name in ("edgewise", "edgewise-compiler")
}
CDNS = {"https://cdn.jsdelivr.net/npm/": "jsdelivr", "https://unpkg.com/": "unpkg"}
# GridSample is one of the rare kernels, which only the engines `-full` have.
GRID = np.linspace(-0.9, 0.8, 18, dtype=np.float32).reshape(1, 3, 3, 2)
MODEL = helper.make_model(
    helper.make_graph(
        [helper.make_node("GridSample", ["x", "grid"], ["y"], align_corners=1)],
        "sample",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 3, 3])],
        [numpy_helper.from_array(GRID, "grid")],
    ),
    opset_imports=[helper.make_opsetid("", 20)],
    ir_version=9,
)
BODY = """
  (async () => {
    const session = await InferenceSession.create("/model.onnx");
    const x = new Tensor("float32", Float32Array.from({ length: 16 }, (_, i) => i), [1, 1, 4, 4]);
    const { y } = await session.run({ x });
    document.title = JSON.stringify([...y.data]);
  })().catch((e) => (document.title = `failed: ${e.message} ${e.where} ${e.remedy}`));
"""


def answer(requested: list[str], missing: list[str], cdn: str, route: Route) -> None:
    """What the CDN answers: the default file of a package without a path, as its fields say."""
    url = route.request.url
    requested.append(url)
    name, _, file = url.removeprefix(cdn).partition("/")
    folder = PACKAGES.get(name if "@" in name else f"{name}@{VERSION}")
    path = folder and folder / (file or PACKAGE[CDNS[cdn]])
    if path is None or not path.is_file():
        missing.append(url)
        route.fulfill(status=404)
        return
    headers = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
    kind = Handler.extensions_map.get(path.suffix.replace("mjs", "js"), "application/octet-stream")
    route.fulfill(body=path.read_bytes(), headers=headers | {"Content-Type": kind})


def check(title: str) -> None:
    """What a page with BODY has computed."""
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    [want] = ReferenceEvaluator(MODEL).run(None, {"x": x})
    np.testing.assert_allclose(json.loads(title), np.ravel(want), rtol=1e-5, atol=1e-5)


ADDRESSES = (
    "https://cdn.jsdelivr.net/npm/edgewise",
    f"https://unpkg.com/edgewise@{VERSION}/dist/edgewise.inline.js",
    f"https://cdn.jsdelivr.net/npm/edgewise@{VERSION}/dist/edgewise.js",
)


@pytest.mark.parametrize("address", slow_unless(lambda address: address == ADDRESSES[0], ADDRESSES))
def test_onnx_from_a_cdn(browser, serve, tmp_path, address) -> None:
    """An .onnx file is compiled in the page; only files that the packages have are requested."""
    if "inline" in address or address.endswith("edgewise.js"):
        script = f'<script type="module">import {{ InferenceSession, Tensor }} from "{address}";'
    else:
        script = f'<script src="{address}"></script><script>'
        script += "const { InferenceSession, Tensor } = edgewise;"
    (tmp_path / "index.html").write_text(f"{HTML}{script}{BODY}</script>")
    (tmp_path / "model.onnx").write_bytes(MODEL.SerializeToString())
    requested: list[str] = []
    missing: list[str] = []
    with browser.new_context() as context:
        for cdn in CDNS:
            context.route(
                re.compile(re.escape(cdn)), functools.partial(answer, requested, missing, cdn)
            )
        page = context.new_page()
        page.goto(serve(tmp_path) + "/index.html")
        page.wait_for_function("document.title !== 'waits'")
        title = page.title()
    assert not title.startswith("failed") and not missing, (title, missing)
    assert any(url.endswith("-full.wasm") for url in requested)
    check(title)
