"""What common subexpressions cost, and what they tell apart; what they find is in
test_products.py.
"""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
from edgewise.compiler.passes import common, common_subexpressions
from edgewise.session import InferenceSession

from .graphs import Graph, fused


def test_a_table_of_many_nodes_is_read_once(monkeypatch):
    """Forests look each table up once a level."""
    reads, runs, key = Counter(), [], common._key

    def counted(value):
        reads[value.name] += 1
        return key(value)

    def counted_pass(bound):
        runs.append(bound)
        common_subexpressions(bound)

    monkeypatch.setattr(common, "_key", counted)
    g = Graph()
    table, at = g.constant(np.arange(1, 40)), g.input(3, value=np.arange(3))
    for _ in range(12):
        at = g.Gather(table, at)
    g.output(g.Cast(at, to=1))
    fused(g, [counted_pass], Gather=12)
    assert runs and reads[table] < 12


def test_attributes_that_are_equal_but_not_the_same():
    """-1 times 0.0 is -0.0, and times -0.0 is 0.0."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] p, float[2] q) {
            a = LeakyRelu <alpha = 0.0> (x)
            b = LeakyRelu <alpha = -0.0> (x)
            p = Reciprocal (a)
            q = Reciprocal (b)
        }""")
    data, feeds = model.SerializeToString(), {"x": np.float32([-1, 2])}
    # Its optimizer takes the two nodes for one.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = onnxruntime.InferenceSession(data, options).run(None, feeds)
    assert [w[0] for w in want] == [-np.inf, np.inf]
    np.testing.assert_equal(InferenceSession(data).run(None, feeds), want)
