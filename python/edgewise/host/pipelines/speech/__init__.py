"""Pipelines of speech: recognition with CTC models and Moonshine, and synthesis."""
