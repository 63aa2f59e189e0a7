"""Public names of extras/release/__init__.py."""
