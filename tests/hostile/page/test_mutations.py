"""Damaged packages in the reader and the engine of pages, in Node."""

import io

from edgewise.host.session.decoder import open_package

from ..seeds import ROOT
from .mutations import damaged
from .page_reader import PLAY


def test_mutations_in_a_page(page):
    """The page's reader and engine refuse each mutation of the demo's package, or a plan's changed
    bytes have no effect on memory that is not its own.
    """
    target = io.BytesIO()
    open_package(ROOT.parent / "web/demo/model").write(target)
    package = target.getvalue()
    assert "ok" in page.ask(PLAY, package)
    refused = 0
    for what, data in damaged(package):
        got = page.ask(PLAY, data)
        assert got.get("error") in (None, "PackageError", "PlanError", "OutOfMemory"), (what, got)
        if "error" in got:
            assert got["what"] and got["where"] and got["remedy"], (what, got)
            refused += 1
        else:
            assert what.startswith("bytes of"), what
    assert refused > 60 and "ok" in page.ask(PLAY, package)
