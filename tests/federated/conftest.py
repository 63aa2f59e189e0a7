"""Flower and websockets are in an environment of their own, .build/venv-federated: the tests find
them behind the packages of the environment that runs them.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".build/venv-federated"
sys.path.extend(str(p) for p in FOLDER.glob("lib/python3*/site-packages"))
