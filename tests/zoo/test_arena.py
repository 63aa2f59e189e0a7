"""The arena of a plan: buffers with intersecting lifetimes never overlap, and its size is close to
the maximum of live bytes. (test_zoo.py has the arenas of the zoo's models.)
"""

import numpy as np
import onnx
import pytest
from edgewise.compiler.plan.memory import _best, least_bytes
from edgewise.compiler.targets import CPU
from edgewise.inspect import inspect
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

ALIGN = CPU.memory.arena_alignment
MAX = 1.10  # as a multiple of the lower bound


def graph(nodes, outputs, **inputs):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    return onnx.helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            infos,
            [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
    )


def hourglass():
    """An encoder that halves its width repeatedly, and a decoder that joins each width with the
    encoder's: many buffers have long lifetimes.
    """
    nodes, x, kept = [], "x", []
    for i in range(5):
        nodes += [
            helper.make_node("Erf", [x], [f"a{i}"]),
            helper.make_node("MaxPool", [f"a{i}"], [f"d{i}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        kept.append(f"a{i}")
        x = f"d{i}"
    for i in reversed(range(5)):
        nodes += [
            helper.make_node("Resize", [x, "", "scales"], [f"u{i}"], mode="nearest"),
            helper.make_node("Concat", [f"u{i}", kept[i]], [f"c{i}"], axis=1),
            helper.make_node("Tanh", [f"c{i}"], [f"t{i}"]),
        ]
        x = f"t{i}"
    made = graph(nodes, [x], x=[1, 2, 64, 96])
    made.graph.initializer.append(
        onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    )
    return made


def branches():
    """Buffers of different sizes that are computed early and read late, in the same and in the
    reverse order.
    """
    sizes, nodes = [70, 300, 20, 5000, 640, 90, 1100, 17], []
    nodes.append(helper.make_node("Split", ["x", "sizes"], [f"s{i}" for i in range(8)], axis=0))
    nodes += [helper.make_node("CumSum", [f"s{i}", "zero"], [f"a{i}"]) for i in range(8)]
    nodes += [
        helper.make_node("Concat", [f"a{i}", f"a{7 - i}"], [f"b{i}"], axis=0) for i in range(4)
    ]
    nodes += [helper.make_node("CumSum", [f"b{i}", "zero"], [f"y{i}"]) for i in range(4)]
    made = graph(nodes, [f"y{i}" for i in range(4)], x=[sum(sizes)])
    made.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.array(sizes, np.int64), "sizes"),
            onnx.numpy_helper.from_array(np.array(0, np.int64), "zero"),
        ]
    )
    return made


@pytest.mark.parametrize("make", [hourglass, branches])
def test_arena_of_graphs(make):
    data = make().SerializeToString()
    report = inspect(data, gradients=False)
    assert 0 < report.memory.arena_least <= report.memory.arena <= MAX * report.memory.arena_least
    assert "live at once" in str(report)


BLOCKS = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=60
)


@settings(max_examples=200)
@given(BLOCKS)
def test_live_buffers_do_not_overlap(found):
    blocks = [(None, size * ALIGN, first, first + life) for size, first, life in found]
    least = least_bytes(blocks, 43)
    total, offsets = _best(blocks, least)
    assert (
        least
        == max(
            sum(size for _, size, first, last in blocks if first <= t <= last) for t in range(43)
        )
        <= total
    )
    for i, (_, size, first, last) in enumerate(blocks):
        assert offsets[i] >= 0 and offsets[i] % ALIGN == 0 and offsets[i] + size <= total
        for j in range(i):
            _, other, f, l = blocks[j]
            assert (
                l < first
                or f > last
                or offsets[i] + size <= offsets[j]
                or offsets[j] + other <= offsets[i]
            )
