"""A private window of Firefox, which refuses the private file system (OPFS): files are kept in
IndexedDB until the window is closed. WebKitGTK's automated windows are private, too; test_smoke.py
tests them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from . import test_smoke
from .conftest import Page
from .drivers import Firefox, missing


@pytest.fixture
def private(server: str):
    """A page in a private window."""
    reason = missing("firefox")
    if reason:
        pytest.skip(reason)
    firefox = Firefox(private=True)
    try:
        page = Page(firefox.tab(), server + "/files/blank.html")
        yield page
        page.close()
    finally:
        firefox.close()


@pytest.mark.slow("browsers/test_smoke.py::test_store_and_resume")
def test_private_window(private: Page, files: Path, trainable: object) -> None:
    refused = private.run(
        "return navigator.storage.getDirectory().then(() => 'granted', (e) => e.name)"
    )
    assert refused == "SecurityError"
    got = private.run(
        """
            const p = await ew.pipeline("text-generation", "/files/model.edge", {
              cache_files: true,
            });
            const [{ generated_text }] = await p("Once", { max_new_tokens: 3 });
            await p.dispose();
            return { generated_text, kept: (await ew.cacheBytes()).files };
        """
    )
    assert "error" not in got and got["kept"] > 1e6, got
    test_smoke.test_store_and_resume(private, trainable)
