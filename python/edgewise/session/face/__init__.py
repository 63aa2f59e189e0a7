"""Public names of host/session/face/__init__.py."""
