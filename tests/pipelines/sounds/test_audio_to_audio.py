"""audio-to-audio against the modules that were exported: with and without states."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.errors import Aborted, InputError, ModelError

from . import tiny_enhancers
from .packed import places
from .tiny_codecs import export
from .tiny_enhancers import RATE, SIZE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


def sound(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count).astype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_enhancers.make(tmp_path_factory.mktemp("enhancers"))


@pytest.mark.parametrize("count", [700, 95 * RATE])
def test_sound_of_any_length(folder, count):
    given = sound(count)
    with torch.no_grad():
        expected = tiny_enhancers.whole()(torch.tensor(given[None, None])).numpy()[0]
    for place in reversed(places(folder / "whole.onnx", "audio-to-audio", max_length=7)):
        clean = pipeline("audio-to-audio", place, sampling_rate=RATE)
        found = clean(given)
        assert found["sampling_rate"] == RATE and found["audio"].shape == (1, count)
        assert np.abs(found["audio"] - expected).max() < 1e-5
    resampled = clean({"array": given[:700], "sampling_rate": 2 * RATE})
    assert resampled["audio"].shape == (1, 350)
    with pytest.raises(InputError, match="has no states"):
        clean.stream()


def test_states(folder):
    """They go from part to part, in a call and in a stream."""
    given, model = sound(5 * SIZE + 7), tiny_enhancers.steps()
    padded = np.pad(given, (0, -len(given) % SIZE))
    h, cache, parts = torch.zeros(1, 1, 4), torch.zeros(1, SIZE), []
    with torch.no_grad():
        for frame in torch.tensor(padded.reshape(-1, 1, SIZE)):
            made, h, cache = model(frame, h, cache)
            parts.append(made.numpy()[0])
    expected = np.concatenate(parts)[: len(given)]
    for place in places(folder / "steps.onnx", "audio-to-audio"):
        clean = pipeline("audio-to-audio", place, sampling_rate=RATE)
        assert np.abs(clean(given)["audio"][0] - expected).max() < 1e-5
        stream = clean.stream()
        pieces = [stream.feed(given[:10]), stream.feed(given[10:100]), stream.feed(given[100:])]
        assert [len(p) for p in pieces] == [0, 3 * SIZE, 2 * SIZE]
        found = np.concatenate([*pieces, stream.end()])
        assert np.abs(found - expected).max() < 1e-5
        assert len(stream.end()) == 0


def test_what_is_refused(folder, tmp_path):
    with pytest.raises(InputError, match="sampling rate is not known"):
        pipeline("audio-to-audio", folder / "whole.onnx")
    clean = pipeline("audio-to-audio", folder / "whole.onnx", sampling_rate=RATE)
    with pytest.raises(InputError, match="no samples"):
        clean(np.zeros(0, "f4"))
    with pytest.raises(Aborted):
        clean(sound(100), signal=lambda: True)
    names = {"spectrum": torch.randn(1, 5, 3, 2)}
    export(torch.nn.Identity(), names, ["mask"], {}, tmp_path / "mask.onnx")
    other = pipeline("audio-to-audio", tmp_path / "mask.onnx", sampling_rate=RATE)
    with pytest.raises(ModelError, match="It has to take samples"):
        other(sound(100))
