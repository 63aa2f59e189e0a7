"""Packages of encoder-decoder models: their files are chosen, and Python opens them."""

import io
import json
import shutil
from pathlib import Path

import pytest
from edgewise.compiler.task_package.graphs import choose_graphs
from edgewise.errors import InputError
from edgewise.host.session.open import folder_files
from edgewise.host.session.seq2seq import Seq2SeqModel
from edgewise.onnx import BytesSource
from edgewise.package import Package
from edgewise.pipelines import pipeline
from edgewise.task_package import compile_task
from edgewise.text import generate

from .sounds import SOUNDS, samples
from .test_moonshine import EXTRACTOR, Ids, plain
from .test_text import INPUTS

MODELS = Path(__file__).parent / "models"


@pytest.mark.parametrize("name", ["t5", "marian_separate"])
def test_a_package_gives_the_tokens_of_transformers(name):
    package = compile_task(folder_files(MODELS / name)[0], "translation")
    assert package.manifest["task"] == "translation" and package.manifest["programs"] == {}
    written = io.BytesIO()
    package.write(written)
    opened = Package.read(BytesSource(written.getvalue(), f"{name}.edge"))
    model = Seq2SeqModel(opened)
    for case in json.loads((MODELS / f"{name.split('_')[0]}.json").read_text()).values():
        for ids, tokens in zip(INPUTS, case["sequences"], strict=True):
            source = model.encode(ids)
            assert generate(source, model.start_ids(), **case["options"]) == [tokens]
            source.close()
    model.free()


def test_moonshine(tmp_path):
    """Its encoder is a program of the package, for all lengths."""
    folder = tmp_path / "moonshine"
    shutil.copytree(MODELS / "moonshine", folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(EXTRACTOR))
    path = tmp_path / "moonshine.edge"
    with open(path, "wb") as out:
        compile_task(folder_files(folder)[0], "asr").write(out)
    package = Package.read(BytesSource(path.read_bytes(), "x"))
    least, most = package.manifest["processor"]["audio"]["any_length"]
    assert least <= 1600 and 39 * 16000 < most < 40 * 16000  # 1664 positions
    with pipeline("asr", path, Ids()) as listen:
        for case in json.loads((MODELS / "moonshine.json").read_text()).values():
            for i, (count, ids) in enumerate(zip(SOUNDS, case["sequences"], strict=True)):
                assert listen(samples(count, i), **case["options"]) == {"text": plain(ids)}
        assert listen(samples(most, 1), max_new_tokens=1)
        with pytest.raises(InputError, match="takes 39.99"):
            listen(samples(most + 1000, 1))


FILES = [
    "onnx/encoder_model.onnx",
    "onnx/encoder_model_quantized.onnx",
    "onnx/decoder_model.onnx",
    "onnx/decoder_with_past_model.onnx",
    "onnx/decoder_model_merged_q4.onnx",
]


def test_files_are_chosen_by_name_and_dtype():
    assert choose_graphs(FILES, "translation") == {
        "encoder_model": FILES[0],
        "decoder_model_merged": FILES[4],
    }
    assert choose_graphs(FILES, "translation", "fp32") == {
        "encoder_model": FILES[0],
        "decoder_model": FILES[2],
        "decoder_with_past_model": FILES[3],
    }
    mixed = {"encoder_model": "q8", "decoder_model_merged": "q4"}
    assert choose_graphs(FILES, "translation", mixed)["encoder_model"] == FILES[1]
    for dtype, words in (("fp16", "not those of this task"), ("q3", "not a dtype")):
        with pytest.raises(InputError, match=words):
            choose_graphs(FILES, "translation", dtype)
    with pytest.raises(InputError, match="no file 'model'"):
        choose_graphs(FILES, "translation", {"model": "q8"})


def test_models_of_other_tasks_are_refused():
    files = folder_files(MODELS / "t5")[0]
    with pytest.raises(InputError, match="its encoder reads input_ids"):
        compile_task(files, "asr")
    with pytest.raises(InputError, match="several files"):
        compile_task(files, "translation", model_file="onnx/encoder_model.onnx")
    with pytest.raises(InputError, match=r"preprocessor_config\.json"):
        compile_task(folder_files(MODELS / "whisper")[0], "asr")
