"""Reductions along axes: sums, extremes, softmax, cumulative sums, top k."""
