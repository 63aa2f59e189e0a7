"""Public names of extras/federated/__init__.py."""
