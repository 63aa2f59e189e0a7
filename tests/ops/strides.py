"""Inputs of ops with unusual strides."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper


def strided(x, name, kind, nodes, constants):
    """Adds a node whose output is x with unusual strides, and returns its input.

    kind: 0 transposes: the order of all axes is reversed, or the dimensions of 1 come from the
    front, if there are some; 1 takes the inside of a larger tensor; 2 reverses every axis.
    """
    if kind == 0:
        axes = list(range(x.ndim))
        order = sorted(axes, key=lambda i: x.shape[i] != 1) if 1 in x.shape else axes[::-1]
        perm = [order.index(i) for i in axes]
        nodes.append(helper.make_node("Transpose", [name + "_before"], [name], perm=perm))
        return np.ascontiguousarray(x.transpose(order))
    slices = (
        [[1] * x.ndim, [d + 1 for d in x.shape], list(range(x.ndim)), [1] * x.ndim]
        if kind == 1
        else [[-1] * x.ndim, [-(2**62)] * x.ndim, list(range(x.ndim)), [-1] * x.ndim]
    )
    names = [f"{name}_{k}" for k in range(4)]
    constants += [numpy_helper.from_array(np.array(v, np.int64), k) for v, k in zip(slices, names)]
    nodes.append(helper.make_node("Slice", [name + "_before", *names], [name]))
    if kind == 2:
        return np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim])
    around = np.ones(
        [d + 2 for d in x.shape], x.dtype
    )  # 1 is an index or a length that nothing fails at
    around[tuple(slice(1, d + 1) for d in x.shape)] = x
    return around
