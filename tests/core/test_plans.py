"""Plans that are not what they should be: a bounded slice of the fuzzing (`make fuzz` runs the long campaign), and the generated files."""
import os
import pathlib
import subprocess
import sys

import pytest

from edgewise.ops import generate

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", [1, 2])
def test_mutated_plans_do_no_harm(seed):
    program = ROOT / ".build" / "sanitize" / "fuzz_plan"
    if not program.exists():
        pytest.skip("not built: make sanitize")
    done = subprocess.run([program, "--runs", "15000", "--seed", str(seed), "--seeds", ROOT / "tests" / "core" / "seeds"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_generated_files_are_what_the_declarations_say():
    assert generate.main(["--check"]) == 0


def test_generator_runs_without_numpy():
    code = "import sys; sys.modules['numpy'] = None; from edgewise.ops import generate; sys.exit(generate.main(['--check']))"
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "python")}).returncode == 0
