"""automatic-speech-recognition with transducers and CTC of pieces of words, in the forms of NeMo's,
k2's and GigaAM's exports: the tokens of loops by the definition on onnxruntime, with features by
their definitions.
"""

import json
import shutil

import numpy as np
import onnx
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.compiler.declare.dtypes import FLOAT, INT64
from edgewise.compiler.processors.audio import heard
from edgewise.compiler.task_package import compile_task
from edgewise.errors import Aborted, EdgewiseError, InputError, ModelError, TokenizerError
from edgewise.host.session import InferenceSession
from edgewise.host.session.open import folder_files

from . import features_by_definition as definition
from . import tiny_hearing

ort = pytest.importorskip("onnxruntime")
MAKERS = {
    "tdt": lambda folder: tiny_hearing.nemo(folder, 5, 1),
    "rnnt": lambda folder: tiny_hearing.nemo(folder, 0, 2),
    "k2": lambda folder: tiny_hearing.k2(folder, 3),
    "gigaam": lambda folder: tiny_hearing.gigaam(folder, 4),
    "k2_stream": lambda folder: tiny_hearing.k2_stream(folder, 3),
    "cache_aware": lambda folder: tiny_hearing.cache_aware(folder, 3),
    "ctc": lambda folder: tiny_hearing.nemo_ctc(folder, 5),
}
SOUNDS = [tiny_hearing.sound(count, seed) for seed, count in enumerate((16000, 40000, 77777))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{kind: folder}, with packages beside them."""
    base = tmp_path_factory.mktemp("hearing")
    made = {kind: make(base / kind) for kind, make in MAKERS.items()}
    for kind, folder in made.items():
        main(["build", "--task", "asr", str(folder), "-o", str(base / f"{kind}.edge")])
    return made


def session(folder, words):
    (path,) = folder.glob(f"*{words}*.onnx")
    return ort.InferenceSession(path)


class Reference:
    """A model on onnxruntime: (token, frame, frames) of sounds."""

    def __init__(self, kind, folder):
        self.kind = kind
        file = next(iter([*folder.glob("*vocab.txt"), *folder.glob("tokens.txt")]))
        lines = file.read_text(encoding="utf-8").splitlines()
        self.words = [line.rsplit(" ", 1)[0] for line in lines]
        self.blank = self.words.index("<blk>")
        self.nemo = kind in ("tdt", "rnnt", "ctc")
        if kind == "ctc":
            self.model = session(folder, "model")
        else:
            self.encoder = session(folder, "encoder")
            self.decoder = session(folder, "decoder")
            self.join = None if self.nemo else session(folder, "join")

    def features(self, sound):
        if self.kind in ("k2", "k2_stream"):
            return definition.kaldi(sound)[None].astype(np.float32)
        if self.kind == "cache_aware":
            return definition.nemo(sound, normalized=False).T[None].astype(np.float32)
        of = definition.gigaam(sound, "v2") if self.kind == "gigaam" else definition.nemo(sound)
        return of.T[None].astype(np.float32)

    def heard(self, sound):
        x = self.features(sound)
        if self.kind == "cache_aware":
            frames = self.cached(x)
            return self.loop(frames, (x.shape[2] - 1) // 8 + 1)
        if self.kind == "k2_stream":
            frames = self.chunks(x)
            return self.loop(frames, len(frames))
        length = np.array([x.shape[1 if self.kind == "k2" else 2]])
        if self.kind == "ctc":
            (scores,) = self.model.run(None, {"audio_signal": x, "length": length})
            found, last = [], self.blank
            for i, token in enumerate(scores[0].argmax(-1)):
                if token == last and token != self.blank:
                    found[-1] = (*found[-1][:2], found[-1][2] + 1)
                elif token != self.blank:
                    found.append((int(token), i, 1))
                last = token
            return found
        names = [i.name for i in self.encoder.get_inputs()]
        encoded, count = self.encoder.run(None, dict(zip(names, (x, length))))
        if self.kind != "k2":
            encoded = encoded.transpose(0, 2, 1)
        return self.loop(encoded[0], int(count[0]))

    def chunks(self, x):
        """As sherpa-onnx: chunk by chunk, where silence follows the sound."""
        size, step = tiny_hearing.Chunk.CHUNK, tiny_hearing.Chunk.STEP
        count = -(-x.shape[1] // step)
        silence = np.log(np.finfo(np.float32).eps)
        x = np.pad(x, ((0, 0), (0, count * step + size), (0, 0)), constant_values=silence)
        _, *infos = self.encoder.get_inputs()
        states = [
            np.zeros(
                [d if isinstance(d, int) else 1 for d in i.shape],
                np.int64 if "int64" in i.type else np.float32,
            )
            for i in infos
        ]
        found = []
        for i in range(count):
            feeds = {"x": x[:, i * step : i * step + size]}
            feeds |= {info.name: state for info, state in zip(infos, states)}
            rows, *states = self.encoder.run(None, feeds)
            found.append(rows[0])
        return np.concatenate(found)

    def cached(self, x):
        """As sherpa-onnx: chunk by chunk, with the caches of the chunk before."""
        size, step = tiny_hearing.CacheAware.CHUNK, tiny_hearing.CacheAware.STEP
        count = -(-x.shape[2] // step)
        more = ((0, 0), (0, 0), (0, count * step + size))
        x, found = np.pad(x, more, constant_values=np.log(2.0**-24)), []
        infos = self.encoder.get_inputs()[2:]
        states = [
            np.zeros(
                [d if isinstance(d, int) else 1 for d in i.shape],
                np.int64 if "int64" in i.type else np.float32,
            )
            for i in infos
        ]
        for i in range(count):
            feeds = {"audio_signal": x[:, :, i * step : i * step + size]}
            feeds |= {"length": np.array([size])}
            feeds |= {info.name: state for info, state in zip(infos, states)}
            rows, _, *states = self.encoder.run(None, feeds)
            found.append(rows[0].T)
        return np.concatenate(found)

    def loop(self, frames, count):
        limit = {"k2": 1, "k2_stream": 1, "gigaam": 3}.get(self.kind, 10)
        found, state, t, made = [], None, 0, 0
        while t < count:
            tokens = [token for token, *_ in found]
            scores, after = self.scores(tokens, state, frames[t])
            token = int(scores[: len(self.words)].argmax())
            more = scores[len(self.words) :]
            step = int(more.argmax()) if len(more) else 0
            if token != self.blank:
                found.append((token, t, step if len(more) else 1))
                state, made = after, made + 1
            if step or token == self.blank or made == limit:
                t, made = t + max(step, 1), 0
        return found

    def scores(self, tokens, state, frame):
        last = tokens[-1] if tokens else self.blank
        if self.kind in ("k2", "k2_stream", "cache_aware"):
            context = np.array([[-1, self.blank, *tokens][-2:]])
            (out,) = self.decoder.run(None, {"y": context})
            (scores,) = self.join.run(None, {"encoder_out": frame[None], "decoder_out": out})
            return scores[0], None
        size, layers = tiny_hearing.HIDDEN, 1 if self.kind == "gigaam" else tiny_hearing.LAYERS
        h, c = state or [np.zeros((layers, 1, size), np.float32)] * 2
        if self.kind == "gigaam":
            out, h, c = self.decoder.run(None, {"x": [[last]], "h.1": h, "c.1": c})
            feeds = {"enc": frame[None, :, None], "dec": out.transpose(0, 2, 1)}
            return self.join.run(None, feeds)[0].reshape(-1), (h, c)
        feeds = {"encoder_outputs": frame[None, :, None], "input_states_1": h, "input_states_2": c}
        feeds |= {"targets": np.int32([[last]]), "target_length": np.int32([1])}
        out, _, h, c = self.decoder.run(None, feeds)
        return out.reshape(-1), (h, c)

    def text(self, tokens):
        shown = [self.words[t] for t in tokens if self.words[t] not in ("<|en|>", "<unk>", "<blk>")]
        data = b"".join(
            bytes([int(w[3:5], 16)]) if w.startswith("<0x") else w.replace("▁", " ").encode()
            for w in shown
        )
        return data.decode("utf-8", "replace").strip()


@pytest.mark.parametrize("packaged", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.family("Parakeet TDT", exporter="torch")
@pytest.mark.family("Parakeet CTC", exporter="torch")
@pytest.mark.family("RNN-T", exporter="torch")
@pytest.mark.family("FastConformer with caches", exporter="torch")
def test_tokens_are_those_of_the_definition(folders, kind, packaged):
    folder = folders[kind]
    reference = Reference(kind, folder)
    # frames of 80 ms, those of k2 and GigaAM of 40 ms
    seconds = 0.08 if reference.nemo or kind == "cache_aware" else 0.04
    model = folder.with_name(f"{kind}.edge") if packaged else folder
    with pipeline("asr", model) as listen:
        for sound in SOUNDS:
            heard = reference.heard(sound)
            assert heard, "a model that is silent tests nothing"
            found = listen(sound, return_timestamps="char")
            assert found["text"] == reference.text([token for token, *_ in heard])
            starts = {round(c["timestamp"][0] / seconds, 6) for c in found["chunks"]}
            hidden = ("<|en|>", "<unk>")
            known = {t for token, t, _ in heard if reference.words[token] not in hidden}
            # marks of punctuation and bytes of one character have times of what is before them
            ends = {t + n for _, t, n in heard}
            assert starts <= known | ends


def test_times_of_words_and_sentences(folders):
    """Words are from the beginning of their first token to the end of their last one."""
    with pipeline("asr", folders["tdt"]) as listen:
        sound = SOUNDS[2]
        tokens = listen(sound, return_timestamps="char")["chunks"]
        words = listen(sound, return_timestamps="word")
        sentences = listen(sound, return_timestamps=True)
    assert " ".join(w["text"] for w in words["chunks"]) == " ".join(words["text"].split())
    assert "".join(t["text"] for t in tokens).split() == [w["text"] for w in words["chunks"]]
    starts = [t["timestamp"][0] for t in tokens]
    assert all(w["timestamp"][0] in starts for w in words["chunks"])
    assert " ".join(s["text"] for s in sentences["chunks"]) == " ".join(words["text"].split())
    last = sentences["chunks"][-1]["timestamp"][1]
    assert last == words["chunks"][-1]["timestamp"][1]


@pytest.mark.parametrize(
    "recipe, reference",
    [
        (heard.nemo(80), definition.nemo),
        (heard.nemo(128), lambda x: definition.nemo(x, 128)),
        (heard.KALDI, definition.kaldi),
        (heard.GIGAAM["v2"], lambda x: definition.gigaam(x, "v2")),
        (heard.GIGAAM["v3"], lambda x: definition.gigaam(x, "v3")),
    ],
    ids=["nemo80", "nemo128", "kaldi", "gigaam v2", "gigaam v3"],
)
def test_features(recipe, reference):
    """Silence after a sound, as plans for more samples need it, changes nothing."""
    wanted = heard.Wanted(("x", FLOAT), False, ("length", INT64), ("mask", INT64))
    graph = InferenceSession(heard.heard(recipe, wanted))
    for count, silence in ((16000, 0), (16000, 1600), (12345, 135), (12345, 4135)):
        sound = tiny_hearing.sound(count, 7)
        expected = reference(sound)
        audio = np.pad(sound, (0, silence)).reshape(-1, 160)
        feeds = {"audio": audio, "valid": np.array([count])}
        x, length, mask = graph.run(["x", "length", "mask"], feeds)
        assert length[0] == len(expected) == mask.sum() and mask[0, : length[0]].all()
        assert x.shape[:2] == mask.shape and not x[0, length[0] :].any()
        assert np.abs(x[0, : length[0]] - expected).max() < 2e-4
    graph.free()


def test_more_beams_give_no_worse_tokens(folders):
    """With all beams there are, what is found is as likely as what is likeliest at each step."""
    for kind in ("tdt", "rnnt", "k2"):
        with pipeline("asr", folders[kind]) as listen:
            for sound in SOUNDS[:2]:
                assert listen(sound, num_beams=1) == listen(sound)
                assert isinstance(listen(sound, num_beams=4)["text"], str)


def test_chunks_of_long_sounds(folders):
    """What is cut has the tokens of a whole recording where chunks see what is around them."""
    seen = []
    with pipeline("asr", folders["ctc"]) as listen:
        sound = np.concatenate([*SOUNDS, *SOUNDS])
        found = listen(
            sound, chunk_length_s=4, return_timestamps="word", on_progress=lambda *a: seen.append(a)
        )
    assert seen[-1] == (len(sound), len(sound)) and len(seen) > 4
    times = [chunk["timestamp"] for chunk in found["chunks"]]
    assert times == sorted(times) and times[-1][1] <= len(sound) / 16000 + 0.08
    with pipeline("asr", folders["tdt"].with_name("tdt.edge")) as listen:
        long = np.tile(SOUNDS[2], 10)  # 49 s; the package takes 30 s at once
        found = listen(long, return_timestamps="word")
        assert found["chunks"][-1]["timestamp"][1] > 35
        times = [chunk["timestamp"][0] for chunk in found["chunks"]]
        assert times == sorted(times)


def test_options_and_bad_input(folders):
    with pipeline("asr", folders["tdt"]) as listen:
        for options, message in (
            ({"return_timestamps": "line"}, "no times of kind 'line'"),
            ({"language": "de"}, "no such option"),
            ({"max_new_tokens": 3}, "no such option"),
            ({"num_beams": 0}, "integer of 1"),
        ):
            with pytest.raises(InputError, match=message):
                listen(SOUNDS[0], **options)
        with pytest.raises(InputError, match="no samples"):
            listen(np.zeros(0, np.float32))
        with pytest.raises(Aborted):
            listen(SOUNDS[0], signal=lambda: True)
        assert listen(np.zeros(4000, np.float32))["text"] is not None
        given = [{"raw": SOUNDS[0], "sampling_rate": 16000, "name": "x"}]
        assert listen(given) == [{**listen(SOUNDS[0]), "name": ["x"]}]
        events = listen.stream(interval=0.5)
        text = "".join(e["committed"] for e in events.feed(SOUNDS[1]) + events.end())
        assert set(text.split()) <= set(listen(SOUNDS[1])["text"].split())


def changed(folder, tmp_path, file, change):
    """A copy of a model whose graph was changed."""
    target = shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
    model = onnx.load(target / file)
    change(model.graph)
    onnx.save(model, target / file)
    return target


def test_damaged_models(folders, tmp_path):
    """Words, before anything is computed."""
    vocabulary = (folders["tdt"] / "vocab.txt").read_text(encoding="utf-8")
    for text, error, message in (
        ("", TokenizerError, "no tokens"),
        ("a b c\n", TokenizerError, "line 1 is not"),
        ("a 99999999999\n", TokenizerError, "line 1 is not"),
        ("a 1000000\n", TokenizerError, "1 tokens with ids up to 1000000"),
        ("".join(f"{i} {i}\n" for i in range(100)), ModelError, "26 scores, and its vocabulary"),
        ("<blk> 0\n", None, ""),  # 25 durations: NeMo's have a few
    ):
        target = shutil.copytree(folders["tdt"], tmp_path / "words", dirs_exist_ok=True)
        (target / "vocab.txt").write_text(text)
        if error is None:
            pipeline("asr", target).close()
            continue
        with pytest.raises(error, match=message):
            pipeline("asr", target)
    for config, message in (
        ({"durations": [0, 1]}, "scores of 5"),
        ({"max_tokens_per_step": 0}, "from 1 to"),
        ({"features_size": "80"}, ""),
        ({"subsampling_factor": -8}, "from 1 to"),
        ({"blank_token_id": "x"}, "must be an integer"),
    ):
        target = shutil.copytree(folders["tdt"], tmp_path / "config", dirs_exist_ok=True)
        (target / "config.json").write_text(json.dumps(config))
        try:
            pipeline("asr", target).close()
        except EdgewiseError as e:
            assert message in str(e)
        else:
            assert not message
    assert vocabulary.count("\n") == 21

    def other_state(graph):
        graph.output[2].type.tensor_type.shape.dim[2].dim_value = 99

    def no_state(graph):
        graph.input[3].type.tensor_type.shape.dim[2].dim_param = "h"

    def caches(graph):
        graph.input.append(onnx.helper.make_tensor_value_info("cache", 1, [1, 2, 3, 4]))

    for file, change, message in (
        ("decoder_joint-model.onnx", other_state, "'output_states_1', which replaces it"),
        ("decoder_joint-model.onnx", no_state, "the state 'input_states_1' has the shape"),
        ("encoder-model.onnx", caches, "Exports with caches"),
    ):
        target = changed(folders["tdt"], tmp_path, file, change)
        with pytest.raises(EdgewiseError, match=message):
            pipeline("asr", target)


def test_sizes_of_chunks(folders, tmp_path):
    """They are in the metadata, or follow from the graph."""

    def plain(model):
        del model.metadata_props[:]

    def open_size(model):
        plain(model)
        model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "T"

    def backwards(model):
        next(p for p in model.metadata_props if p.key == "decode_chunk_len").value = "99"

    found = []
    for change, message in (
        (lambda model: None, ""),
        (plain, ""),
        (open_size, "Export it again with the numbers of frames"),
        (backwards, "chunks have 13 frames, of which it goes on by 99"),
    ):
        target = shutil.copytree(folders["k2_stream"], tmp_path / "chunks", dirs_exist_ok=True)
        (path,) = target.glob("encoder*.onnx")
        model = onnx.load(folders["k2_stream"] / path.name)
        change(model)
        onnx.save(model, path)
        if message:
            with pytest.raises(ModelError, match=message):
                pipeline("asr", target)(SOUNDS[0])
        else:
            with pipeline("asr", target) as listen:
                found.append(listen(SOUNDS[0]))
    assert found[0] == found[1] and found[0]["text"]


def test_durations_of_0_end(folders, tmp_path):
    """A model that never moves on is moved on after some tokens of a frame."""
    target = shutil.copytree(folders["tdt"], tmp_path / "still")
    (target / "config.json").write_text(json.dumps({"durations": [0] * 5, "max_symbols": 4}))
    with pipeline("asr", target) as listen:
        found = listen(SOUNDS[0], return_timestamps="char")
        beams = listen(SOUNDS[0][:6400], num_beams=3)
    assert len(found["chunks"]) <= 4 * 13 and isinstance(beams["text"], str)


def test_each_file_has_a_type(folders, tmp_path):
    """As releases of sherpa-onnx: files of several types, of which a mix is wanted."""
    source = tmp_path / "files"
    source.mkdir()
    for file in folders["k2"].iterdir():
        shutil.copy(file, source / file.name)
    for name in ("encoder", "joiner"):
        [file] = [f for f in source.glob("*.onnx") if f.name.startswith(name)]
        file.rename(file.with_name(file.name.replace(".onnx", ".int8.onnx")))
    [decoder] = source.glob("decoder*.onnx")
    (source / decoder.name.replace(".onnx", ".int8.onnx")).write_bytes(b"damaged")
    mixed = {"encoder": "int8", "decoder": "fp32", "joiner": "int8"}
    sound = SOUNDS[1]
    with pipeline("asr", folders["k2"]) as listen:
        wanted = listen(sound)
    with pipeline("asr", source, dtype=mixed) as listen:
        assert listen(sound) == wanted
    compile_task(folder_files(source)[0], "asr", dtype=mixed).save(str(tmp_path / "mixed.edge"))
    with pipeline("asr", tmp_path / "mixed.edge") as listen:
        assert listen(sound) == wanted
    with pytest.raises(InputError, match="no graph 'x'"):
        pipeline("asr", source, dtype={"x": "int8"})
