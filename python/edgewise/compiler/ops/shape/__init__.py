"""Ops that move elements or describe shapes: transposes, slices, gathers, concatenation."""
