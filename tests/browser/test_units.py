"""Parts of the TypeScript library that need no browser: web/test, in Node."""

import subprocess

from .conftest import WEB


def test_units():
    done = subprocess.run(["node", "test/run.mjs"], cwd=WEB, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
