"""`edgewise info`: what an issue has to name, beside what the operating system and pip say."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata

import edgewise
from edgewise import cli


def test_info(capsys):
    assert cli.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["edgewise"] == edgewise.__version__
    assert platform.python_version() in found["python"] and platform.machine() in found["platform"]
    assert found["threads"] == len(os.sched_getaffinity(0))
    assert found["engine"].startswith(("x86-64", "aarch64", "arm64"))
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert cli.main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"engine:    {found['engine']}" in lines and lines[-1].startswith("packages:")


def test_without_an_engine():
    """It says so, rather than fail: such an installation is what an issue is about."""
    environment = os.environ | {"EDGEWISE_LIBRARY": "/none.so"}
    command = [sys.executable, "-m", "edgewise.cli", "info"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "engine:    none: " in done.stdout and "/none.so" in done.stdout
