"""Operators on inputs whose strides a Reshape, Transpose or Gather has made, as in whole models."""

import numpy as np
import pytest

from .graphs import Graph, check


def test_a_row_between_others():
    """A row whose elements are not adjacent, times weights that are read by columns."""
    g = Graph(17)
    x = g.Transpose(g.input(1, 300, 5), perm=[2, 0, 1])
    g.output(g.Gemm(g.Gather(x, g.constant(np.array(3)), axis=0), g.weight(40, 300), transB=1))
    check(g, [], 1e-4)


def test_gather_behind_a_dimension_of_one():
    """The dimension of 1 that a Reshape makes has any stride: rows of all others are read."""
    g = Graph(17)
    x = g.Reshape(g.input(2, 10, 1), [-1, 1, 10])
    g.output(g.Pad(x, [0, 0, 3, 0, 0, 3], mode="reflect"))
    check(g, [], 0)


@pytest.mark.parametrize("how", ["Transpose", "Unsqueeze"])
def test_matrices_of_one_row(how):
    """A view's dimension of 1 has any stride: no distance to the next matrix follows from it."""
    g = Graph(17)
    if how == "Transpose":
        x = g.Transpose(g.input(1, 4, 3), perm=[1, 0, 2])
    else:
        x = g.Unsqueeze(g.input(4, 3), [1])
    g.output(g.Trilu(x))
    check(g, [], 0)
