"""The browser and server of tests/browser, with the examples mounted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import browser, built, context, profile_of_visits, visit  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def example_server(built: None) -> Iterator[str]:  # noqa: F811
    """Address of a server as examples/README.md starts it."""
    assert (ROOT / "web/dist/demo/model.edge").exists(), (
        "web/dist/demo/model.edge is not there: run `make web`"
    )
    command = ["node", "web/demo/serve.mjs", "--port", "0", "--mount", "/examples=examples"]
    command += ["--mount", "/hub/demo/storyteller/resolve/main=web/demo/model"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    address = next(
        (
            found[0]
            for line in process.stdout
            if (found := re.search(r"http://localhost:\d+", line))
        ),
        None,
    )
    assert address, "serve.mjs ended before it was ready"
    yield address
    process.terminate()
    process.wait()
