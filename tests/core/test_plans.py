"""Plans that are not what they should be: a bounded slice of the fuzzing (`make fuzz` runs the long
campaign).
"""

import pathlib
import subprocess

import make_seeds
import pytest
from tiers import ALL

ROOT = pathlib.Path(__file__).resolve().parents[2]


PROGRAMS = {
    "fuzz_plan": 5000,
    "fuzz_step": 5000,
    "fuzz_splice": 5000,
    "fuzz_package": 20000,
    "fuzz_media": 1000,
    "fuzz_grammar": 20000,
    "fuzz_nearest": 5000,
}  # runs in `make test-all`
SHARE = 1 if ALL else 3  # of which `make test` does one in so many


def program(folder: str, name: str) -> pathlib.Path:
    path = ROOT / ".build" / folder / name
    if not path.exists():
        pytest.skip(f"not built: make {folder}")
    return path


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    assert make_seeds.make(folder) > 10
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_do_no_harm(name, seeds):
    """Mutated plans, single steps with large parameters, steps of real plans exchanged, plans
    changed together with the memory that they name, pictures and sound of all sizes, grammars,
    vectors: under sanitizers.
    """
    command = [
        program("sanitize", name),
        "--runs",
        str(PROGRAMS[name] // SHARE),
        "--seed",
        "1",
        "--seeds",
        seeds,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("folder", ["threads", "sanitize"])
def test_engines_and_threads(folder):
    """Under the thread sanitizer, and under the others: engines side by side, one for several
    threads, stopped from outside.
    """
    done = subprocess.run([program(folder, "threads")], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
