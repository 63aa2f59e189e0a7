"""Damaged files of models that hear and speak: each is refused with an EdgewiseError, or works."""

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from edgewise import pipeline
from edgewise.errors import EdgewiseError
from onnx import TensorProto, helper, numpy_helper
from tiers import ALL

from . import tiny_voices

MOONSHINE = Path(__file__).parents[2] / "seq2seq/models/moonshine"
# What a field of a JSON file may be replaced with; ... removes it.
VALUES = (..., None, "x", "", -1, 0, 0.5, 10**30, float("inf"), [], [[]], ["x", 1], {}, {"a": []})
SOUND = np.sin(np.arange(3000) / 3).astype(np.float32)


def save(path: Path, inputs, nodes, constants, output) -> None:
    path.parent.mkdir(exist_ok=True)
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def ctc(folder: Path) -> Path:
    """A model of four tokens: frames of 40 samples times a matrix."""
    nodes = [
        helper.make_node("Unsqueeze", ["input_values", "one"], ["x"]),
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[40]),
        helper.make_node("Transpose", ["y"], ["logits"], perm=[0, 2, 1]),
    ]
    weight = np.random.default_rng(0).standard_normal((5, 1, 40)).astype(np.float32)
    save(
        folder / "onnx/model.onnx",
        [("input_values", TensorProto.FLOAT, ["batch", "samples"])],
        nodes,
        {"one": np.array([1]), "w": weight},
        ("logits", TensorProto.FLOAT, ["batch", "frames", 5]),
    )
    files = {
        "config.json": {"model_type": "wav2vec2", "conv_stride": [5, 8], "vocab_size": 5},
        "preprocessor_config.json": {
            "feature_extractor_type": "Wav2Vec2FeatureExtractor",
            "feature_size": 1,
            "sampling_rate": 16000,
            "padding_value": 0.0,
            "do_normalize": True,
            "return_attention_mask": False,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "Wav2Vec2CTCTokenizer",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "word_delimiter_token": "|",
            "replace_word_delimiter_char": " ",
            "do_lower_case": False,
            "target_lang": None,
            "added_tokens_decoder": {"4": {"content": "c"}},
        },
        "special_tokens_map.json": {"pad_token": "<pad>", "unk_token": {"content": "<unk>"}},
        "vocab.json": {"<pad>": 0, "<unk>": 1, "|": 2, "a": 3},
        "added_tokens.json": {"d": 5},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def fast_ctc(folder: Path) -> Path:
    """The same with tokenizer.json."""
    ctc(folder)
    (folder / "vocab.json").unlink()
    tokenizer = {
        "model": {"vocab": {"<pad>": 0, "|": 2, "a": 3}},
        "decoder": {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|"},
        "added_tokens": [{"id": 1, "content": "<unk>"}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def vits(folder: Path) -> Path:
    """A voice whose sound is its tokens."""
    save(
        folder / "model.onnx",
        [
            ("input_ids", TensorProto.INT64, ["batch", "text"]),
            ("speaker_id", TensorProto.INT64, [1]),
        ],
        [
            helper.make_node("Add", ["input_ids", "speaker_id"], ["ids"]),
            helper.make_node("Cast", ["ids"], ["waveform"], to=TensorProto.FLOAT),
        ],
        {},
        ("waveform", TensorProto.FLOAT, ["batch", "samples"]),
    )
    files = {
        "config.json": {"model_type": "vits", "sampling_rate": 16000, "num_speakers": 2},
        "vocab.json": {"<pad>": 0, "a": 1, "b": 2, " ": 3},
        "tokenizer_config.json": {
            "add_blank": True,
            "normalize": True,
            "phonemize": False,
            "is_uroman": False,
            "language": "eng",
            "unk_token": "<unk>",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def piper(folder: Path) -> Path:
    return tiny_voices.make_piper(folder)


def kokoro(folder: Path) -> Path:
    tiny_voices.make_kokoro(folder)
    np.savez(folder / "voices.npz", other=tiny_voices.styles(2))
    np.save(folder / "voices" / "third.npy", tiny_voices.styles(3))
    return folder


def moonshine(folder: Path) -> Path:
    shutil.copytree(MOONSHINE, folder, dirs_exist_ok=True)
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000}
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor))
    return folder


class Ids:
    """In place of a tokenizer."""

    def decode(self, ids, **_):
        return " ".join(map(str, ids))


def hear(folder: Path, *tokenizer) -> None:
    pipe = pipeline("automatic-speech-recognition", folder, *tokenizer)
    pipe(SOUND)
    pipe.close()


def hear_times(folder: Path) -> None:
    pipe = pipeline("automatic-speech-recognition", folder)
    pipe(SOUND, return_timestamps="word", chunk_length_s=0.1)
    pipe.close()


def speak(folder: Path, **options) -> None:
    pipe = pipeline("text-to-speech", folder)
    pipe("ab b.", **options).to_wav()
    pipe.close()


def speak_as_all(folder: Path) -> None:
    for voice in ("af_heart", "other", "third"):
        speak(folder, phonemizer=str, voice=voice)


KINDS = {
    "ctc": (ctc, hear_times),
    "fast ctc": (fast_ctc, hear_times),
    "moonshine": (moonshine, lambda folder: hear(folder, Ids())),
    "vits": (vits, lambda folder: speak(folder, speaker=1)),
    "piper": (piper, lambda folder: speak(folder, phonemizer=str, speaker="bob")),
    "kokoro": (kokoro, speak_as_all),
}

# One of so many values for each field, where it compiles a model.
STEPS = {"moonshine": 24 if ALL else 48}


def places(value, depth=0):
    """Paths of keys to the fields of a JSON value, at most three deep, two of each list."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:2]
    for key, inner in items[:24]:
        yield (key,)
        if isinstance(inner, (dict, list)) and depth < 2:
            yield from ((key, *rest) for rest in places(inner, depth + 1))


def changed(text: str, place, value) -> str:
    whole = json.loads(text)
    inside = whole
    for key in place[:-1]:
        inside = inside[key]
    if value is ...:
        del inside[place[-1]]
    else:
        inside[place[-1]] = value
    return json.dumps(whole)


def damages(path: Path, step: int = 2):
    """(what, bytes) of damaged versions of a file: of each field, every `step`-th of VALUES."""
    data = path.read_bytes()
    yield "empty", b""
    yield "cut", data[: len(data) // 2]
    if path.suffix == ".json":
        text = data.decode()
        yield "a list", b"[1]"
        for n, place in enumerate(places(json.loads(text))):
            for value in VALUES[n % step :: step]:
                yield f"{place} = {value!r}", changed(text, place, value).encode()
    elif path.suffix == ".npy":
        for old, new in ((b"<f4", b"<f8"), (b"(510", b"(51x"), (b"{'descr", b"{[descr")):
            yield f"{new!r}", data.replace(old, new)
    elif path.suffix == ".npz":
        with io.BytesIO() as made, zipfile.ZipFile(made, "w") as archive:
            archive.writestr("other.npy", b"\x93NUMPY\1\0" + struct.pack("<H", 9999) + b"{}")
            archive.close()
            yield "a damaged member", made.getvalue()
        yield (
            "another method",
            data.replace(b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0c\0"),
        )
    elif path.suffix == ".bin":
        yield "one byte more", data + b"\0"


@pytest.mark.parametrize("kind", KINDS)
def test_every_damage_is_named(kind, tmp_path):
    make, use = KINDS[kind]
    folder = make(tmp_path)
    use(folder)
    small = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix != ".onnx"]
    refused = 0
    for path in small:
        whole = path.read_bytes()
        for what, data in damages(path, STEPS.get(kind, 2)):
            path.write_bytes(data)
            try:
                use(folder)
            except EdgewiseError:
                refused += 1
            except Exception as e:
                pytest.fail(f"{path.name}, {what}: {type(e).__name__}: {e}")
        path.write_bytes(whole)
    assert refused >= 10
    use(folder)
