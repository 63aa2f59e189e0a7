"""The choice of the engine in a page: the base one, the full one if a package requires it, or one
built for a model by `edgewise build --engine`.
"""

import re

from edgewise.cli import main

from .conftest import MODEL, edit_package, greedy
from .loading import error


def engines(v):
    return [
        r.url.rsplit("/", 1)[1] for r in v.requests if re.search(r"/edgewise-[^/]*\.wasm", r.url)
    ]


def needing(package, *kernels):
    """The package with further names in its list of required kernels."""

    def change(manifest):
        manifest["kernels"] += kernels

    return edit_package(package, change)


def test_the_full_engine_is_loaded_if_required(visit, server, files, package):
    (files / "rare.edge").write_bytes(needing(package, "grid_sample"))
    v = visit(server)
    plain, rare = greedy(v, "/files/model.edge"), greedy(v, "/files/rare.edge")
    assert plain["ids"] == rare["ids"]
    assert engines(v)[-1].endswith("-full.wasm") and not any(
        e.endswith("-full.wasm") for e in engines(v)[:-1]
    )


def test_a_custom_engine(visit, server, files, package):
    assert main(["build", str(MODEL), "--engine", str(files / "mine")]) == 0
    (files / "rare.edge").write_bytes(needing(package, "grid_sample"))
    v = visit(server)
    expected = greedy(v, "/files/model.edge")
    v = visit(server)
    v.run("ew.env.engineUrl = new URL('/files/mine/', location.href).href; return {};", {})
    assert greedy(v, "/files/model.edge")["ids"] == expected["ids"]
    error(
        greedy(v, "/files/rare.edge"),
        "EngineError",
        "grid_sample",
        "edgewise build MODEL --engine",
        "HTTP 404",
    )
    assert greedy(v, "/files/model.edge")["ids"] == expected["ids"]


def test_a_page_in_the_engines_place(visit, server):
    """Servers of single-page applications answer with their page where there is no file."""
    v = visit(server)
    page = "<!doctype html><title>An application</title>"
    v.page.context.route(
        "**/nowhere/*", lambda route: route.fulfill(body=page, content_type="text/html")
    )
    v.run("ew.env.engineUrl = new URL('/nowhere/', location.href).href; return {};", {})
    words = "the engine could not be fetched", "a web page", "env.engineUrl"
    error(greedy(v, "/files/model.edge"), "EngineError", *words)
