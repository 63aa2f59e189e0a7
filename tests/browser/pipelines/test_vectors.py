"""Search in vectors and texts in a page: results and files are those of Python and NumPy."""

import base64

import edgewise
import numpy as np
import pytest
from edgewise.pipelines.vectors import VectorIndex

from . import models

TEXTS = [
    "A cat sat on the mat.",
    "Stocks fell on Friday.",
    "The fox jumps over a lazy dog.",
    "Rain is expected in the north.",
]

VECTORS = """
    const floats = (text) =>
      new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
    const tensor = ([text, ...dims]) => new ew.Tensor("float32", floats(text), dims);
    const index = await ew.VectorIndex.create([], { precision: arg.precision });
    const kind = (e) => ["InputError", "ModelError"].find((name) => e instanceof ew[name]);
    const found = [], errors = [];
    for (const part of arg.parts) {
      await index.add(tensor(part));
      found.push(await index.search(tensor(arg.queries), { top_k: arg.top_k }));
    }
    const size = index.size;
    const fails = [
      () => index.add([[...Array(size - 1).fill(0), NaN]]),
      () => index.add([[1, 2]]),
      () => index.search([[1]]),
      () => index.search(tensor(arg.queries), { top_k: 0 }),
      () => index.add("text"),
      () => index.add([[1], [1, 2]]),
      () => ew.VectorIndex.create([], { precision: "int4" }),
      () => ew.VectorIndex.load(new Blob(["nothing"])),
    ];
    for (const fail of fails)
      errors.push(await fail().then(() => "", (e) => [kind(e), e.message]));
    const file = await index.save();
    const again = await ew.VectorIndex.load(file);
    const same = await again.search(tensor(arg.queries), { top_k: arg.top_k });
    const data = Array.from(new Uint8Array(await file.arrayBuffer()), (b) =>
      String.fromCharCode(b)).join("");
    const lengths = [index.length, again.length];
    await again.dispose();
    const theirs = await ew.VectorIndex.load(floats(arg.file).buffer);
    const read = await theirs.search(tensor(arg.queries), { top_k: arg.top_k });
    await theirs.dispose();
    await index.dispose();
    return { found, errors, same, read, lengths, file: btoa(data) };
"""


def sent(array):
    return [base64.b64encode(array.astype(np.float32).tobytes()).decode(), *array.shape]


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_vectors_as_in_python(visit, server, precision):
    random = np.random.default_rng(5)
    parts = [random.normal(size=(n, 130)).astype(np.float32) for n in (3, 1, 900, 60)]
    queries = random.normal(size=(2, 130)).astype(np.float32)
    index = VectorIndex(precision=precision)
    expected = []
    for part in parts:
        index.add(part)
        expected.append(index.search(queries, 7))
    file = index.save()
    page = visit(server)
    found = page.run(
        VECTORS,
        {
            "precision": precision,
            "parts": [sent(part) for part in parts],
            "queries": sent(queries),
            "top_k": 7,
            "file": base64.b64encode(file).decode(),
        },
    )
    assert "error" not in found, found
    assert found["found"] == expected == [*expected[:3], found["same"]]
    assert found["read"] == expected[-1] and found["lengths"] == [964, 964]
    assert VectorIndex.load(base64.b64decode(found["file"])).search(queries, 7) == expected[-1]
    kinds, words = zip(*found["errors"], strict=True)
    assert kinds == ("InputError",) * 7 + ("ModelError",)
    assert "not finite" in words[0] and "numbers" in words[1]
    assert page.asked("worker-vectors")


TEXTS_OF = """
    const embed = await ew.pipeline("embeddings", arg.model, { device: "wasm" });
    const options = { pooling: "mean", precision: "int8" };
    const index = await embed.index(arg.texts.slice(0, 2), options);
    await Promise.all(arg.texts.slice(2).map((text) => index.add(text)));
    const found = await index.search(arg.texts, { top_k: 2 });
    const one = await index.search(arg.texts[1]);
    const file = await index.save();
    const again = await embed.loadIndex(file, { pooling: "mean" });
    const other = Uint8Array.from(atob(arg.other), (c) => c.charCodeAt(0));
    const errors = [];
    const fails = [
      () => embed.loadIndex(other, { pooling: "mean" }),
      () => embed.index("a"),
      () => embed.index("a", { pooling: "mean", quantize: true }),
    ];
    for (const fail of fails) errors.push(await fail().then(() => "", (e) => e.message));
    const same = await again.search(arg.texts[1]);
    const data = Array.from(new Uint8Array(await file.arrayBuffer()), (b) =>
      String.fromCharCode(b)).join("");
    const texts = again.texts;
    await Promise.all([index.dispose(), again.dispose(), embed.dispose()]);
    return { found, one, same, texts, errors, file: btoa(data) };
"""


def test_texts(visit, server, files):
    folder = files / "searched"
    models.save(folder, "feature-extraction")
    page = visit(server)
    vectors = np.random.default_rng(6).normal(size=(4, 32)).astype(np.float32)
    other = base64.b64encode(VectorIndex(vectors).save(texts=TEXTS)).decode()  # of another model
    found = page.run(TEXTS_OF, {"model": "/files/searched/", "texts": TEXTS, "other": other})
    assert "error" not in found, found
    assert [[m["text"] for m in row][0] for row in found["found"]] == TEXTS
    assert [m["text"] for m in found["one"]][0] == TEXTS[1] and len(found["one"]) == 4
    assert found["same"] == found["one"] and found["texts"] == TEXTS
    assert "another model or other options" in found["errors"][0]
    assert "one vector of each text" in found["errors"][1] and "quantize" in found["errors"][2]
    with edgewise.pipeline("embeddings", folder) as embed:
        again = embed.load_index(base64.b64decode(found["file"]), pooling="mean")
        ours = again.search(TEXTS[1])
        assert [m["text"] for m in ours] == [m["text"] for m in found["one"]]
        np.testing.assert_allclose(
            [m["score"] for m in ours], [m["score"] for m in found["one"]], atol=1e-4
        )
