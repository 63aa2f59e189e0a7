"""Layout of buffers in the arena: random step lists are executed in the planned arena, elements in
the worst order that kernels may use, and compared with the same steps with separate buffers.
"""

import numpy as np
import pytest
from edgewise.compiler.declare import kernel
from edgewise.compiler.declare.dtypes import FLOAT, INT32, INT64
from edgewise.compiler.declare.symbolic import strides_of
from edgewise.compiler.plan.memory import plan_memory
from edgewise.compiler.plan.view import Storage, View
from edgewise.compiler.targets import CPU
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ALIGN = CPU.memory.arena_alignment
TYPES = {FLOAT: np.uint32, INT32: np.uint32, INT64: np.uint64}


class Kernel:
    """As declare.kernel.Kernel to plan_memory."""

    jumps = ""

    def __init__(self, name, *operands):
        self.name, self.operands, self.index = (
            name,
            operands,
            {o.name: i for i, o in enumerate(operands)},
        )


def read(name):
    return kernel.read(name, FLOAT, "1")


def write(name, *inplace):
    return kernel.write(name, FLOAT, "1", inplace=inplace)


COPY = Kernel("copy", read("x"), write("y"))
UNARY = Kernel("unary", read("x"), write("y", "x"))
BINARY = Kernel("binary", read("a"), read("b"), write("y", "a", "b"))
FIRST_ONLY = Kernel("first_only", read("a"), read("b"), write("y", "a"))
TWO_OUT = Kernel(
    "norm",
    read("x"),
    read("scale"),
    read("skip"),
    write("y", "x", "skip"),
    write("sum", "x", "skip"),
)
KERNELS = [COPY, UNARY, BINARY, BINARY, FIRST_ONLY, TWO_OUT]


class Step:
    def __init__(self, kernel, operands):
        self.kernel, self.operands = kernel, operands


def new(dtype, shape):
    n = int(np.prod(shape)) * TYPES[dtype]().itemsize
    return View(Storage("arena", n), 0, shape, strides_of(shape), dtype)


def seen(draw, v):
    """Some view of the same memory: whole, transposed, reversed, one row for all."""
    kind = draw(st.sampled_from(["whole", "whole", "whole", "transposed", "reversed", "row"]))
    if kind == "transposed" and v.shape[0] == v.shape[1]:
        return v.transpose([1, 0])
    if kind == "reversed":
        return v.slice(0, v.shape[0] - 1, v.shape[0], -1)
    if kind == "row":
        return v.slice(0, draw(st.integers(0, v.shape[0] - 1)), 1).broadcast(v.shape)
    return v


@st.composite
def programs(draw):
    shapes = [(4, 4), (2, 8), (4, 8)]
    steps, tensors = [], []
    for _ in range(draw(st.integers(2, 14))):
        kernel = draw(st.sampled_from(KERNELS))
        dtype, shape = (
            draw(st.sampled_from([FLOAT, FLOAT, FLOAT, INT32, INT64])),
            draw(st.sampled_from(shapes)),
        )
        fitting = [v for v in tensors if v.shape == list(shape)]
        if fitting and draw(st.booleans()):
            dtype = draw(st.sampled_from(fitting)).dtype
        operands = []
        for o in kernel.operands:
            same = [v for v in fitting if v.dtype == dtype or not o.output]
            if o.output:
                again = [
                    v
                    for v in fitting
                    if v.dtype == dtype
                    and not any(u is not None and u.buffer is v.buffer for u in operands)
                ]
                if kernel is COPY and again and draw(st.integers(0, 3)) == 0:
                    v = draw(
                        st.sampled_from(again)
                    )  # part of a tensor that is there already, as Concat and Pad write it
                    operands[0] = operands[0] if operands[0] is not None else None
                    operands.append(v)
                    continue
                v = new(dtype, list(shape))
                operands.append(v)
                tensors.append(v)
            elif same and draw(st.integers(0, 9)):
                operands.append(seen(draw, draw(st.sampled_from(same[-4:]))))
            else:
                operands.append(None)
        steps.append(Step(kernel, operands))
    # what the program's result depends on lives to the end
    for v in draw(st.lists(st.sampled_from(tensors), max_size=2)) if tensors else ():
        steps.append(Step(COPY, [v, new(v.dtype, v.shape)]))
    return steps


def memory(v, bytes_of):
    """The elements of a view, as an array that writes through."""
    data, at = bytes_of(v.buffer)
    size = TYPES[v.dtype]().itemsize
    return np.ndarray(
        v.shape,
        TYPES[v.dtype],
        buffer=data,
        offset=at + v.offset * size,
        strides=[s * size for s in v.strides],
    )


def execute(steps, bytes_of, worst):
    """Yields what each step reads and leaves. worst: outputs are spoilt before anything is read,
    unless they are an input in place; then element by element.
    """
    for i, step in enumerate(steps):
        inputs = [
            (o, memory(v, bytes_of))
            for o, v in zip(step.kernel.operands, step.operands)
            if v is not None and not o.output
        ]
        outputs = [
            (o, memory(v, bytes_of))
            for o, v in zip(step.kernel.operands, step.operands)
            if v is not None and o.output
        ]
        if worst:
            for o, y in outputs:
                if not any(
                    k.name in o.inplace
                    and x.__array_interface__["data"] == y.__array_interface__["data"]
                    and x.strides == y.strides
                    and x.dtype == y.dtype
                    for k, x in inputs
                ):
                    y[...] = 0xDEAD
        for place in np.ndindex(outputs[0][1].shape):
            value = (i + 1) * 7919 + sum(
                int(x[place]) * (31 + 2 * k) for k, (_, x) in enumerate(inputs)
            )
            for k, (_, y) in enumerate(outputs):
                y[place] = (value * (k + 3) + place[0] * 13 + place[1]) & 0xFFFFFFFF
        yield [y.copy() for _, y in outputs]


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(programs())
def test_same_as_memory_of_its_own(steps):
    own = {}
    expected = list(
        execute(steps, lambda b: own.setdefault(id(b), (bytearray(b.nbytes), 0)), False)
    )
    total, least = plan_memory(steps)
    assert least <= total
    arena = bytearray(total)
    for buffer in {
        id(v.buffer): v.buffer for s in steps for v in s.operands if v is not None
    }.values():
        assert buffer.offset % ALIGN == 0 and buffer.offset + buffer.nbytes <= total
    for i, (e, g) in enumerate(
        zip(expected, execute(steps, lambda b: (arena, b.offset), True), strict=True)
    ):
        for a, b in zip(e, g):
            assert np.array_equal(a, b), (
                f"step {i} ({steps[i].kernel.name}) computes something else in the arena"
            )


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(programs())
def test_no_two_live_buffers_overlap(steps):
    plan_memory(steps)
    life = {}
    for i, s in enumerate(steps):
        for v in s.operands:
            if v is not None:
                first, _, buffer = life.get(id(v.buffer), (i, i, v.buffer))
                life[id(v.buffer)] = first, i, buffer
    spans = list(life.values())
    for n, (f, l, a) in enumerate(spans):
        for g, m, b in spans[:n]:
            if (
                a.offset < b.offset + b.nbytes
                and b.offset < a.offset + a.nbytes
                and f <= m
                and g <= l
            ):
                # only where one takes over the other's memory in the step that ends the one and
                # begins the other
                (end, old), (start, young) = (
                    ((l, a), (g, b)) if g >= f and l == g else ((m, b), (f, a))
                )
                assert end == start and old.offset == young.offset and old.nbytes == young.nbytes, (
                    f,
                    l,
                    g,
                    m,
                )
                step = steps[end]
                named = {
                    o.name: v for o, v in zip(step.kernel.operands, step.operands) if v is not None
                }
                o = next(
                    o
                    for o, v in zip(step.kernel.operands, step.operands)
                    if o.output and v.buffer is young
                )
                assert any(k in o.inplace and v.buffer is old for k, v in named.items())


def live_most(steps):
    """Bytes that live at once at the worst step, in-place not counted: no plan without in-place
    needs less.
    """
    life = {}
    for i, s in enumerate(steps):
        for v in s.operands:
            if v is not None:
                life[id(v.buffer)] = (
                    life.get(id(v.buffer), (i,))[0],
                    i,
                    -(-v.buffer.nbytes // ALIGN) * ALIGN,
                )
    return max(sum(n for f, l, n in life.values() if f <= i <= l) for i in range(len(steps)))


def layers(count, width):
    """Steps shaped like a transformer's: residual stream, wide middles, norms with two outputs."""
    x, steps = new(FLOAT, [16, width]), []
    steps.append(Step(COPY, [None, x]))
    for _ in range(count):
        h, total = new(FLOAT, [16, width]), new(FLOAT, [16, width])
        steps.append(Step(TWO_OUT, [x, None, None, h, total]))
        wide = new(FLOAT, [16, 4 * width])
        steps.append(Step(COPY, [h, wide]))
        gate = new(FLOAT, [16, 4 * width])
        steps.append(Step(UNARY, [wide, gate]))
        down = new(FLOAT, [16, width])
        steps.append(Step(COPY, [gate, down]))
        x = new(FLOAT, [16, width])
        steps.append(Step(BINARY, [total, down, x]))
    return steps


@pytest.mark.parametrize("count", [1, 4, 24])
def test_little_is_wasted(count, capsys):
    steps = layers(count, 64)
    bound = live_most(steps)
    total, least = plan_memory(steps)
    with capsys.disabled():
        print(
            f"\narena of {count} layers: {total} bytes, at most {bound} live at once"
            f" ({total / bound:.2f})"
        )
    assert least <= total <= bound
