"""What common subexpressions cost; what they find is in test_products.py."""

from collections import Counter

import numpy as np
from edgewise.passes import common, common_subexpressions

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
