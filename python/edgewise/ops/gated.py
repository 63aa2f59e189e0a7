"""Gradients of gated activations, activation(a) * b, in one step: what transformers spend most of their elementwise time on in training. And of those activations alone."""
from __future__ import annotations

from .dtypes import FLOAT
from .kernel import Kernel, read, write
from .matmul import ACTIVATION
from .op import OPS, Op, product
from .unary import slope

Kernel("gated_grad", {"n": "i32", "activation": "i32", "alpha": "f32"},
       [read("dy", 4, "n"), read("a", 4, "n"), read("b", 4, "n", optional=True), write("da", 4, "n", inplace=["dy", "a", "b"]), write("db", 4, "n", optional=True, inplace=["dy", "a", "b"]),
        write("y", 4, "n", optional=True, inplace=["dy", "a", "b"])],
       require=["activation in (2, 3, 7)"], empty=["n"], variants={"activation": "ACTIVATION"},
       doc="Of y = f(a) b: da = dy b f'(a), db = dy f(a), and y itself. f is gelu, gelu_tanh, or quick_gelu: a sigmoid(alpha a). Without b it is 1.")

GATED = {"SiLUMul": "quick_gelu", "GeluMul": "gelu", "GeluTanhMul": "gelu_tanh"}  # op: its activation

# (dy, a, b): the gradients of a and b, and what the op `of` gave, which recomputing may ask for
gated_grad = Op("GatedGrad", "edgewise")


@gated_grad.infer
def _(n):
    return [(FLOAT, n.inputs[0].shape)] * 3


@gated_grad.lower
def _(n, b):
    dy, x, gate = (b.contiguous(b.view(v)) for v in n.inputs)
    b.emit("gated_grad", {"dy": dy, "a": x, "b": gate, "da": b.out(n.outputs[0]), "db": b.out(n.outputs[1]), "y": b.out(n.outputs[2]) if n.wants(2) else None},
           n=product(dy.shape), activation=ACTIVATION[GATED[n.attrs["of"]]], alpha=1.0)


def _rule(name, activation):
    def rule(n, g, dy):
        """What reaches b is activation(a) * dy, the same op again."""
        a, b = n.inputs
        if g.wants(0) and g.wants(1) and dy.dtype == FLOAT and list(a.shape) == list(b.shape):
            return g.op("GatedGrad", dy, a, b, domain="edgewise", outputs=3, of=name)[:2]
        return [slope(g, g.mul(dy, b), a, activation) if g.wants(0) else None, g.op(name, a, dy, domain="edgewise") if g.wants(1) else None]
    return rule


for _name, _activation in GATED.items():
    OPS["edgewise", _name].grad(_rule(_name, _activation))
