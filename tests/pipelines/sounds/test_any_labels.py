"""zero-shot-audio-classification with CLAP: in one file, in two and in packages, against
transformers.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from edgewise import pipeline
from edgewise.cli import main
from edgewise.errors import InputError, UnsupportedOp
from edgewise.host.session.open import folder_files
from edgewise.logic.tasks.candidates import longest_candidate
from edgewise.task_package import compile_task

from .. import tiny_audio
from .test_audio_tasks import sound

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
TASK = "zero-shot-audio-classification"
LABELS = ["a dog", "rain", "two very large trees"]
SOUNDS = [sound(1, 16000), sound(2, 9000), sound(3, 700), np.zeros(5000, "f")]


@pytest.fixture(scope="module")
def clap(tmp_path_factory):
    made = {}

    def get(**how):
        key = (*how.items(),)
        if key not in made:
            folder = made[key] = tiny_audio.make_clap(tmp_path_factory.mktemp("clap"), **how)
            main(["build", "--task", TASK, str(folder), "-o", str(folder / "clap.edge")])
        return made[key]

    return get


def scores(found):
    return {one["label"]: one["score"] for one in found}


@pytest.mark.parametrize("separate, fused", [(False, False), (True, False), (False, True)])
def test_scores_of_transformers(clap, separate, fused):
    from transformers import pipeline as reference

    folder = clap(separate=separate, fused=fused)
    theirs = reference(TASK, str(folder), device="cpu")
    with pipeline(TASK, folder) as whole, pipeline(TASK, folder / "clap.edge") as packaged:
        for options in ({}, {"hypothesis_template": "{}!"}):
            for given in SOUNDS:
                wanted = theirs(given, candidate_labels=LABELS, **options)
                for ours in (whole, packaged):
                    found = ours(given, LABELS, **options)
                    assert scores(found) == pytest.approx(scores(wanted), abs=1e-4)
                    ordered = [one["score"] for one in found]
                    assert ordered == sorted(ordered, reverse=True)
        for ours in (whole, packaged):
            first, second = ours(SOUNDS[:2], ", ".join(LABELS))
            assert scores(first) == pytest.approx(scores(ours(SOUNDS[0], LABELS)), abs=1e-6)
            rated = {"array": sound(1, 8000), "sampling_rate": 8000}
            assert sum(scores(ours(rated, LABELS)).values()) == pytest.approx(1)
            check_refused(ours, fused)


def check_refused(pipe, fused):
    """It goes on working after each."""
    before = pipe(SOUNDS[0], LABELS)
    long = np.concatenate([SOUNDS[0], SOUNDS[1]])
    if fused:  # transformers mixes random parts
        with pytest.raises(InputError, match="25000 samples, Clap takes 16000"):
            pipe(long, LABELS)
    else:  # transformers takes a random part
        assert pipe(long, LABELS) == before
    for given, labels, options, error in (
        (np.zeros(0, "f"), LABELS, {}, "no samples"),
        (np.full(900, np.nan, "f"), LABELS, {}, "finite"),
        (b"no sound", LABELS, {}, "soundfile|decoded"),
        ({"array": SOUNDS[0], "sampling_rate": 0}, LABELS, {}, "rate"),
        (SOUNDS[0], None, {}, "there are no labels"),
        (SOUNDS[0], ["a", ""], {}, "there are no labels"),
        (SOUNDS[0], ["very " * 60], {}, "the model takes 40"),
        (SOUNDS[0], LABELS, {"hypothesis_template": "a sound"}, "hypothesis_template"),
        (SOUNDS[0], LABELS, {"top_k": 2}, "no option 'top_k'"),
    ):
        with pytest.raises(InputError, match=error):
            pipe(given, labels, **options)
    with pytest.raises(InputError, match="^input 1, audio: there are no samples"):
        pipe([SOUNDS[0], np.zeros(0, "f")], LABELS)
    assert pipe(SOUNDS[0], LABELS) == before


def test_longest_text():
    """Positions begin after that of the padding, where there are as many."""
    for text, longest in (
        ({"max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"max_position_embeddings": 42, "pad_token_id": 0}, 41),
        ({"max_position_embeddings": 42, "pad_token_id": 10**9}, 40),
        ({"max_position_embeddings": -3, "pad_token_id": 600}, 512),
        ({}, 512),
    ):
        assert longest_candidate({"model_type": "clap", "text_config": text}) == longest


def test_texts_are_read_once(clap):
    with pipeline(TASK, clap(separate=True)) as pipe:
        runs, session = [], pipe.session("text_model")
        run, session.run = session.run, lambda *given: runs.append(given) or run(*given)
        pipe(SOUNDS, LABELS)
        pipe(SOUNDS[0], [*LABELS, "a bell"])
        assert len(runs) == 4


def test_two_files(clap, tmp_path):
    """They lack the scale, which nothing but the model's own weight can be."""
    folder = shutil.copytree(clap(separate=True), tmp_path / "two")
    with pipeline(TASK, folder) as pipe:
        wanted = scores(pipe(SOUNDS[0], LABELS))
    (folder / "model.safetensors").unlink()
    config = json.loads((folder / "config.json").read_text())
    for scale, error in (
        (None, "audio_model.onnx and text_model.onnx lack the weight 'logit_scale_a'"),
        ("1", "logit_scale_a is '1'"),
        (config["logit_scale_init_value"], None),
    ):
        changed = {**config, **({} if scale is None else {"logit_scale_a": scale})}
        if error is None:
            changed["logit_scale_a"] = float(np.log(scale))
        (folder / "config.json").write_text(json.dumps(changed))
        with pipeline(TASK, folder) as pipe:
            if error is None:
                assert scores(pipe(SOUNDS[0], LABELS)) == pytest.approx(wanted, abs=1e-5)
                continue
            with pytest.raises(InputError, match=error):
                pipe(SOUNDS[0], LABELS)
        with pytest.raises(InputError, match=error):
            compile_task(folder_files(folder)[0], TASK)
    files = [folder / f"onnx/{name}_model.onnx" for name in ("audio", "text")]
    for path, data in zip(files, [path.read_bytes() for path in reversed(files)]):
        path.write_bytes(data)
    swapped = "audio_model.onnx: its inputs are input_ids.* needs features: are the files swapped"
    with pipeline(TASK, folder) as pipe, pytest.raises(InputError, match=swapped):
        pipe(SOUNDS[0], LABELS)
    with pytest.raises(InputError, match=swapped):
        compile_task(folder_files(folder)[0], TASK)


def test_packages_that_are_refused(clap):
    files = folder_files(clap(separate=False))[0]
    for options in ({"max_length": 5}, {"personalize": True}):
        with pytest.raises(InputError, match=next(iter(options))):
            compile_task(files, TASK, **options)
    halves = folder_files(clap(separate=True))[0]
    del halves["onnx/text_model.onnx"]
    with pytest.raises(
        UnsupportedOp, match="needs logits_per_audio, or two files: audio_model.onnx"
    ):
        compile_task(halves, TASK)
