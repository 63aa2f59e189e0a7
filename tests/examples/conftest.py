"""The browser and server of tests/browser, with the examples mounted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browser.conftest import browser, built, context, profile_of_visits, visit  # noqa: F401

ROOT = Path(__file__).parents[2]


STORYTELLER = "/hub/demo/storyteller/resolve/main"


@contextmanager
def served(**mounts: Path | str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server as examples/README.md starts it: its address and its process. mounts: {address on
    the server: folder}, further ones.
    """
    command = ["node", "web/demo/serve.mjs", "--port", "0", "--mount", "/examples=examples"]
    for address, folder in mounts.items():
        command += ["--mount", f"{address}={folder}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        address = next(
            (
                found[0]
                for line in process.stdout or ()
                if (found := re.search(r"http://localhost:\d+", line))
            ),
            None,
        )
        assert address, "serve.mjs ended before it was ready"
        yield address, process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def example_server(built: None) -> Iterator[str]:  # noqa: F811
    """Its address, with the demo's model as one of a hub."""
    assert (ROOT / "web/dist/demo/model.edge").exists(), (
        "web/dist/demo/model.edge is not there: run `make web`"
    )
    with served(**{STORYTELLER: "web/demo/model"}) as (address, _):
        yield address
