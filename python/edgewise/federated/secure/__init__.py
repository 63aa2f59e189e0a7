"""Public names of extras/federated/secure/__init__.py."""

from ...extras.federated.secure import VERSION

__all__ = ["VERSION"]
