"""Passes over bound graphs: each takes a BoundGraph and improves it, meaning the same."""
from __future__ import annotations

PASSES = []


def optimize(bound, passes=None):
    """Runs all passes in order; returns the graph."""
    for p in PASSES if passes is None else passes:
        p(bound)
        bound.prune()
    return bound
