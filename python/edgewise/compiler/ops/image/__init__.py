"""Resizing, sampling on grids and pooling of regions."""
