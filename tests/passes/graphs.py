"""Small graphs written as exporters write them, and what a pass makes of them.

g = Graph()
x = g.input(2, 5, 8)
g.output(g.Mul(x, g.Sigmoid(x)))
fused(g, [fuse_activations], SiLU=1)
"""

from __future__ import annotations

from collections import Counter
from unittest import mock

import edgewise
import numpy as np
import onnxruntime
from edgewise.compiler.passes import PASSES
from engines import open_engine
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"


class Graph:
    def __init__(self, opset=17, seed=0):
        self.opset, self.random = opset, np.random.default_rng(seed)
        self.nodes, self.constants, self.infos, self.feeds, self.outputs = [], [], [], {}, []

    def input(self, *shape, dtype=np.float32, value=None):
        name = f"input{len(self.feeds)}"
        x = self.random.standard_normal(shape).astype(dtype) if value is None else np.asarray(value)
        self.feeds[name] = x
        self.infos.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        )
        return name

    def constant(self, value):
        """A number (float32), a list of ints (int64) or an array."""
        x = (
            np.asarray(value, np.int64 if isinstance(value, list) else np.float32)
            if isinstance(value, (int, float, list))
            else np.asarray(value)
        )
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(x, name))
        return name

    def weight(self, *shape):
        return self.constant(self.random.standard_normal(shape).astype(np.float32) * 0.5)

    def __getattr__(self, op):
        """g.Add(a, 1.0): one node; numbers, lists and arrays become constants.

        Returns its output, or a list when outputs > 1.
        """
        if not op[0].isupper():
            raise AttributeError(op)

        def node(*inputs, outputs=1, domain="", **attrs):
            names = [
                "" if i is None else i if isinstance(i, str) else self.constant(i) for i in inputs
            ]
            outs = [f"{op}{len(self.nodes)}_{k}" for k in range(outputs)]
            self.nodes.append(
                helper.make_node(op, names, outs, domain=domain, name=outs[0], **attrs)
            )
            return outs[0] if outputs == 1 else outs

        return node

    def output(self, *names):
        self.outputs += names

    def model(self):
        outs = [helper.make_tensor_value_info(o, self.type_of(o), None) for o in self.outputs]
        graph = helper.make_graph(self.nodes, "graph", self.infos, outs, self.constants)
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)],
            ir_version=8 if self.opset < 21 else 10,
        ).SerializeToString()

    def type_of(self, name):
        return next(
            (
                TensorProto.BOOL
                for n in self.nodes
                if name in n.output and n.op_type in ("IsNaN", "Equal", "Less", "Greater")
            ),
            TensorProto.FLOAT,
        )

    # spellings that several tests share
    def mean(self, x, axis=-1, keepdims=1):
        return (
            self.ReduceMean(x, [axis], keepdims=keepdims)
            if self.opset >= 18
            else self.ReduceMean(x, axes=[axis], keepdims=keepdims)
        )

    def unsqueeze(self, x, axis):
        return self.Unsqueeze(x, [axis]) if self.opset >= 13 else self.Unsqueeze(x, axes=[axis])

    def slice(self, x, axis, start, end):
        return self.Slice(x, [start], [end], [axis])


def run(g, passes):
    """(Counter of the ops left, outputs) with these passes alone."""
    left = Counter()

    def only(bound, *chosen):
        for p in passes:
            p(bound)
        bound.prune()
        left.update(n.op if n.domain in ("", "edgewise") else f"ms.{n.op}" for n in bound.nodes)
        return bound

    session = edgewise.InferenceSession(g.model(), engine=open_engine("native"))
    try:
        with mock.patch("edgewise.compiler.plan.pipeline.optimize", only):
            return left, session.run(None, g.feeds)
    finally:
        session.free()


def expected(g):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(g.model(), options, ["CPUExecutionProvider"]).run(
        None, g.feeds
    )


def check(g, passes, tol=2e-5):
    """Outputs with these passes, and with all, are onnxruntime's; returns the ops left."""
    want = expected(g)
    left, got = run(g, passes)
    for some in (got, run(g, PASSES)[1], run(g, [])[1]):
        for a, b in zip(some, want, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=tol, atol=tol, err_msg=str(dict(left)))
    return left


def fused(g, passes, gone=(), **ops):
    """The graph contains each op the given number of times and none in `gone`, and the outputs are
    unchanged.
    """
    left = check(g, passes)
    assert {k: left[k] for k in ops} == ops, dict(left)
    assert not [o for o in gone if left[o]], dict(left)


def untouched(g, passes, *ops):
    """None of these ops comes up, and outputs are unchanged."""
    left = check(g, passes)
    assert not [o for o in ops if left[o]], dict(left)
