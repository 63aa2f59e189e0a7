"""Processors of sound and pictures for a model's inputs (preprocessor_config.json)."""
