"""A process whose memory is limited gets errors in words, whatever it opens."""

import errno
import mmap
import os
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from edgewise import CausalLM, LoraConfig, Trainer, generate, pipeline
from edgewise.errors import OutOfMemory, memory_in_words
from edgewise.onnx import FileSource
from onnx import TensorProto, helper

LARGE = 200 << 20  # bytes
RUN = """
import resource, sys

import numpy
from edgewise import InferenceSession
from edgewise.engine import default_engine
from edgewise.errors import EdgewiseError, OutOfMemory
from edgewise.processors.audio.decode import read_sound
from edgewise.text import Tokenizer

CALLS = {
    "run": lambda path: InferenceSession(path).run(None, {"x": [1]}),
    "tokenizer": Tokenizer.from_pretrained,
    "sound": lambda path: read_sound(path, 16000),
}
name, path, more = sys.argv[1:]
default_engine()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (int(more) << 20),) * 2)
try:
    CALLS[name](path)
    print("ran")
except OutOfMemory as e:
    print("OutOfMemory", bool(e.what and e.where and e.remedy))
except EdgewiseError as e:
    print(type(e).__name__, str(e)[:300])
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder of files that need more memory than there is."""
    root = tmp_path_factory.mktemp("large")
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[LARGE // 4])
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", str(LARGE))):
        weight.external_data.add(key=key, value=value)
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["k"]) for n in "xy"]
    values = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["k"])]
    counts = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])]
    size = helper.make_tensor("s", TensorProto.INT64, [1], [LARGE])
    for name, nodes, given, made, constants in (
        ("mapped", [helper.make_node("Add", ["x", "w"], ["y"])], infos[:1], infos[1:], [weight]),
        (
            "filled",
            [
                helper.make_node("Mul", ["x", "s"], ["n"]),
                helper.make_node("ConstantOfShape", ["n"], ["y"]),
            ],
            counts,
            values,
            [size],
        ),
    ):
        graph = helper.make_graph(nodes, "g", given, made, constants)
        opset = [helper.make_opsetid("", 17)]
        (root / f"{name}.onnx").write_bytes(
            helper.make_model(graph, opset_imports=opset).SerializeToString()
        )
    for name in ("w.bin", "tokenizer.json"):  # zeros, which take no space on the disk
        with open(root / name, "wb") as file:
            file.truncate(LARGE)
    with wave.open(str(root / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 44100, 0, "NONE", ""))
        sound.writeframes(bytes(LARGE))
    return root


@pytest.mark.parametrize(
    "name, path, more",
    [
        ("run", "mapped.onnx", 64),
        ("run", "filled.onnx", 64),
        ("tokenizer", "", 64),
        ("sound", "sound.wav", 64),
    ],
)
def test_little_memory_is_an_error_in_words(files, name, path, more):
    done = subprocess.run(
        [sys.executable, "-c", RUN, name, str(files / path), str(more)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "OutOfMemory True", done.stderr[-800:]


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOMEM, "no room")])
@pytest.mark.parametrize(
    "call",
    [
        lambda path: pipeline("text-generation", path)("Once", max_new_tokens=1),
        CausalLM,
        lambda path: generate(CausalLM(path), [[1, 2]], max_new_tokens=1),
        lambda path: Trainer(path, adapters=LoraConfig(r=1)).fit(["Once upon a time"]),
    ],
    ids=["pipeline", "decoder", "generate", "trainer"],
)
def test_a_file_that_cannot_be_mapped_or_read(call, error, monkeypatch):
    def refuse(*args, **kwargs):
        raise error

    monkeypatch.setattr(mmap, "mmap", refuse)
    monkeypatch.setattr(FileSource, "read_all", refuse)
    with pytest.raises(OutOfMemory) as e:
        call(str(ROOT / "web/demo/model"))
    assert e.value.where and e.value.remedy


def test_other_errors_of_the_system_stay_what_they_are():
    @memory_in_words
    def fails():
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        fails()
