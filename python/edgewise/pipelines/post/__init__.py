"""Public names of host/pipelines/post/__init__.py."""
