"""The text pipelines in Pyodide, without NumPy: the results of CPython with the `tokenizers`
library.
"""

import json
import shutil

import pytest
from pipelines import tiny

TASKS = {
    "embeddings": "base",
    "ner": "tokens",
    "fill-mask": "mask",
    "question-answering": "questions",
    "zero-shot-classification": "sequence",
}
CODE = """
import edgewise
made = {task: edgewise.pipeline(task, folder) for task, folder in folders.items()}
embed = made["embeddings"]
result = [
    embed(texts[0], pooling="mean"),
    embed.index(texts, pooling="mean").search(texts[1], top_k=2),
    made["ner"](texts[1], aggregation_strategy="first"),
    made["fill-mask"]("The [MASK] fox."),
    made["question-answering"]("Who?", texts[1]),
    made["zero-shot-classification"](texts[2], ["phone", "dog"]),
]
"""
ARRAY = """
array = embed(texts, pooling="mean", return_tensors=True)
assert type(array) is edgewise.Array and array.shape == (len(texts), 32)
"""


def rounded(value):
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.filterwarnings("ignore")
def test_results_are_the_same(pyodide, tmp_path):
    pytest.importorskip("transformers")
    here, there = {}, {}
    for task, head in TASKS.items():
        here[task] = str(tiny.make(tmp_path / head, "bert", head))
        shutil.copytree(here[task], pyodide.folder / head)
        there[task] = f"/work/{head}"
    names = {"folders": here, "texts": tiny.TEXTS}
    exec(CODE, names)
    got = pyodide.run(CODE + ARRAY, folders=there, texts=tiny.TEXTS)
    assert got == rounded(json.loads(json.dumps(names["result"])))
