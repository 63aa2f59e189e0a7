"""Models of more than 2 GB are read by reference, and weights do not pass through Python."""

import os
import subprocess
import sys

import edgewise
import numpy as np
import onnx
import pytest
from edgewise.onnx import BytesSource, FileSource, Source, read_model
from onnx import TensorProto as T
from onnx import helper as h

GIB = 1 << 30


def external(name, shape, offset, length, dtype=T.FLOAT):
    t = onnx.TensorProto(name=name, dims=shape, data_type=dtype, data_location=T.EXTERNAL)
    for k, v in (("location", "model.onnx.data"), ("offset", str(offset)), ("length", str(length))):
        e = t.external_data.add()
        e.key, e.value = k, v
    return t


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A sparse file with a table of 9.5 GiB, more than 2^31 elements, and a matrix after it; only
    rows 1 and the last contain data.
    """
    folder = tmp_path_factory.mktemp("big")
    rows, width = 19 * GIB // 2 // 256, 64
    table, w = rows * width * 4, np.arange(width * 4, dtype="f4").reshape(width, 4) / 100
    with open(folder / "model.onnx.data", "wb") as f:
        f.truncate(table + w.nbytes)
        f.seek(width * 4)
        f.write(np.full(width, 1, "f4").tobytes())
        f.seek(table - width * 4)
        f.write(np.full(width, 2, "f4").tobytes())
        f.write(w.tobytes())
    g = h.make_graph(
        [h.make_node("Gather", ["table", "ids"], ["e"]), h.make_node("MatMul", ["e", "w"], ["y"])],
        "g",
        [h.make_tensor_value_info("ids", T.INT64, ["n"])],
        [h.make_tensor_value_info("y", T.FLOAT, ["n", 4])],
        [external("table", [rows, width], 0, table), external("w", [width, 4], table, w.nbytes)],
    )
    (folder / "model.onnx").write_bytes(
        h.make_model(g, opset_imports=[h.make_opsetid("", 18)]).SerializeToString()
    )
    yield folder / "model.onnx", rows, w.sum(0)
    os.unlink(folder / "model.onnx.data")


CHILD = """
import resource, sys
import numpy as np, edgewise
path, rows = sys.argv[1], int(sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
s = edgewise.InferenceSession(path)
read = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
y = s.run(None, {"ids": np.array([1, 0, rows - 1, -1])})[0]
ran = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(*y.sum(1).tolist(), (read - before) >> 10, (ran - before) >> 10)
"""


def test_more_than_8_gib(big):
    path, rows, sums = big
    *values, read, ran = map(
        float,
        subprocess.run(
            [sys.executable, "-c", CHILD, str(path), str(rows)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split(),
    )
    assert np.allclose(values, [sums.sum(), 0, 2 * sums.sum(), 2 * sums.sum()])
    assert read < 16 and ran < 64, f"reading took {read} MiB, running {ran} MiB of memory"


def test_raw_data_beyond_2_gib(tmp_path):
    """Tensors inside the .onnx file at large offsets. (protobuf's own limit is 2 GiB, but other
    writers may exceed it.)
    """
    w = np.arange(8, dtype="f4")
    size = 5 * GIB // 2

    def field(number, body):
        from hostile.wire import varint

        return varint(number << 3 | 2) + varint(len(body)) + body

    from hostile.wire import varint

    t = onnx.TensorProto(
        name="w", dims=[8], data_type=T.FLOAT, raw_data=w.tobytes()
    ).SerializeToString()
    rest = h.make_graph(
        [h.make_node("Mul", ["x", "w"], ["y"])],
        "g",
        [h.make_tensor_value_info("x", T.FLOAT, [8])],
        [h.make_tensor_value_info("y", T.FLOAT, [8])],
    ).SerializeToString() + field(5, t)
    head = (
        onnx.TensorProto(name="unused", dims=[size // 4], data_type=T.FLOAT).SerializeToString()
        + varint(9 << 3 | 2)
        + varint(size)
    )
    tensor = varint(5 << 3 | 2) + varint(len(head) + size) + head
    graph = varint(7 << 3 | 2) + varint(len(tensor) + size + len(rest)) + tensor
    path = tmp_path / "model.onnx"
    with open(path, "wb") as f:
        f.write(field(8, varint(2 << 3) + varint(18)) + graph)
        f.seek(size, 1)
        f.write(rest)
    session = edgewise.InferenceSession(str(path))
    assert session.run(None, {"x": np.ones(8, "f4")})[0].tolist() == w.tolist()
    os.unlink(path)


class Watched(Source):
    """Counts what is read of each range."""

    def __init__(self, source):
        self.source, self.name, self.size, self.reads = source, source.name, source.size, []

    def read(self, offset, size):
        self.reads.append((offset, size))
        return self.source.read(offset, size)

    def sibling(self, name):
        return self.source.sibling(name)


def test_weights_never_pass_through_python(tmp_path, monkeypatch):
    """Reading a model and running it natively reads no weight through the Source."""
    from zoo.zoo import OWN

    ranges, reads = [], []
    read = FileSource.read

    def watched(self, offset, size):
        reads.append((self.path, offset, size))
        return read(self, offset, size)

    monkeypatch.setattr(FileSource, "read", watched)
    for path in sorted(OWN.rglob("*.onnx")):
        reads.clear()
        session = edgewise.InferenceSession(str(path))
        ranges = [
            (t.source.path, t.offset, t.nbytes)
            for t in session.graph.constants.values()
            if t.data is None and t.nbytes > 4096
        ]
        assert ranges
        with np.load(path.with_suffix(".npz")) as z:
            session.run(None, {k[3:]: z[k] for k in z.files if k.startswith("in/")})
        block = (
            1 << 16
            # the reader's window may look ahead into what follows a field, never at a whole large
            # weight
        )
        for file, offset, size in reads:
            assert size <= block
            assert not any(
                file == f and offset >= o + 64 and offset + size <= o + n - 64 and size > 4096
                for f, o, n in ranges
            ), (path, offset, size)


def test_the_reader_skips_weights():
    w = np.zeros(1 << 20, "f4")
    g = h.make_graph(
        [h.make_node("Relu", ["w"], ["y"])],
        "g",
        [],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    source = Watched(BytesSource(h.make_model(g).SerializeToString()))
    graph = read_model(source)
    assert graph.constants["w"].data is None and sum(n for _, n in source.reads) < 1 << 18
    packed = h.make_graph(
        [h.make_node("Relu", ["w"], ["y"])],
        "g",
        [],
        [h.make_tensor_value_info("y", T.FLOAT, None)],
        [h.make_tensor("w", T.FLOAT, [1 << 16], w[: 1 << 16].tolist())],
    )
    t = read_model(Watched(BytesSource(h.make_model(packed).SerializeToString()))).constants["w"]
    assert t.data is None and t.nbytes == 4 << 16, "packed float_data lies there as raw data does"


def test_a_file_replaced_under_its_path_is_another_model(tmp_path, monkeypatch):
    """Weights are mapped from the file a session opened, not from whatever lies under that path
    later.
    """
    from onnx import numpy_helper

    def model(value, count):
        graph = h.make_graph(
            [h.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [h.make_tensor_value_info("x", T.FLOAT, [count])],
            [h.make_tensor_value_info("y", T.FLOAT, [count])],
            [numpy_helper.from_array(np.full(count, value, np.float32), "w")],
        )
        return h.make_model(
            graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10
        ).SerializeToString()

    def put(value, count):
        (tmp_path / "new").write_bytes(model(value, count))
        (tmp_path / "new").replace(tmp_path / "m.onnx")

    monkeypatch.chdir(tmp_path)
    put(1, 5000)
    first = edgewise.InferenceSession("m.onnx")
    assert first.run(None, {"x": np.zeros(5000, np.float32)})[0][0] == 1
    put(2, 9000)
    second = edgewise.InferenceSession("m.onnx")
    assert second.run(None, {"x": np.zeros(9000, np.float32)})[0][-1] == 2
    assert first.run(None, {"x": np.ones(5000, np.float32)})[0][-1] == 2
