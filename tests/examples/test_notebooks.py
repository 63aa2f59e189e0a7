"""The notebook that fine-tunes, in CPython: what its reader sees is good. tests/notebook runs it in
Jupyter.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "fine-tune.ipynb"


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def test_fine_tune(monkeypatch, tmp_path, capsys) -> None:
    """The model tells of new things in the words and the style of the text, and knows held-out
    lines better.
    """
    pictures: list[str] = []
    display = ModuleType("IPython.display")
    display.SVG = str  # type: ignore[attr-defined]
    display.display = lambda *_, **__: SimpleNamespace(  # type: ignore[attr-defined]
        update=pictures.append
    )
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").symlink_to(ROOT / "web" / "demo" / "model")
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    sources = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    shared: dict[str, object] = {}
    for source in sources:
        if not source.startswith("%"):
            exec(source, shared)
    said = capsys.readouterr().out
    first, last, held, learned = map(float, re.findall(r"\d+\.\d+", said.split("loss ")[1])[:4])
    assert last < first / 2 and learned < held / 2
    before, after = said.split("before: ")[1].split("loss ")[0], said.split("after: ")[1]
    assert "arrr" not in before and after.count("arrr!") >= 2
    assert "<|" not in said and len(pictures) == 40
    known, made = {*words(str(shared["text"]))}, words(after)
    assert len(made) > 15 and sum(word in known for word in made) > 0.8 * len(made)
    assert (tmp_path / "my-style" / "adapter_config.json").exists()
