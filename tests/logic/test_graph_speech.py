"""SpeechT5 and Supertonic on both forms: the graphs are run by Python, the rules by either."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.host.pipelines.speech import graph_speech as host

from tests.pipelines.sounds import tiny_graph_speech

from .forms import both, module

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    made = tmp_path_factory.mktemp("speech")
    for name in ("speecht5", "merged", "supertonic"):
        (made / name).mkdir()
    tiny_graph_speech.make_speecht5(made / "speecht5", False)
    tiny_graph_speech.make_speecht5(made / "merged", True)
    tiny_graph_speech.make_supertonic(made / "supertonic")
    return made


@both
@pytest.mark.parametrize("name", ["speecht5", "merged", "supertonic"])
def test_sound(form, name, folder, monkeypatch):
    voice = np.float32(np.linspace(-1, 1, 20 if name == "supertonic" else 4))
    options = {"speaker_embeddings": voice, "seed": 5}
    if name != "supertonic":
        options |= {"threshold": 1.0, "maxlenratio": 5.0}
    expected = pipeline("text-to-speech", folder / name)("hello", **options)["audio"]
    flow, frames = module(form, "speech.flow"), module(form, "speech.spectrograms")
    for function in ("flowed", "style_dims"):
        monkeypatch.setattr(host.flow, function, getattr(flow, function))
    for function in ("spectrogram", "vocoded"):
        monkeypatch.setattr(host.spectrograms, function, getattr(frames, function))
    found = pipeline("text-to-speech", folder / name)("hello", **options)["audio"]
    assert found.shape == expected.shape and np.abs(found - expected).max() < 1e-6


def test_numbers_of_a_normal_distribution():
    following = module("python", "speech.flow").normal_numbers(7)
    numbers = [following() for _ in range(400)]
    assert abs(np.mean(numbers)) < 0.15 and 0.9 < np.std(numbers) < 1.1
