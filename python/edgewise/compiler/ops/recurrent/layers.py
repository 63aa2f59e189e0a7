"""LSTM, GRU and RNN, and the forms of them that onnxruntime's training graphs contain.

Each is one product of all steps with W, and the operator Recurrent, which goes through the steps.
Recurrent's tensors are [steps, batch, directions, ...], so that ONNX's layouts 0 and 1 and the
transposes that exporters write around these operators are views. Gates are in ONNX's order: i o f
c; z r h. (Hochreiter and Schmidhuber 1997, with the peepholes of Gers; Cho et al. 2014; ONNX
operators LSTM-22, GRU-22, RNN-22.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...declare.dtypes import INT64
from ...declare.op import MS, Op
from .parts import recurrent_parts

if TYPE_CHECKING:
    from ...declare.annotations import Binder, BoundNode, Value


def _declare(name: str, gates: int, training: bool = False) -> Op:
    """Declares a layer. training: with the outputs that onnxruntime's gradients of it read."""
    learned = (1, 2, 3, 7) if name == "LSTM" else (1, 2, 3)  # W, R, bias, peepholes
    o = Op(name, MS if training else "", parameters=learned)
    states = 2 if gates == 4 else 1

    @o.decompose
    def op_decompose(node: BoundNode, graph: Binder) -> list[Value]:
        inputs, attrs = recurrent_parts(node, graph, gates)
        y, h, c, saved, cells = graph.op(
            "Recurrent", *inputs, domain="edgewise", outputs=5, **attrs
        )
        by_batch = node.attr("layout", 0)
        steps, state = ([1, 0, 2, 3], [1, 0, 2]) if by_batch else ([0, 2, 1, 3], [0, 1, 2])
        out = [graph.op("Transpose", y, perm=steps)]
        out += [graph.op("Transpose", v, perm=state) for v in (h, c)[:states]]
        if training and gates == 4:
            out += [graph.op("Transpose", v, perm=steps) for v in (cells, saved)]
        elif training:
            ends = (graph.constant(INT64, [1], [k]) for k in (0, 3 * h.shape[2], 3))
            out.append(graph.op("Transpose", graph.op("Slice", saved, *ends), perm=steps))
        return out

    return o


_declare("LSTM", 4)
_declare("GRU", 3)
_declare("RNN", 1)
_declare("LSTMTraining", 4, training=True)
_declare("GRUTraining", 3, training=True)
