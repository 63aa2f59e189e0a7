"""safetensors files: the same bytes as the reference library's, references instead of copies, and
nothing but words about damaged ones.
"""

import json
import random
import struct

import edgewise
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import torch
from edgewise.compiler.declare.dtypes import NAME
from edgewise.errors import EdgewiseError, InputError, ModelError
from edgewise.onnx import BytesSource
from edgewise.training.safetensors import (
    TYPES,
    load_safetensors,
    safetensors_parts,
    save_safetensors,
)
from safetensors.torch import load as torch_load
from safetensors.torch import save as torch_save

from tests.logic.forms import both, module

ARRAYS = {
    "b.weight": np.arange(12, dtype="f4").reshape(3, 4),
    "a": np.array([1, -2], "i8"),
    "h": np.array([[0.5, 2]], "f2"),
    "u": np.arange(5, dtype="u1"),
    "i8": np.array([-1], "i1"),
    "mask": np.array([True, False]),
    "scalar": np.array(7, "i4"),
    "none": np.zeros((0, 3), "f4"),
    "d": np.array([1e300]),
    "Ωmega": np.ones(1, "u2"),
}


def test_same_bytes_as_the_library():
    mine = save_safetensors(ARRAYS, metadata={"format": "np"})
    assert mine == safetensors.numpy.save(ARRAYS, metadata={"format": "np"})
    back = safetensors.numpy.load(mine)
    assert all(
        np.array_equal(back[k], v) and back[k].dtype == v.dtype for k, v in ARRAYS.items()
    ) and len(back) == len(ARRAYS)


def test_references_into_the_source(tmp_path):
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file(ARRAYS, path, metadata={"a": "1", "b": "zwei"})
    tensors, metadata = load_safetensors(path)
    assert metadata == {"a": "1", "b": "zwei"} and set(tensors) == set(ARRAYS)
    for name, t in tensors.items():
        assert (
            t.data is None
            and t.source.name == str(path)
            and t.shape == ARRAYS[name].shape
            and NAME[t.dtype] == ARRAYS[name].dtype.name
        )
        assert t.bytes() == ARRAYS[name].tobytes()
    save_safetensors(tensors, tmp_path / "y.safetensors", metadata)  # from one file to another
    assert load_safetensors((tmp_path / "y.safetensors").read_bytes())[0].keys() == tensors.keys()
    assert list(tmp_path.glob("*.part")) == []


def test_bfloat16_and_other_makers():
    x = torch.randn(3, 5).bfloat16()
    tensors, _ = load_safetensors(torch_save({"x": x}))
    assert NAME[tensors["x"].dtype] == "bfloat16"
    raw = x.view(torch.int16).numpy().tobytes()
    for given in (
        tensors["x"],
        np.frombuffer(raw, ml_dtypes.bfloat16).reshape(3, 5),
        ("bfloat16", [3, 5], raw),
        (16, (3, 5), [raw[:7], raw[7:]]),
        (16, (3, 5), lambda: iter([raw])),
        edgewise.Array((3, 5), "bfloat16", raw),
    ):
        assert torch.equal(torch_load(save_safetensors({"x": given}))["x"], x)
    assert load_safetensors(save_safetensors({}))[0] == {}
    assert sorted(TYPES) == sorted(
        ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"]
    )


def test_parts_are_not_copied():
    data = bytearray(1 << 20)
    parts = list(safetensors_parts({"x": ("uint8", (1 << 20,), data)}))
    assert len(parts) == 2 and parts[1].obj is data


@pytest.mark.parametrize(
    "given, words",
    [
        (("float32", (2,), b"1234"), "4 bytes for shape"),
        (("float32", (2,), [b"1234"]), "hold 4 bytes"),
        (("float32", (1,), [b"1234", b"5"]), "more than 4"),
        (("float31", (1,), b"1234"), "float31"),
        (("float32", (-1,), b""), "-1"),
        (("int4", (2,), b"1"), "cannot store int4"),
        ("text", "not a tensor"),
    ],
)
def test_what_cannot_be_written(given, words, tmp_path):
    with pytest.raises(InputError, match=words):
        save_safetensors({"x": given}, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="metadata"):
        save_safetensors({}, metadata={"step": 1})
    with pytest.raises(InputError, match="cannot write"):
        save_safetensors({}, tmp_path / "no" / "folder.safetensors")


def file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        struct.pack("<Q", 1 << 63),
        struct.pack("<Q", 9) + b"{}",
        file(b"[]"),
        file(b"nul"),
        file(b"\xff\xfe"),
        file(b"[" * 100000),
        file({"x": 1}),
        file({"x": {}}),
        file({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        file({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345"),
        file({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}),
        file({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"),
        file({"x": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, b"1234"),
        file({"x": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, b"1234"),
        file({"x": {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        file({"x": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
        file({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"),
        file(
            {"x": {"dtype": "F32", "shape": [1 << 900, 1 << 900], "data_offsets": [0, 4]}}, b"1234"
        ),
        file(
            {
                "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "y": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            b"1234",
        ),
        file(
            b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
            b'"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            b"1234",
        ),
        file({"__metadata__": {"a": 1}}),
        file({"__metadata__": []}),
        file(b'{"x":' + b"9" * 5000 + b"}"),
    ],
    ids=range(25),
)
def test_damaged(data):
    with pytest.raises(ModelError) as e:
        load_safetensors(data)
    assert e.value.what and e.value.where and e.value.remedy


@both
def test_headers_of_both_forms(form):
    """The header of the library's file is read, and laid out again in the same way."""
    rules = module(form, "training.safetensors")
    data = safetensors.numpy.save(ARRAYS, metadata={"format": "np"})
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    found = rules.read_header(header, start, len(data), "x")
    assert found.metadata == {"format": "np"} and set(found.tensors) == set(ARRAYS)
    for name, t in found.tensors.items():
        assert (t.dtype, t.shape) == (ARRAYS[name].dtype.name, list(ARRAYS[name].shape))
        assert data[t.offset : t.offset + t.bytes] == ARRAYS[name].tobytes()
    infos = {n: rules.TensorInfo(t.dtype, t.shape, t.bytes) for n, t in found.tensors.items()}
    made = rules.layout(infos, {"format": "np"})
    assert json.dumps(made.header) == json.dumps(header)
    assert made.order == list(found.tensors)
    assert rules.layout({}, {}).header == {}
    with pytest.raises(InputError, match="cannot store int4"):
        rules.layout({"x": rules.TensorInfo("int4", [2], 1)}, None)


def entry(dtype="F32", shape=(1,), span=(0, 4), **more):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}, **more}


@both
@pytest.mark.parametrize(
    "header, size, words",
    [
        ([], 10, "its header is not a JSON object"),
        ({"__metadata__": {"a": 1}}, 10, "does not map strings to strings"),
        ({"__metadata__": []}, 10, "does not map strings to strings"),
        ({"__metadata__": None}, 10, "does not map strings to strings"),
        ({"x": 1}, 10, "'x' needs dtype, shape"),
        ({"x": {"dtype": "F32", "shape": [1]}}, 10, "'x' needs dtype, shape"),
        (entry(dtype=["F32"]), 14, "'x' needs dtype, shape"),
        (entry(shape=[-1]), 14, "'x' needs dtype, shape"),
        (entry(shape=[True]), 14, "'x' needs dtype, shape"),
        (entry(shape=[1] * 65), 14, "'x' needs dtype, shape"),
        (entry(span=[0, 4, 8]), 14, "'x' needs dtype, shape"),
        (entry("F9"), 14, "the element type F9"),
        (entry(shape=[2, 1]), 14, r"4 bytes, which do not match its shape \[2, 1\] of F32"),
        (entry(shape=[1 << 60, 1 << 60]), 14, "4 bytes, which do not match"),
        (entry(span=[4, 0]), 14, "-4 bytes, which do not match"),
        (entry(span=[4, 8]), 18, "'x' begins at byte 14, the one before it ends at 10"),
        (entry(y=entry()["x"]), 18, "'y' begins at byte 10, the one before it ends at 14"),
        (entry(), 13, "its tensors end at byte 14, the file has 13"),
        (entry(), 15, "its tensors end at byte 14, the file has 15"),
    ],
)
def test_damaged_headers(form, header, size, words):
    rules = module(form, "training.safetensors")
    with pytest.raises(ModelError, match=words) as e:
        rules.read_header(header, 10, size, "here")
    assert e.value.where == "here" and e.value.remedy


@both
def test_claims_of_headers(form):
    check = module(form, "training.safetensors").check_length
    check(92, 100, "here")
    for claimed, size in ((93, 100), (100_000_001, 1 << 40)):
        with pytest.raises(ModelError, match=f"claims {claimed} bytes, the file has {size}"):
            check(claimed, size, "here")


def test_random_damage():
    random.seed(0)
    good = save_safetensors(ARRAYS, metadata={"format": "np"})
    for i in range(3000):
        data = bytearray(good)
        for _ in range(random.choice((1, 1, 2, 5))):
            data[random.randrange(min(len(data), 700))] = random.choice(
                (0, 255, 34, 44, 57, random.randrange(256))
            )
        if i % 5 == 0:
            del data[random.randrange(len(data)) :]
        try:
            tensors, _ = load_safetensors(BytesSource(bytes(data)))
            for t in tensors.values():
                assert len(t.bytes()) == t.nbytes
        except EdgewiseError:
            pass
