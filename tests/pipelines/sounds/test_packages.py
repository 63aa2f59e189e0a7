"""Packages of models that speak and hear, made ahead of time."""

import json

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.compiler.declare.registers import Registers
from edgewise.compiler.task_package.length_split import divide
from edgewise.errors import InputError, ModelError
from edgewise.host.session.open import folder_files
from edgewise.ir import Graph, Info, Node, Tensor
from edgewise.model_metadata import ModelMetadata
from edgewise.onnx.source import MissingFile
from edgewise.task_package import compile_task

from .. import tiny_audio
from . import tiny_voices
from .test_ctc import VOCABULARY, sound
from .test_damaged_files import ctc


def graph(*nodes: Node) -> Graph:
    """A graph of ids [1, n] and constants."""
    constants = {
        "axes": Tensor.of("axes", INT64, (2,), [0, 1]),
        "one": Tensor.of("one", INT64, (1,), [1]),
        "zero": Tensor.of("zero", FLOAT, (1,), [0.0]),
    }
    return Graph(
        "voice",
        list(nodes),
        [Info("ids", INT64, [1, "n"])],
        [Info("waveform", FLOAT, ["samples"])],
        constants=constants,
        opsets={"": 17},
        ir_version=9,
        about=ModelMetadata("edgewise"),
    )


def halves(*nodes: Node):
    length = Registers([(2, 60)]).length(0)
    return divide(graph(*nodes), {"ids": [1, length]}, {"ids": INT64})


COUNT = Node("ReduceSum", ["floats", "axes"], ["count"], {"keepdims": 0})
FLOATS = Node("Cast", ["ids"], ["floats"], {"to": FLOAT})


def test_the_number_of_frames_is_a_whole_one():
    """A page cannot read a float: the conversion belongs to the first half."""
    found = halves(
        FLOATS,
        COUNT,
        Node("Cast", ["count"], ["frames"], {"to": INT64}),
        Node("Reshape", ["frames", "one"], ["shape"]),
        Node("Expand", ["zero", "shape"], ["waveform"]),
    )
    assert found.length == "frames" and found.dtypes["frames"] == INT64
    assert [n.op for n in found.second.nodes] == ["Reshape", "Expand"]


def test_the_earliest_whole_number():
    found = halves(
        Node("ReduceSum", ["ids", "axes"], ["count"], {"keepdims": 0}),
        Node("Cast", ["count"], ["float"], {"to": FLOAT}),
        Node("Cast", ["float"], ["frames"], {"to": INT64}),
        Node("Reshape", ["frames", "one"], ["shape"]),
        Node("Expand", ["zero", "shape"], ["waveform"]),
    )
    assert found.length == "count"


def compiled(folder, task):
    return compile_task(folder_files(folder)[0], task)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"phoneme_id_map": {"^": [1], "_": [0], "$": [2], "a": [3] * 600}}, "'a' takes 604 token"),
        ({"inference": {"noise_scale": "x"}}, "`noise_scale` is x, no number"),
        ({"inference": [1]}, "`inference` is not an object"),
        ({"speaker_id_map": {"ann": "0"}}, "speaker_id_map is not"),
        ({"speaker_id_map": [1]}, "`speaker_id_map` is not an object"),
    ],
)
def test_damaged_voices(change, why, tmp_path):
    tiny_voices.make_piper(tmp_path)
    file = tmp_path / "en_tiny.onnx.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ModelError, match=why) as e:
        compiled(tmp_path, "text-to-speech")
    assert e.value.where == "en_tiny.onnx.json"


def test_names_of_settings_of_voices(tmp_path):
    tiny_voices.make_piper(tmp_path)
    file = tmp_path / "en_tiny.onnx.json"
    phonemes = {"phonemizer": str, "noise_scale": 0, "noise_w": 0}
    for name in ("other.onnx.json", "en_tiny.json", "config.json", "en_tiny.onnx.json"):
        file = file.rename(tmp_path / name)
        described = compiled(tmp_path, "text-to-speech").manifest["processor"]["speech"]
        assert described["type"] == "piper" and described["speakers"] == 3
        with pipeline("text-to-speech", tmp_path, **phonemes) as speak:
            assert speak("ab.")["sampling_rate"] == 16000
    file.unlink()
    for work in (compiled, lambda folder, task: pipeline(task, folder)):
        with pytest.raises((InputError, MissingFile), match="there is no"):
            work(tmp_path, "text-to-speech")


def test_python_compares_voices_of_any_length_with_packages(tmp_path):
    folder = tiny_audio.make(tmp_path, "Wav2Vec2")
    package = built(folder, "speaker-verification", max_length=2)
    with (
        pipeline("speaker-verification", folder) as whole,
        pipeline("speaker-verification", package) as packaged,
    ):
        for count in (500, 32000):
            got, want = (pipe.embed(sound(1, count)) for pipe in (packaged, whole))
            assert got == pytest.approx(want, abs=1e-5)
        long = sound(2, 49600)
        parts = [np.array(whole.embed(part)) for part in (long[:32000], long[-32000:])]
        mean = sum(parts) / np.linalg.norm(sum(parts))
        assert packaged.embed(long) == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize("normalize", [True, False])
def test_samples_that_pass_the_processor(normalize, tmp_path):
    """Without normalization the program "pre" computes nothing."""
    folder = ctc(tmp_path)
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "do_normalize": normalize}))
    programs = compiled(folder, "automatic-speech-recognition").manifest["programs"]
    (plan,) = programs["model"]["plans"]
    assert plan["inputs"]["input_values"][1] == [1, [1, 0]] and plan["register"][1] == 480000


def built(folder, task, **options):
    path = folder / "built.edge"
    with open(path, "wb") as out:
        compile_task(folder_files(folder)[0], task, **options).write(out)
    return path


@pytest.mark.parametrize("mask", [False, True])
def test_python_hears_with_packages_of_ctc_models(mask, tmp_path):
    """Any length, and recordings that are too long for the package."""
    more = {"feat_extract_norm": "layer", "do_stable_layer_norm": True} if mask else {}
    folder = tiny_audio.make_ctc(tmp_path, "Wav2Vec2", VOCABULARY, True, mask, **more)
    with (
        pipeline("asr", folder) as whole,
        pipeline("asr", built(folder, "asr", max_length=2)) as packaged,
    ):
        for count in (17321, 9001):
            given, times = sound(1, count), {"return_timestamps": "word"}
            assert packaged(given, **times) == whole(given, **times)
        long = sound(2, 50000)
        assert packaged(long) == whole(long, chunk_length_s=2)
        short = packaged(sound(3, 300), return_timestamps="char")  # silence follows, of no text
        assert short["chunks"] and short["chunks"][-1]["timestamp"][1] <= 4 * 80 / 16000
        for count in (1, 2):  # less than a frame
            assert packaged(sound(3, count)) == {"text": ""}
        samples = sound(5, 30000)
        streams = [pipe.stream(interval=0.5) for pipe in (whole, packaged)]
        first, second = [s.feed(samples) + s.end() for s in streams]
        assert first == second != []


def test_python_opens_packages_of_other_sounds(tmp_path):
    folder = tiny_audio.make(tmp_path, "Wav2Vec2")
    task = "audio-classification"
    with pipeline(task, folder) as whole, pipeline(task, built(folder, task)) as packaged:
        assert packaged(sound(1, 17321)) == whole(sound(1, 17321))
        with pytest.raises(InputError, match=r"has 30\.0 s, this package takes 30 s"):
            packaged(np.zeros(480_001, "f"))
        with pytest.raises(InputError, match="is a package for 'audio-classification'"):
            pipeline("asr", tmp_path / "built.edge")


@pytest.mark.parametrize("kind", ["vits", "piper", "kokoro"])
def test_python_speaks_with_packages(tmp_path, kind):
    """They give the sound of the model's folder; long sentences are divided at their plans."""
    folder = tmp_path / kind
    folder.mkdir()
    getattr(tiny_voices, f"make_{kind}")(folder)
    files, _ = folder_files(folder, ("onnx", "voices"))
    package = compile_task(files, "text-to-speech", max_length=1)
    package.save(str(tmp_path / "voice.edge"))
    whole = pipeline("text-to-speech", folder)
    ours = pipeline("text-to-speech", tmp_path / "voice.edge")
    cases = {
        "vits": [("some words", {}), ("no", {"seed": 1})],
        "piper": [
            ("ab.", {}),
            ("axb.", {"speaker": "bob", "speed": 2, "noise_scale": 0, "noise_w": 1.0}),
            ("a. b.", {}),
        ],
        "kokoro": [
            ("ab.", {}),
            ("xa", {"voice": "bm_tiny", "speed": 0.5}),
            ("a", {"voice": tiny_voices.styles(1)}),
            ("a" * 300 + ", " + "b" * 300, {}),
        ],
    }[kind]
    for text, options in cases:
        given = options if kind == "vits" else {"phonemizer": str, **options}
        want, got = whole(text, **given), ours(text, **given)
        assert got["sampling_rate"] == want["sampling_rate"]
        np.testing.assert_allclose(got["audio"], want["audio"], atol=1e-4)
    most = package.manifest["processor"]["speech"]["most"]
    long = ours("a" * 3 * most, **({} if kind == "vits" else {"phonemizer": str}))
    assert long["audio"].shape[1] > got["audio"].shape[1]
    with pytest.raises(
        InputError, match="this option" if kind == "vits" else "no voice|no speaker"
    ):
        ours("a", **{"vits": {"speed": 2}, "piper": {"phonemizer": str, "speaker": 7}}.get(
            kind, {"phonemizer": str, "voice": "nobody"}))  # fmt: skip
