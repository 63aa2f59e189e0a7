"""The rounds of a folder in a process of its own, which tests kill: serve_alone.py FOLDER"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "python"), str(Path(__file__).parents[2])]

from tests.federated import environment  # noqa: E402, F401, I001
from edgewise.extras.federated.rounds import run_rounds  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

TaskIdentity._task_id = TaskIdentity._run_id = TaskIdentity._node_id = 1
run_rounds(sys.argv[1])
