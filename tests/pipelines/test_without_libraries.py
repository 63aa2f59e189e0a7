"""The text pipelines without NumPy and without the tokenizers library, as in Pyodide."""

import json
import subprocess
import sys
from pathlib import Path

import edgewise
import pytest

from .tiny import TEXTS

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, sys
sys.modules.update({"numpy": None, "tokenizers": None})
import edgewise
folders, texts = json.loads(sys.argv[1])
made = {task: edgewise.pipeline(task, folder) for task, folder in folders.items()}
embed = made["embeddings"]
array = embed(texts, pooling="mean", return_tensors=True)
assert type(array) is edgewise.Array and array.shape == (len(texts), 32)
found = embed.index(texts, pooling="mean").search(texts[1], top_k=2)
print(json.dumps([
    embed(texts[0], pooling="mean"), found,
    made["ner"](texts[1], aggregation_strategy="first"),
    made["fill-mask"]("The [MASK] fox."),
    made["question-answering"]("Who?", texts[1]),
    made["zero-shot-classification"](texts[2], ["phone", "dog"]),
]))
"""


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return pytest.approx(value, abs=1e-6) if isinstance(value, float) else value


@pytest.mark.filterwarnings("ignore")
def test_results_are_the_same(tiny_model):
    folders = {
        "embeddings": tiny_model("bert", "base"),
        "ner": tiny_model("bert", "tokens"),
        "fill-mask": tiny_model("bert", "mask"),
        "question-answering": tiny_model("bert", "questions"),
        "zero-shot-classification": tiny_model("bert", "sequence"),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT,
         json.dumps([{k: str(v) for k, v in folders.items()}, TEXTS])],
        env={"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = {task: edgewise.pipeline(task, folder) for task, folder in folders.items()}
    embed = made["embeddings"]
    expected = [
        embed(TEXTS[0], pooling="mean"),
        embed.index(TEXTS, pooling="mean").search(TEXTS[1], top_k=2),
        made["ner"](TEXTS[1], aggregation_strategy="first"),
        made["fill-mask"]("The [MASK] fox."),
        made["question-answering"]("Who?", TEXTS[1]),
        made["zero-shot-classification"](TEXTS[2], ["phone", "dog"]),
    ]
    assert json.loads(done.stdout) == rounded(expected)
