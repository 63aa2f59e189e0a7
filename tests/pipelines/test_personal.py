"""personalize: features, heads, exports. References are torch and onnxruntime."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from edgewise import Array, personalize, pipeline
from edgewise.compiler.heads import graph as graph_with_head
from edgewise.compiler.heads.examples import Examples
from edgewise.compiler.heads.features import digest_of, find_features
from edgewise.compiler.heads.step import ADAM
from edgewise.errors import EdgewiseError, InputError
from edgewise.host.heads import exports as exports
from edgewise.host.heads.fit import fit
from edgewise.host.session.open import folder_files
from edgewise.logic.personal.options import HeadFields
from edgewise.logic.personal.training import rate_of
from edgewise.onnx import BytesSource, FileSource, read_model
from edgewise.package import Package

from . import tiny, tiny_audio, tiny_images

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
WEIGHTS = ("balanced", None, {"b": 3.0})


def blobs(size=24, counts=(12, 5, 3), seed=0, distance=0.7):
    """Features around a center for each label."""
    rng = np.random.default_rng(seed)
    examples, centers = Examples(size), rng.standard_normal((len(counts), size)) * distance
    for label, count, center in zip("abcdefgh", counts, centers):
        rows = (center + rng.standard_normal((count, size)) + 2).astype(np.float32)
        examples.add(label, [row.tobytes() for row in rows])
    return examples


def arrays(examples):
    x = np.frombuffer(bytes(examples.data), np.float32).reshape(len(examples), -1)
    return x.astype(np.float64), np.array(examples.classes)


def reference(examples, options, optimizer):
    """(weights, bias, losses) that torch finds in float64, for features as they are."""
    x, y = arrays(examples)
    mean = x.mean(0)
    scale = 1 / np.sqrt(np.mean((x - mean) ** 2))
    given = torch.tensor((x - mean) * scale)
    counts = examples.counts()
    weights = {"balanced": [len(y) / len(counts) / n for n in counts], None: [1.0] * len(counts)}
    chosen = options.class_weight
    if isinstance(chosen, dict):
        of = [chosen.get(label, 1.0) for label in examples.labels]
    else:
        of = weights[chosen]
    of = torch.tensor([of[c] for c in y], dtype=torch.float64)
    w = torch.zeros(x.shape[1], len(counts), dtype=torch.float64, requires_grad=True)
    b = torch.zeros(len(counts), dtype=torch.float64, requires_grad=True)

    def loss():
        each = torch.nn.functional.cross_entropy(given @ w + b, torch.tensor(y), reduction="none")
        penalty = 0.5 / (options.c * of.sum()) * (w * w).sum()
        return (each * of).sum() / of.sum() + penalty

    losses = optimizer([w, b], loss)
    w, b = w.detach().numpy() * scale, b.detach().numpy()
    return w, b - mean @ w, losses


def adam(options):
    """Gradients are torch's, updates those of ONNX's reference."""
    from onnx.reference.ops.aionnx_preview_training.op_adam import _apply_adam

    def run(parameters, loss):
        losses, moments = [], [[p.detach().numpy() * 0, p.detach().numpy() * 0] for p in parameters]
        for i in range(options.steps):
            value = loss()
            losses.append(value.item())
            gradients = torch.autograd.grad(value, parameters)
            for p, g, kept in zip(parameters, gradients, moments):
                new, *kept[:] = _apply_adam(
                    *(
                        rate_of(i, options.steps, options.learning_rate),
                        i + 1,
                        p.detach().numpy(),
                        g.numpy(),
                        *kept,
                    ),
                    *(0.0, 0.0, ADAM["alpha"], ADAM["beta"], ADAM["epsilon"]),
                )
                p.data = torch.tensor(new)
        return losses

    return run


def newton(parameters, loss):
    rule = torch.optim.LBFGS(
        parameters, max_iter=2000, tolerance_grad=1e-10, line_search_fn="strong_wolfe"
    )

    def closure():
        rule.zero_grad()
        value = loss()
        value.backward()
        return value

    rule.step(closure)
    return [loss().item()]


def numbers(head):
    w = np.frombuffer(head.weight, np.float32).reshape(-1, len(head.labels))
    return w, np.frombuffer(head.bias, np.float32)


@pytest.mark.parametrize("class_weight", WEIGHTS, ids=["balanced", "none", "dict"])
def test_each_step_is_that_of_torch(class_weight):
    examples = blobs()
    options = HeadFields(c=0.5, class_weight=class_weight, steps=60)
    head = fit(examples, options)
    w, b, losses = reference(examples, options, adam(options))
    assert np.abs(np.array(head.losses) - losses).max() < 1e-4
    got_w, got_b = numbers(head)
    assert np.abs(got_w - w).max() < 2e-4 and np.abs(got_b - b).max() < 1e-3


@pytest.mark.parametrize("counts", [(12, 5, 3), (1, 1), (20,) * 8])
def test_the_result_is_that_of_logistic_regression(counts):
    examples, options = blobs(64, counts), HeadFields()
    head = fit(examples, options)
    w, b, [loss] = reference(examples, options, newton)
    assert head.losses[-1] == pytest.approx(loss, rel=1e-3, abs=1e-4)
    x, _ = arrays(blobs(64, counts, seed=1))
    got_w, got_b = numbers(head)
    softmax = lambda z: torch.softmax(torch.tensor(z), 1).numpy()  # noqa: E731
    assert np.abs(softmax(x @ w + b) - softmax(x @ got_w + got_b)).max() < 0.01


def test_the_order_of_examples_does_not_matter():
    examples = blobs()
    order = np.random.default_rng(3).permutation(len(examples))
    one, two = fit(examples), fit(examples.chosen([int(i) for i in order]))
    assert np.abs(numbers(one)[0] - numbers(two)[0]).max() < 1e-5
    assert fit(examples).weight == one.weight


def pictures(label, count, seed=0):
    """Noise of one color."""
    rng = np.random.default_rng([seed, label])
    color = np.eye(3)[label] * 120 + 60
    return [
        np.clip(color + rng.normal(0, 40, (40, 40, 3)), 0, 255).astype(np.uint8)
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return tiny_images.make(tmp_path_factory.mktemp("vit"), "vit")


@pytest.fixture(scope="module")
def mine(vit):
    pipe = pipeline("image-classification", vit)
    examples = {name: pictures(i, 4) for i, name in enumerate(("red", "green"))}
    return personalize(pipe, examples, other=pictures(2, 4), name="colors")


def hooked(model, layer, inputs):
    """The input of a layer of a model of transformers."""
    found = []
    model.get_submodule(layer).register_forward_hook(lambda _, x, y: found.append(x[0]))
    with torch.no_grad():
        model.eval()(**{k: torch.tensor(np.asarray(v)) for k, v in inputs.items()})
    return found[0].numpy().reshape(-1)


def test_features_are_the_inputs_of_the_last_layer(vit, mine, tmp_path_factory):
    import transformers

    pipe = mine.backbone.pipe
    picture = pictures(0, 1)[0]
    model = transformers.ViTForImageClassification.from_pretrained(vit)
    wanted = hooked(model, "classifier", pipe.processor(pipe.picture(picture)))
    assert np.abs(np.frombuffer(mine.backbone.of(picture), "f") - wanted).max() < 1e-4

    folder = tiny.make(tmp_path_factory.mktemp("bert"), "bert", "sequence")
    texts = personalize(pipeline("text-classification", folder), {"x": ["a b"], "y": ["c d"]})
    model = transformers.BertForSequenceClassification.from_pretrained(folder)
    encoded = transformers.AutoTokenizer.from_pretrained(folder)("the fox", return_tensors="np")
    wanted = hooked(model, "classifier", encoded)
    assert np.abs(np.frombuffer(texts.backbone.of("the fox"), "f") - wanted).max() < 1e-4

    for kind, layer in (("AST", "classifier.dense"), ("Wav2Vec2", "classifier")):
        folder = tiny_audio.make(tmp_path_factory.mktemp(kind), kind)
        noise = np.random.default_rng(0).standard_normal((3, 8000)).astype("f") * 0.1
        pipe = pipeline("audio-classification", folder)
        sounds = personalize(pipe, {"a": [noise[0]], "b": [noise[1]]})
        kinds = {"AST": transformers.ASTForAudioClassification}
        kinds["Wav2Vec2"] = transformers.Wav2Vec2ForSequenceClassification
        model = kinds[kind].from_pretrained(folder)
        wanted = hooked(model, layer, pipe.inputs_of(noise[2]))
        assert np.abs(np.frombuffer(sounds.backbone.of(noise[2]), "f") - wanted).max() < 2e-4


@pytest.mark.parametrize("form", ["dynamic", "QDQ"])
def test_features_of_quantized_models(vit, mine, tmp_path, form):
    quantization = pytest.importorskip("onnxruntime.quantization")
    path = tmp_path / "model.onnx"
    source = str(vit / "onnx" / "model.onnx")
    if form == "dynamic":
        quantization.quantize_dynamic(source, path)
    else:

        class Reader(quantization.CalibrationDataReader):
            rows = iter([{"pixel_values": np.random.rand(1, 3, 32, 32).astype("f")}] * 2)

            def get_next(self):
                return next(self.rows, None)

        quantization.quantize_static(source, path, Reader())
    found = find_features(read_model(FileSource(str(path))), "image", "vit")
    assert found.tensor.split("_Quantize")[0] == mine.backbone.features.tensor


def test_the_digest_is_that_of_the_model(vit, tmp_path):
    path = str(vit / "onnx" / "model.onnx")
    digests = set()
    for ran in (False, True):
        pipe = pipeline("image-classification", vit)
        if ran:
            pipe(pictures(0, 1)[0])  # makes constants of Constant nodes
        digests.add(personalize(pipe, {"a": pictures(0, 1), "b": pictures(1, 1)}).backbone.digest)
    graph = read_model(FileSource(path))
    digests.add(digest_of(graph, find_features(graph, "image", "vit")))
    assert len(digests) == 1
    other = tiny_images.make(tmp_path / "other", "vit", hidden_size=64)
    graph = read_model(FileSource(str(other / "onnx" / "model.onnx")))
    assert digest_of(graph, find_features(graph, "image", "vit")) not in digests


def test_calls_are_those_of_the_task(mine):
    found = mine(pictures(0, 1, 5)[0])
    assert [set(x) for x in found] == [{"label", "score"}] * 3
    assert found[0]["label"] == "red" and sum(x["score"] for x in found) == pytest.approx(1)
    both = mine(pictures(1, 2, 5), top_k=1)
    assert [x[0]["label"] for x in both] == ["green", "green"]
    assert list(mine(iter(pictures(2, 1, 5)), top_k=1))[0][0]["label"] == "other"
    logits = {x["label"]: x["score"] for x in mine(pictures(0, 1, 5)[0], function_to_apply="none")}
    scores = {x["label"]: x["score"] for x in found}
    assert np.log(scores["red"] / scores["green"]) == pytest.approx(
        logits["red"] - logits["green"], abs=1e-4
    )
    with pytest.raises(InputError, match="there is no option 'k'"):
        mine(pictures(0, 1)[0], k=1)
    own = mine.backbone.pipe(pictures(0, 1)[0], top_k=1)  # the pipeline itself has its own labels
    assert own[0]["label"] in tiny_images.LABELS


def test_heads_are_changed_saved_and_switched(mine, vit, tmp_path):
    data = mine.save(None)
    pipe = pipeline("image-classification", vit)
    again = personalize(pipe, data)
    picture = pictures(1, 1, 7)[0]
    assert again(picture) == mine(picture) and again.heads == ["colors"]
    again.save(tmp_path / "colors.safetensors")
    again.teach({"dark": pictures(0, 2), "light": pictures(1, 2)}, name="light")
    assert again.labels == ["dark", "light"] and again.heads == ["colors", "light"]
    again.use("colors")
    assert again(picture) == mine(picture)
    grey = [np.full((40, 40, 3), v, np.uint8) for v in (100, 120, 140)]
    again.add("grey", grey[:2])
    assert again.labels[-1] == "grey" and again(grey[0], top_k=1)[0]["label"] == "grey"
    again.remove("grey")
    assert again(picture) == mine(picture)
    again.load(tmp_path / "colors.safetensors", name="copy")
    assert again.name == "copy" and again(picture) == mine(picture)
    with pytest.raises(InputError, match="there is no head 'x'"):
        again.use("x")
    other = pipeline("image-feature-extraction", vit)
    with pytest.raises(InputError, match="another model|outputs"):
        personalize(other, data, pooling="mean")


@pytest.mark.parametrize("at", [3, 60, 200, 400, -20])
def test_damaged_heads(mine, at):
    data = bytearray(mine.save(None))
    data[at] ^= 0x5A
    try:
        personalize(mine.backbone.pipe, bytes(data))
    except EdgewiseError:
        pass


def test_evaluation_is_on_held_out_examples(mine, vit):
    found = mine.evaluate({"red": pictures(0, 3, 9), "green": pictures(1, 3, 9)})
    assert found["accuracy"] == 1 and found["count"] == 6
    assert found["confusion"] == {"red": {"red": 3}, "green": {"green": 3}}
    assert found["equal_error_rates"]["red"]["rate"] == 0
    wrong = mine.evaluate({"red": pictures(1, 2, 9), "blue": pictures(2, 2, 9)})
    assert wrong["accuracy"] == 0.5
    assert wrong["confusion"] == {"red": {"green": 2}, "other": {"other": 2}}
    examples = {name: pictures(i, 8) for i, name in enumerate(("red", "green"))}
    pipe = mine.backbone.pipe
    one, two = (personalize(pipe, examples, validation_split=0.25, seed=3) for _ in range(2))
    assert one.validation == two.validation and one.validation["count"] == 4
    assert one.validation["accuracy"] == 1
    one.teach({"a": pictures(0, 2), "b": pictures(1, 2)}, name="other")
    assert one.validation is None
    one.use("default")
    assert one.validation == two.validation
    one.add("red", pictures(0, 1, 5))  # another head, which nothing has measured
    assert one.validation is None
    two.load(two.save(None))
    assert two.validation is None


def test_personal_pipelines_share_their_features(vit):
    """Those of one pipeline, also when threads make them, add outputs to its graph once."""
    pipe = pipeline("image-classification", vit)
    examples = {name: pictures(i, 2) for i, name in enumerate(("red", "green"))}

    def make(_):
        return personalize(pipe, examples, pooling="mean")(pictures(0, 1, 7)[0])

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(make, range(3)))
    count = len(pipe.session("model").outputs)
    assert found == [make(0)] * 3
    assert len(pipe.session("model").outputs) == count <= 3


def test_nearest_examples(mine):
    examples = {name: pictures(i, 3) for i, name in enumerate(("red", "green"))}
    near = personalize(mine.backbone.pipe, examples, method="knn", neighbors=4)
    picture = pictures(0, 1, 5)[0]
    rows = [mine.backbone.of(p) for p in [*examples["red"], *examples["green"], picture]]
    unit = np.array([np.frombuffer(r, "f") for r in rows], np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit[:6] @ unit[6]
    four = np.argsort(-cosines)[:4]
    wanted = np.maximum(cosines[four[four < 3]], 0).sum() / np.maximum(cosines[four], 0).sum()
    scores = {x["label"]: x["score"] for x in near(picture)}
    assert scores["red"] == pytest.approx(wanted, abs=1e-5)
    loaded = personalize(mine.backbone.pipe, near.save(None))
    assert loaded(picture) == near(picture) and loaded.neighbors == 4
    alone = personalize(mine.backbone.pipe, {"one": pictures(0, 1)}, method="knn")
    assert alone(picture) == [{"label": "one", "score": pytest.approx(1)}]
    with pytest.raises(InputError, match="no logits"):
        near(picture, function_to_apply="none")
    with pytest.raises(InputError, match="no head"):
        near.export("x.onnx")


def onnx_logits(path, feeds):
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["logits"], {k: np.asarray(v) for k, v in feeds.items()})[0][0]


def logits_of(mine, given):
    found = mine(given, top_k=None, function_to_apply="none")
    return [{x["label"]: x["score"] for x in found}[label] for label in mine.labels]


def test_exported_pictures(mine, tmp_path):
    pipe, picture = mine.backbone.pipe, pictures(1, 1, 7)[0]
    mine.export(tmp_path / "x.onnx")
    feeds = pipe.processor(pipe.picture(picture))
    got = onnx_logits(tmp_path / "x.onnx", {"pixel_values": feeds["pixel_values"]})
    assert np.abs(got - logits_of(mine, picture)).max() < 1e-4
    mine.export(tmp_path / "folder")
    opened = pipeline("image-classification", tmp_path / "folder")
    assert opened(picture)[0]["label"] == "green"
    assert opened(picture)[0]["score"] == pytest.approx(mine(picture)[0]["score"], abs=1e-5)
    mine.export(tmp_path / "x.edge")
    package = Package.read(FileSource(str(tmp_path / "x.edge")))
    assert package.manifest["task"] == "image-classification"
    assert json.loads(package.file("config.json"))["id2label"]["1"] == "green"


def test_exports_of_pages(mine, tmp_path, monkeypatch):
    """A page gives the head's numbers, and gets the files that Python writes."""
    backbone, head = mine.backbone, mine._head.head
    files, _ = folder_files(backbone.pipe.files.root)
    for name, data in (("head.weight", head.weight), ("head.bias", head.bias)):
        files[name] = BytesSource(data, name)
    given = {"tensor": backbone.features.tensor, "pooling": backbone.features.pooling}
    given |= {"rank": backbone.rank, "dtype": "float32", "masked": False, "unit": False}
    asked = {"form": "onnx", "model_file": "onnx/model.onnx", "task": mine.task}
    asked |= {"labels": mine.labels, "vectors": given}
    for form in ("onnx", "edge"):
        mine.export(tmp_path / f"x.{form}")
        text, made = exports.call(files, {**asked, "form": form})
        assert text == "{}" and made == {form: (tmp_path / f"x.{form}").read_bytes()}

    def refused(change=(), what="", **vectors):
        options = {**asked, "vectors": {**given, **vectors}, **dict(change)}
        with pytest.raises(InputError, match=what):
            exports.call(files, options)

    refused(tensor="nothing", what="no tensor 'nothing'")
    refused(dtype="int64", what="type int64")
    refused(masked=True, pooling="max", what="made by max")
    refused(masked=True, pooling="mean", what="no attention_mask")
    refused({"labels": ["a", "b"]}, what="do not fit")
    monkeypatch.setattr(graph_with_head, "MAX_MODEL", 1 << 10)
    refused(what="an .onnx file holds")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_exported_embeddings(tmp_path, pooling):
    folder = tiny.make(tmp_path / "model", "bert", "base")
    mode = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}[pooling]
    tiny.as_sentence_transformer(folder, {mode: True})
    pipe = pipeline("feature-extraction", folder)
    mine = personalize(pipe, {"fox": tiny.TEXTS[:2], "phone": tiny.TEXTS[2:4]}, c=10.0)
    assert mine.task == "text-classification"
    assert mine(tiny.TEXTS[0])[0]["label"] == "fox"
    mine.export(tmp_path / "out")
    text = "The lazy phone needs a fox."
    encoded = pipe.tokenizer.encodings(text)[0]
    ids = np.array([encoded.ids])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
    got = onnx_logits(tmp_path / "out" / "onnx" / "model.onnx", feeds)
    assert np.abs(got - logits_of(mine, text)).max() < 1e-4
    opened = pipeline("text-classification", tmp_path / "out")
    for given in (text, tiny.TEXTS[2]):
        assert opened(given)[0]["label"] == mine(given)[0]["label"]


def test_speakers(tmp_path):
    folder = tiny_audio.make(tmp_path / "model", "Wav2Vec2")
    rng = np.random.default_rng(0)
    time = np.arange(8000) / 16000

    def voice(pitch, count):
        shift = rng.uniform(0, 6, count)
        return [
            (0.3 * np.sin(2 * np.pi * pitch * time + s) + rng.normal(0, 0.02, 8000)).astype("f")
            for s in shift
        ]

    pipe = pipeline("speaker-verification", folder)
    own, others = voice(150, 4), voice(400, 4)
    mine = personalize(pipe, {"me": own}, other=others)
    [heard] = mine(own[0])
    assert heard["label"] == "me" and heard["accepted"] and heard["score"] > 0.5
    assert not mine(others[0], name="me")[0]["accepted"]
    assert mine(own[0], threshold=0.9999)[0]["accepted"] == (heard["score"] >= 0.9999)
    found = mine.evaluate({"me": own, "you": others})
    assert found["equal_error_rates"]["me"]["rate"] == 0
    mine.export(tmp_path / "voice.onnx")
    sound = voice(150, 1)[0]
    got = onnx_logits(tmp_path / "voice.onnx", pipe.inputs_of(sound))
    score = mine(sound, name="me")[0]["score"]
    assert np.exp(got[0]) / np.exp(got).sum() == pytest.approx(score, abs=1e-4)


def test_wrong_arguments(mine, vit):
    pipe = mine.backbone.pipe
    for options, what in (
        ({"method": "svm"}, "logistic"),
        ({"c": 0}, "positive"),
        ({"steps": 0}, "steps"),
        ({"pooling": "max"}, "pooling"),
        ({"class_weight": "even"}, "class_weight"),
        ({"validation_split": 1.0}, "share"),
        ({"validation_split": 2}, "share"),
        ({"validation_split": "half"}, "share"),
        ({"validation_split": float("nan")}, "share"),
        ({"seed": 0.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"seed": True}, "seed"),
        ({"foo": 1}, "no option 'foo'"),
    ):
        for examples in ({"a": pictures(0, 1), "b": pictures(1, 1)}, mine.save(None)):
            if isinstance(examples, dict) or "class_weight" not in options:
                with pytest.raises(InputError, match=what):
                    personalize(pipe, examples, **options)
    with pytest.raises(InputError, match="two labels"):
        personalize(pipe, {"a": pictures(0, 2)})
    with pytest.raises(InputError, match="no examples"):
        personalize(pipe, {"a": [], "b": pictures(1, 1)})
    with pytest.raises(InputError, match="cannot be personalized"):
        personalize(fit, {"a": [1]})


def test_a_head_for_more_labels_and_examples_than_the_steps_are_made_for():
    rng = np.random.default_rng(0)
    examples = Examples(4)
    for label in range(70):
        examples.add(f"{label}", [rng.standard_normal(4).astype("f").tobytes() for _ in range(15)])
    head = fit(examples, HeadFields(steps=3))
    w, b, losses = reference(examples, HeadFields(steps=3), adam(HeadFields(steps=3)))
    assert np.abs(np.array(head.losses) - losses).max() < 1e-4
    assert len(head.labels) == 70 and Array((70,), "float32", head.bias).size == 70
