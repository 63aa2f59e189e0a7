"""Tasks of pipelines."""
