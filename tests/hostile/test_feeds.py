"""Invalid inputs of a run cause an InputError that names the input; the session still works."""

import edgewise
import numpy as np
import pytest
from edgewise.errors import InputError, OutOfMemory
from edgewise.session.decoder import DecoderModel
from onnx import helper

from .conftest import Refusal
from .seeds import ROOT, F, c, model, node, small, value

Q4 = ROOT / "zoo" / "models" / "q4_llama" / "model.onnx"


@pytest.fixture(scope="module")
def dense():
    session = edgewise.InferenceSession(small()["dense18"][0])
    feeds = {"x": np.ones((2, 4), "f4"), "mask": np.ones((2, 3), "?")}
    want = session.run(None, feeds)[0]
    yield session, feeds
    assert np.array_equal(session.run(None, feeds)[0], want)


class Stubborn:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not today")


LOOP = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "x, text",
    [
        (np.ones((2, 4), "f8"), "float64"),
        (np.ones((2, 4), "i8"), "int64"),
        (np.ones((2, 4), "f2"), "float16"),
        (np.ones((2, 4), "c8"), "complex64"),
        (np.ones((2, 4), "O"), "object"),
        (np.array([["a"] * 4] * 2), "<U1"),
        (np.zeros((2,), "f4,i4"), "element type"),
        (np.array(["2020"], "M8[D]"), "element type"),
        (np.ones((4,), "f4"), "1 dimensions"),
        (np.ones((1, 2, 4), "f4"), "3 dimensions"),
        (np.float32(1), "0 dimensions"),
        (np.ones((2, 5), "f4"), "dimension 1 is 5"),
        (np.ones((2, 0), "f4"), "dimension 1 is 0"),
        ([[1, 2, 3, 4], [1, 2, 3]], "rectangular"),
        ([[1, 2, 3, 4], 5], "rectangular"),
        ([["1", "2", "3", "4"]], "rectangular"),
        ([[None] * 4], "rectangular"),
        ([[1e300, 0, 0, 0]], "rectangular"),
        ([[10**400, 0, 0, 0]], "rectangular"),
        (LOOP, "rectangular"),
        ([], "1 dimensions"),
        (None, "NoneType"),
        ("text", "str"),
        (b"1234", "uint8"),
        ({}, "dict"),
        (object(), "object"),
        (Stubborn(), "not today"),
        (edgewise.Array((2, 4), "int8", bytes(8)), "int8"),
        (3.0, "0 dimensions"),
        (True, "0 dimensions"),
        (np.ma.masked_array(np.ones((2, 4), "f8")), "float64"),
    ],
    ids=lambda x: x if isinstance(x, str) and x.isascii() else "",
)
def test_invalid_array(dense, x, text, refused):
    session, feeds = dense
    e = refused(lambda: session.run(None, {**feeds, "x": x}), InputError)
    assert text in e.what and e.where == "input 'x'", repr(e)


@pytest.mark.parametrize(
    "names, feeds, text",
    [
        (None, {}, "['x', 'mask']) are missing"),
        (None, {"x": 1, "y": 2}, "input"),
        (None, None, "NoneType"),
        (None, [1, 2], "list"),
        (["z"], ..., "no output 'z'"),
        ("y", ..., "str"),
        ([3], ..., "no output '3'"),
        ([["y"]], ..., "no output"),
        (5, ..., "int"),
        (None, {3: 4}, "no input '3'"),
        (["y", None], ..., "no output 'None'"),
    ],
)
def test_unknown_names(dense, names, feeds, text, refused):
    session, good = dense
    assert text in str(
        refused(lambda: session.run(names, good if feeds is ... else feeds), InputError)
    )


def test_inconsistent_sizes(dense, refused):
    session, feeds = dense
    e = refused(lambda: session.run(None, {**feeds, "mask": np.ones((3, 3), "?")}))
    assert "broadcast" in str(e) and "shapes that were fed" in str(e)


def test_equivalent_kinds_of_input(dense):
    """Lists, arrays of other layouts, buffers, edgewise.Array and torch tensors give the same
    result.
    """
    import array

    session, feeds = dense
    x = np.arange(8, dtype="f4").reshape(2, 4)
    want = session.run(None, {**feeds, "x": x})[0]
    same = [
        x.tolist(),
        tuple(map(tuple, x.tolist())),
        np.asfortranarray(x),
        np.repeat(x, 2, 1)[:, ::2],
        x[::-1][::-1],
        memoryview(x),
        edgewise.Array((2, 4), "float32", x.tobytes()),
        x.astype(">f4"),
        [[int(v) for v in r] for r in x],
        memoryview(array.array("f", x.ravel())).cast("B").cast("f", (2, 4)),
    ]
    for other in same:
        assert np.array_equal(session.run(None, {**feeds, "x": other})[0], want)
    torch = pytest.importorskip("torch")
    assert np.array_equal(session.run(None, {**feeds, "x": torch.from_numpy(x)})[0], want)
    with pytest.raises(InputError):
        session.run(None, {"x": torch.from_numpy(x).requires_grad_(), "mask": feeds["mask"]})


def test_bytes_that_do_not_match_the_shape(dense, refused):
    session, feeds = dense
    a = edgewise.Array((2, 4), "float32", bytes(32))
    a.data = bytes(3200)
    refused(lambda: session.run(None, {**feeds, "x": a}), InputError, "3200 bytes")
    a.data = bytes(31)
    refused(lambda: session.run(None, {**feeds, "x": a}), InputError, "31 bytes")


def test_scalars_and_empty_arrays():
    data = model(
        [node("Mul", "x w", "y"), node("ReduceSum", "x", "s", keepdims=0)],
        [value("x", F, ("n",))],
        [value("y", F, None), value("s", F, None)],
        [c("w", 2.0)],
    )
    session = edgewise.InferenceSession(data)
    y, s = session.run(None, {"x": np.zeros(0, "f4")})
    assert y.shape == (0,) and s.shape == () and s == 0
    scalar = edgewise.InferenceSession(
        model([node("Mul", "x x", "y")], [value("x", F, ())], [value("y", F, None)])
    )
    assert [
        float(scalar.run(None, {"x": x})[0]) for x in (3, 3.0, np.float32(3), np.array(3, "f4"))
    ] == [9.0] * 4


def test_token_ids(refused):
    """Token ids that are out of range or of other types cause an error; the model and its other
    sequences still work.
    """
    lm = DecoderModel(str(Q4))
    s = lm.open()
    want = lm.logits(lm.forward(s, [1, 2, 3]))
    for bad in (
        [256],
        [-1],
        [1, 2, 1 << 40],
        [1 << 63],
        [],
        ["a"],
        [None],
        [float("nan")],
        [1.5],
        None,
        "ab",
        [[1]],
        5,
    ):
        e = refused(lambda: lm.forward(s, bad), InputError)
        assert lm.length(s) == 3, e
    lm.truncate(s, 2)
    assert np.allclose(lm.logits(lm.forward(s, [3])), want, atol=1e-4)
    refused(
        lambda: lm.forward(s, [1] * lm.max_length), InputError, "exceed the model's maximum length"
    )
    for call in (
        lambda: lm.forward(99, [1]),
        lambda: lm.close(99),
        lambda: lm.length(None),
        lambda: lm.copy(s, 7),
        lambda: lm.truncate(s, -1),
        lambda: lm.truncate(s, 4),
        lambda: lm.truncate(s, "x"),
    ):
        refused(call, InputError)
    assert lm.length(s) == 3
    session = edgewise.InferenceSession(str(Q4))
    feeds = {
        i.name: np.zeros(
            [
                {"batch_size": 1, "past_sequence_length": 0}.get(d, 3) if isinstance(d, str) else d
                for d in i.shape
            ],
            "f4" if "past" in i.name else "i8",
        )
        for i in session.get_inputs()
    }
    feeds["attention_mask"] += 1
    good = session.run(["logits"], feeds)[0]
    for bad in (256, -257, 1 << 40):
        e = refused(
            lambda: session.run(["logits"], {**feeds, "input_ids": np.full((1, 3), bad)}),
            InputError,
            "out of range",
        )
        assert e.where.startswith("node '")
    assert np.array_equal(session.run(["logits"], feeds)[0], good)
    lm.free()


def test_masks_and_pasts_of_other_sizes(refused):
    session = edgewise.InferenceSession(str(Q4))

    def feeds(**sizes):
        sizes = {
            "batch_size": 1,
            "sequence_length": 3,
            "past_sequence_length": 2,
            "past_sequence_length + sequence_length": 5,
            **sizes,
        }
        return {
            i.name: np.ones([sizes.get(d, d) for d in i.shape], "f4" if "past" in i.name else "i8")
            for i in session.get_inputs()
        }

    good = session.run(None, feeds())
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    other = ort.InferenceSession(str(Q4), providers=["CPUExecutionProvider"])
    wrong = [feeds(**{"past_sequence_length + sequence_length": n}) for n in (1, 4, 6, 0, 100)]
    for name, shape in (
        ("past_key_values.0.key", (1, 2, 3, 16)),
        ("past_key_values.1.value", (1, 2, 0, 16)),
        ("position_ids", (1, 4)),
        ("input_ids", (2, 3)),
    ):
        wrong.append({**feeds(), name: np.ones(shape, feeds()[name].dtype)})
    # The graph may accept more than it should (it cuts a mask that is too long): the result is then
    # that of onnxruntime.
    for f in wrong:
        try:
            want = other.run(None, f)
        except Exception:  # noqa: BLE001
            refused(lambda: session.run(None, f))
            continue
        got = refused(lambda: session.run(None, f), may_work=True)
        assert isinstance(got, edgewise.EdgewiseError) or all(
            np.allclose(a, b, atol=1e-3) for a, b in zip(got, want)
        )
    assert all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds()), good))


class Failing:
    """An engine that runs out of memory after a number of allocations."""

    def __init__(self, engine, allowed):
        self._engine, self.allowed = engine, allowed

    def __getattr__(self, name):
        return getattr(self._engine, name)

    @property
    def device(self):
        from edgewise.host.engine.device import EngineDevice

        return EngineDevice(self)

    def alloc(self, nbytes):
        if self.allowed <= 0:
            raise OutOfMemory(f"{nbytes} bytes could not be allocated", "test", "Have more.")
        self.allowed -= 1
        return self._engine.alloc(nbytes)

    def load_tensor(self, tensor):
        address = self.alloc(tensor.nbytes)
        self._engine.write(address, tensor.bytes())
        return address, True

    def load(self, plan):
        from edgewise.host.engine.base import LoadedPlan

        return LoadedPlan(self, plan)


def test_each_allocation_fails_once(refusal: Refusal):
    """Each allocation fails once, and the same session then gives the correct result: values of
    init steps that did not run are computed again.
    """
    from edgewise.engine import default_engine

    data, feeds = small()["quantized"][0], {"x": np.linspace(-1, 1, 8, dtype="f4").reshape(2, 4)}
    want = edgewise.InferenceSession(data).run(None, feeds)
    engine = Failing(default_engine(), 0)
    session, failures = edgewise.InferenceSession(data, engine=engine), 0
    for allowed in range(100):
        engine.allowed = allowed
        try:
            session.run(None, feeds)
            break
        except OutOfMemory:
            failures += 1
            engine.allowed = 1000
            got = edgewise.InferenceSession.run(session, None, feeds)
            assert all(np.array_equal(a, b) for a, b in zip(got, want))
            session.free()
    assert failures > 5
    refusal.still_works()


@pytest.mark.parametrize(
    "dtype, numbers, data",
    [
        ("float8_e4m3fn", [1.0, -448.0, 0.001953125], b"\x38\xfe\x01"),
        ("float8_e5m2", [57344.0, -0.25, 1.5], b"\x7b\xb4\x3e"),
        ("float8_e8m0fnu", [1.0, 0.5, 4.0], b"\x7f\x7e\x81"),
        ("float4_e2m1fn", [6.0, -0.5, 1.5], b"\x97\x03"),
        ("float6_e2m3fn", [7.5, -0.125, 1.0], b"\x5f\x88\x00"),
        ("int4", [-8, 7, -1], b"\x78\x0f"),
        ("uint4", [15, 0, 7], b"\x0f\x07"),
        ("int2", [-2, 1, -1], b"\x36"),
        ("uint2", [3, 0, 1], b"\x13"),
        ("bfloat16", [1.0, -2.0, 1.5], b"\x80\x3f\x00\xc0\xc0\x3f"),
    ],
)
def test_low_precision_types(dtype, numbers, data):
    """Bytes, values and ml_dtypes arrays give the same result; the first two do not use NumPy."""
    import ml_dtypes

    a = edgewise.Array.from_list(numbers, dtype)
    assert (
        bytes(a.data) == data and a.tolist() == numbers and edgewise.Array((3,), dtype, data) == a
    )
    x = np.array(numbers, getattr(ml_dtypes, dtype))
    assert np.asarray(a).dtype == x.dtype and (np.asarray(a) == x).all()
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", kind, ["n", 1])],
        [helper.make_tensor_value_info("y", kind, [1, "n"])],
    )
    session = edgewise.InferenceSession(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11
        ).SerializeToString()
    )
    for given in (x[:, None], edgewise.Array((3, 1), dtype, data), [[v] for v in numbers]):
        (y,) = session.run(None, {"x": given})
        assert y.dtype == x.dtype and y.shape == (1, 3) and (y[0] == x).all()
    with pytest.raises(InputError, match="bytes for shape"):
        edgewise.Array((30,), dtype, data)


@pytest.mark.parametrize(
    "x",
    [
        np.broadcast_to(np.float32(1), (10**7, 10**6)),
        np.broadcast_to(np.float32(1), (10**7, 10**6)).T,
    ],
    ids=["broadcast", "transposed"],
)
def test_feeds_larger_than_memory(dense, x, refused):
    """Inputs of 40 TB that occupy no memory until they are copied: OutOfMemory with the input and
    its size instead of NumPy's MemoryError.
    """
    session, feeds = dense
    e = refused(lambda: session.run(None, {**feeds, "x": x}), OutOfMemory)
    assert e.where == "input 'x'" and "40000000000000 bytes" in e.what and "1000000" in e.what, (
        repr(e)
    )


def test_capacities_larger_than_memory(refused):
    e = refused(lambda: DecoderModel(str(Q4), capacity=1 << 24).open())
    assert "capacity" in str(e) and "damaged" not in str(e)


def test_a_cache_larger_than_memory(refused, monkeypatch):
    """The error text for any machine, tested with an engine without free memory."""
    lm = DecoderModel(str(Q4), capacity=64)
    taken = lm.open()

    def full(nbytes):
        raise OutOfMemory(f"{nbytes} bytes could not be allocated", "engine memory", "")

    with monkeypatch.context() as patched:
        patched.setattr(lm.engine, "alloc", full)
        e = refused(lm.open, OutOfMemory)
    assert "64 tokens" in e.what and "capacity" in e.remedy
    lm.close(taken)
    lm.free()
