"""LSTM, GRU and RNN over a length."""

from __future__ import annotations


def sequence(g):
    """[length, batch, c]: a value that is transposed."""
    x = g.pick(
        lambda v: (
            v.rank == 3
            and g.is_fixed(v.dims[2])
            and 0 < v.dims[2][0] <= 16
            and min(map(min, v.dims)) > 0
            and v.size < 20
        )
    )
    if not x:
        return None
    return g.node("Transpose", [x], [x.dims[i] for i in (1, 0, 2)], keep=False, perm=[1, 0, 2])


def recurrent(g):
    x = sequence(g)
    if not x or g.floats != "f4":
        return None
    op, gates = g.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    both = g.rng.random() < 0.4
    n, c, h = 1 + both, x.dims[2][0], g.rng.choice((3, 4))
    inputs = [x, g.weight(n, gates * h, c, scale=0.5), g.weight(n, gates * h, h, scale=0.5)]
    if g.rng.random() < 0.7:
        inputs.append(g.weight(n, 2 * gates * h, scale=0.3))
    if g.rng.random() < 0.25:  # a state of the batch: zeros that are expanded to it
        inputs += [None] * (5 - len(inputs))
        shape = g.shape_of((g.fixed(n), x.dims[1], g.fixed(h)))
        if shape is None:
            return None
        state = g.weight(n, 1, h)
        inputs.append(g.node("Expand", [state, shape], (g.fixed(n), x.dims[1], g.fixed(h))))
    how = {"direction": "bidirectional"} if both else {}
    if op == "GRU":
        how["linear_before_reset"] = g.rng.randint(0, 1)
    if op == "LSTM" and len(inputs) > 5:
        inputs.append(inputs[5])
    dims = [(x.dims[0], g.fixed(n), x.dims[1], g.fixed(h)), (g.fixed(n), x.dims[1], g.fixed(h))]
    y, last = g.many(op, inputs, dims, size=1.0, hidden_size=h, keep=False, **how)
    if g.rng.random() < 0.3:
        g.values.append(last)
    if both:
        y = g.node("Transpose", [y], [y.dims[i] for i in (2, 0, 1, 3)], perm=[2, 0, 1, 3])
        return g.node("Reshape", [y, (0, 0, -1)], (*y.dims[:2], g.fixed(n * h)))
    y = g.node("Squeeze", [y, (1,)], (y.dims[0], y.dims[2], y.dims[3]), keep=False)
    return g.node("Transpose", [y], [y.dims[i] for i in (1, 0, 2)], perm=[1, 0, 2])


FAMILIES = {"recurrent": (3, recurrent)}
