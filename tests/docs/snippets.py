"""The code blocks of README.md, CONTRIBUTING.md and docs/, and the files that they need to run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "web" / "README.md",
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"^(?P<marker><!-- test: run -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.M | re.S
)


@dataclass
class Snippet:
    """A fenced code block.

    `line`: number of its first line in the page; `runs`: it is marked to be run.
    """

    page: Path
    line: int
    language: str
    code: str
    runs: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(*languages: str) -> list[Snippet]:
    """All code blocks in these languages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            if match["language"] in languages:
                line = text.count("\n", 0, match.start("code")) + 1
                found.append(
                    Snippet(
                        page, line, match["language"], match["code"], match["marker"] is not None
                    )
                )
    return found


def write_files(folder: Path) -> None:
    """Writes what the snippets read: web/demo/model, letters.txt, model.onnx (y = x + x) and
    classifier.onnx.
    """
    (folder / "web" / "demo").mkdir(parents=True)
    (folder / "web" / "demo" / "model").symlink_to(ROOT / "web" / "demo" / "model")
    (folder / "letters.txt").write_text(
        "Once upon a time there was an owl who wrote letters to the sea. " * 30
    )
    float32 = TensorProto.FLOAT
    double = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [helper.make_tensor_value_info("x", float32, ["n", 3])],
        [helper.make_tensor_value_info("y", float32, ["n", 3])],
    )
    random = np.random.default_rng(0)
    weights = {"w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    classifier = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
            helper.make_node("Relu", ["h"], ["a"]),
            helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", float32, ["batch", 4])],
        [helper.make_tensor_value_info("logits", float32, ["batch", 3])],
        [
            numpy_helper.from_array(random.standard_normal(s).astype(np.float32), n)
            for n, s in weights.items()
        ],
    )
    for name, graph in (("model", double), ("classifier", classifier)):
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        save(model, str(folder / f"{name}.onnx"))


def write_encoder(folder: Path) -> None:
    """Writes the folder of a small encoder, all-MiniLM-L6-v2, and notes.jsonl to train it with."""
    from tests.browser.pipelines import models

    models.save(folder / "all-MiniLM-L6-v2", "feature-extraction")
    notes = [{"anchor": f"a film {i}", "positive": f"the price {i}"} for i in range(16)]
    (folder / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
