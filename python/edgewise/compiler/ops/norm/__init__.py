"""Normalizations over layers, groups, instances and batches."""
