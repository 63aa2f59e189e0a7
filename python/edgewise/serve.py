"""Public names of extras/serve/__init__.py."""
