"""Public names of compiler/processors/__init__.py."""
