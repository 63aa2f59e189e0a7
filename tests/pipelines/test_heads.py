"""Options of personalize, and what is refused: damaged files of heads, numbers that are not finite,
options without effect.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from edgewise import personalize, pipeline
from edgewise.compiler.heads.examples import Examples
from edgewise.errors import InputError, ModelError
from edgewise.host.heads.fit import Head, fit
from edgewise.host.pipelines.personal.files import Saved, read_head, write_head
from edgewise.host.pipelines.personal.lora import Adapters
from edgewise.logic.personal.layout import Layer, LoraLayout
from edgewise.logic.personal.options import HeadFields
from edgewise.training.safetensors import load_safetensors, save_safetensors

from . import tiny, tiny_audio
from .test_personal import logits_of, onnx_logits

LAYOUT = LoraLayout(2, 4.0, (Layer("dense", "dense.weight", True, "x", "y", 3, 2),))


def numbers(count, first=1.0):
    return np.array([first, *[1.0] * (count - 1)], "f").tobytes()


def saved(**changes):
    examples = Examples(3)
    examples.add("cup", [numbers(3)])
    examples.add("keys", [numbers(3, 2.0)])
    head = Head(["cup", "keys"], numbers(6), numbers(2))
    adapters = Adapters(LAYOUT, numbers(LAYOUT.numbers))
    made = Saved("desk", "image-classification", "m", HeadFields(), examples, head, adapters)
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("options", {"c": 10**400}),
        ("options", {"learning_rate": -(10**400)}),
        ("options", {"class_weight": {"cup": "x"}}),
        ("options", {"class_weight": {"cup": 10**400}}),
        ("options", {"neighbors": 0}),
        ("lora", {"alpha": 10**400}),
        ("lora", {"rank": 10**400}),
    ],
)
def test_fields_of_damaged_files(field, change):
    tensors, metadata = load_safetensors(write_head(saved(), None))
    read = {name: (t.dtype, t.shape, t.bytes()) for name, t in tensors.items()}
    read_head(save_safetensors(read, None, metadata))
    text = json.dumps({**json.loads(metadata[field]), **change})
    with pytest.raises(ModelError):
        read_head(save_safetensors(read, None, {**metadata, field: text}))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_of_files_are_finite(bad):
    damaged = saved().examples
    damaged.data[:4] = numbers(1, bad)
    labels = ["cup", "keys"]
    for change in (
        {"examples": damaged},
        {"head": Head(labels, numbers(6, bad), numbers(2))},
        {"head": Head(labels, numbers(6), numbers(2, bad))},
        {"adapters": Adapters(LAYOUT, numbers(LAYOUT.numbers, bad))},
    ):
        with pytest.raises(ModelError, match="not finite"):
            read_head(write_head(saved(**change), None))


def test_a_loss_that_is_not_finite():
    with pytest.raises(InputError, match="lower learning_rate"):
        fit(saved().examples, HeadFields(learning_rate=1e300, steps=5))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tiny.make(tmp_path_factory.mktemp("bert"), "bert", "base")
    with pipeline("feature-extraction", tiny.with_embedding(folder)) as pipe:
        yield pipe


EXAMPLES = {"fox": tiny.TEXTS[:2], "phone": tiny.TEXTS[2:4]}


def test_options(bert):
    for options, what in (
        ({"neighbors": 0}, "neighbors"),
        ({"name": ""}, "not a name"),
        ({"c": 10**400}, "positive"),
        ({"class_weight": {"fox": "x"}}, "class_weight"),
        ({"class_weight": {"cat": 2}}, "no label 'cat'"),
    ):
        with pytest.raises(InputError, match=what):
            personalize(bert, EXAMPLES, **options)
    weighed = personalize(bert, {**EXAMPLES, "gate": tiny.TEXTS[4:]}, class_weight={"gate": 9.0})
    weighed.remove("gate")  # the weights of labels that are gone have no effect
    assert weighed(tiny.TEXTS[0]) == personalize(bert, EXAMPLES, class_weight={})(tiny.TEXTS[0])
    weighed.teach(EXAMPLES, name="further")
    assert weighed.heads == ["default", "further"]
    mine = personalize(bert, EXAMPLES, name="topics", c=2.0)
    data = mine.save(None)
    for options in ({"c": 3.0}, {"lora": True}, {"other": ["a"]}, {"validation_split": 0.5}):
        with pytest.raises(InputError, match="no effect with a file"):
            personalize(bert, data, **options)
    assert personalize(bert, data).name == "topics"
    again = personalize(bert, data, name="copy")
    assert again.name == "copy" and again(tiny.TEXTS[0]) == mine(tiny.TEXTS[0])


def test_an_export_has_the_features_of_the_head(bert, tmp_path):
    """The graph has a vector of its own; without files that declare one, states are averaged."""
    mine = personalize(bert, EXAMPLES, c=10.0)
    mine.export(tmp_path / "x.onnx")
    ids = np.array([bert.tokenizer.encodings(tiny.TEXTS[0])[0].ids])
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": ids * 0}
    got = onnx_logits(tmp_path / "x.onnx", feeds)
    assert np.abs(got - logits_of(mine, tiny.TEXTS[0])).max() < 1e-4


def test_sounds_and_features_that_are_not_finite(tmp_path):
    rng = np.random.default_rng(0)
    sounds = list((rng.standard_normal((4, 4000)) * 0.1).astype("f"))
    with pipeline("audio-classification", tiny_audio.make(tmp_path, "Wav2Vec2")) as pipe:
        mine = personalize(pipe, {"a": sounds[:2], "b": sounds[2:]})
        for bad in (np.nan, np.inf):
            wrong = sounds[0].copy()
            wrong[7] = bad
            for call in (pipe, mine, lambda x: mine.add("a", x)):
                with pytest.raises(InputError, match="samples are not finite"):
                    call(wrong)
        huge = sounds[0] * np.float32(1e38)
        for call in (mine, lambda x: mine.add("a", [x]), lambda x: mine.evaluate({"a": [x]})):
            with pytest.raises(InputError, match="not finite"):
                call(huge)
        assert mine(sounds[0])[0]["label"] == "a"
