"""The HTTP libraries and OpenAI's client are in an environment of their own, .build/venv-serve:
importing this lets tests find them after the packages of the environment that runs them.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".build/venv-serve"
for path in map(str, FOLDER.glob("lib/python3*/site-packages")):
    if path not in sys.path:
        sys.path.append(path)
