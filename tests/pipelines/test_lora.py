"""personalize(lora=...): steps, merged weights and files. The reference is PEFT on PyTorch."""

from dataclasses import replace

import numpy as np
import pytest
from edgewise import personalize, pipeline
from edgewise.compiler.heads.lora import CLASSES_OF_STEP, fitting_length
from edgewise.errors import InputError, ModelError
from edgewise.host.pipelines.personal.backbone import Backbone
from edgewise.host.pipelines.personal.files import read_head, write_head
from edgewise.host.pipelines.personal.lora import Adapters, LoraTraining
from edgewise.logic.personal.adapters import LoraOptions
from edgewise.logic.personal.layout import layout_of

from . import tiny, tiny_audio, tiny_images
from .test_personal import logits_of, onnx_logits

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")


def pictures(label, count, seed=0):
    """Noise with a shade of one color."""
    rng = np.random.default_rng([seed, label])
    color = np.eye(3)[label] * 30 + 100
    return [
        np.clip(color + rng.normal(0, 60, (40, 40, 3)), 0, 255).astype(np.uint8)
        for _ in range(count)
    ]


EXAMPLES = {name: pictures(i, 8) for i, name in enumerate(("red", "green"))}
OPTIONS = {"rank": 4, "steps": 9, "learning_rate": 1e-2, "evaluate_every": 3}


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return tiny_images.make(tmp_path_factory.mktemp("vit"), "vit")


def head_and_feeds(size):
    """Numbers of a head, and inputs of a step beside the model's."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((size, CLASSES_OF_STEP)).astype("f")
    b = rng.standard_normal(CLASSES_OF_STEP).astype("f")
    targets = np.zeros((1, CLASSES_OF_STEP), "f")
    targets[0, 2] = 0.7
    mask = np.where(np.arange(CLASSES_OF_STEP) < 5, 0, -1e9).astype("f")
    mean = rng.standard_normal(size).astype("f")
    return w, b, {"mean": mean, "scale": np.float32(0.8), "mask": mask, "targets": targets}


def features_of(kind, model, given):
    """The features of a model of transformers, as a tensor that can be differentiated."""
    if kind == "vit":
        return model.vit(**given).last_hidden_state[:, 0]
    if kind == "voice":
        return torch.nn.functional.normalize(model(**given).embeddings, dim=-1)
    if kind == "wav2vec2":
        hidden = model.projector(model.wav2vec2(**given).last_hidden_state)
        return hidden.mean(1)
    return model.dropout(model.bert(**given).pooler_output)


CASES = {
    "vit": ("image-classification", "ViTForImageClassification"),
    "wav2vec2": ("audio-classification", "Wav2Vec2ForSequenceClassification"),
    "voice": ("speaker-verification", "Wav2Vec2ForXVector"),
    "bert": ("text-classification", "BertForSequenceClassification"),
}


def case(kind, vit, tmp_path):
    """(folder, input) of a tiny model."""
    if kind == "vit":
        return vit, pictures(0, 1)[0]
    if kind in ("wav2vec2", "voice"):
        noise = np.random.default_rng(0).standard_normal(16000).astype("f") * 0.1
        make = tiny_audio.make_voices if kind == "voice" else tiny_audio.make
        return make(tmp_path, "Wav2Vec2"), noise
    return tiny.make(tmp_path, "bert", "sequence"), tiny.TEXTS[0]


@pytest.mark.parametrize("kind", CASES)
def test_a_step_is_that_of_peft(kind, vit, tmp_path):
    import transformers

    folder, given = case(kind, vit, tmp_path)
    task, name = CASES[kind]
    backbone = Backbone(pipeline(task, folder))
    seen = []
    size = len(backbone.of(given, None, seen.append)) // 4
    training = LoraTraining(backbone, LoraOptions(rank=4, alpha=8))
    rng, layout = np.random.default_rng(0), training.layout
    adapters = rng.normal(0, 0.1, layout.numbers).astype("f")
    w, b, more = head_and_feeds(size)
    vector = np.concatenate([adapters, w.reshape(-1), b])
    sums = np.ones_like(vector)
    loss, gradients = training.gradient(seen[0], {**more, "parameters": vector, "gradients": sums})

    if kind in ("wav2vec2", "voice"):  # a sound that no plan fits is followed by itself
        less = {n: x[:, :9000] for n, x in seen[0].items()}
        full = {n: np.resize(x, (1, 16000)) for n, x in less.items()}
        values = {**more, "parameters": vector, "gradients": sums}
        assert training.gradient(less, values)[0] == training.gradient(full, values)[0] != loss

    names = {x.name: x.name.removeprefix("model.") for x in layout.layers}
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(names.values()))
    model = getattr(transformers, name).from_pretrained(folder).eval()
    model = peft.get_peft_model(model, config).base_model.model
    pairs = {}
    for layer, at_a, at_b in layout.pairs():
        module = model.get_submodule(names[layer.name])
        for part, at, shape in (
            (module.lora_A.default.weight, at_a, (4, layer.inner)),
            (module.lora_B.default.weight, at_b, (layer.outer, 4)),
        ):
            part.data = torch.tensor(adapters[at : at + shape[0] * shape[1]].reshape(shape))
            pairs[at] = part
    feeds = {k: torch.tensor(np.asarray(v)) for k, v in seen[0].items()}
    tw, tb = (torch.tensor(x, requires_grad=True) for x in (w, b))
    x = (features_of(kind, model, feeds) - torch.tensor(more["mean"])) * 0.8
    logits = x @ tw + tb + torch.tensor(more["mask"])
    wanted = -(torch.log_softmax(logits, -1) * torch.tensor(more["targets"])).sum()
    wanted.backward()
    assert loss == pytest.approx(wanted.item(), rel=1e-4, abs=1e-6)
    flat = [pairs[at].grad.reshape(-1).numpy() for at in sorted(pairs)]
    reference = np.concatenate([*flat, tw.grad.reshape(-1).numpy(), tb.grad.numpy()])
    error = np.abs(np.asarray(gradients) - 1 - reference).max()
    assert error < 1e-3 * max(1.0, np.abs(reference).max())
    adapted = np.frombuffer(training.features(seen[0], adapters.tobytes()), "f")
    assert np.abs(adapted - features_of(kind, model, feeds).detach().numpy()).max() < 1e-3
    training.close()


@pytest.fixture(scope="module")
def mine(vit):
    pipe = pipeline("image-classification", vit)
    return personalize(pipe, EXAMPLES, seed=1, lora=OPTIONS, name="shades")


def test_adapters_are_saved_switched_and_exported(mine, vit, tmp_path):
    report, picture = mine.lora, pictures(0, 1, 5)[0]
    assert report["kept"] and report["held_out_losses"][0] > min(report["held_out_losses"])
    assert len(report["losses"]) == 9 and report["after"] == mine.validation
    data = mine.save(None)
    again = personalize(pipeline("image-classification", vit), data)
    assert again(picture) == mine(picture) and again.lora is None
    plain = {name: some[:2] for name, some in EXAMPLES.items()}
    again.teach(plain, name="plain")
    other = again(picture)
    again.use("shades")  # and reads the adapters again
    assert again(picture) == mine(picture) != other
    again.add("red", pictures(0, 1, 6))
    assert read_head(again.save(None)).adapters is not None
    assert read_head(again.save(None, "plain")).adapters is None
    mine.export(tmp_path / "x.onnx")
    pipe = mine.backbone.pipe
    feeds = pipe.processor(pipe.picture(picture))
    got = onnx_logits(tmp_path / "x.onnx", {"pixel_values": feeds["pixel_values"]})
    assert np.abs(got - logits_of(mine, picture)).max() < 1e-4
    own = pipe(picture, top_k=1)  # the pipeline itself stays as it was
    assert own == pipeline("image-classification", vit)(picture, top_k=1)


def test_the_same_seed_gives_the_same_adapters(mine):
    again = personalize(mine.backbone.pipe, EXAMPLES, seed=1, lora=OPTIONS, name="shades")
    assert again.save(None) == mine.save(None)


def test_what_is_refused(mine, tmp_path):
    pipe = mine.backbone.pipe
    examples = {"a": pictures(0, 1), "b": pictures(1, 1)}
    for lora, what in (
        ({"rank": 0}, "not a rank"),
        ({"speed": 1}, "no set of options"),
        ({"steps": 0}, "positive integer"),
        ({"learning_rate": float("nan")}, "positive number"),
        (True, "no label has two examples"),
    ):
        with pytest.raises(InputError, match=what):
            personalize(pipe, examples, lora=lora)
    bert = tiny.make(tmp_path, "bert", "base")
    with pytest.raises(InputError, match="no head"):
        personalize(pipe, examples, method="knn", lora=True)
    with pytest.raises(InputError, match="are not trained"):
        personalize(pipeline("feature-extraction", bert), {"a": ["a", "b"], "b": ["c"]}, lora=True)


def test_voices(tmp_path):
    """Error rates of held-out recordings before and after; the model with adapters in a file."""
    rng = np.random.default_rng(0)
    time = np.arange(8000) / 16000

    def voice(pitch, count):
        sounds = [np.sin(2 * np.pi * pitch * time + rng.uniform(0, 6)) for _ in range(count)]
        return [(0.1 * s + rng.normal(0, 0.3, 8000)).astype("f") for s in sounds]

    pipe = pipeline("speaker-verification", tiny_audio.make_voices(tmp_path, "Wav2Vec2"))
    examples = {"me": voice(150, 6), "other": voice(190, 6)}
    options = {"rank": 4, "steps": 6, "learning_rate": 1e-2, "evaluate_every": 2}
    mine = personalize(pipe, examples, lora=options, seed=3, validation_split=0.5)
    report = mine.lora
    assert report["kept"] and min(report["held_out_losses"][1:]) < report["held_out_losses"][0]
    rates = [report[when]["equal_error_rates"]["me"]["rate"] for when in ("before", "after")]
    assert rates[1] <= rates[0]
    unit = np.frombuffer(mine._head.examples.data, "f").reshape(12, -1)
    assert np.abs((unit**2).sum(1) - 1).max() < 1e-5
    sound = voice(150, 1)[0]
    mine.export(tmp_path / "x.onnx")
    got = onnx_logits(tmp_path / "x.onnx", pipe.inputs_of(sound))
    [score] = mine(sound, name="me")
    assert np.exp(got[0]) / np.exp(got).sum() == pytest.approx(score["score"], abs=1e-4)


def test_damaged_adapters(mine):
    saved = read_head(mine.save(None))
    described = saved.adapters.layout.to_dict()
    assert layout_of(described, "") == saved.adapters.layout
    rows = described["layers"]
    for change in ({"rank": 0}, {"layers": []}, {"layers": [rows[0][:6]]}, {"layers": [[1] * 7]}):
        with pytest.raises(InputError):
            layout_of({**described, **change}, "")
    data = mine.save(None)
    with pytest.raises(ModelError, match="adapters"):
        read_head(data.replace(b'\\"rank\\":4', b'\\"rank\\":2').replace(
            b'\\"rank\\": 4', b'\\"rank\\": 2'))  # fmt: skip


def test_adapters_that_do_not_fit_the_model(mine, vit):
    """They are found when a file is loaded, and the heads stay as they are."""
    again = personalize(pipeline("image-classification", vit), mine.save(None))
    picture = pictures(0, 1, 5)[0]
    before = again(picture)
    saved = again._saved["shades"]
    layers = list(saved.adapters.layout.layers)
    for change in ({"weight": "none"}, {"weight": None, "y": "none"}):
        other = (replace(layers[0], **change), *layers[1:])
        layout = replace(saved.adapters.layout, layers=other)
        wrong = replace(saved, adapters=Adapters(layout, saved.adapters.data))
        with pytest.raises(InputError):
            again.load(write_head(wrong, None), "wrong")
    large = np.full(saved.adapters.layout.numbers, 3e38, "f").tobytes()
    layers = tuple(replace(layer, weight=None) for layer in layers)  # beside the weights
    layout = replace(saved.adapters.layout, layers=layers)
    with pytest.raises(InputError, match="too large"):
        again.load(write_head(replace(saved, adapters=Adapters(layout, large)), None), "wrong")
    assert again.heads == ["shades"] and again(picture) == before


def test_lengths_of_plans_with_a_range():
    ranged = [{"inputs": {"x": ["int64", [1, [1, 0]]]}, "register": [2, 30]}]
    assert [fitting_length(ranged, "x", n) for n in (1, 9, 31)] == [2, 9, 30]
    fixed = [{"inputs": {"x": ["int64", [1, n]]}} for n in (16, 64)]
    assert [fitting_length(fixed, "x", n) for n in (3, 16, 17, 65)] == [16, 16, 64, 64]
