"""Flower and websockets are in an environment of their own, .build/venv-federated: importing this
lets tests find them after the packages of the environment that runs them. EDGEWISE_FEDERATED is
the name of another: `make newest`.
"""

import os
import sys
from pathlib import Path

NAME = os.environ.get("EDGEWISE_FEDERATED", "venv-federated")
FOLDER = Path(__file__).parents[2] / ".build" / NAME
for path in map(str, FOLDER.glob("lib/python3*/site-packages")):
    if path not in sys.path:
        sys.path.append(path)
