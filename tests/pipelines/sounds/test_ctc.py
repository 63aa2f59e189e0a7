"""automatic-speech-recognition with CTC models, against transformers' pipeline."""

import json

import numpy as np
import pytest
from conformance.vectors import vectors
from edgewise import InferenceSession, pipeline
from edgewise.compiler.tokenizers.ctc import CTCTokenizer
from edgewise.errors import Aborted, InputError, TokenizerError

from .. import tiny_audio

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

VOCABULARY = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ETAOINSHRDLU'"]


def sound(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = []
    while sum(map(len, parts)) < count:  # tones and noise in turn, so that tokens change
        t = np.arange(rng.integers(300, 2000)) / 16000
        parts.append(np.sin(2 * np.pi * rng.uniform(80, 4000) * t) * rng.uniform(0.05, 0.5))
        parts.append(0.2 * rng.standard_normal(rng.integers(100, 900)))
    return np.concatenate(parts)[:count].astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    made = {}

    def get(kind, lower=False, mask=False, **config):
        key = (kind, lower, mask, *sorted(config.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp(kind)
            made[key] = tiny_audio.make_ctc(folder, kind, VOCABULARY, lower, mask, **config)
        return made[key]

    return get


@pytest.mark.parametrize(
    "kind, config",
    [
        ("Wav2Vec2", {}),
        ("Wav2Vec2", {"mask": True, "feat_extract_norm": "layer", "do_stable_layer_norm": True}),
        ("Hubert", {"lower": True}),
        ("WavLM", {}),
    ],
)
@pytest.mark.family("wav2vec 2.0", exporter="torch")
def test_text_and_times_equal_transformers(model, kind, config):
    from transformers import pipeline as reference

    folder = model(kind, **config)
    ours = pipeline("automatic-speech-recognition", folder)
    theirs = reference("automatic-speech-recognition", str(folder), device="cpu")
    for given, options in (  # of few lengths: each has a plan
        (sound(1, 16000), {}),
        (sound(2, 9001), {"return_timestamps": "char"}),
        (sound(3, 16000), {"return_timestamps": "word"}),
        (sound(4, 16000 + 2 * 10720), {"chunk_length_s": 1}),
        (
            sound(5, 16000 + 9600 - 1),
            {"chunk_length_s": 1, "stride_length_s": [0.3, 0.1], "return_timestamps": "word"},
        ),
    ):
        found, expected = ours(given, **options), theirs(given.copy(), **options)
        assert found == expected
        assert len(found["text"]) > 5
    both = [sound(1, 16000), {"raw": sound(2, 9001), "sampling_rate": 16000, "id": "b"}]
    assert ours(both) == theirs([both[0], dict(both[1])])


@pytest.mark.parametrize("given", vectors("audio/ctc"))
def test_tokens_equal_transformers(tmp_path, given):
    """Any tokens: unknown ids, repeated blanks, delimiters at the ends."""
    import transformers

    described = given["tokenizer"]
    words = {token: i for i, token in enumerate(described["tokens"]) if token is not None}
    (tmp_path / "vocab.json").write_text(json.dumps(words))
    theirs = transformers.Wav2Vec2CTCTokenizer(tmp_path / "vocab.json", **given["settings"])
    theirs.save_pretrained(tmp_path)
    ours = CTCTokenizer.from_files(lambda name: _read(tmp_path / name))
    assert ours.description() == described
    for case in given["cases"]:
        found = ours.characters(case["ids"])
        expected = theirs.decode(case["ids"], output_char_offsets=True, output_word_offsets=True)
        assert ours.text(found) == ours.decode(case["ids"]) == expected.text == case["text"]
        for spans, offsets, name in (
            (found, expected.char_offsets, "char"),
            (ours.words(found), expected.word_offsets, "word"),
        ):
            plain = [[s.text, s.start, s.end] for s in spans]
            assert plain == case[f"{name}s"]
            assert plain == [[o[name], o["start_offset"], o["end_offset"]] for o in offsets]


def test_added_tokens(tmp_path):
    import transformers

    words = {token: i for i, token in enumerate(VOCABULARY)}
    (tmp_path / "vocab.json").write_text(json.dumps(words))
    theirs = transformers.Wav2Vec2CTCTokenizer(tmp_path / "vocab.json")
    theirs.add_tokens(["<noise>"])
    theirs.save_pretrained(tmp_path)
    ids = [5, len(VOCABULARY), len(VOCABULARY), 6]
    ours = CTCTokenizer.from_files(lambda name: _read(tmp_path / name))
    assert ours.decode(ids) == theirs.decode(ids) == "E<noise>T"


def _read(path):
    return path.read_bytes() if path.exists() else None


def test_vocabularies(tmp_path):
    files = {"vocab.json": {"eng": {"<pad>": 0, "a": 1}, "deu": {"<pad>": 0, "b": 1}}}
    files["tokenizer_config.json"] = {"target_lang": "deu"}

    def tokenizer():
        read = {name: json.dumps(value).encode() for name, value in files.items()}
        return CTCTokenizer.from_files(read.get, "model")

    assert tokenizer().decode([1, 1, 0, 1]) == "bb"
    fast = {
        "model": {"vocab": {"_": 0, "a": 1, "/": 2}},
        "decoder": {"type": "CTC", "pad_token": "_", "word_delimiter_token": "/"},
    }
    files = {"tokenizer.json": fast}
    assert tokenizer().decode([1, 0, 1, 2, 1]) == "aa a"
    fast["decoder"]["type"] = "BPE"
    with pytest.raises(TokenizerError, match="neither a vocab.json nor"):
        tokenizer()
    files = {"tokenizer_config.json": {"tokenizer_class": "Wav2Vec2PhonemeCTCTokenizer"}}
    with pytest.raises(TokenizerError, match="Wav2Vec2PhonemeCTCTokenizer is not supported"):
        tokenizer()


def test_options(model):
    folder = model("Wav2Vec2")
    pipe = pipeline("asr", folder)
    for options, text in (
        ({"return_timestamps": True}, 'Give False, "char" or "word"'),
        ({"language": "en"}, "CTC models have no such option"),
        ({"num_beams": 2}, "CTC models have no such option"),
        ({"chunk_length_s": 1, "stride_length_s": 0.6}, "do not advance"),
        ({"chunk_length_s": float("nan")}, "chunk_length_s: it is nan"),
        ({"chunk_length_s": "1"}, "chunk_length_s: it is '1'"),
        ({"chunk_length_s": 1e308}, "chunk_length_s: it is 1e\\+308"),
        ({"chunk_length_s": 1, "stride_length_s": 10**400}, "stride_length_s: it is 1000"),
        ({"chunk_length_s": 1, "stride_length_s": (0.1,)}, "left, right"),
        ({"generate_kwargs": 5}, "generate_kwargs: it is 5"),
        ({"tempo": 2}, "no option 'tempo'"),
    ):
        with pytest.raises(InputError, match=text):
            pipe(sound(1, 16000), **options)
    seen = []
    pipe(sound(1, 30000), chunk_length_s=1, on_progress=lambda *a: seen.append(a))
    assert seen[-1] == (30000, 30000) and len(seen) == 3
    with pytest.raises(Aborted):
        pipe(sound(1, 16000), signal=lambda: True)
    with pytest.raises(InputError, match="no samples"):
        pipe(np.zeros(0, "f"))
    assert pipe(sound(1, 16000))["text"]  # it goes on working


def test_a_session_as_the_model(model):
    folder = model("Wav2Vec2")
    session = InferenceSession(folder / "onnx" / "model.onnx")
    with pytest.raises(InputError, match="no tokenizer"):
        pipeline("asr", session)
    config, extractor = (
        json.loads((folder / name).read_text())
        for name in ("config.json", "preprocessor_config.json")
    )
    pipe = pipeline("asr", session, folder, config=config, feature_extractor=extractor)
    expected = pipeline("asr", folder)(sound(1, 16000), return_timestamps="char")
    assert pipe(sound(1, 16000), return_timestamps="char") == expected
