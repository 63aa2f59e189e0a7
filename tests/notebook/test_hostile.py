"""Hostile packages and models in the engine in Pyodide: each gives a result or an EdgewiseError,
and an earlier session gives the same result afterwards. A trap of the engine is an EngineError.
"""

import io
import random
import struct

import numpy as np
from hostile.damage import DamagedPackage, damage_bytes
from hostile.packages import decoder, feeds, plan, slot, step
from hostile.seeds import ROOT as TESTS
from onnx import TensorProto, helper, numpy_helper

LOGITS = (64, True)
BIG = 1 << 20

PLAY = """
    import edgewise, traceback
    from edgewise.engine import default_engine
    from edgewise.onnx import BytesSource
    from edgewise.package import Package
    from edgewise.session.decoder import DecoderModel


    def package(data):
        lm = DecoderModel(Package.read(BytesSource(data, "model.edge")))
        try:
            s = lm.open()
            lm.forward(s, [1, 2])
            lm.logits(lm.forward(s, [3]))
            t = lm.open()
            lm.copy(s, t)
            lm.forward(t, [1])
            lm.close(s)
        finally:
            lm.free()


    def model(data):
        session = edgewise.InferenceSession(data)
        try:
            fed = {}
            for i in session.get_inputs():
                shape = [d if isinstance(d, int) and 0 <= d <= 64 else 2 for d in i.shape or [2]]
                count = 1
                for d in shape:
                    count *= d
                if count > 1 << 20:
                    return
                width, kind = {
                    "tensor(float)": (4, "float32"),
                    "tensor(int64)": (8, "int64"),
                    "tensor(bool)": (1, "bool"),
                }.get(i.type, (4, "float32"))
                fed[i.name] = edgewise.Array(shape, kind, bytes(width * count))
            session.run(None, fed)
        finally:
            session.free()


    witness = edgewise.InferenceSession("/work/mlp.onnx")
    first = witness.run(None, {"x": x})[0].tolist()
    result = []
    for name in names:
        with open("/work/hostile/" + name, "rb") as f:
            data = f.read()
        try:
            (package if name.endswith(".edge") else model)(data)
            said = "ok"
        except edgewise.EdgewiseError as e:
            said = type(e).__name__ + (
                "" if e.what and e.where and e.remedy else " INCOMPLETE " + str(e)
            )
        except BaseException as e:
            said = "ESCAPED " + "".join(traceback.format_exception(e))[-600:]
        again = witness.run(None, {"x": x})[0].tolist()
        result.append([name, said, again == first, default_engine().memory_bytes >> 20])
    witness.free()
"""


def two_sizes(kind: str) -> bytes:
    """Two plans with a slot of the same name and different sizes; the second writes beyond the
    memory of the first.
    """
    fill = step(
        "fill",
        {"size": 1, "dims": [1, 1, 1, 1, 1, BIG], "ys": [0, 0, 0, 0, 0, 1], "value_low": 0x41},
        [(4, 0)],
    )
    small, large = (
        plan([(8, False), LOGITS, (64, True)], []),
        plan([(16, False), LOGITS, (BIG, True)], [fill]),
    )
    return decoder(
        [
            (1, small, feeds(1) + [slot("s", kind, 64)]),
            (2, large, feeds(2) + [slot("s", kind, BIG)]),
        ]
    )


def one_memory() -> bytes:
    """A state that occurs twice among a plan's slots, so that a kernel overwrites the indices that
    it reads.
    """
    unique = plan(
        [(16, False), LOGITS, (BIG, True), (BIG, True)],
        [
            step(
                "fill",
                {
                    "size": 1,
                    "dims": [1, 1, 1, 1, 1, BIG],
                    "ys": [0, 0, 0, 0, 0, 1],
                    "value_low": 0x7F,
                },
                [(4, 0)],
            )
        ],
    )
    return decoder(
        [
            (1, plan([(8, False), LOGITS], []), feeds(1)),
            (2, unique, feeds(2) + [slot("s", "state", BIG), slot("s", "state", BIG)]),
        ]
    )


def endless() -> bytes:
    """A write of the same byte 2^38 times."""
    fill = step(
        "fill",
        {"size": 1, "dims": [1, 1, 1024, 1024, 1024, 255], "ys": [0] * 6, "value_low": 1},
        [(3, 0)],
    )
    return decoder(
        [
            (1, plan([(8, False), LOGITS], [fill] * 8), feeds(1)),
            (2, plan([(16, False), LOGITS], [fill]), feeds(2)),
        ]
    )


def strides(op: str) -> bytes:
    """Strides whose product wraps to 0."""
    attributes = {
        "strides": [1 << 21, 1 << 21, 1 << 22],
        **({"kernel_shape": [1, 1, 2]} if op.endswith("Pool") else {}),
    }
    graph = helper.make_graph(
        [helper.make_node(op, ["x"] if op.endswith("Pool") else ["x", "w"], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 1, 1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((1, 1, 1, 1, 2), "f4"), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    made.ir_version = 9
    return made.SerializeToString()


def damaged(package: bytes, count: int):
    """Packages with consistent changes of manifest, plans and checksums."""
    return [
        DamagedPackage(random.Random(f"pyodide/{i}"), package, [package]).make()
        for i in range(count)
    ]


def cut(data: bytes, count: int):
    """A model file with bytes changed, removed or inserted."""
    return [damage_bytes(random.Random(f"onnx/{i}"), data) for i in range(count)]


def play(pyodide, mlp, files: dict[str, bytes], timeout=500):
    model, x, _ = mlp
    pyodide.put("mlp.onnx", model)
    folder = pyodide.folder / "hostile"
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    outcomes = pyodide.run(PLAY, timeout=timeout, names=list(files), x=x.tolist())
    for name, said, same, megabytes in outcomes:
        assert same, f"after {name} ({said}) the session before gives other numbers"
        assert not said.startswith("ESCAPED") and "INCOMPLETE" not in said, (name, said)
        assert megabytes < 1024, (name, said, megabytes)
    return {name: said for name, said, _, _ in outcomes}


def test_handmade_packages(pyodide, mlp):
    said = play(
        pyodide,
        mlp,
        {
            "state.edge": two_sizes("state"),
            "computed.edge": two_sizes("computed"),
            "alias.edge": one_memory(),
            "endless.edge": endless(),
            "none.edge": b"EDGEWISE" + bytes(64),
        },
    )
    assert all(s in ("PackageError", "PlanError") for s in said.values()), said


def test_strides_whose_product_wraps(pyodide, mlp):
    play(
        pyodide,
        mlp,
        {
            f"{op}.onnx": strides(op)
            for op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")
        },
    )


def test_damaged_packages(pyodide, mlp):
    from edgewise.host.session.decoder import open_package

    out = io.BytesIO()
    open_package(TESTS / "zoo/models/q4_llama/model.onnx", capacity=24).write(out)
    said = play(
        pyodide, mlp, {f"{i}.edge": data for i, data in enumerate(damaged(out.getvalue(), 40))}
    )
    assert len(set(said.values())) > 1, said


def test_damaged_models(pyodide, mlp):
    from hostile.seeds import small

    files = {}
    for name, (data, siblings) in list(small().items())[:8]:
        if not siblings:
            files |= {f"{name}{i}.onnx": one for i, one in enumerate(cut(data, 6))}
    assert len(files) >= 24
    said = play(pyodide, mlp, files)
    assert {"ModelError"} <= set(said.values()), said


def test_deeply_nested_models(pyodide, mlp):
    """Inputs that could overflow the stack of Python or of the engine's host: nested messages,
    graphs and types.
    """

    def field(number, data):
        length = len(data)
        varint = bytearray()
        while length > 127:
            varint.append(length & 127 | 128)
            length >>= 7
        return bytes([number << 3 | 2]) + bytes([*varint, length]) + data

    graph = b""
    for _ in range(400):  # a graph in an attribute of a node in a graph
        graph = field(
            1,
            field(1, b"x")
            + field(2, b"y")
            + field(4, b"If")
            + field(5, field(1, b"then_branch") + b"\xa0\x01\x05" + field(6, graph)),
        )
    nested = field(7, graph) + field(8, field(1, b"") + b"\x10\x12")
    said = play(
        pyodide,
        mlp,
        {
            "nested.onnx": nested,
            "empty.onnx": b"",
            "nul.onnx": bytes(1000),
            "size.onnx": struct.pack("<B", 0x3A) + b"\xff\xff\xff\xff\x0f",
        },
    )
    assert set(said.values()) == {"ModelError"}, said
