"""What is compared with onnxruntime on a processor without VNNI, on any x86-64 processor."""

import platform
import shutil
import subprocess
import sys

import pytest
from tiers import slow_unless

from .__main__ import LEVELS, ROOT, environment

TESTS = ["tests/test_references.py", "tests/engines/sample.py", "tests/passes/test_qdq.py"]
needed = platform.machine() == "x86_64" and sys.platform == "linux" and shutil.which("objdump")


@pytest.mark.skipif(not needed, reason="Linux on x86-64, with binutils")
@pytest.mark.parametrize("processor", slow_unless(lambda name: name == "avx2", LEVELS))
def test_without_vnni(processor):
    """onnxruntime saturates there, and is exact with what tests give it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *TESTS]
    saturates = "from references import _sums_saturate; assert _sums_saturate()"
    variables = environment(processor)
    paths = {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'python'}:{variables['PYTHONPATH']}"}
    subprocess.run([sys.executable, "-c", saturates], env={**variables, **paths}, check=True)
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
