"""What a process has started ends with it, also if it is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 240  # seconds, less than what is started sleeps
LAUNCH = Path(__file__).parents[2] / "python/edgewise/extras/federated/launch"
STARTER = """
import subprocess, sys, time
from guard import Guard

code = "import subprocess, sys; print('up', flush=True); subprocess.run(['sleep', '900'])"
with Guard() as guard:
    leader = guard.popen([sys.executable, "-c", code], group=True, stdout=subprocess.PIPE)
    single = guard.popen(["/bin/sleep", "900"], group=False)
    ended = guard.popen([sys.executable, "-c", "pass"], group=False)
    ended.wait()
    guard.forget(ended, group=False)
    leader.stdout.readline()
    print(leader.pid, single.pid, flush=True)
    time.sleep(900)
"""


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_a_killed_process_leaves_nothing():
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(LAUNCH)},
    )
    assert starter.stdout is not None
    leader, single = map(int, starter.stdout.readline().split())
    assert there(leader) and there(single)
    starter.kill()
    starter.wait()
    end = time.monotonic() + PATIENCE
    while (there(leader, group=True) or there(single)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not there(leader, group=True) and not there(single)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_process_that_is_killed_as_it_starts_another_leaves_nothing():
    """What it has started has its output: it ends when both are gone."""
    code = "import os\nfrom guard import Guard\n"
    code += "Guard().popen(['/bin/sleep', '900'], group=True)\nos.kill(os.getpid(), 9)"
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(LAUNCH)},
    )
    starter.communicate(timeout=PATIENCE)
    assert starter.returncode == -9


def there(pid, group=False):
    """Whether a process, or one of its group, runs; those that wait for their parent do not."""
    listed = subprocess.run(["ps", "-eo", "pid=,pgid=,stat="], capture_output=True, text=True)
    lines = [line.split() for line in listed.stdout.splitlines()]
    return any(
        line[1 if group else 0] == str(pid) and not line[2].startswith("Z") for line in lines
    )
