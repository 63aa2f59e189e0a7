"""Models whose files are kept, since what exports them is newer than the tests' transformers."""

from __future__ import annotations

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def unpacked(name: str, root: Path) -> dict[str, Any]:
    """Makes a model's folder of the files in tests/multimodal/NAME; returns expected.json."""
    (root / "onnx").mkdir(parents=True)
    for path in (HERE / name).iterdir():
        if path.suffix == ".xz":
            (root / "onnx" / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        else:
            shutil.copy(path, root)
    found: dict[str, Any] = json.loads((root / "expected.json").read_text())
    return found
