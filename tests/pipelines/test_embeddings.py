"""feature-extraction: states as transformers', embeddings as sentence-transformers', search."""

import itertools
import json
import math
import os
import shutil
from pathlib import Path

import edgewise
import pytest
from edgewise.errors import InputError, ModelError
from edgewise.pipelines.vectors import VectorIndex

from . import tiny
from .tiny import TEXTS

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

REAL = Path(os.environ.get("EDGEWISE_REAL", "/nowhere")) / "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def models(tiny_model):
    """{kind: (folder, transformers' model and tokenizer)}"""
    made = {}
    for kind in ("bert", "roberta"):
        folder = tiny_model(kind, "base")
        made[kind] = (
            folder,
            transformers.AutoModel.from_pretrained(folder).eval(),
            transformers.AutoTokenizer.from_pretrained(folder),
        )
    return made


def states(model, tokenizer, text, **options):
    with torch.no_grad():
        given = tokenizer(text, return_tensors="pt", **options)
        return model(**given).last_hidden_state[0]


def pooled(x, how):
    """One vector of states [tokens, size], as sentence-transformers' Pooling."""
    n, each = len(x), torch.arange(1, len(x) + 1)[:, None]
    return {
        "mean": lambda: x.mean(0),
        "cls": lambda: x[0],
        "first_token": lambda: x[0],
        "max": lambda: x.max(0).values,
        "mean_sqrt_len": lambda: x.sum(0) / math.sqrt(n),
        "weightedmean": lambda: (x * each).sum(0) / each.sum(),
        "last_token": lambda: x[-1],
        "eos": lambda: x[-1],
    }[how]()


def close(ours, theirs, atol=1e-5):
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=atol, rtol=5e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_states_are_those_of_transformers(models, kind):
    folder, *_ = models[kind]
    ours = edgewise.pipeline("feature-extraction", folder)
    theirs = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    for given in (TEXTS[0], TEXTS):
        mine, other = ours(given), theirs(given)
        assert isinstance(mine, list) and len(mine) == len(other)
        for a, b in zip(mine, other):
            close(a, b)
    close(ours(TEXTS[0], return_tensors=True), theirs(TEXTS[0], return_tensors=True))
    long = " ".join(TEXTS * 3)
    kwargs = {"truncation": True, "max_length": 12}
    close(ours(long, tokenize_kwargs=kwargs), theirs(long, tokenize_kwargs=kwargs))
    close(ours(long, max_length=12), theirs(long, tokenize_kwargs=kwargs))
    close(ours(long), theirs(long, truncation=True))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_pooling_and_what_follows(models, kind):
    folder, model, tokenizer = models[kind]
    pipe = edgewise.pipeline("embeddings", folder)
    for how in ("mean", "cls", "first_token", "max", "mean_sqrt_len", "weightedmean",
                "last_token", "eos"):  # fmt: skip
        expected = [pooled(states(model, tokenizer, t), how) for t in TEXTS]
        close(pipe(TEXTS, pooling=how), torch.stack(expected))
    expected = torch.stack([pooled(states(model, tokenizer, t), "mean") for t in TEXTS])
    normal = torch.nn.functional.normalize
    close(pipe(TEXTS, pooling="mean", normalize=True), normal(expected, dim=1))
    close(pipe(TEXTS, pooling="mean", normalize=True, dimensions=8), normal(expected[:, :8], dim=1))
    array = pipe(TEXTS, pooling="mean", return_tensors=True)
    assert array.shape == (len(TEXTS), 32) and str(array.dtype) == "float32"
    bits = np.packbits(expected.numpy() > 0, axis=1)
    ubinary = pipe(TEXTS, pooling="mean", quantize=True, precision="ubinary", return_tensors=True)
    assert ubinary.dtype == np.uint8 and (ubinary == bits).all()
    binary = pipe(TEXTS, pooling="mean", quantize=True, return_tensors=True)
    assert binary.dtype == np.int8 and (binary == (bits.astype(int) - 128)).all()
    assert pipe(TEXTS, pooling="mean") == [pipe(t, pooling="mean") for t in TEXTS]
    with pytest.raises(InputError, match="between 1 and 32"):
        pipe("a", pooling="mean", dimensions=33)
    with pytest.raises(InputError, match="multiple of 8"):
        pipe("a", pooling="mean", dimensions=9, quantize=True)
    with pytest.raises(InputError, match="Set pooling"):
        pipe("a", precision="binary")


@pytest.fixture
def sentence_model(models, tmp_path):
    """function(pooling, **config) that returns a folder with the files of sentence-transformers."""

    def make(pooling, normalize=True, **config):
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(models["bert"][0], folder)
        tiny.as_sentence_transformer(folder, pooling, normalize, **config)
        return folder

    return make


def test_pooling_is_read_from_the_model(models, sentence_model):
    _, model, tokenizer = models["bert"]
    normal = torch.nn.functional.normalize
    x = states(model, tokenizer, TEXTS[0])
    both = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
    for pooling, names in (
        ({"pooling_mode_mean_tokens": True}, ["mean"]),
        ({"pooling_mode": "lasttoken"}, ["last_token"]),
        (both, ["cls", "mean"]),
    ):
        expected = torch.cat([pooled(x, n) for n in names])
        folder = sentence_model(pooling)
        close(edgewise.pipeline("embeddings", folder)(TEXTS[0]), normal(expected, dim=0))
        folder = sentence_model(pooling, normalize=False)
        close(edgewise.pipeline("embeddings", folder)(TEXTS[0]), expected)
    folder = sentence_model({})
    (folder / "1_Pooling" / "config.json").unlink()
    pipe = edgewise.pipeline("embeddings", folder)
    with pytest.raises(InputError, match="1_Pooling/config.json is missing"):
        pipe("a")
    close(pipe(TEXTS[0], pooling="mean"), pooled(x, "mean"))
    with pytest.raises(InputError, match="5 is not a way of pooling"):
        edgewise.pipeline("embeddings", sentence_model({"pooling_mode": 5}))


def test_prompts(models, sentence_model):
    _, model, tokenizer = models["bert"]
    prompts = {"query": "the fox: ", "document": "the dog: "}
    mean = {"pooling_mode_mean_tokens": True}
    folder = sentence_model(mean, False, prompts=prompts, default_prompt_name="document")
    pipe = edgewise.pipeline("embeddings", folder)

    def expected(prompt):
        return pooled(states(model, tokenizer, prompt + TEXTS[0]), "mean")

    close(pipe(TEXTS[0]), expected("the dog: "))
    close(pipe(TEXTS[0], prompt_name="query"), expected("the fox: "))
    close(pipe(TEXTS[0], prompt="in "), expected("in "))
    close(pipe(TEXTS[0], prompt=""), expected(""))
    with pytest.raises(InputError, match="no prompt 'other'"):
        pipe("a", prompt_name="other")
    folder = sentence_model({**mean, "include_prompt": False}, False, prompts=prompts)
    pipe = edgewise.pipeline("embeddings", folder, prompt_name="query")
    skip = len(tokenizer("the fox: ")["input_ids"]) - 1  # without [SEP]
    close(pipe(TEXTS[0]), states(model, tokenizer, "the fox: " + TEXTS[0])[skip:].mean(0))


def test_modules_that_the_graph_lacks(sentence_model):
    folder = sentence_model({"pooling_mode_mean_tokens": True})
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 3, "path": "3_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules))
    pipe = edgewise.pipeline("embeddings", folder)
    with pytest.raises(InputError, match="need Dense"):
        pipe("a")
    assert len(pipe("a", pooling="mean")) == 32


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_batches_are_padded(models, kind, monkeypatch):
    """Texts that run together have the results that they have alone, in the order of the list."""
    pipe = edgewise.pipeline("embeddings", models[kind][0], pooling="mean")
    texts = [*TEXTS, "a", " ".join(TEXTS), "b c"]
    assert pipe.can_pad
    alone = pipe(texts)
    session, sizes = pipe.session("model"), []
    run = session.run

    def recorded(outputs, feeds):
        sizes.append(len(feeds["input_ids"]))
        return run(outputs, feeds)

    monkeypatch.setattr(session, "run", recorded)
    together = pipe(texts, batch_size=3)
    assert sum(sizes) == len(texts) and max(sizes) == 3
    close(together, alone)
    close(list(pipe(iter(texts), batch_size=4)), alone)
    for how in ("cls", "max", "last_token"):
        close(pipe(texts, batch_size=3, pooling=how), pipe(texts, pooling=how))
    for a, b in zip(pipe(texts, batch_size=3, pooling="none"), pipe(texts, pooling="none")):
        close(a, b)


def test_dynamically_quantized_models_run_each_text_alone(models, tmp_path):
    """They quantize over all tokens of a run, so neighbors would change the result."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    folder = tmp_path / "model"
    shutil.copytree(models["bert"][0], folder)
    path = folder / "onnx" / "model.onnx"
    quantization.quantize_dynamic(path, folder / "onnx" / "model_quantized.onnx")
    pipe = edgewise.pipeline("embeddings", folder, dtype="q8", pooling="mean")
    assert not pipe.can_pad
    assert pipe(TEXTS, batch_size=3) == pipe(TEXTS) == [pipe(t) for t in TEXTS]
    close(pipe(TEXTS), pipe(TEXTS[::-1])[::-1], atol=0)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_search(sentence_model, precision):
    pipe = edgewise.pipeline("embeddings", sentence_model({"pooling_mode_mean_tokens": True}))
    index = pipe.index(TEXTS[:3], precision=precision)
    index.add(TEXTS[3:])
    vectors = np.array(pipe(TEXTS))
    for query in TEXTS:
        scores = vectors @ np.array(pipe(query))
        found = index.search(query, top_k=3)
        order = [r["corpus_id"] for r in found]
        assert order[0] == TEXTS.index(query) and found[0]["text"] == query
        close([r["score"] for r in found], scores[order], 1e-5 if precision == "float32" else 0.01)
        if precision == "float32":
            assert order == np.argsort(-scores)[:3].tolist()
    for size in (8, 200):  # less and more than a block, which is not full
        vectors = np.random.default_rng(1).normal(size=(50, size)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        found = VectorIndex(vectors, precision).search(vectors[:3], top_k=50)
        for i, row in enumerate(found):
            expected = vectors @ vectors[i]
            assert row[0]["corpus_id"] == i
            close([r["score"] for r in row], expected[[r["corpus_id"] for r in row]], 1e-2)
    assert len(index.search(TEXTS, top_k=50)) == len(TEXTS)
    assert len(index.search(TEXTS[0], top_k=50)) == len(TEXTS)
    assert pipe.index().search("nothing is kept") == []
    with pytest.raises(InputError, match="top_k"):
        index.search("a", top_k=0)


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_any_number_of_results_from_one_copy_of_the_vectors(precision):
    vectors = np.random.default_rng(2).normal(size=(400, 128)).astype(np.float32)
    index = VectorIndex(vectors, precision)
    for top_k in (1, 7, 400, 2, 7):
        (found,) = index.search(vectors[:1], top_k)
        assert len(found) == top_k and found[0]["corpus_id"] == 0
        want = np.sort(vectors @ vectors[0])[::-1][:top_k]
        # A byte is off by half of a 127th of the greatest number, in both vectors.
        np.testing.assert_allclose(
            [f["score"] for f in found], want, atol=1e-4 if precision == "float32" else 2
        )


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_index_that_grows_in_any_steps_finds_what_numpy_finds(precision):
    random = np.random.default_rng(3)
    for size in (1, 3, 128, 129, 384):
        steps = [random.normal(size=(n, size)).astype(np.float32) for n in (1, 1, 63, 700, 1, 40)]
        steps.append(steps[0].copy())  # equal scores: the first one comes first
        index = VectorIndex(precision=precision)
        vectors = np.zeros((0, size), np.float32)
        for rows in steps:
            index.add(rows)
            vectors = np.concatenate([vectors, rows])
            query = random.normal(size=(2, size)).astype(np.float32)
            query[1] = rows[0]
            for q, found in zip(query, index.search(query, top_k=5), strict=True):
                kept = _kept(vectors) if precision == "int8" else vectors
                scores = kept @ q.astype(np.float64)
                best = np.sort(scores)[::-1][: len(found)]
                assert len(found) == min(5, len(vectors))
                np.testing.assert_allclose(
                    [f["score"] for f in found], best, rtol=2e-4, atol=2e-4 * np.abs(scores).max()
                )
                for a, b in itertools.pairwise(found):
                    assert (-a["score"], a["corpus_id"]) < (-b["score"], b["corpus_id"])
        again = VectorIndex.load(index.save())
        assert again.search(query, 9) == index.search(query, 9) and len(again) == len(index)


def _kept(vectors):
    """Vectors of bytes, with a scale for every 128 numbers, as float64."""
    out = np.zeros(vectors.shape)
    for at in range(0, vectors.shape[1], 128):
        block = vectors[:, at : at + 128].astype(np.float64)
        scale = np.abs(block).max(axis=1, keepdims=True) / 127
        out[:, at : at + 128] = np.round(block / np.where(scale, scale, 1)) * scale
    return out


def test_vectors_that_cannot_be_compared_are_refused_and_nothing_is_lost():
    good = np.eye(3, 5, dtype=np.float32)
    for precision in ("float32", "int8"):
        index = VectorIndex(good, precision)
        for bad in (np.nan, np.inf, -np.inf):
            rows = good.copy()
            rows[2, 4] = bad
            with pytest.raises(InputError, match="not finite"):
                index.add(rows)
        with pytest.raises(InputError, match="numbers, those in the index 5"):
            index.add(np.ones((2, 4), np.float32))
        with pytest.raises(InputError, match="numbers, those in the index 5"):
            index.search(np.ones((1, 6), np.float32))
        (found,) = index.search(good[1:2], 9)
        assert [f["corpus_id"] for f in found] == [1, 0, 2] and found[0]["score"] == 1
        assert index.search(np.full((1, 5), 1e-42, np.float32), 1)[0][0]["corpus_id"] == 0
    with pytest.raises(InputError, match="not finite"):  # of bytes, whose scale would not be
        index.search(np.full((1, 5), np.nan, np.float32))


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_index_goes_on_after_what_was_refused(precision, monkeypatch):
    vectors = np.random.default_rng(5).normal(size=(64, 8)).astype(np.float32)  # a full part
    index = VectorIndex(vectors, precision)
    expected = index.search(vectors[:2], 5)
    with pytest.raises(InputError, match="not finite"):
        index.add(np.full((1, 8), np.nan, np.float32))
    assert index.search(vectors[:2], 5) == expected and len(index) == 64
    for texts in (["a"], "a" * 64, [1] * 64):
        with pytest.raises(InputError, match="text"):
            index.save(texts=texts)
    file = index.save()
    monkeypatch.setattr("edgewise.host.pipelines.vectors.MAX_PART", 10 * 32)  # several parts
    again = VectorIndex.load(file)
    assert again.search(vectors[:2], 5) == expected
    again.add(vectors[:3])
    assert [f["corpus_id"] for f in again.search(vectors[:1], 2)[0]] == [0, 64]


def test_index_files(sentence_model, tmp_path):
    """A file of an index is read again with its texts, and damaged ones are refused."""
    pipe = edgewise.pipeline("embeddings", sentence_model({"pooling_mode_mean_tokens": True}))
    index = pipe.index(TEXTS, precision="int8", pooling="mean")
    index.save(tmp_path / "notes.safetensors")
    again = pipe.load_index(tmp_path / "notes.safetensors", pooling="mean")
    assert again.texts == TEXTS and again.search(TEXTS[1], 3) == index.search(TEXTS[1], 3)
    again.add("More")
    assert len(again) == len(TEXTS) + 1
    own = np.array(pipe(TEXTS[:1], pooling="mean", normalize=True)[0])
    for away in (-own, 5 * own):  # what no other options make surely, and another length
        rows = np.tile(away, (len(TEXTS), 1)).astype(np.float32)
        with pytest.raises(InputError, match="another model or other options"):
            pipe.load_index(VectorIndex(rows, "int8").save(texts=TEXTS), pooling="mean")
    data = index.save()
    with pytest.raises(ModelError):
        pipe.load_index(data[:-1], pooling="mean")
    random = np.random.default_rng(4)
    refused = 0
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(random.integers(1, 4)):
            broken[random.integers(0, min(len(broken), 600))] = random.integers(0, 256)
        try:
            pipe.load_index(bytes(broken), pooling="mean").search("a", 2)
        except (InputError, ModelError):
            refused += 1
    assert refused > 200
    empty = pipe.load_index(pipe.index().save(), pooling="mean")
    assert len(empty) == 0 and empty.search("x") == []


@pytest.mark.skipif(not REAL.exists(), reason="EDGEWISE_REAL has no all-MiniLM-L6-v2")
@pytest.mark.parametrize("dtype, least", [("fp32", 0.99999), ("q8", 0.9999)])
@pytest.mark.family("MiniLM", exporter="real")
def test_minilm(dtype, least):
    """Against onnxruntime on the same file, pooled as sentence-transformers pools."""
    onnxruntime = pytest.importorskip("onnxruntime")
    name = "model.onnx" if dtype == "fp32" else "model_quantized.onnx"
    session = onnxruntime.InferenceSession(str(REAL / "onnx" / name))
    tokenizer = transformers.AutoTokenizer.from_pretrained(REAL, model_max_length=256)
    texts = ["cat", "kitten", "stocks", *TEXTS, " ".join(TEXTS * 9)]
    pipe = edgewise.pipeline("feature-extraction", REAL, dtype=dtype)
    for text, ours in zip(texts, pipe(texts)):
        given = tokenizer(text, truncation=True, return_tensors="np", return_token_type_ids=True)
        feeds = {i.name: given[i.name].astype(np.int64) for i in session.get_inputs()}
        (x,) = session.run([session.get_outputs()[0].name], feeds)
        theirs = x[0].mean(0) / np.linalg.norm(x[0].mean(0))
        assert float(np.dot(ours, theirs)) >= least
    assert pipe.can_pad  # its weights alone are quantized
    close(pipe(texts, batch_size=4), pipe(texts), atol=2e-6)
