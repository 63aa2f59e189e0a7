"""automatic-speech-recognition with Canary in the form of onnx-asr's repositories, against its loop
by the definition on onnxruntime.
"""

import shutil

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.errors import EdgewiseError, InputError

from . import features_by_definition as definition
from . import tiny_hearing

ort = pytest.importorskip("onnxruntime")
SOUNDS = [tiny_hearing.sound(count, seed) for seed, count in enumerate((16000, 40000, 77777))]
WORDS = tiny_hearing.CANARY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tiny_hearing.canary(tmp_path_factory.mktemp("canary") / "model", 6)
    main(["build", "--task", "asr", str(made), "-o", str(made.with_name("model.edge"))])
    return made


def decoded(folder, sound, source="en", target="en", pnc="pnc", times="notimestamp"):
    """The tokens after the prompt, each from the whole text before it: no memory."""
    encoder = ort.InferenceSession(folder / "encoder-model.onnx")
    decoder = ort.InferenceSession(folder / "decoder-model.onnx")
    x = definition.nemo(sound, 128).T[None].astype(np.float32)
    feeds = {"audio_signal": x, "length": np.array([x.shape[2]])}
    hidden, mask = encoder.run(None, feeds)
    names = ["startofcontext", "startoftranscript", "emo:undefined", source, target, pnc]
    names = ["▁", *(f"<|{name}|>" for name in (*names, "noitn", times, "nodiarize"))]
    ids = [WORDS.index(name) for name in names]
    first = len(ids)
    while len(ids) < 60:
        feeds = {"input_ids": np.array([ids]), "encoder_embeddings": hidden, "encoder_mask": mask}
        feeds["decoder_mems"] = np.zeros((3, 1, 0, tiny_hearing.WIDTH), np.float32)
        ids.append(int(decoder.run(["logits"], feeds)[0][0, -1].argmax()))
        if WORDS[ids[-1]] == "<|endoftext|>":
            ids.pop()
            break
    return ids[first:]


def text(ids):
    return "".join(WORDS[i] for i in ids if WORDS[i][:2] != "<|").replace("▁", " ").strip()


@pytest.mark.parametrize("packaged", [False, True])
def test_tokens_are_those_of_the_definition(folder, packaged):
    with pipeline("asr", folder.with_name("model.edge") if packaged else folder) as listen:
        for sound in SOUNDS:
            found = listen(sound)["text"]
            assert found == text(decoded(folder, sound)) and found
            options = {"language": "german", "task": "translate", "pnc": False}
            assert listen(sound, **options)["text"] == text(
                decoded(folder, sound, "de", "en", "nopnc")
            )
            found = listen(sound, target_language="de", return_timestamps="word")
            ids = decoded(folder, sound, "en", "de", times="timestamp")
            assert found["text"] == text(ids)
            marks = {int(WORDS[i][2:-2]) for i in ids if WORDS[i][2:-2].isdecimal()} | {0}
            for chunk in found["chunks"]:
                assert {round(t / 0.08) for t in chunk["timestamp"]} <= marks


def test_parts_of_long_sounds_and_options(folder):
    with pipeline("asr", folder) as listen:
        seen = []
        long = np.tile(SOUNDS[1], 3)
        found = listen(long, chunk_length_s=3, on_progress=lambda *a: seen.append(a))
        assert found["text"] and seen[-1] == (len(long), len(long)) and len(seen) > 2
        for options, message in (
            ({"language": "fr"}, "unknown to the model.*There are: de, en"),
            ({"task": "sing"}, "Give one of: transcribe, translate"),
            ({"num_beams": 2}, "no such option"),
            ({"pnc": 1}, "pnc"),
            ({"prompt_ids": [1]}, "no such option"),
        ):
            with pytest.raises(InputError, match=message):
                listen(SOUNDS[0], **options)


def test_damaged_models(folder, tmp_path):
    for lines, message in (
        (WORDS[:12], "no <|endoftext|>"),
        ([*WORDS, *map(str, range(100))], "38 tokens, and its vocabulary has 138"),
        ([w for w in WORDS if w != "<|noitn|>"], "no token '<|noitn|>'"),
    ):
        target = shutil.copytree(folder, tmp_path / "words", dirs_exist_ok=True)
        data = "".join(f"{word} {i}\n" for i, word in enumerate(lines))
        (target / "vocab.txt").write_text(data, encoding="utf-8")
        with pytest.raises(EdgewiseError, match=message.replace("|", r"\|")):
            pipeline("asr", target)(SOUNDS[0])
