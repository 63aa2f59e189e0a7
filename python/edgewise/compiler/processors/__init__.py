"""Processors: what happens to sound and pictures before a model (preprocessor_config.json)."""
