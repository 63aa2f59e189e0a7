"""Hostile .onnx files in a page, where Python runs in WebAssembly with its small stack: each is
refused in the words of CPython, or runs as there, and the next model runs.
"""

import base64

import edgewise
import numpy as np
from edgewise.errors import EdgewiseError
from hostile.seeds import c, model, node, value
from onnx import helper


def field(number, content):
    """A field of a protobuf message: onnx's own library refuses to write as deep as tests need."""
    out, size = bytearray([number << 3 & 127 | 2]), len(content)
    if number > 15:
        out = bytearray([(number << 3 & 127) | 2 | 128, number >> 4])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size]) + content


def whole(graph):
    """A model of IR version 8 and opset 18 with a graph."""
    return b"\x08\x08" + field(8, b"\x10\x12") + field(7, graph)


def named(number, value):
    return field(number, field(1, value))


def nested(depth):
    """An If in an If in an If, whose other branches are the innermost one."""
    last = field(1, field(1, b"x") + field(2, b"o") + field(4, b"Neg")) + named(12, b"o")
    graph = last
    for _ in range(depth):
        branches = b"".join(
            field(5, field(1, name) + field(6, body) + b"\xa0\x01\x05")
            for name, body in ((b"then_branch", graph), (b"else_branch", last))
        )
        graph = field(1, field(1, b"b") + field(2, b"o") + field(4, b"If") + branches)
        graph += named(12, b"o")
    kinds = {b"x": b"\x08\x01", b"b": b"\x08\x09" + field(2, b"")}
    inputs = (field(11, field(1, name) + field(2, field(1, kind))) for name, kind in kinds.items())
    return whole(graph + b"".join(inputs))


def sequences(depth):
    """An input whose type is a sequence of a sequence of ..."""
    kind = field(1, b"\x08\x01")
    for _ in range(depth):
        kind = field(4, field(1, kind))
    step = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Identity"))
    return whole(step + field(11, field(1, b"x") + field(2, kind)) + named(12, b"y"))


def functions(depth):
    """Functions of which each calls the next one."""
    made = [
        helper.make_function(
            "own",
            f"f{i}",
            ["a"],
            ["r"],
            [
                helper.make_node(f"f{i + 1}", ["a"], ["r"], domain="own")
                if i + 1 < depth
                else node("Neg", "a", "r")
            ],
            [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
        )
        for i in range(depth)
    ]
    call = helper.make_node("f0", ["x"], ["y"], domain="own")
    return model([call], [value("x")], [value("y")], functions=made)


def chain(n):
    names = ["x", *(f"h{i}" for i in range(n - 1)), "y"]
    return model([node("Neg", a, b) for a, b in zip(names, names[1:])], [value("x")], [value("y")])


def growing(doublings):
    """A constant that is joined with itself."""
    nodes, last = [], "c"
    for i in range(doublings):
        nodes.append(node("Concat", f"{last} {last}", f"c{i}", axis=0))
        last = f"c{i}"
    nodes += [node("ReduceSum", last, "s", keepdims=0), node("Add", "x s", "y")]
    return model(nodes, [value("x")], [value("y")], [c("c", np.ones((1024,)))])


MODELS = {
    "If, 3 deep": nested(3),
    "If, 400 deep": nested(400),
    "sequences, 3000 deep": sequences(3000),
    "functions, 900 deep": functions(900),
    "10 doublings": growing(10),
    "40 doublings": growing(40),
}


def outcome(data):
    """(name of the error, or "", what it says) of a session that is made and run."""
    try:
        session = edgewise.InferenceSession(data)
        feeds = {"x": np.ones((2, 4), np.float32), "b": np.array(True)}
        session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
        session.free()
    except EdgewiseError as e:
        return [type(e).__name__, e.what]
    return ["", ""]


RUN = """
    const data = Uint8Array.from(atob(arg), (x) => x.charCodeAt(0));
    const feeds = {
        x: new ew.Tensor('float32', new Float32Array(8).fill(1), [2, 4]),
        b: new ew.Tensor('bool', [true], []),
    };
    try {
        const s = await ew.InferenceSession.create(data);
        await s.run(Object.fromEntries(s.inputNames.map((name) => [name, feeds[name]])));
        await s.release();
        return ['', ''];
    } catch (e) {
        return [e.name, e.what ?? e.message];
    }
"""


def test_as_in_cpython(visit, server):
    v = visit(server)
    for name, data in MODELS.items():
        got, want = v.run(RUN, base64.b64encode(data).decode()), outcome(data)
        assert got[0] == want[0], (name, got, want)
        if want[0] == "ModelError":
            assert got == want, name
    assert v.run(RUN, base64.b64encode(MODELS["If, 3 deep"]).decode()) == ["", ""]
