"""audio-to-audio against the modules that were exported: with and without states."""

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.errors import Aborted, InputError, ModelError

from .tiny_codecs import export

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")
RATE, SIZE = 800, 32


def sound(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal(count).astype("f4")


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv1d(1, 1, 9, padding=4)

    def forward(self, x):
        return self.conv(x).tanh()


class Steps(torch.nn.Module):
    """A recurrent layer over parts, with a cache of the last part."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.cell, self.out = torch.nn.GRU(1, 4), torch.nn.Linear(4, 1)

    def forward(self, frame, h0, cache):
        found, h = self.cell(frame.transpose(0, 1).unsqueeze(-1), h0)
        mixed = self.out(found).squeeze(-1).transpose(0, 1) + 0.5 * cache
        return mixed, h, frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("enhancers")
    axes = {"noisy": {2: "n"}, "clean": {2: "n"}}
    export(Whole(), {"noisy": torch.randn(1, 1, 50)}, ["clean"], axes, made / "whole.onnx")
    inputs = {"frame": torch.randn(1, SIZE), "h_in": torch.zeros(1, 1, 4)}
    inputs["conv_cache"] = torch.zeros(1, SIZE)
    names = ["enhanced", "h_out", "conv_cache_out"]
    export(Steps(), inputs, names, {}, made / "steps.onnx")
    return made


@pytest.mark.parametrize("count", [700, 95 * RATE])
def test_sound_of_any_length(folder, count):
    given = sound(count)
    with torch.no_grad():
        expected = Whole()(torch.tensor(given[None, None])).numpy()[0]
    clean = pipeline("audio-to-audio", folder / "whole.onnx", sampling_rate=RATE)
    found = clean(given)
    assert found["sampling_rate"] == RATE and found["audio"].shape == (1, count)
    assert np.abs(found["audio"] - expected).max() < 1e-5
    resampled = clean({"array": given[:700], "sampling_rate": 2 * RATE})
    assert resampled["audio"].shape == (1, 350)
    with pytest.raises(InputError, match="has no states"):
        clean.stream()


def test_states(folder):
    """They go from part to part, in a call and in a stream."""
    given, model = sound(5 * SIZE + 7), Steps()
    padded = np.pad(given, (0, -len(given) % SIZE))
    h, cache, parts = torch.zeros(1, 1, 4), torch.zeros(1, SIZE), []
    with torch.no_grad():
        for frame in torch.tensor(padded.reshape(-1, 1, SIZE)):
            made, h, cache = model(frame, h, cache)
            parts.append(made.numpy()[0])
    expected = np.concatenate(parts)[: len(given)]
    clean = pipeline("audio-to-audio", folder / "steps.onnx", sampling_rate=RATE)
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
