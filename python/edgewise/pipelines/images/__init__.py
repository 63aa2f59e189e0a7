"""Pipelines of pictures."""
