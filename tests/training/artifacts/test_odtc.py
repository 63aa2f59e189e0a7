"""ONNX Runtime Training's checkpoints: its files read, ours read by its own schema's classes, and
nothing but words about damaged ones.
"""

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from edgewise.compiler.declare.dtypes import NAME
from edgewise.errors import EdgewiseError, InputError, ModelError
from edgewise.extras.onnxruntime_training.artifact_files.odtc import (
    Checkpoint,
    OptimizerGroup,
    checkpoint_parts,
    read_checkpoint,
    write_checkpoint,
)
from edgewise.extras.onnxruntime_training.artifact_files.odtc import read as odtc_read
from edgewise.extras.onnxruntime_training.artifact_files.odtc import write as odtc_write
from edgewise.ir import Tensor
from edgewise.onnx import BytesSource
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs.Checkpoint import (
    Checkpoint as Theirs,
)

from ..zoo import cases

DATA = Path(__file__).parents[1] / "data"
CASES = sorted(
    folder for folder in cases().values() if (folder / "checkpoint_trained").exists()
)  # not of the copies


def array(t):
    return np.frombuffer(t.bytes(), NAME[t.dtype]).reshape(t.shape)


def same(a, b):
    assert list(a) == list(b) and all(np.array_equal(array(a[k]), array(b[k])) for k in a)


def by_their_classes(data):
    """A Checkpoint read with the classes that flatc generated."""
    c = Theirs.GetRootAs(data, 0)
    assert Theirs.CheckpointBufferHasIdentifier(data, 0) and c.Version() == 2

    def tensors(count, get):
        out = {}
        for t in map(get, range(count)):
            raw = bytes(t.RawDataAsNumpy()) if t.RawDataLength() else b""
            shape = tuple(t.Dims(i) for i in range(t.DimsLength()))
            out[t.Name().decode()] = Tensor(
                t.Name().decode(), t.DataType(), shape, None, 0, len(raw), raw
            )
        return out

    m, p = c.ModuleState(), c.PropertyBag()
    out = Checkpoint(
        tensors(m.RequiresGradParamsLength(), m.RequiresGradParams),
        tensors(m.FrozenParamsLength(), m.FrozenParams),
        nominal=m.IsNominalState(),
    )
    for g in map(c.OptimizerGroups, range(c.OptimizerGroupsLength())):
        states = map(g.OptimizerStates, range(g.OptimizerStatesLength()))
        out.groups[g.GroupName().decode()] = OptimizerGroup(
            g.Step(),
            g.InitialLearningRate(),
            {s.ParamName().decode(): tensors(s.MomentumsLength(), s.Momentums) for s in states},
        )
    if p is not None:
        for count, get in (
            (p.IntsLength(), p.Ints),
            (p.FloatsLength(), p.Floats),
            (p.StringsLength(), p.Strings),
        ):
            out.properties |= {
                x.Name().decode(): x.Value().decode() if isinstance(x.Value(), bytes) else x.Value()
                for x in map(get, range(count))
            }
    return out


def equal(a, b):
    same(a.requires_grad, b.requires_grad)
    same(a.frozen, b.frozen)
    assert (
        a.nominal == b.nominal and a.properties == b.properties and list(a.groups) == list(b.groups)
    )
    for x, y in zip(a.groups.values(), b.groups.values()):
        assert (x.step, x.initial_learning_rate, list(x.momentums)) == (
            y.step,
            y.initial_learning_rate,
            list(y.momentums),
        )
        for parameter in x.momentums:
            same(x.momentums[parameter], y.momentums[parameter])


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.name)
def test_zoo(case):
    """What ORT wrote, before and after 20 steps, matches the values it reported; after rewriting,
    its own classes read the same.
    """
    spec = json.loads((case / "spec.json").read_text())
    before, after = (
        read_checkpoint(case / "checkpoint"),
        read_checkpoint(case / "checkpoint_trained"),
    )
    facts, _ = json.JSONDecoder().raw_decode(
        (case / "checkpoint.json").read_text()
    )  # the file holds one object after the other
    assert [t["name"] for t in facts["module_state"]["requires_grad_params"]] == list(
        before.requires_grad
    )
    assert [t["dims"] for t in facts["module_state"]["frozen_params"]] == [
        list(t.shape) for t in before.frozen.values()
    ]
    assert (
        set(before.requires_grad) <= set(spec["requires_grad"])
        and not before.groups
        and not before.properties
    )
    with np.load(case / "ort.npz") as z:
        for name, t in after.requires_grad.items():
            np.testing.assert_array_equal(array(t), z["final/" + name])
    group = after.groups["group0"]
    assert (
        list(after.groups) == ["group0"]
        and group.step == 20
        and group.initial_learning_rate == np.float32(1e-3)
        and set(group.momentums) == set(after.requires_grad)
    )
    assert {tuple(m) for m in group.momentums.values()} == {
        ("momentum0",) if spec["optimizer"] == "sgd" else ("momentum0", "momentum1")
    }
    for c in (before, after):
        data = write_checkpoint(c)
        equal(by_their_classes(data), c)
        equal(read_checkpoint(data), c)


def something():
    rng = np.random.default_rng(0)
    trained = {
        "w": rng.normal(size=(3, 4)).astype("f4"),
        "b": np.array(2, "f4"),
        "half": rng.normal(size=7).astype("f2"),
    }
    group = OptimizerGroup(
        7, 0.25, {name: {"momentum0": x + 1, "momentum1": x * 2} for name, x in trained.items()}
    )
    return Checkpoint(
        trained,
        {"ids": np.arange(5), "none": np.zeros((0, 2), "f4"), "ü": np.ones(3000, "f4")},
        {"group0": group, "other": OptimizerGroup()},
        {"epoch": -(2**62), "best": 0.5, "name": "hé\n", "": ""},
    )


def test_written_and_read(monkeypatch):
    c = something()
    data = write_checkpoint(c)
    theirs, mine = by_their_classes(data), read_checkpoint(data)
    equal(theirs, mine)
    for name, x in c.parameters.items():
        assert (
            np.array_equal(array(mine.parameters[name]), x)
            and mine.parameters[name].shape == x.shape
            and mine.parameters[name].offset % odtc_write.ALIGN == 0
        )
    assert (
        mine.properties == c.properties
        and mine.groups["group0"].step == 7
        and np.array_equal(
            array(mine.groups["group0"].momentums["w"]["momentum1"]), c.requires_grad["w"] * 2
        )
    )
    number = odtc_read._FlatBuffer.number
    monkeypatch.setattr(
        odtc_read._FlatBuffer,
        "number",
        lambda self, code, at: (
            number(self, code, at)
            if at % struct.calcsize("<" + code) == 0
            else pytest.fail(f"{code} at {at}")
        ),
    )
    equal(read_checkpoint(data), mine)  # every number is aligned, as FlatBuffers' verifier requires
    equal(read_checkpoint(write_checkpoint(Checkpoint())), Checkpoint())


def test_ort_files():
    c = read_checkpoint(DATA / "ort_checkpoint_properties")
    assert (
        c.properties == {"epoch": 3, "neg": -5, "best": 0.25, "name": "hé"}
        and c.groups["group0"].step == 20
    )
    equal(c, by_their_classes((DATA / "ort_checkpoint_properties").read_bytes()))
    c = read_checkpoint(DATA / "ort_checkpoint_nominal")
    assert (
        c.nominal
        and {n: NAME[t.dtype] for n, t in c.parameters.items()} == {"p": "float32", "q": "int64"}
        and list(c.frozen) == ["q"]
    )
    again = read_checkpoint(write_checkpoint(c))
    assert again == c and by_their_classes(write_checkpoint(c)).nominal
    assert (
        read_checkpoint(
            write_checkpoint(
                Checkpoint({"p": np.zeros(3, "f4")}, {"q": np.zeros(2, "i8")}, nominal=True)
            )
        )
        == c
    )


def test_parameters_in_a_second_file(tmp_path, monkeypatch):
    main, data = checkpoint_parts(something(), external=True)
    (tmp_path / "ck").write_bytes(b"".join(main))
    (tmp_path / "ck.data").write_bytes(b"".join(data))
    c = read_checkpoint(tmp_path / "ck")
    assert (
        c.frozen["ü"].source.name.endswith("ck.data")
        and c.requires_grad["w"].source.name.endswith("ck")
        and (tmp_path / "ck.data").stat().st_size == 12000
    )
    equal(c, read_checkpoint(write_checkpoint(something())))
    (tmp_path / "ck.data").write_bytes(b"x")
    with pytest.raises(ModelError, match="ck.data"):
        read_checkpoint(tmp_path / "ck")
    (tmp_path / "ck.data").unlink()
    with pytest.raises(ModelError, match="ck.data"):
        read_checkpoint(tmp_path / "ck")
    with pytest.raises(ModelError, match="checkpoint.data"):
        read_checkpoint((tmp_path / "ck").read_bytes())
    big = Checkpoint({f"p{i}": ("float32", (1 << 28,), lambda: iter(())) for i in range(2)})
    main, data = checkpoint_parts(big)
    assert data is not None and len(b"".join(main)) < 1000
    with pytest.raises(InputError, match="2 GB"):
        write_checkpoint(big)


@pytest.mark.parametrize(
    "c, words",
    [
        (Checkpoint({"a": np.zeros(1, "f4")}, {"a": np.zeros(1, "f4")}), "trained and frozen"),
        (Checkpoint(properties={"x": True}), "True"),
        (Checkpoint(properties={"x": [1]}), "ints, floats"),
        (Checkpoint(properties={"x": 1 << 63}), "64-bit"),
        (Checkpoint(properties={"x": 1e300}), "float32"),
        (Checkpoint({"a": ("float32", (2,), b"1234")}), "4 bytes"),
        (Checkpoint(groups={"g": OptimizerGroup(step=1.5)}), "step"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_written(c, words):
    with pytest.raises(InputError, match=words):
        write_checkpoint(c)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        b"\x08\0\0\0ODTC",
        b"\x04\0\0\0ODTC\xff\xff\xff\xff",
        b"\xff\xff\xff\xffODTC" + bytes(100),
        b"\x08\0\0\0ORTM" + bytes(40),
        b"\x08\0\0\0ODTC" + bytes(40),
    ],
    ids=range(7),
)
def test_damaged(data):
    with pytest.raises(ModelError) as e:
        read_checkpoint(data)
    assert e.value.what and e.value.where and e.value.remedy


def test_random_damage():
    random.seed(2)
    seeds = [
        write_checkpoint(something()),
        (DATA / "ort_checkpoint_properties").read_bytes(),
        (DATA / "ort_checkpoint_nominal").read_bytes(),
    ]
    read = 0
    for i in range(6000):
        seed = seeds[i % 3]
        data = bytearray(seed)
        for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
            at = (
                random.randrange(min(len(data), 2500))
                if random.random() < 0.8
                else random.randrange(len(data))
            )
            if random.random() < 0.3:
                at &= ~3
                data[at : at + 4] = random.choice(
                    (
                        0,
                        1,
                        4,
                        0xFFFFFFFF,
                        0x7FFFFFFF,
                        0x80000000,
                        len(data),
                        len(data) - 4,
                        random.randrange(len(data)),
                        -random.randrange(len(data)) & 0xFFFFFFFF,
                    )
                ).to_bytes(4, "little")
            else:
                data[at] = random.choice((0, 1, 255, 127, 128, random.randrange(256)))
        if i % 7 == 0:
            del data[random.randrange(len(data)) :]
        try:
            c = read_checkpoint(BytesSource(bytes(data)))
            read += 1
            for t in c.parameters.values():
                assert len(t.bytes()) == t.nbytes
        except EdgewiseError:
            pass
    assert read > 100


def test_shared_text_is_bounded():
    """Many strings that lie over each other must not make gigabytes of a small file."""
    count, size = 20000, 200000
    b = odtc_write._FlatBufferBuilder()
    b.data += bytes(4) + odtc_write.IDENTIFIER
    root, at = b.table((0, "i", odtc_write.VERSION), (3, "offset", None))
    b.point(0, root)
    bag, ints = b.table((0, "offset", None))
    b.point(at[3], bag)
    names = []
    for slot in b.offsets(ints[0], count):
        entry, name = b.table((0, "offset", None))
        b.point(slot, entry)
        names.append(name[0])
    b.align(4)
    start = len(b.data)
    b.data += (
        struct.pack("<I", size) * count + b"a" * size
    )  # each length is the head of a string over all that follows
    for i, at in enumerate(names):
        b.point(at, start + 4 * i)
    with pytest.raises(ModelError, match="bytes long|UTF-8"):
        read_checkpoint(bytes(b.data))
