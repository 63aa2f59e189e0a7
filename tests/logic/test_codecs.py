"""Codecs on both forms: the graphs are run by Python, the rule by either."""

import numpy as np
import pytest
from edgewise import Codec
from edgewise.errors import InputError
from edgewise.host.pipelines.speech import codec as host

from tests.pipelines.sounds import tiny_codecs

from .forms import both, module

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers")
    made = tmp_path_factory.mktemp("codecs")
    for name in ("snac", "dac", "mimi"):
        getattr(tiny_codecs, f"make_{name}")(made / name)
    tiny_codecs.make_encodec(made / "encodec", frames=True)
    return made


@both
@pytest.mark.parametrize("name", ["snac", "dac", "mimi", "encodec"])
def test_sound_and_codes(form, name, folder, monkeypatch):
    channels = 2 if name == "encodec" else 1
    seconds = 45 if name == "snac" else 1.1
    rng = np.random.default_rng(5)
    given = (0.3 * rng.standard_normal((channels, int(seconds * 800)))).astype("f4")
    with Codec(folder / name) as codec:
        codes = codec.encode(given)
        again = codec.decode(codes)
    rules = module(form, "speech.codecs")
    for function in ("codec_of", "encoded", "decoded", "books_of", "role_of", "streams_of"):
        monkeypatch.setattr(host, function, getattr(rules, function))
    with Codec(folder / name) as codec:
        found = codec.encode(given)
        assert [*found] == [*codes] and codec.num_codebooks > 1
        for ours, other in zip(found.audio_codes, codes.audio_codes, strict=True):
            assert np.array_equal(ours, other)
        assert np.array_equal(codec.decode(found)["audio"], again["audio"])
        assert codec.sampling_rate == 800
        with pytest.raises(InputError, match="there are|takes 3 tensors"):
            codec.decode(codes.audio_codes[:2] if name == "snac" else [[1, 2, 3]] * 300)


@both
def test_what_configurations_say(form):
    rules = module(form, "speech.codecs")
    mimi = rules.codec_of(
        {"model_type": "mimi", "sampling_rate": 24000, "num_quantizers": 32}, {}, None
    )
    assert (mimi.hop, mimi.multiple, mimi.num_codebooks, mimi.channels) == (1920, 0, 32, 1)
    snac = {"encoder_rates": [2, 4, 8, 8], "vq_strides": [4, 2, 1], "attn_window_size": None}
    found = rules.codec_of({**snac, "sampling_rate": 24000}, {}, None)
    assert (found.hop, found.multiple, found.num_codebooks) == (512, 2048, 3)
    snac = {"encoder_rates": [3, 3, 7, 7], "vq_strides": [8, 4, 2, 1], "attn_window_size": 32}
    assert rules.codec_of({**snac, "sampling_rate": 44100}, {}, None).multiple == 441 * 32
    encodec = {"upsampling_ratios": [8, 5, 4, 2], "chunk_length_s": 1.0, "overlap": 0.01}
    found = rules.codec_of({**encodec, "audio_channels": 2}, {"sampling_rate": 48000}, None)
    assert (found.hop, found.chunk, found.stride, found.channels) == (320, 48000, 47520, 2)
    with pytest.raises(InputError, match="not known"):
        rules.codec_of({}, {}, None)
    with pytest.raises(InputError, match="a code 7"):
        rules.check_codes(rules.codec_of({"codebook_size": 7}, {}, 16000), [0, 6, 7], "x")
