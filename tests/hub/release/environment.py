"""python-tuf is in an environment of its own, .build/venv-release: importing this lets tests find
it after the packages of the environment that runs them.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[3] / ".build/venv-release"
for path in map(str, FOLDER.glob("lib/python3*/site-packages")):
    if path not in sys.path:
        sys.path.append(path)
